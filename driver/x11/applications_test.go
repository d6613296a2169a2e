package x11_test

import (
	"image"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
)

// room is a desktop with an application and a driver.
type room struct {
	*x11.Driver
	desktop *apptest.Desktop
	field   *apptest.Field
}

func newRoom(t *testing.T, kind apptest.Kind, sink x11.Sink) room {
	t.Helper()
	desktop := apptest.NewDesktop(t)
	field := desktop.Open(t, kind)
	return room{open(t, x11.Options{Display: desktop.Display(), Sink: sink}), desktop, field}
}

// glance is how often an application is asked for a number: a page that is asked all the time does not get to paint.
const glance = 20 * time.Millisecond

// TestM7 is row M7 of the field cases, in a browser: 100 clicks on targets of 20 pixels hit each of them once.
func TestM7(t *testing.T) {
	long(t)
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		r := newRoom(t, apptest.Chromium, sink)
		var targets []image.Point
		r.field.Ask(t, "targets", &targets)
		if len(targets) != 100 {
			t.Fatalf("got %d targets, want 100", len(targets))
		}
		for _, at := range targets {
			if err := r.Click(t.Context(), driver.Click{X: at.X, Y: at.Y, Button: driver.ButtonLeft}); err != nil {
				t.Fatal(err)
			}
		}
		missed := func(clicks int) bool { return clicks != 1 }
		var clicks []int
		for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(glance) {
			r.field.Ask(t, "clicks", &clicks)
			if !slices.ContainsFunc(clicks, missed) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("got %v clicks, want one on each", clicks)
			}
		}
	})
}

// TestS1Chromium is row S1 of the field cases, in a browser: 400 pixels move a page by about 400, and
// nothing of a long way is lost, be it there or back.
func TestS1Chromium(t *testing.T) {
	r := newRoom(t, apptest.Chromium, x11.SinkAuto)
	for _, step := range []struct{ distance, want int }{{400, 400}, {3000, 3400}, {-3400, 0}} {
		if err := r.Scroll(t.Context(), driver.Scroll{X: 800, Y: 500, ScrollY: step.distance}); err != nil {
			t.Fatal(err)
		}
		const about = 120 // pixels, a notch of this browser
		var got int
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(glance) {
			last := got
			r.field.Ask(t, "scrolled", &got)
			if off := got - step.want; got == last && -about < off && off < about {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after %d pixels the page is at %d, want about %d", step.distance, got, step.want)
			}
		}
	}
}

// TestClickAfterText checks that a window manager, which looks at each new keyboard map, is not kept busy by text: what
// comes next arrives at once. The best of some rounds counts, as the machine may have other things to do.
func TestClickAfterText(t *testing.T) {
	const limit, rounds = 300 * time.Millisecond, 4
	r := newRoom(t, apptest.Chromium, x11.SinkAuto)
	text := string([]rune(strings.Repeat("Съешь ещё этих мягких французских булок. 天地玄黄宇宙洪荒。", 2))[:100])
	var targets []image.Point
	r.field.Ask(t, "targets", &targets)
	var took []time.Duration
	for i := range rounds {
		if err := r.Type(t.Context(), driver.Type{Text: text}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := r.Click(t.Context(), driver.Click{X: targets[i].X, Y: targets[i].Y, Button: driver.ButtonLeft}); err != nil {
			t.Fatal(err)
		}
		var clicks []int
		for clicks == nil || clicks[i] == 0 {
			if r.field.Ask(t, "clicks", &clicks); time.Since(start) > 10*time.Second {
				t.Fatal("the click did not arrive")
			}
		}
		took = append(took, time.Since(start))
		if got := r.field.Take(t, text); got != text {
			t.Error(apptest.Difference(got, text))
		}
	}
	t.Logf("the click took %v", took)
	if least := slices.Min(took); least > limit {
		t.Errorf("the click took %v, want at most %v", least, limit)
	}
}

// BenchmarkGTKEntry types 1,000 characters that the keyboard lacks into a GTK entry, and reports how many times as long
// xdotool takes for the same, which is what is to be 8 at least.
func BenchmarkGTKEntry(b *testing.B) {
	const characters = 1000
	for _, text := range []struct{ name, sample string }{
		{"Cyrillic", "Съешь ещё этих мягких французских булок, да выпей чаю. "},
		{"CJK", "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜"},
	} {
		b.Run(text.name, func(b *testing.B) {
			desktop := apptest.NewDesktop(b)
			field := desktop.Open(b, apptest.GTKEntry)
			d, err := x11.Open(b.Context(), &x11.Options{Display: desktop.Display()})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			all := string([]rune(strings.Repeat(text.sample, characters))[:characters])
			for b.Loop() {
				// The entry has read all of it when this returns, or the map would not have been restored.
				if err := d.Type(b.Context(), driver.Type{Text: all}); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if difference := apptest.Difference(field.Take(b, all), all); difference != "" {
					b.Error(difference)
				}
				b.StartTimer()
			}
			ours := b.Elapsed() / time.Duration(b.N)
			xdotool, err := exec.LookPath("xdotool")
			if err != nil {
				return
			}
			cmd := exec.CommandContext(b.Context(), xdotool, "type", all)
			cmd.Env = []string{"DISPLAY=" + desktop.Display(), "LC_ALL=C.UTF-8"}
			start := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("xdotool: %v: %s", err, out)
			}
			b.ReportMetric(time.Since(start).Seconds()/ours.Seconds(), "times")
		})
	}
}
