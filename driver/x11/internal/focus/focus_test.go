package focus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// rig is a server, a connection that watches the focus, and one with windows to give it to.
type rig struct {
	*Focus
	server *xvfb.Server
	other  *display.Conn
}

func newRig(t *testing.T) rig {
	t.Helper()
	server := xvfb.ForTest(t, 320, 200)
	var conns [2]*display.Conn
	for i := range conns {
		conn, err := display.Open(server.Display())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conns[i] = conn
	}
	f, err := Open(conns[0])
	if err != nil {
		t.Fatal(err)
	}
	return rig{f, server, conns[1]}
}

// window shows a window of 50 by 50 pixels in another one.
func (r rig) window(t *testing.T, parent xproto.Window, x int16) xproto.Window {
	t.Helper()
	id, err := xproto.NewWindowId(r.other.X)
	if err != nil {
		t.Fatal(err)
	}
	xproto.CreateWindow(r.other.X, 0, id, parent, x, 0, 50, 50, 0, xproto.WindowClassInputOutput, 0, 0, nil)
	xproto.MapWindow(r.other.X, id)
	return id
}

// give moves the focus, and the pointer to (10,10).
func (r rig) give(t *testing.T, to xproto.Window) {
	t.Helper()
	xproto.WarpPointer(r.other.X, 0, r.other.Screen.Root, 0, 0, 0, 0, 10, 10)
	xproto.SetInputFocus(r.other.X, xproto.InputFocusNone, to, xproto.TimeCurrentTime)
	if err := r.other.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestWindow(t *testing.T) {
	r := newRig(t)
	root := r.other.Screen.Root
	for _, nowhere := range []xproto.Window{xproto.InputFocusNone, xproto.InputFocusPointerRoot, root} {
		r.give(t, nowhere)
		if w, err := r.Window(); !errors.Is(err, ErrNone) {
			t.Errorf("focus %d: got %v, %v, want none", nowhere, w, err)
		}
	}
	a, b := r.window(t, root, 0), r.window(t, root, 100)
	inner := r.window(t, a, 0)
	var first Window
	for _, test := range []struct {
		name           string
		focus, id, top xproto.Window
		still          error // as after the first
	}{
		{"window", a, a, a, nil}, {"window in it", inner, inner, a, nil}, {"under the pointer", xproto.InputFocusPointerRoot, a, a, nil},
		{"root", root, a, a, nil}, {"another", b, b, b, ErrMoved},
	} {
		r.give(t, test.focus)
		w, err := r.Window()
		if want := (Window{test.focus, test.id, test.top}); err != nil || w != want {
			t.Errorf("%s: got %v, %v, want %v", test.name, w, err, want)
		}
		if first == (Window{}) {
			first = w
		}
		if err := r.Still(first); !errors.Is(err, test.still) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.still)
		}
	}
	data := []byte{byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
	xproto.ChangeProperty(r.other.X, xproto.PropModeReplace, root, r.managerCheck, xproto.AtomWindow, 32, 1, data)
	r.give(t, b)
	if w, err := r.Window(); !errors.Is(err, ErrNone) {
		t.Errorf("parked by the window manager: got %v, %v, want none", w, err)
	}
	xproto.DestroyWindow(r.other.X, a)
	r.give(t, xproto.InputFocusPointerRoot)
	if err := r.Still(first); !errors.Is(err, ErrNone) {
		t.Errorf("after it has gone: got %v, want none", err)
	}
}

func TestReader(t *testing.T) {
	r := newRig(t)
	frame := r.window(t, r.other.Screen.Root, 0)
	inner := r.window(t, frame, 0)
	for focus, want := range map[xproto.Window]xproto.Window{
		frame: frame, xproto.InputFocusPointerRoot: inner, r.other.Screen.Root: inner,
	} {
		r.give(t, focus)
		w, err := r.Window()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Reader(w); got != want || err != nil {
			t.Errorf("focus %d: got %d, %v, want %d", focus, got, err, want)
		}
	}
}

func TestCaught(t *testing.T) {
	r := newRig(t)
	window := witness.ForTest(t, r.server.Display())
	ask := func(patience time.Duration) (bool, error) {
		t.Helper()
		w, err := r.Window()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return r.Caught(ctx, w)
	}
	if answered, err := ask(time.Minute); answered || err != nil {
		t.Errorf("got %v, %v from a window that answers no pings", answered, err)
	}
	if err := window.AnswerPings(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if answered, err := ask(time.Minute); !answered || err != nil {
			t.Errorf("got %v, %v, want an answer", answered, err)
		}
	}
	if answered, err := r.Caught(t.Context(), Window{}); answered || err != nil {
		t.Errorf("got %v, %v from no window", answered, err)
	}
	// A window that says so and whose program is stuck.
	stuck := r.window(t, r.other.Screen.Root, 0)
	data := []byte{byte(r.ping), byte(r.ping >> 8), byte(r.ping >> 16), byte(r.ping >> 24)}
	xproto.ChangeProperty(r.other.X, xproto.PropModeReplace, stuck, r.protocols, xproto.AtomAtom, 32, 1, data)
	r.give(t, r.window(t, stuck, 0))
	if answered, err := ask(50 * time.Millisecond); answered || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, %v, want the deadline exceeded", answered, err)
	}
	// It selected what it needed for no longer than that.
	attributes, err := xproto.GetWindowAttributes(r.conn.X, r.conn.Screen.Root).Reply()
	if err != nil || attributes.YourEventMask != 0 {
		t.Errorf("got event mask %#x, %v, want none", attributes.YourEventMask, err)
	}
}
