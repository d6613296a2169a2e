//go:build linux && cgo

package robot

import (
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/go-vgo/robotgo"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

type rig struct {
	*Sink
	server *xvfb.Server
	window *witness.Window
	conn   *display.Conn
}

func newRig(t *testing.T) rig {
	t.Helper()
	server := xvfb.ForTest(t, 640, 480)
	window := witness.ForTest(t, server.Display())
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	sink, err := New(conn.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	return rig{sink.(*Sink), server, window, conn}
}

func (r rig) events(t *testing.T) string {
	t.Helper()
	if err := r.Sync(); err != nil {
		t.Error(err)
	}
	events, err := r.window.Events()
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, e := range events {
		words = append(words, e.String())
	}
	return strings.Join(words, ", ")
}

func (r rig) keys(t *testing.T) *keyboard.Map {
	t.Helper()
	x, err := xkb.Use(r.conn)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := keyboard.Read(x, nil)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestNames checks that robotgo presses, under each name that we give it, the key that is meant and no other.
func TestNames(t *testing.T) {
	r := newRig(t)
	keys := r.keys(t)
	symbols := []driver.Key{}
	for c := driver.Key(' '); c <= '~'; c++ {
		symbols = append(symbols, c)
	}
	for symbol := range keyNames {
		symbols = append(symbols, symbol)
	}
	named := 0
	for _, symbol := range symbols {
		if _, ok := keyName(symbol); !ok {
			continue
		}
		named++
		stroke, ok := keys.Stroke(symbol, 0, 0)
		if !ok || stroke.Mods != 0 {
			t.Errorf("%v: got %v, %v, want it on the keyboard without Shift", symbol, stroke, ok)
			continue
		}
		for _, down := range []bool{true, false} {
			r.do(func() error {
				if _, ok := nameOf(stroke.Code, symbol); !ok {
					t.Errorf("%v does not go through robotgo", symbol)
				}
				return nil
			})
			if err := r.Key(stroke.Code, symbol, down); err != nil {
				t.Errorf("%v: %v", symbol, err)
			}
		}
		if got, want := r.events(t), "key "+symbol.String()+" down, key "+symbol.String()+" up"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if want := 26 + 10 + 10 + len(keyNames); named < want {
		t.Errorf("%d keys go through robotgo, want %d", named, want)
	}
}

// TestOrder checks that events keep their order when robotgo and XTEST take turns.
func TestOrder(t *testing.T) {
	r := newRig(t)
	keys := r.keys(t)
	menu, _ := keys.Stroke(0xff67, 0, 0) // by XTEST
	a, _ := keys.Stroke('a', 0, 0)       // by robotgo
	var want []string
	for range 50 {
		for _, err := range []error{
			r.Key(menu.Code, menu.Symbol, true), r.Key(a.Code, a.Symbol, true), r.Button(8, true), r.Button(1, true),
			r.Button(8, false), r.Wheel(5, 1), r.Key(menu.Code, menu.Symbol, false), r.Button(1, false), r.Key(a.Code, a.Symbol, false),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		at := " " + image.Pt(320, 240).String()
		want = append(want, "key Menu down", "key a down", "button 8 down"+at, "button 1 down"+at, "button 8 up"+at,
			"button 5 down"+at, "button 5 up"+at, "key Menu up", "button 1 up"+at, "key a up")
	}
	if got, want := r.events(t), strings.Join(want, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestPointer asks for the pointer after motions that are on their way.
func TestPointer(t *testing.T) {
	r := newRig(t)
	for _, want := range []image.Point{{3, 4}, {639, 479}, {0, 0}} {
		r.Move(image.Pt(50, 60))
		r.Move(want)
		if got, err := r.Pointer(); err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}

// TestXError checks that an X error, with which robotgo would end the process, is an error of Go, on both ways into the
// server, and that it comes with the next Sync, once.
func TestXError(t *testing.T) {
	r := newRig(t)
	const noSuchKey = 1
	for name, send := range map[string]func() error{
		"robotgo": func() error { return r.do(func() error { return robotgo.KeyToggle("f13", "down") }) },
		"XTEST":   func() error { return r.Key(noSuchKey, 0, true) },
	} {
		if err := send(); err != nil {
			t.Error(err)
		}
		if err := r.Move(image.Pt(3, 4)); err != nil {
			t.Error(err)
		}
		if err := r.Sync(); err == nil || !strings.Contains(err.Error(), "BadValue") {
			t.Errorf("got %v from %s, want BadValue", err, name)
		}
		if got, want := r.events(t), "motion (3,4)"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := errors.Join(r.Move(image.Pt(1, 1)), r.Sync()); err != nil {
			t.Error(err)
		}
		r.events(t)
	}
}

// TestOwner checks that there is one sink at a time, and that the next one has a display of its own.
func TestOwner(t *testing.T) {
	t.Run("first", func(t *testing.T) {
		r := newRig(t)
		if _, err := New(r.conn.Name); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("got %v, want a second sink refused", err)
		}
	})
	next := newRig(t)
	if err := next.Move(image.Pt(5, 6)); err != nil {
		t.Error(err)
	}
	if got, want := next.events(t), "motion (5,6)"; got != want {
		t.Errorf("got %s on the next display, want %s", got, want)
	}
}

// TestWrongDisplay checks that robotgo's search for another display, when ours has gone, does not go unnoticed.
func TestWrongDisplay(t *testing.T) {
	other := xvfb.ForTest(t, 640, 480)
	t.Setenv("DISPLAY", other.Display())
	if sink, err := New(":12345"); !errors.Is(err, driver.ErrNoDisplay) {
		t.Errorf("got %v, %v, want no display", sink, err)
	}
	newRig(t) // Nothing of it is left in the way.
}

// TestLostWhileOpening checks that a server that goes away while Xlib is shaking hands with it is an error too.
func TestLostWhileOpening(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("DISPLAY", "") // Xlib goes on there, and to :0.0, where there may be a server.
	// The first bytes are the setup; Xlib asks for more afterwards.
	for _, size := range []int64{1, int64(len(conn.X.SetupBytes)), int64(len(conn.X.SetupBytes)) + 40} {
		if sink, err := New(cutOff(t, server, size)); !errors.Is(err, driver.ErrNoDisplay) {
			t.Errorf("cut off after %d bytes: got %v, %v, want no display", size, sink, err)
		}
	}
	newRig(t) // Nothing of it is left in the way.
}

// cutOff names a display that is the server's for so many bytes, and then gone.
func cutOff(t *testing.T, server *xvfb.Server, size int64) string {
	t.Helper()
	const port = 6000 // of display 0
	var listener net.Listener
	number := 100
	for ; listener == nil; number++ {
		listener, _ = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+number+1))
	}
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		x, err := net.Dial("unix", "/tmp/.X11-unix/X"+strings.TrimPrefix(server.Display(), ":"))
		if err != nil {
			return
		}
		defer x.Close()
		go io.Copy(x, client)
		io.CopyN(client, x, size)
	}()
	return fmt.Sprintf("127.0.0.1:%d", number)
}

// TestLost checks that the end of the server is an error on every later call, with no call into Xlib.
func TestLost(t *testing.T) {
	r := newRig(t)
	if err := errors.Join(r.Move(image.Pt(1, 1)), r.Sync()); err != nil {
		t.Fatal(err)
	}
	r.server.Kill()
	for _, call := range []struct {
		name string
		send func() error
	}{
		{"move", func() error { return r.Move(image.Pt(2, 2)) }},
		{"button", func() error { return r.Button(1, true) }},
		{"another button", func() error { return r.Button(8, true) }},
		{"wheel", func() error { return r.Wheel(4, 3) }},
		{"key", func() error { return r.Key(38, 'a', true) }},
		{"another key", func() error { return r.Key(135, 0xff67, true) }},
	} {
		if err := call.send(); err != nil {
			t.Errorf("%s: %v", call.name, err)
		}
		if err := r.Sync(); !errors.Is(err, driver.ErrDisplayLost) {
			t.Errorf("%s: got %v, want the display lost", call.name, err)
		}
	}
}
