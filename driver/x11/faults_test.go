package x11_test

import (
	"context"
	"errors"
	"fmt"
	"image"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestC7 is row C7 of the field cases: without a display there is one clean error.
func TestC7(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	t.Setenv("DISPLAY", server.Display()) // which must not be looked at
	t.Setenv("HOME", t.TempDir())         // without .Xauthority
	t.Setenv("XAUTHORITY", "")
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		for _, name := range []string{"", ":12345", "nonsense", "127.0.0.1:12345", server.Display() + ".7", ":", "/nowhere:0"} {
			d, err := x11.Open(t.Context(), &x11.Options{Display: name, Sink: sink})
			if d != nil || !errors.Is(err, driver.ErrNoDisplay) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("%q", name)) {
				t.Errorf("%q: got %v, %v, want no display, by name", name, d, err)
			}
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("%q: got %q, want one line", name, err)
			}
		}
		if d, err := x11.Open(t.Context(), nil); d != nil || !errors.Is(err, driver.ErrNoDisplay) {
			t.Errorf("no options: got %v, %v, want no display", d, err)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	for _, test := range []struct {
		name string
		opts x11.Options
		want string
	}{
		{"sink", x11.Options{Sink: "mouse"}, `unknown sink "mouse"`},
		{"capture", x11.Options{Capture: "camera"}, `unknown capture "camera"`},
		{"hold", x11.Options{Hold: -1}, "Hold is -1ns"},
		{"step", x11.Options{DragStep: -8}, "DragStep is -8"},
		{"contradiction", x11.Options{DoubleClickGap: time.Second}, "longer than DoubleClickTime 500ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.opts.Display = server.Display()
			if d, err := x11.Open(t.Context(), &test.opts); d != nil || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("got %v, %v, want %s", d, err, test.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := x11.Open(ctx, &x11.Options{Display: server.Display()}); d != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v, want it cancelled", d, err)
	}
}

// TestDepth checks that a screen whose pixels cannot be read right is refused by its depth.
func TestDepth(t *testing.T) {
	server := xvfb.StartForTest(t, &xvfb.Options{Width: 640, Height: 480, Depth: 8})
	d, err := x11.Open(t.Context(), &x11.Options{Display: server.Display()})
	if d != nil || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "depth 8:") {
		t.Errorf("got %v, %v, want it refused by its depth", d, err)
	}
}

// TestNoXTEST checks that a server without the extension is refused.
func TestNoXTEST(t *testing.T) {
	server := xvfb.StartForTest(t, &xvfb.Options{Width: 640, Height: 480, Args: []string{"-extension", "XTEST"}})
	d, err := x11.Open(t.Context(), &x11.Options{Display: server.Display()})
	if d != nil || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "XTEST") {
		t.Errorf("got %v, %v, want it refused for XTEST", d, err)
	}
}

// zigzag is a path that takes far longer than any test waits.
func zigzag() driver.Drag {
	a := driver.Drag{Path: make([]image.Point, 10_000), Keys: []string{"CTRL"}}
	for i := range a.Path {
		a.Path[i] = image.Pt(10+i%2*300, 10)
	}
	return a
}

// start begins a long drag and waits until the window has seen the press.
func (d desktop) start(t *testing.T) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- d.Drag(context.Background(), zigzag()) }()
	if err := d.window.WaitFor(witness.ButtonDown, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	return done
}

// TestServerKilled kills the server in the middle of an action: that is an error, soon, and nothing worse.
func TestServerKilled(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		done := d.start(t)
		d.server.Kill()
		killed := time.Now()
		if err := <-done; !errors.Is(err, driver.ErrDisplayLost) || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("got %v, want the display lost, in one line", err)
		}
		if took := time.Since(killed); took > time.Second {
			t.Errorf("took %v to notice, want at most 1s", took)
		}
		for _, a := range []driver.Action{driver.Move{X: 1, Y: 1}, driver.Type{Text: "a"}, driver.Screenshot{}} {
			if _, err := driver.Do(t.Context(), d, a); !errors.Is(err, driver.ErrDisplayLost) {
				t.Errorf("%s: got %v, want the display lost", a.Kind(), err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		// The process and the sink live on.
		again := newDesktop(t, x11.Options{Sink: sink})
		if err := again.Keypress(t.Context(), driver.Keypress{Keys: []string{"a"}}); err != nil {
			t.Error(err)
		}
		if got := again.typed(t); got != "a" {
			t.Errorf("got %q on the next display, want a", got)
		}
	})
}

// TestTwoDrivers checks that robotgo, which has one display per process, is had by one driver at a time, and that
// the next one takes the other sink when it may.
func TestTwoDrivers(t *testing.T) {
	if !cgo {
		t.Skip("this build has no robotgo")
	}
	first := newDesktop(t, x11.Options{})
	second := newDesktop(t, x11.Options{})
	if first.Sink() != x11.SinkRobotgo || second.Sink() != x11.SinkXTEST {
		t.Errorf("got sinks %q and %q, want robotgo and xtest", first.Sink(), second.Sink())
	}
	third, err := x11.Open(t.Context(), &x11.Options{Display: second.server.Display(), Sink: x11.SinkRobotgo})
	if third != nil || !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v, %v, want a second robotgo refused", third, err)
	}
	for i, d := range []desktop{first, second} {
		key := string(rune('a' + i))
		if err := d.Keypress(t.Context(), driver.Keypress{Keys: []string{key}}); err != nil {
			t.Error(err)
		}
		if got := d.typed(t); got != key {
			t.Errorf("display %d got %q, want %q", i, got, key)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if next := newDesktop(t, x11.Options{}); next.Sink() != x11.SinkRobotgo {
		t.Errorf("got sink %q after the first was closed, want robotgo", next.Sink())
	}
}

// TestCloseWhileBusy closes a driver in the middle of an action, with others waiting: all come back, and nothing
// stays down.
func TestCloseWhileBusy(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		done := d.start(t)
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				if err := d.Move(context.Background(), driver.Move{X: 1, Y: 1}); !errors.Is(err, x11.ErrClosed) {
					t.Errorf("waiting: got %v, want it closed", err)
				}
			})
		}
		start := time.Now()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, x11.ErrClosed) {
			t.Errorf("got %v, want it closed", err)
		}
		waiting.Wait()
		d.free(t)
		if err := d.Wait(t.Context(), driver.Wait{}); !errors.Is(err, x11.ErrClosed) {
			t.Errorf("afterwards: got %v, want it closed", err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
	})
}

// TestCancel is row M11 of the field cases for the other actions that take time: nothing stays down.
func TestCancel(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink, Hold: time.Minute, DoubleClickTime: time.Hour, WaitTime: time.Minute})
		for _, a := range []driver.Action{
			driver.Click{X: 1, Y: 1, Button: driver.ButtonForward, Keys: []string{"ALT"}}, driver.DoubleClick{X: 1, Y: 1},
			zigzag(), driver.Keypress{Keys: []string{"CTRL", "SHIFT", "A"}}, driver.Wait{}, driver.Type{Text: strings.Repeat("aB", 500_000)},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			start := time.Now()
			_, err := driver.Do(ctx, d, a)
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
				t.Errorf("%s: got %v after %v, want the deadline exceeded, soon", a.Kind(), err, took)
			}
			cancel()
			d.free(t)
		}
	})
}

// TestNothingLeft opens and closes many drivers: no goroutine stays behind.
func TestNothingLeft(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		before := runtime.NumGoroutine()
		for range 10 {
			d := open(t, x11.Options{Display: server.Display(), Sink: sink})
			if err := d.Move(t.Context(), driver.Move{X: 1, Y: 1}); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		// The last goroutines of a connection end just after it is closed.
		deadline := time.Now().Add(2 * time.Second)
		for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		if got := runtime.NumGoroutine(); got > before {
			t.Errorf("%d goroutines, want the %d from before", got, before)
		}
	})
}

// TestResize checks that points are held against the screen as it is, and that pictures show it.
func TestResize(t *testing.T) {
	program, err := exec.LookPath("xrandr")
	if err != nil {
		t.Skip("needs xrandr")
	}
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		corner := driver.Move{X: 639, Y: 479}
		if err := d.Move(t.Context(), corner); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{
			"--newmode small 10 320 330 340 350 240 250 260 270", "--addmode screen small", "--output screen --mode small",
		} {
			args := append([]string{"-display", d.server.Display()}, strings.Fields(args)...)
			if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
				t.Fatalf("xrandr %q: %v: %s", args, err, out)
			}
		}
		if err := d.Move(t.Context(), corner); !errors.Is(err, driver.ErrOutOfBounds) || !strings.Contains(err.Error(), "320x240") {
			t.Errorf("got %v for %v, want it refused with the new size", err, corner)
		}
		want := image.Rect(0, 0, 320, 240)
		if got, err := d.Bounds(t.Context()); err != nil || got != want {
			t.Errorf("got bounds %v, %v, want %v", got, err, want)
		}
		frame, err := d.Screenshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := frame.Image.Rect; got != want {
			t.Errorf("got a picture of %v, want %v", got, want)
		}
	})
}

// TestServerStartsAnew connects to a server that starts anew whenever its last client has gone, which most do.
func TestServerStartsAnew(t *testing.T) {
	server := xvfb.ForTest(t, 320, 200, "-reset")
	for range 20 {
		d, err := x11.Open(t.Context(), &x11.Options{Display: server.Display()})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Move(t.Context(), driver.Move{X: 1, Y: 1}); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDryRun writes what would be sent, and sends nothing.
func TestDryRun(t *testing.T) {
	server := xvfb.ForTest(t, 320, 200)
	window := witness.ForTest(t, server.Display())
	var lines strings.Builder
	d, err := x11.Open(t.Context(), &x11.Options{Display: server.Display(), DryRun: &lines})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, a := range []driver.Action{
		driver.DoubleClick{X: 5, Y: 6}, driver.Scroll{X: 5, Y: 6, ScrollY: 240}, driver.Keypress{Keys: []string{"CTRL", "C"}}, driver.Type{Text: "é"}, driver.Wait{},
	} {
		if _, err := driver.Do(t.Context(), d, a); err != nil {
			t.Errorf("%T: %v", a, err)
		}
	}
	want := `pointer to (5,6)
button 1 down
button 1 up
button 1 down
button 1 up
pointer to (5,6)
button 5 down and up, 2 times
key Control_L down (keycode 37)
key c down (keycode 54)
key c up (keycode 54)
key Control_L up (keycode 37)
keycode 8 stands for [é é é é]
key é down (keycode 8)
key é up (keycode 8)
`
	if got := lines.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if events, err := window.Events(); err != nil || len(events) > 0 {
		t.Errorf("the window got %v, %v", events, err)
	}
}
