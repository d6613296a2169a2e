package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// user is an X client of its own that presses keys and buttons and looks at the screen.
type user struct {
	t    *testing.T
	conn *xgb.Conn
	root xproto.Window
	at   image.Point // of the window
}

func newUser(t *testing.T, display string, at image.Point) *user {
	t.Helper()
	conn, err := xgb.NewConnDisplay(display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := xtest.Init(conn); err != nil {
		t.Fatal(err)
	}
	return &user{t, conn, xproto.Setup(conn).DefaultScreen(conn).Root, at}
}

func (u *user) fake(kind, detail byte, x, y int) {
	u.t.Helper()
	if err := xtest.FakeInputChecked(u.conn, kind, detail, 0, u.root, int16(x), int16(y), 0).Check(); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) click(button byte, x, y int) {
	u.t.Helper()
	u.fake(xproto.MotionNotify, 0, u.at.X+x, u.at.Y+y)
	u.fake(xproto.ButtonPress, button, 0, 0)
	u.fake(xproto.ButtonRelease, button, 0, 0)
}

// types types keys by their places on the keyboard that Xvfb starts with.
func (u *user) types(codes ...byte) {
	u.t.Helper()
	for _, code := range codes {
		u.fake(xproto.KeyPress, code, 0, 0)
		u.fake(xproto.KeyRelease, code, 0, 0)
	}
}

// look returns the pixels of a part of the window.
func (u *user) look(r image.Rectangle) string {
	u.t.Helper()
	r = r.Add(u.at)
	reply, err := xproto.GetImage(u.conn, xproto.ImageFormatZPixmap, xproto.Drawable(u.root), int16(r.Min.X), int16(r.Min.Y),
		uint16(r.Dx()), uint16(r.Dy()), ^uint32(0)).Reply()
	if err != nil {
		u.t.Fatal(err)
	}
	return string(reply.Data)
}

func open(t *testing.T, opts *app.Options) *app.App {
	t.Helper()
	a, err := app.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func sync(t *testing.T, a *app.App) {
	t.Helper()
	if err := a.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestTypeAndSave uses the window as a person would, without a window manager.
func TestTypeAndSave(t *testing.T) {
	server := xvfb.ForTest(t, 1280, 800)
	at := image.Pt(13, 31)
	record := filepath.Join(t.TempDir(), "record.json")
	if err := os.WriteFile(record, []byte("the one before"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a := open(t, &app.Options{Display: server.Display(), At: at, Seed: 7, Record: record, Events: &log})
	u := newUser(t, server.Display(), at)
	u.click(1, 300, 118) // the name
	u.types(38)          // a
	u.fake(xproto.KeyPress, 50, 0, 0)
	u.types(39, 10) // S and ! with Shift
	u.fake(xproto.KeyRelease, 50, 0, 0)
	u.click(9, 900, 490) // the forward pad
	u.click(1, 900, 30)  // save
	sync(t, a)

	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var got app.Record
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if want := (app.Record{Text: "aS!", ForwardPad: 9}); got != want {
		t.Errorf("got record %+v, want %+v", got, want)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(record), "*")); len(files) != 1 {
		t.Errorf("got files %v, want the record alone", files)
	}

	var shown []string
	for _, e := range a.Events() {
		if e.Kind != app.Motion && (e.X != 0 || e.Y != 0) {
			shown = append(shown, fmt.Sprintf("%s %d %#x %d,%d %#x %#x", e.Kind, e.Detail, e.State, e.X-at.X, e.Y-at.Y, e.Keysym, e.Plain))
		}
	}
	want := []string{
		"button_press 1 0x0 300,118 0x0 0x0", "button_release 1 0x100 300,118 0x0 0x0",
		"key_press 38 0x0 300,118 0x61 0x61", "key_release 38 0x0 300,118 0x61 0x61",
		"key_press 50 0x0 300,118 0xffe1 0xffe1",
		"key_press 39 0x1 300,118 0x53 0x73", "key_release 39 0x1 300,118 0x53 0x73",
		"key_press 10 0x1 300,118 0x21 0x31", "key_release 10 0x1 300,118 0x21 0x31",
		"key_release 50 0x1 300,118 0xffe1 0xffe1",
		"button_press 9 0x0 900,490 0x0 0x0", "button_release 9 0x0 900,490 0x0 0x0",
		"button_press 1 0x0 900,30 0x0 0x0", "button_release 1 0x100 900,30 0x0 0x0",
	}
	if got, want := strings.Join(shown, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("got events\n%s\nwant\n%s", got, want)
	}
	a.Close()
	if got, want := strings.Count(log.String(), "\n"), len(a.Events()); got != want {
		t.Errorf("got %d lines in the log, want %d", got, want)
	}
}

// TestUncovered puts a window over the application's and takes it away.
func TestUncovered(t *testing.T) {
	server := xvfb.ForTest(t, 1280, 800)
	at := image.Pt(140, 80)
	a := open(t, &app.Options{Display: server.Display(), At: at, Seed: 7})
	u := newUser(t, server.Display(), at)
	all := image.Rectangle{Max: app.Size}
	before := u.look(all)
	cover, err := xproto.NewWindowId(u.conn)
	if err != nil {
		t.Fatal(err)
	}
	xproto.CreateWindow(u.conn, 0, cover, u.root, 200, 200, 500, 300, 0, xproto.WindowClassInputOutput, 0, xproto.CwBackPixel, []uint32{0x123456})
	xproto.MapWindow(u.conn, cover)
	if got := u.look(all); got == before {
		t.Error("the window is not covered, so nothing is tested")
	}
	xproto.DestroyWindow(u.conn, cover)
	u.look(image.Rect(0, 0, 1, 1)) // by now the server has told the window
	sync(t, a)
	if u.look(all) != before {
		t.Error("the window does not look as before it was covered")
	}
}

// TestWindowManager uses the window under a window manager, which may frame it but not move what is inside.
func TestWindowManager(t *testing.T) {
	program, err := exec.LookPath("openbox")
	if err != nil {
		t.Skip("no window manager: ", err)
	}
	server := xvfb.ForTest(t, 1280, 800)
	manager := exec.CommandContext(t.Context(), program, "--sm-disable")
	manager.Env = append(os.Environ(), "DISPLAY="+server.Display())
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Process.Kill(); _ = manager.Wait() })
	at := image.Pt(140, 80)
	u := newUser(t, server.Display(), at)
	managed(t, u)
	record := filepath.Join(t.TempDir(), "record.json")
	a := open(t, &app.Options{Display: server.Display(), At: at, Seed: 7, Record: record})
	// The manager holds a click back until it has raised the window; keys would overtake it.
	u.click(1, 300, 118)
	released(t, a, 1)
	u.types(38)
	u.click(1, 900, 30)
	released(t, a, 2)
	sync(t, a)
	data, err := os.ReadFile(record)
	if err != nil || !strings.Contains(string(data), `"text": "a"`) {
		t.Errorf("got record %s, %v, want the text in it; events: %+v", data, err, a.Events())
	}
}

// released waits until the window has got n releases of a button.
func released(t *testing.T, a *app.App, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		got := 0
		for _, e := range a.Events() {
			if e.Kind == app.ButtonRelease {
				got++
			}
		}
		if got == n {
			return
		}
	}
	t.Fatalf("the window did not get %d clicks", n)
}

// managed waits until a window manager has announced itself, as the EWMH says.
func managed(t *testing.T, u *user) {
	t.Helper()
	atom, err := xproto.InternAtom(u.conn, false, uint16(len("_NET_SUPPORTING_WM_CHECK")), "_NET_SUPPORTING_WM_CHECK").Reply()
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if p, err := xproto.GetProperty(u.conn, false, u.root, atom.Atom, xproto.AtomWindow, 0, 1).Reply(); err == nil && p.ValueLen == 1 {
			return
		}
	}
	t.Fatal("the window manager did not come up")
}

func TestEnds(t *testing.T) {
	t.Run("with the display", func(t *testing.T) {
		server := xvfb.ForTest(t, 1280, 800)
		a := open(t, &app.Options{Display: server.Display()})
		server.Kill()
		<-a.Done()
		if err := a.Close(); err == nil {
			t.Error("got no error of an application whose display went away")
		}
		if err := a.Sync(t.Context()); err == nil {
			t.Error("got no error of waiting for an application that has ended")
		}
	})
	t.Run("with the context", func(t *testing.T) {
		server := xvfb.ForTest(t, 1280, 800)
		ctx, cancel := context.WithCancel(t.Context())
		a, err := app.Open(ctx, &app.Options{Display: server.Display()})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-a.Done()
		if err := a.Close(); err != nil {
			t.Errorf("got %v, want no error: it was told to end", err)
		}
	})
	t.Run("when the record cannot be written", func(t *testing.T) {
		server := xvfb.ForTest(t, 1280, 800)
		a := open(t, &app.Options{Display: server.Display(), Record: filepath.Join(t.TempDir(), "missing", "record.json")})
		newUser(t, server.Display(), image.Point{}).click(1, 900, 30)
		<-a.Done()
		if err := a.Close(); err == nil || !strings.Contains(err.Error(), "saving the record") {
			t.Errorf("got %v, want an error about saving the record", err)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	server := xvfb.ForTest(t, 1280, 800)
	for name, opts := range map[string]*app.Options{
		"no such display":   {Display: ":4095"},
		"beyond the screen": {Display: server.Display(), At: image.Pt(281, 0)},
		"before the screen": {Display: server.Display(), At: image.Pt(0, -1)},
	} {
		a, err := app.Open(t.Context(), opts)
		if err == nil {
			a.Close()
			t.Errorf("%s: got a window, want an error", name)
		}
	}
}
