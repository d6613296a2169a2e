package x11_test

import (
	"image"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver/drivertest"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// eachSink runs a test over both sinks.
func eachSink(t *testing.T, test func(t *testing.T, sink x11.Sink)) {
	for _, sink := range []x11.Sink{x11.SinkRobotgo, x11.SinkXTEST} {
		t.Run(string(sink), func(t *testing.T) { test(t, sink) })
	}
}

// open opens a driver and closes it when the test ends. Where robotgo cannot be had the test is skipped.
func open(t *testing.T, opts x11.Options) *x11.Driver {
	t.Helper()
	d, err := x11.Open(t.Context(), &opts)
	if err != nil && opts.Sink == x11.SinkRobotgo && !cgo {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// desktop is a server, a window on it and a driver.
type desktop struct {
	*x11.Driver
	server *xvfb.Server
	window *witness.Window
}

func newDesktop(t *testing.T, opts x11.Options) desktop {
	t.Helper()
	server := xvfb.ForTest(t, 640, 480)
	opts.Display = server.Display()
	window := witness.ForTest(t, server.Display())
	return desktop{open(t, opts), server, window}
}

// events returns what the window got since the last call, without motion.
func (d desktop) events(t *testing.T) []witness.Event {
	t.Helper()
	all, err := d.window.Events()
	if err != nil {
		t.Fatal(err)
	}
	var presses []witness.Event
	for _, e := range all {
		if e.Kind != witness.Motion {
			presses = append(presses, e)
		}
	}
	return presses
}

// typed returns the text that the events gave, by the window's reckoning.
func (d desktop) typed(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, e := range d.events(t) {
		if e.Kind == witness.KeyDown && e.Text != 0 {
			text.WriteRune(e.Text)
		}
	}
	return text.String()
}

// free checks that nothing is down.
func (d desktop) free(t *testing.T) {
	t.Helper()
	if held, err := d.window.Held(); err != nil || len(held) > 0 {
		t.Errorf("held %v, %v, want nothing", held, err)
	}
}

func TestContract(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		drivertest.Run(t, func(t *testing.T) drivertest.Rig {
			d := newDesktop(t, x11.Options{Sink: sink, WaitTime: time.Millisecond})
			if got := d.Sink(); got != sink {
				t.Errorf("got sink %q, want %q", got, sink)
			}
			return drivertest.Rig{
				Driver: d,
				Screen: image.Rect(0, 0, 640, 480),
				Events: func() (words []string) {
					for _, e := range d.events(t) {
						words = append(words, e.String())
					}
					return words
				},
				Held: func() []string {
					held, err := d.window.Held()
					if err != nil {
						t.Error(err)
					}
					return held
				},
				Pointer: func() image.Point {
					p, err := d.window.Pointer()
					if err != nil {
						t.Error(err)
					}
					return p
				},
			}
		})
	})
}

// long skips what -short leaves out: what takes long, and longer with the race detector.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long")
	}
}
