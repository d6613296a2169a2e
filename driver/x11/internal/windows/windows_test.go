package windows

import (
	"image"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/xvfb"
)

var screen = image.Rect(0, 0, 1280, 800)

// A program is an X client that shows windows.
type program struct {
	t    *testing.T
	x    *xgb.Conn
	root xproto.Window
}

func newProgram(t *testing.T, display string) *program {
	t.Helper()
	x, err := xgb.NewConnDisplay(display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return &program{t, x, xproto.Setup(x).DefaultScreen(x).Root}
}

// show maps a window. What has a class gets it and a title; others are popups.
func (p *program) show(class, title string, r image.Rectangle) xproto.Window {
	p.t.Helper()
	id, err := xproto.NewWindowId(p.x)
	if err != nil {
		p.t.Fatal(err)
	}
	popup := uint32(0)
	if class == "" {
		popup = 1
	}
	const border = 0
	xproto.CreateWindow(p.x, 0, id, p.root, int16(r.Min.X), int16(r.Min.Y), uint16(r.Dx()), uint16(r.Dy()), border,
		xproto.WindowClassInputOutput, 0, xproto.CwBackPixel|xproto.CwOverrideRedirect, []uint32{0xff0000, popup})
	if class != "" {
		p.set(id, xproto.AtomWmClass, strings.ToLower(class)+"\x00"+class+"\x00")
		p.set(id, xproto.AtomWmName, title)
		hints := make([]byte, 18*4)
		hints[0] = 1 | 4 // USPosition, PPosition
		xproto.ChangeProperty(p.x, xproto.PropModeReplace, id, xproto.AtomWmNormalHints, xproto.AtomWmSizeHints, 32, 18, hints)
	}
	if err := xproto.MapWindowChecked(p.x, id).Check(); err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p *program) set(id xproto.Window, property xproto.Atom, value string) {
	xproto.ChangeProperty(p.x, xproto.PropModeReplace, id, property, xproto.AtomString, 8, uint32(len(value)), []byte(value))
}

// place is where the inside of a window is.
func (p *program) place(id xproto.Window) image.Rectangle {
	p.t.Helper()
	g, err := xproto.GetGeometry(p.x, xproto.Drawable(id)).Reply()
	if err != nil {
		p.t.Fatal(err)
	}
	at, err := xproto.TranslateCoordinates(p.x, id, p.root, 0, 0).Reply()
	if err != nil {
		p.t.Fatal(err)
	}
	return image.Rect(0, 0, int(g.Width), int(g.Height)).Add(image.Pt(int(at.DstX), int(at.DstY)))
}

func open(t *testing.T, name string) *Finder {
	t.Helper()
	conn, err := display.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f, err := Open(conn)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// eventually waits until a window manager has done its work.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10s: %s", what)
		}
	}
}

func (f *Finder) mustActive(t *testing.T) driver.Window {
	t.Helper()
	w, err := f.Active(screen)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestActive finds windows under a window manager, whose frames are larger than what is in them.
func TestActive(t *testing.T) {
	desktop := apptest.NewDesktop(t)
	f := open(t, desktop.Display())
	p, other := newProgram(t, desktop.Display()), newProgram(t, desktop.Display())
	first := other.show("Other", "other", image.Rect(700, 100, 900, 200))
	eventually(t, "the first window is active", func() bool { return f.mustActive(t).ID == uint32(first) })
	id := p.show("Mine", "mine", image.Rect(100, 150, 400, 350))
	eventually(t, "the new window is active", func() bool { return f.mustActive(t).ID == uint32(id) })

	w := f.mustActive(t)
	inside := p.place(id)
	if !inside.In(w.Bounds.Inset(1)) || w.Bounds.Dy() > inside.Dy()+60 || w.Visible != w.Bounds {
		t.Errorf("got %+v, want it a little larger than %v", w, inside)
	}
	menu := p.show("", "", image.Rect(350, 300, 500, 500))
	other.show("", "", image.Rect(0, 0, 10, 10))
	if got, want := f.mustActive(t), w.Bounds.Union(image.Rect(350, 300, 500, 500)); got.Bounds != w.Bounds || got.Visible != want {
		t.Errorf("with a menu: got %+v, want %v visible", got, want)
	}
	xproto.DestroyWindow(p.x, menu)

	xproto.ConfigureWindow(p.x, id, xproto.ConfigWindowX|xproto.ConfigWindowY, []uint32{1200, 600})
	eventually(t, "the window is at the edge", func() bool { return f.mustActive(t).Bounds.Max.X > screen.Max.X })
	edge := f.mustActive(t)
	if got := edge.Visible; got != edge.Bounds.Intersect(screen) {
		t.Errorf("at the edge: got %v visible of %v", got, edge.Bounds)
	}
	if got, err := f.Bounds(edge.ID); err != nil || got != edge.Bounds {
		t.Errorf("got it at %v, %v, want %v", got, err, edge.Bounds)
	}
	xproto.DestroyWindow(p.x, id)
	eventually(t, "another window is active", func() bool { return f.mustActive(t).ID != edge.ID })
	if got, err := f.Bounds(edge.ID); err != nil || !got.Empty() {
		t.Errorf("of a window that has gone: got %v, %v, want nothing", got, err)
	}
}

// TestDialogue has a dialogue that is open beside its window, which is active.
func TestDialogue(t *testing.T) {
	desktop := apptest.NewDesktop(t)
	f := open(t, desktop.Display())
	p := newProgram(t, desktop.Display())
	id := p.show("Mine", "mine", image.Rect(100, 150, 400, 350))
	eventually(t, "the new window is active", func() bool { return f.mustActive(t).ID == uint32(id) })
	alone := f.mustActive(t).Visible
	dialogue := p.show("Mine", "settings", image.Rect(600, 400, 800, 500))
	owner := make([]byte, 4)
	xgb.Put32(owner, uint32(id))
	xproto.ChangeProperty(p.x, xproto.PropModeReplace, dialogue, xproto.AtomWmTransientFor, xproto.AtomWindow, 32, 1, owner)
	eventually(t, "the dialogue is active", func() bool { return f.mustActive(t).ID == uint32(dialogue) })
	xproto.SetInputFocus(p.x, xproto.InputFocusParent, id, xproto.TimeCurrentTime)
	eventually(t, "the window is active again", func() bool { return f.mustActive(t).ID == uint32(id) })
	beside, err := f.Bounds(uint32(dialogue))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.mustActive(t).Visible, alone.Union(beside); got != want {
		t.Errorf("got %v visible, want %v", got, want)
	}
}

// TestActiveWithoutManager goes by the focus.
func TestActiveWithoutManager(t *testing.T) {
	server := xvfb.ForTest(t, screen.Dx(), screen.Dy())
	f := open(t, server.Display())
	if got := f.mustActive(t); got != (driver.Window{}) {
		t.Errorf("on an empty screen: got %+v, want none", got)
	}
	p := newProgram(t, server.Display())
	place := image.Rect(100, 150, 400, 350)
	id := p.show("Mine", "mine", place)
	if got := f.mustActive(t); got != (driver.Window{}) {
		t.Errorf("without a focus: got %+v, want none", got)
	}
	if err := xproto.SetInputFocusChecked(p.x, xproto.InputFocusParent, id, xproto.TimeCurrentTime).Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := f.mustActive(t), (driver.Window{ID: uint32(id), Bounds: place, Visible: place}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNamed(t *testing.T) {
	desktop := apptest.NewDesktop(t)
	f := open(t, desktop.Display())
	vault, plain := newProgram(t, desktop.Display()), newProgram(t, desktop.Display())
	id := vault.show("KeeVault", "Passwörter – all", image.Rect(100, 150, 400, 350))
	plain.show("Plain", "notes", image.Rect(500, 150, 800, 350))
	eventually(t, "both have frames", func() bool {
		r, err := f.Bounds(uint32(id))
		return err == nil && r.Dy() > 200 && r != image.Rect(100, 150, 400, 350)
	})
	secret, err := f.Bounds(uint32(id))
	if err != nil {
		t.Fatal(err)
	}
	menu := image.Rect(350, 300, 500, 500)
	vault.show("", "", menu)
	plain.show("", "", image.Rect(700, 300, 750, 330))
	for _, test := range []struct {
		texts []string
		want  []image.Rectangle
	}{
		{[]string{"keevault"}, []image.Rectangle{secret, menu}},
		{[]string{"nothing of the kind", "passwörter"}, []image.Rectangle{secret, menu}},
		{[]string{"nothing of the kind"}, nil},
	} {
		got, err := f.Named(test.texts)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%q: got %v, %v, want %v", test.texts, got, err, test.want)
		}
	}
	xproto.UnmapWindow(vault.x, id)
	eventually(t, "the window is hidden", func() bool { r, err := f.Bounds(uint32(id)); return err == nil && r.Empty() })
	if got, err := f.Named([]string{"keevault"}); err != nil || len(got) != 0 {
		t.Errorf("hidden: got %v, %v, want nothing", got, err)
	}
}

// TestNamedWithin has a window deep in a frame of which no window manager says that it is there.
func TestNamedWithin(t *testing.T) {
	server := xvfb.ForTest(t, screen.Dx(), screen.Dy())
	f, p := open(t, server.Display()), newProgram(t, server.Display())
	place := image.Rect(100, 150, 400, 350)
	in := *p
	in.root = p.show("", "", place)
	in.show("", "", image.Rect(0, 0, 10, 10))
	in.root = in.show("", "", image.Rect(10, 10, 100, 100))
	in.show("KeeVault", "all", image.Rect(10, 10, 50, 50))
	p.show("Plain", "notes", image.Rect(500, 150, 800, 350))
	if got, err := f.Named([]string{"keevault"}); err != nil || !slices.Equal(got, []image.Rectangle{place}) {
		t.Errorf("got %v, %v, want %v", got, err, place)
	}
}

func TestCheck(t *testing.T) {
	for text, ok := range map[string]bool{"": false, " ": false, "a\x00b": false, "KeePass": true} {
		if err := Check(text); (err == nil) != ok {
			t.Errorf("%q: got %v, want it fine: %v", text, err, ok)
		}
	}
}
