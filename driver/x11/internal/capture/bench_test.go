package capture

import (
	"fmt"
	"image"
	"testing"
	"time"
)

var benchSizes = []image.Point{{X: 1280, Y: 800}, {X: 1920, Y: 1080}, {X: 3840, Y: 2160}, {X: 5280, Y: 2560}}

// BenchmarkGrab is one frame by each Grabber, beside a plain copy of as many bytes.
func BenchmarkGrab(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dx%d", size.X, size.Y), func(b *testing.B) {
			server := start(b, size.X, size.Y, 24)
			newClient(b, server).noise(b)
			for _, name := range []string{"shared", "direct", "kbinani"} {
				b.Run(name, func(b *testing.B) {
					grabber := grabbers(b, server, name)[name]
					grab(b, grabber, image.Rectangle{}) // the memory is touched for the first time
					b.ReportAllocs()
					for b.Loop() {
						grab(b, grabber, image.Rectangle{})
					}
				})
			}
			b.Run("copy", func(b *testing.B) {
				from, to := noise(4*size.X*size.Y), make([]byte, 4*size.X*size.Y)
				for b.Loop() {
					copy(to, from)
				}
			})
		})
	}
}

// TestRatios holds Shared to what it is there for, at 1920x1080: at least 15 times as fast as kbinani/screenshot, and
// at most 3 times as long as a copy of the frame. The least of some times each is what a busy machine lets through.
func TestRatios(t *testing.T) {
	server := start(t, 1920, 1080, 24)
	newClient(t, server).noise(t)
	opened := grabbers(t, server, "shared", "kbinani")
	from, to := noise(4*1920*1080), make([]byte, 4*1920*1080)
	least := func(times int, f func()) time.Duration {
		took := time.Hour
		for range times {
			begin := time.Now()
			f()
			took = min(took, time.Since(begin))
		}
		return took
	}
	copied := least(50, func() { copy(to, from) })
	shared := least(50, func() { grab(t, opened["shared"], image.Rectangle{}) })
	kbinani := least(2, func() { grab(t, opened["kbinani"], image.Rectangle{}) })
	t.Logf("copy %v, shared %v, kbinani %v", copied, shared, kbinani)
	if shared > 3*copied || kbinani < 15*shared {
		t.Errorf("shared takes %v, want at most 3 times %v and at least 15 times less than %v", shared, copied, kbinani)
	}
}

// BenchmarkRGBA converts one frame of 1920x1080.
func BenchmarkRGBA(b *testing.B) {
	for f := range formats {
		format := Format(f)
		b.Run(format.String(), func(b *testing.B) {
			raw := Raw{Format: format, Bounds: image.Rect(0, 0, 1920, 1080), Stride: 1920 * format.Bytes()}
			raw.Pix = noise(raw.Stride * 1080)
			dst := image.NewRGBA(raw.Bounds)
			for b.Loop() {
				raw.RGBA(dst)
			}
		})
	}
}

// BenchmarkUniform looks all over one frame of 1920x1080.
func BenchmarkUniform(b *testing.B) {
	raw := Raw{Format: BGRX8888, Bounds: image.Rect(0, 0, 1920, 1080), Stride: 1920 * 4, Pix: make([]byte, 1920*1080*4)}
	for b.Loop() {
		if !raw.Uniform() {
			b.Fatal("black is not uniform")
		}
	}
}
