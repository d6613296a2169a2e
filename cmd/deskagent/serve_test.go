package main

import (
	"context"
	"image"
	"image/draw"
	_ "image/png"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/encode"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// BenchmarkServe compares a driver with the same one through a child process that serves it, in turns: the medians, and
// what lies between them.
//
//	go test ./cmd/deskagent -run '^$' -bench Serve -benchtime 100x
func BenchmarkServe(b *testing.B) {
	server := xvfb.ForTest(b, 1280, 800)
	window := witness.ForTest(b, server.Display())
	local, err := x11.Open(b.Context(), &x11.Options{Display: server.Display()})
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close()
	far, err := remote.Start(b.Context(), []string{"deskagent", "serve", "--display", server.Display(), "--approve", "allow", "--allow-host"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()

	compare := func(b *testing.B, before func(), here, there func(context.Context) error) {
		var times [2][]time.Duration
		for b.Loop() {
			for i, do := range []func(context.Context) error{here, there} {
				before()
				start := time.Now()
				if err := do(b.Context()); err != nil {
					b.Fatal(err)
				}
				times[i] = append(times[i], time.Since(start))
			}
		}
		var p50 [2]float64
		for i, t := range times {
			slices.Sort(t)
			p50[i] = float64(t[len(t)/2]) / float64(time.Millisecond)
		}
		b.ReportMetric(p50[0], "ms-here")
		b.ReportMetric(p50[1], "ms-there")
		b.ReportMetric(p50[1]-p50[0], "ms-more")
		b.ReportMetric(p50[1]/p50[0], "ratio")
	}
	b.Run("click", func(b *testing.B) {
		click := driver.Click{X: 640, Y: 400, Button: driver.ButtonLeft}
		compare(b, func() {}, func(ctx context.Context) error { return local.Click(ctx, click) }, func(ctx context.Context) error { return far.Click(ctx, click) })
	})
	b.Run("picture", func(b *testing.B) {
		encoder, err := encode.New(nil)
		if err != nil {
			b.Fatal(err)
		}
		desktop := busy(b, image.Rect(0, 0, 1280, 800))
		all := func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, s.Screen.Size(), nil }
		compare(b, func() {
			desktop.Pix[0]++ // lest it be the picture of before, which is not encoded again
			if err := window.Show(desktop); err != nil {
				b.Fatal(err)
			}
		}, func(ctx context.Context) error {
			frame, err := local.View(ctx, all)
			if err == nil {
				_, err = encoder.DataURL(frame.Image)
			}
			return err
		}, func(ctx context.Context) error {
			_, err := far.View(ctx, all)
			return err
		})
	})
}

// busy is a part of the picture of a busy desktop.
func busy(t testing.TB, r image.Rectangle) *image.RGBA {
	t.Helper()
	f, err := os.Open("../../testdata/desktop.png")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole, _, err := image.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	part := image.NewRGBA(r)
	draw.Draw(part, r, whole, r.Min, draw.Src)
	return part
}
