package settle

import (
	"bytes"
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/xtest"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/run"
)

// A desk is a desktop with a watcher, and a hand that clicks.
type desk struct {
	*Watcher
	*apptest.Desktop
	t    *testing.T
	hand *xtest.Sink
	grab Grab
}

func newDesk(t *testing.T) desk {
	t.Helper()
	d := desk{t: t, Desktop: apptest.NewDesktop(t)}
	conn, err := display.Open(d.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if d.hand, err = xtest.New(conn); err != nil {
		t.Fatal(err)
	}
	d.grab = newGrab(t, d.Display())
	if d.Watcher, err = Open(d.Display()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Watcher.Close() })
	return d
}

// act sends the events of one action, and returns what becomes of the screen.
func (d desk) act(timing Timing, events func()) Result {
	d.t.Helper()
	d.Mark()()
	events()
	if err := d.hand.Sync(); err != nil {
		d.t.Fatal(err)
	}
	d.Touch()
	got, err := d.Wait(d.t.Context(), timing)
	if err != nil {
		d.t.Fatal(err)
	}
	return got
}

func (d desk) click(at image.Point) func() {
	return func() {
		d.hand.Move(at)
		d.hand.Button(1, true)
		d.hand.Button(1, false)
	}
}

// picture is what a part of the screen shows.
func (d desk) picture(part image.Rectangle) []byte {
	d.t.Helper()
	pix, stride, bounds, err := d.grab()
	if err != nil {
		d.t.Fatal(err)
	}
	pixel := stride / bounds.Dx()
	var shown []byte
	for y := part.Min.Y; y < part.Max.Y; y++ {
		shown = append(shown, pix[y*stride+part.Min.X*pixel:y*stride+part.Max.X*pixel]...)
	}
	return shown
}

// TestGTK takes what a picture shows after an action for right when it shows the same a second later, and not what was
// there before.
func TestGTK(t *testing.T) {
	long(t)
	const python = "/usr/bin/python3" // for which the system's packages are
	if exec.CommandContext(t.Context(), python, "-c", "import gi; gi.require_version('Gtk', '3.0')").Run() != nil {
		t.Skip("needs python3-gi and GTK 3")
	}
	d := newDesk(t)
	shown := d.act(Timing{Grace: time.Minute, Quiet: 2 * time.Second, Deadline: time.Minute}, func() {
		process, err := run.Start(t.Context(), []string{python, filepath.Join("testdata", "window.py")},
			&run.Options{Env: append(os.Environ(), "DISPLAY="+d.Display(), "NO_AT_BRIDGE=1")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(process.Stop)
	})
	if shown.State != Settled {
		t.Fatalf("got %+v, want a window", shown)
	}
	for _, test := range []struct {
		name  string
		at    image.Point
		part  image.Rectangle
		least time.Duration // that it takes
	}{
		{"label", image.Pt(150, 50), image.Rect(0, 0, 300, 100), 0},
		{"animation", image.Pt(450, 50), image.Rect(0, 100, 300, 400), 600 * time.Millisecond},
	} {
		before := d.picture(test.part)
		got := d.act(patient, d.click(test.at))
		after := d.picture(test.part)
		if got.State != Settled || got.LastChange < test.least || !got.Changed.Overlaps(test.part) {
			t.Errorf("%s: got %+v, want it settled, with changes in %v for %v", test.name, got, test.part, test.least)
		}
		if bytes.Equal(after, before) {
			t.Errorf("%s: the picture shows no change", test.name)
		}
		time.Sleep(time.Second)
		if !bytes.Equal(d.picture(test.part), after) {
			t.Errorf("%s: the screen went on to change", test.name)
		}
	}

	// The caret of the entry, once it is known, is no change.
	entry := image.Rect(300, 200, 600, 250)
	d.act(patient, d.click(image.Pt(450, 215)))
	nothing := func() {}
	got := d.act(Timing{Grace: 5 * time.Second, Quiet: 2 * time.Second, Deadline: 5 * time.Second}, nothing)
	if got.Recurring.Empty() || !got.Recurring.In(entry) {
		t.Errorf("got %+v, want what is recurring in %v", got, entry)
	}
	if got := d.act(Timing{Grace: 1500 * time.Millisecond}, nothing); got.State != Unchanged || got.Recurring.Empty() {
		t.Errorf("got %+v, want no change, but the caret", got)
	}
	got = d.act(patient, func() {
		const keyA = 38 // on every layout of a PC
		d.hand.Key(keyA, 'a', true)
		d.hand.Key(keyA, 'a', false)
	})
	if got.State != Settled || !got.Changed.Overlaps(entry) {
		t.Errorf("got %+v after a key, want a change in %v", got, entry)
	}
}

// TestChromium believes the page: where it is scrolled to, and that an animation of 700ms has ended.
func TestChromium(t *testing.T) {
	long(t)
	d := newDesk(t)
	page := d.Open(t, apptest.Chromium)
	d.act(Timing{Grace: time.Second, Quiet: time.Second, Deadline: time.Minute}, func() {}) // It goes on with its frame.

	var scrolled, later int
	const wheelDown, notches = 5, 5
	got := d.act(patient, func() {
		d.hand.Move(image.Pt(800, 500))
		d.hand.Wheel(wheelDown, notches)
	})
	page.Ask(t, "scrolled", &scrolled)
	time.Sleep(time.Second)
	if page.Ask(t, "scrolled", &later); got.State != Settled || scrolled == 0 || scrolled != later {
		t.Errorf("got %+v with the page at %d, and a second later at %d", got, scrolled, later)
	}

	var animations int
	got = d.act(patient, func() { page.Ask(t, "animate", &animations) })
	if animations != 0 {
		t.Fatalf("got %d animations that have ended, want none", animations)
	}
	if page.Ask(t, "animated", &animations); got.State != Settled || animations != 1 {
		t.Errorf("got %+v, and %d animations have ended, want 1", got, animations)
	}
}
