package x11_test

import (
	"image"
	"slices"
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
