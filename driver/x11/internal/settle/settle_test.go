package settle

import (
	"context"
	"errors"
	"image"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// patient is a timing for tests on a machine that may stop everything for a while: a program that is to paint every few
// milliseconds is not taken for one that has stopped.
var patient = Timing{Grace: time.Second, Quiet: time.Second, Deadline: 20 * time.Second}

// tooLate is what no answer takes that comes for the right reason.
const tooLate = 10 * time.Second

// long leaves out what takes long when that is asked for.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long")
	}
}

// A painter is a plain X client with a window over the whole screen, on which it paints.
type painter struct {
	t     testing.TB
	conn  *display.Conn
	win   xproto.Window
	gc    xproto.Gcontext
	shade uint32
	mu    sync.Mutex
}

func newPainter(t testing.TB, displayName string) *painter {
	t.Helper()
	conn, err := display.Open(displayName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &painter{t: t, conn: conn}
	if p.win, err = xproto.NewWindowId(conn.X); err != nil {
		t.Fatal(err)
	}
	if p.gc, err = xproto.NewGcontextId(conn.X); err != nil {
		t.Fatal(err)
	}
	s := conn.Screen
	xproto.CreateWindow(conn.X, 0, p.win, s.Root, 0, 0, s.WidthInPixels, s.HeightInPixels, 0, xproto.WindowClassCopyFromParent, 0,
		xproto.CwOverrideRedirect, []uint32{1})
	xproto.CreateGC(conn.X, p.gc, xproto.Drawable(p.win), 0, nil)
	xproto.MapWindow(conn.X, p.win)
	if err := conn.Sync(); err != nil {
		t.Fatal(err)
	}
	return p
}

// paint paints places in a shade that they have not had for long. It returns when the server has done it.
func (p *painter) paint(places ...image.Rectangle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shade = (p.shade + 0x1f3d5b) % 0xffffff
	var rectangles []xproto.Rectangle
	for _, r := range places {
		rectangles = append(rectangles, xproto.Rectangle{X: int16(r.Min.X), Y: int16(r.Min.Y), Width: uint16(r.Dx()), Height: uint16(r.Dy())})
	}
	xproto.ChangeGC(p.conn.X, p.gc, xproto.GcForeground, []uint32{p.shade})
	xproto.PolyFillRectangle(p.conn.X, xproto.Drawable(p.win), p.gc, rectangles)
	if err := p.conn.Sync(); err != nil && !errors.Is(err, driver.ErrDisplayLost) {
		p.t.Error(err)
	}
}

// animate paints places every period until it is told to stop, or the test ends.
func (p *painter) animate(period time.Duration, places ...image.Rectangle) (stop func()) {
	stopping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			p.paint(places...)
			select {
			case <-ticker.C:
			case <-stopping:
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(stopping)
		<-stopped
	})
	p.t.Cleanup(stop)
	return stop
}

// newGrab grabs over a connection of its own.
func newGrab(t testing.TB, displayName string) Grab {
	t.Helper()
	conn, err := display.Open(displayName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func() (pix []byte, stride int, bounds image.Rectangle, err error) {
		if bounds, err = conn.Bounds(); err != nil {
			return nil, 0, bounds, err
		}
		const allPlanes = 1<<32 - 1
		r, err := xproto.GetImage(conn.X, xproto.ImageFormatZPixmap, conn.Root(), 0, 0, uint16(bounds.Dx()), uint16(bounds.Dy()), allPlanes).Reply()
		if err != nil {
			return nil, 0, bounds, display.Err(err)
		}
		return r.Data, len(r.Data) / bounds.Dy(), bounds, nil
	}
}

// A room is a display with a painter and a watcher.
type room struct {
	*Watcher
	*painter
	server *xvfb.Server
}

// eachWatcher runs a test with changes told by the server, and with frames.
func eachWatcher(t *testing.T, test func(*testing.T, room)) {
	for _, kind := range []string{"damage", "frames"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // They mostly wait.
			test(t, newRoom(t, kind))
		})
	}
}

func newRoom(t testing.TB, kind string) room {
	t.Helper()
	// There is to be nothing to fall back on where there is no DAMAGE.
	args := map[string][]string{"damage": nil, "frames": {"-extension", "DAMAGE"}}[kind]
	server := xvfb.ForTest(t, screen.Dx(), screen.Dy(), args...)
	r := room{painter: newPainter(t, server.Display()), server: server}
	var err error
	if kind == "damage" {
		r.Watcher, err = Open(server.Display())
	} else {
		r.Watcher, err = OpenFrames(newGrab(t, server.Display()))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// wait waits, and fails the test when the answer is another one.
func (r room) wait(timing Timing, state State, changed, recurring image.Rectangle) Result {
	r.t.Helper()
	got, err := r.Wait(r.t.Context(), timing)
	if err != nil {
		r.t.Fatal(err)
	}
	if got.State != state || got.Changed != changed || got.Recurring != recurring {
		r.t.Errorf("got %+v, want %v, changed %v, recurring %v", got, state, changed, recurring)
	}
	if got.Elapsed > tooLate {
		r.t.Errorf("it took %v", got.Elapsed)
	}
	return got
}

var none image.Rectangle

func TestStatic(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		r.paint(window)
		r.Mark()()
		got := r.wait(Timing{}, Unchanged, none, none)
		if least := 200 * time.Millisecond; got.Elapsed < least || got.LastChange != 0 {
			t.Errorf("got %+v, want no change for %v", got, least)
		}
		start := time.Now()
		r.wait(Timing{Grace: 10 * time.Second, Deadline: 100 * time.Millisecond}, Unchanged, none, none)
		if took := time.Since(start); took < 100*time.Millisecond {
			t.Errorf("it took %v, which is before the deadline", took)
		}
	})
}

// TestStaticMedian is row $3 of the field cases: on a screen that stays as it is, half of 30 actions are answered in less
// than 300ms.
func TestStaticMedian(t *testing.T) {
	long(t)
	const actions, limit = 30, 300 * time.Millisecond
	eachWatcher(t, func(t *testing.T, r room) {
		var took []time.Duration
		for range actions {
			r.Mark()()
			r.Touch()
			start := time.Now()
			r.wait(Timing{}, Unchanged, none, none)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		if median := took[actions/2]; median >= limit {
			t.Errorf("got a median of %v, want less than %v: %v", median, limit, took)
		}
	})
}

func TestChange(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		r.Mark()()
		r.Touch()
		time.AfterFunc(50*time.Millisecond, func() { r.paint(label) })
		got := r.wait(patient, Settled, label, none)
		if got.LastChange < 50*time.Millisecond || got.Elapsed < got.LastChange+patient.Quiet {
			t.Errorf("got %+v, want a change after 50ms, and quiet for %v", got, patient.Quiet)
		}
		if again := r.wait(patient, Settled, label, none); again.LastChange != got.LastChange {
			t.Errorf("got %+v when asked again, want what was said before: %+v", again, got)
		}
		r.Mark()()
		r.wait(Timing{}, Unchanged, none, none)
	})
}

// TestNoticedInTime checks that what happens before Wait is called is noticed when it happens, so that it may be long ago.
func TestNoticedInTime(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		const pause = 2 * time.Second
		r.Mark()()
		r.paint(label)
		time.Sleep(pause)
		if got := r.wait(patient, Settled, label, none); got.LastChange >= pause || got.Elapsed < pause {
			t.Errorf("got %+v after %v, want a change before that", got, pause)
		}
	})
}

// TestTouch checks that a change before the last event is one, but does not end the grace.
func TestTouch(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		r.Mark()()
		r.paint(label)
		r.Touch()
		time.AfterFunc(200*time.Millisecond, func() { r.paint(window) })
		r.wait(Timing{Grace: 3 * time.Second, Quiet: 50 * time.Millisecond}, Settled, window, none)
	})
}

// TestPointer checks that moving the pointer changes nothing.
func TestPointer(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		r.Mark()()
		for x := range 20 {
			xproto.WarpPointer(r.conn.X, 0, r.conn.Screen.Root, 0, 0, 0, 0, int16(50*x), 300)
		}
		if err := r.conn.Sync(); err != nil {
			t.Fatal(err)
		}
		r.Touch()
		r.wait(Timing{}, Unchanged, none, none)
	})
}

func TestAnimation(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		const long = 700 * time.Millisecond
		r.Mark()()
		stop := r.animate(16*time.Millisecond, window)
		r.Touch()
		time.AfterFunc(long, stop)
		if got := r.wait(patient, Settled, window, none); got.LastChange < long/4 || got.Elapsed < long {
			t.Errorf("got %+v, want changes for %v", got, long)
		}
	})
}

func TestEndlessAnimation(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		timing := patient
		timing.Deadline = 1200 * time.Millisecond
		r.Mark()()
		stop := r.animate(10*time.Millisecond, screen)
		start := time.Now()
		r.wait(timing, Changing, screen, none)
		if took := time.Since(start); took < timing.Deadline {
			t.Errorf("got the answer after %v, before the deadline of %v", took, timing.Deadline)
		}
		stop()
		r.wait(patient, Settled, screen, none)
	})
}

// TestSpinner checks that a small animation is waited for once, and never again while it goes on.
func TestSpinner(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		stop := r.animate(30*time.Millisecond, spinner)
		time.Sleep(100 * time.Millisecond)
		r.Mark()()
		learn := Timing{Grace: time.Second, Quiet: tooLate, Deadline: 2 * tooLate}
		r.wait(learn, Unchanged, none, spinner)
		r.Mark()()
		r.wait(patient, Unchanged, none, spinner)
		r.Mark()()
		r.paint(label)
		r.wait(patient, Settled, label, spinner)
		stop()
		time.Sleep(steadyMemory + 2*idleInterval) // The last look that saw it may have come an interval later.
		r.Mark()()
		r.paint(spinner)
		r.wait(patient, Settled, spinner, none)
	})
}

// TestCaret checks that something that blinks slowly is learnt by a long wait.
func TestCaret(t *testing.T) {
	long(t)
	eachWatcher(t, func(t *testing.T, r room) {
		r.animate(400*time.Millisecond, caret)
		time.Sleep(100 * time.Millisecond)
		r.Mark()()
		long := Timing{Grace: 3 * time.Second, Quiet: tooLate, Deadline: 2 * tooLate}
		r.wait(long, Unchanged, none, caret)
		r.Mark()()
		r.wait(patient, Unchanged, none, caret)
	})
}

// TestC2 is row C2 of the field cases: a click on what paints 300 or 1500ms later. When it shows nothing in the meantime,
// nothing on the display can tell, and the answer says so. When something turns meanwhile, either its end is waited
// for, or the answer says that it goes on.
func TestC2(t *testing.T) {
	long(t)
	eachWatcher(t, func(t *testing.T, r room) {
		click := func(late time.Duration, meanwhile ...image.Rectangle) {
			r.Mark()()
			stop := func() {}
			if meanwhile != nil {
				stop = r.animate(20*time.Millisecond, meanwhile...)
			}
			r.Touch()
			time.AfterFunc(late, func() {
				stop()
				r.paint(window)
			})
		}
		for _, late := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond} {
			click(late)
			r.wait(Timing{Grace: 50 * time.Millisecond}, Unchanged, none, none)
			r.wait(Timing{Grace: tooLate, Quiet: 100 * time.Millisecond, Deadline: tooLate}, Settled, window, none)
		}
		click(300*time.Millisecond, spinner)
		r.wait(patient, Settled, window, none)
		click(3*time.Second, spinner)
		r.wait(patient, Settled, spinner, spinner)
		r.Mark()()
		got := r.wait(Timing{Grace: tooLate, Quiet: 100 * time.Millisecond, Deadline: tooLate}, Settled, window, spinner)
		if got.LastChange == 0 {
			t.Errorf("got %+v, want the change of the window", got)
		}
	})
}

// TestIdle checks that hardly anybody looks at the screen when nobody wants to know.
func TestIdle(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	grab := newGrab(t, server.Display())
	var mu sync.Mutex
	looks := 0
	w, err := OpenFrames(func() ([]byte, int, image.Rectangle, error) {
		mu.Lock()
		looks++
		mu.Unlock()
		return grab()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	during := func(pause time.Duration) int {
		mu.Lock()
		before := looks
		mu.Unlock()
		time.Sleep(pause)
		mu.Lock()
		defer mu.Unlock()
		return looks - before
	}
	const pause, few = 1200 * time.Millisecond, 2
	if got := during(pause); got == 0 || got > few {
		t.Errorf("got %d looks before a mark in %v, want one a second", got, pause)
	}
	w.Mark()()
	if got := during(pause); got <= 5*few {
		t.Errorf("got %d looks in %v after a mark, want many", got, pause)
	}
	if _, err := w.Wait(t.Context(), Timing{}); err != nil {
		t.Fatal(err)
	}
	if got := during(pause); got > few {
		t.Errorf("got %d looks in %v after an answer, want few", got, pause)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := w.Wait(ctx, Timing{Grace: tooLate}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
	time.Sleep(pause / 10) // for a look that is due
	if got := during(pause); got > few {
		t.Errorf("got %d looks in %v after a wait was cut short, want few", got, pause)
	}
}

// TestKeymaps checks that events which every client is sent do not fill the connection.
func TestKeymaps(t *testing.T) {
	const manyMoreThanXgbHolds = 12000
	r := newRoom(t, "damage")
	code := r.conn.Setup.MaxKeycode
	for range manyMoreThanXgbHolds {
		xproto.ChangeKeyboardMapping(r.conn.X, 1, code, 1, []xproto.Keysym{0})
		r.mu.Lock()
		err := r.conn.Sync()
		r.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	r.Mark()()
	r.paint(label)
	r.wait(patient, Settled, label, none)
}

// TestResize checks that another size of the screen is a change of all of it.
func TestResize(t *testing.T) {
	xrandr, err := exec.LookPath("xrandr")
	if err != nil {
		t.Skip("needs xrandr")
	}
	eachWatcher(t, func(t *testing.T, r room) {
		r.Mark()()
		if out, err := exec.CommandContext(t.Context(), xrandr, "-display", r.server.Display(), "--output", "screen", "--off", "--fb", "800x600").CombinedOutput(); err != nil {
			t.Fatalf("xrandr: %v: %s", err, out)
		}
		r.wait(patient, Settled, image.Rect(0, 0, 800, 600), none)
	})
}

// TestLost kills the server in the middle of a wait.
func TestLost(t *testing.T) {
	eachWatcher(t, func(t *testing.T, r room) {
		r.animate(10*time.Millisecond, screen)
		r.Mark()()
		killed := make(chan time.Time, 1)
		time.AfterFunc(300*time.Millisecond, func() {
			killed <- time.Now()
			r.server.Kill()
		})
		_, err := r.Wait(t.Context(), patient)
		if took := time.Since(<-killed); !errors.Is(err, driver.ErrDisplayLost) || took > time.Second {
			t.Errorf("got %v after %v, want %v within a second", err, took, driver.ErrDisplayLost)
		}
		r.Mark()()
		r.Touch()
		if _, err := r.Wait(t.Context(), patient); !errors.Is(err, driver.ErrDisplayLost) {
			t.Errorf("got %v, want %v again", err, driver.ErrDisplayLost)
		}
	})
}

func TestClose(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	before := runtime.NumGoroutine()
	for range 3 {
		w, err := Open(server.Display())
		if err != nil {
			t.Fatal(err)
		}
		w.Mark()()
		time.AfterFunc(100*time.Millisecond, func() { w.Close() })
		if _, err := w.Wait(t.Context(), Timing{Grace: tooLate, Deadline: tooLate}); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		w.Mark()()
		w.Touch()
		if _, err := w.Wait(t.Context(), Timing{}); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
	}
	for deadline := time.Now().Add(tooLate); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %d goroutines, want %d as before", runtime.NumGoroutine(), before)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480, "-extension", "DAMAGE")
	for name, want := range map[string]error{server.Display(): driver.ErrUnsupported, ":30999": driver.ErrNoDisplay, "": driver.ErrNoDisplay} {
		if _, err := Open(name); !errors.Is(err, want) {
			t.Errorf("display %q: got %v, want %v", name, err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := OpenFrames(func() ([]byte, int, image.Rectangle, error) { return nil, 0, none, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if _, err := OpenFrames(func() ([]byte, int, image.Rectangle, error) {
		return make([]byte, 99), 40, image.Rect(0, 0, 10, 10), nil
	}); err == nil {
		t.Error("got no error for a frame that is too short")
	}
}

func TestTimingRefuses(t *testing.T) {
	r := newRoom(t, "damage")
	for _, timing := range []Timing{{Grace: -1}, {Quiet: -1}, {Deadline: -1}} {
		if _, err := r.Wait(t.Context(), timing); err == nil {
			t.Errorf("%+v: got no error", timing)
		}
	}
}
