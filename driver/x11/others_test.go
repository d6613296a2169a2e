package x11_test

import (
	"context"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// A person is somebody else at the display: a client with hands of its own.
type person struct {
	t    *testing.T
	conn *xgb.Conn
	root xproto.Window
}

func newPerson(t *testing.T, display string) person {
	t.Helper()
	conn, err := xgb.NewConnDisplay(display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := xtest.Init(conn); err != nil {
		t.Fatal(err)
	}
	return person{t, conn, xproto.Setup(conn).DefaultScreen(conn).Root}
}

// The keycodes of a PC keyboard, and the kinds of events.
const (
	controlKey, shiftKey, aKey = 37, 50, 38

	keyDown, keyUp, buttonDown, buttonUp = xproto.KeyPress, xproto.KeyRelease, xproto.ButtonPress, xproto.ButtonRelease
)

func (p person) does(kind, detail byte) {
	p.t.Helper()
	if err := xtest.FakeInputChecked(p.conn, kind, detail, 0, p.root, 0, 0, 0).Check(); err != nil {
		p.t.Fatal(err)
	}
}

func (p person) moves(x, y int16) {
	p.t.Helper()
	if err := xtest.FakeInputChecked(p.conn, xproto.MotionNotify, 0, 0, p.root, x, y, 0).Check(); err != nil {
		p.t.Fatal(err)
	}
}

// words returns what the window got since the last call, motion included.
func (d desktop) words(t *testing.T) string {
	t.Helper()
	events, err := d.window.Events()
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, e := range events {
		words = append(words, e.String())
	}
	return strings.Join(words, ", ")
}

// inputs are one of each of the actions that the keyboard or the pointer makes.
var inputs = []driver.Action{
	driver.Click{X: 9, Y: 9, Button: driver.ButtonLeft}, driver.DoubleClick{X: 9, Y: 9}, driver.Drag{Path: zigzag().Path[:2]},
	driver.Keypress{Keys: []string{"a"}}, driver.Move{X: 9, Y: 9}, driver.Scroll{X: 9, Y: 9, ScrollY: 120}, driver.Type{Text: "a"},
}

// TestK6 is row K6 of the field cases: while somebody else holds a modifier or a button, an action would be another
// one. It is refused by name, without an event.
func TestK6(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		human := newPerson(t, d.server.Display())
		for _, test := range []struct {
			kind, detail byte
			name         string
		}{{keyDown, controlKey, "Control_L"}, {keyDown, shiftKey, "Shift_L"}, {buttonDown, 1, "button 1"}, {buttonDown, 3, "button 3"}} {
			human.does(test.kind, test.detail)
			d.words(t)
			for _, a := range inputs {
				if _, err := driver.Do(t.Context(), d, a); !errors.Is(err, driver.ErrHeld) || !strings.Contains(fmt.Sprint(err), test.name) {
					t.Errorf("%s with %s down: got %v, want it refused by name", a.Kind(), test.name, err)
				}
			}
			if got := d.words(t); got != "" {
				t.Errorf("with %s down: got %s, want nothing", test.name, got)
			}
			human.does(test.kind+1, test.detail)
			if err := d.Click(t.Context(), driver.Click{X: 9, Y: 9, Button: driver.ButtonLeft}); err != nil {
				t.Errorf("%s up again: %v", test.name, err)
			}
		}
		// A key that is no modifier changes nothing. The Return that started a command may be down for a moment.
		human.does(keyDown, aKey)
		if err := d.Click(t.Context(), driver.Click{X: 9, Y: 9, Button: driver.ButtonLeft}); err != nil {
			t.Error(err)
		}
	})
}

// TestClearModifiers is rows K6 and T7 of the field cases, the other way: what somebody else holds is lifted for the
// time of an action, and held again after it, also after one that fails.
func TestClearModifiers(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink, ClearModifiers: true})
		human := newPerson(t, d.server.Display())
		human.does(keyDown, shiftKey)
		human.does(keyDown, controlKey)
		d.events(t)
		both := []string{"Control_L", "Shift_L"}
		for _, test := range []struct {
			action driver.Action
			want   string
		}{
			{driver.Scroll{X: 9, Y: 9, ScrollY: 120}, "button 5 down (9,9), button 5 up (9,9)"},
			{driver.Type{Text: "aB"}, "key a down, key a up, key Shift_L down, key b down, key b up, key Shift_L up"},
			{driver.Keypress{Keys: []string{"CTRL", "a"}}, "key Control_L down, key a down, key a up, key Control_L up"},
		} {
			if _, err := driver.Do(t.Context(), d, test.action); err != nil {
				t.Errorf("%s: %v", test.action.Kind(), err)
			}
			var words []string
			for _, e := range d.events(t) {
				words = append(words, e.String())
			}
			want := "key Control_L up, key Shift_L up, " + test.want + ", key Control_L down, key Shift_L down"
			if got := strings.Join(words, ", "); got != want {
				t.Errorf("%s: got %s, want %s", test.action.Kind(), got, want)
			}
			if held, err := d.window.Held(); err != nil || !slices.Equal(held, both) {
				t.Errorf("%s: held %v, %v afterwards, want %v", test.action.Kind(), held, err, both)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := d.Drag(ctx, zigzag()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline exceeded", err)
		}
		if held, err := d.window.Held(); err != nil || !slices.Equal(held, both) {
			t.Errorf("held %v, %v after an action that was cut short, want %v", held, err, both)
		}
		// An impossible action lifts nothing, and a button cannot be lifted.
		human.does(buttonDown, 2)
		d.events(t)
		if err := d.Click(t.Context(), driver.Click{X: -1, Button: driver.ButtonLeft}); !errors.Is(err, driver.ErrOutOfBounds) {
			t.Errorf("got %v, want it out of bounds", err)
		}
		if err := d.Click(t.Context(), driver.Click{Button: driver.ButtonLeft}); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("got %v with a button down, want it refused", err)
		}
		if got := d.events(t); len(got) > 0 {
			t.Errorf("got %v for what was refused", got)
		}
	})
}

// TestT7 is row T7 of the field cases: text typed while Shift is down is refused, and exact when it is lifted.
func TestT7(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		setLayout(t, d, "fr") // a map that is not the one of the start
		human := newPerson(t, d.server.Display())
		human.does(keyDown, shiftKey)
		d.events(t)
		const text = "É è ç"
		if err := d.Type(t.Context(), driver.Type{Text: text}); !errors.Is(err, driver.ErrHeld) || !strings.Contains(fmt.Sprint(err), "Shift_L") {
			t.Errorf("got %v, want to be told of Shift", err)
		}
		if got := d.typed(t); got != "" {
			t.Errorf("got %q, want nothing typed", got)
		}
		lifting := desktop{open(t, x11.Options{Display: d.server.Display(), Sink: x11.SinkXTEST, ClearModifiers: true}), d.server, d.window}
		if err := lifting.Type(t.Context(), driver.Type{Text: text}); err != nil {
			t.Fatal(err)
		}
		if got := lifting.typed(t); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	})
}

// TestHeldAtStart finds keys and buttons down when a driver is opened, and frees them when it is told to. One that
// comes up within a moment is not worth a word.
func TestHeldAtStart(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	window := witness.ForTest(t, server.Display())
	human := newPerson(t, server.Display())
	human.does(keyDown, shiftKey)
	human.does(keyDown, aKey)
	human.does(buttonDown, 1)
	want := []string{"a", "Shift_L", "button 1"}
	var log lines
	d := open(t, x11.Options{Display: server.Display(), Logger: log.logger()})
	if got := d.HeldAtStart(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := log.String(); !strings.Contains(got, `level=WARN`) || !strings.Contains(got, "Shift_L") {
		t.Errorf("got log %s, want a warning", got)
	}
	if held, err := window.Held(); err != nil || !slices.Equal(held, want) {
		t.Errorf("held %v, %v, want %v still", held, err, want)
	}
	freeing := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST, Release: true})
	if got := freeing.HeldAtStart(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if held, err := window.Held(); err != nil || len(held) > 0 {
		t.Errorf("held %v, %v, want nothing", held, err)
	}

	human.does(keyDown, aKey)
	up := time.AfterFunc(100*time.Millisecond, func() { human.does(keyUp, aKey) })
	defer up.Stop()
	if got := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST}).HeldAtStart(); len(got) > 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

// lines is a log to be looked at.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// sluggish is a window manager that looks at each click before programs get it, as openbox does, and takes its time. The server
// freezes the pointer meanwhile.
func sluggish(t *testing.T, display string, takes time.Duration) {
	t.Helper()
	conn, err := xgb.NewConnDisplay(display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	root := xproto.Setup(conn).DefaultScreen(conn).Root
	err = xproto.GrabButtonChecked(conn, true, root, xproto.EventMaskButtonPress, xproto.GrabModeSync, xproto.GrabModeAsync, 0, 0, 1, xproto.ModMaskAny).Check()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			event, err := conn.WaitForEvent()
			if event == nil && err == nil {
				return
			}
			if press, ok := event.(xproto.ButtonPressEvent); ok {
				time.Sleep(takes)
				xproto.AllowEvents(conn, xproto.AllowReplayPointer, press.Time)
			}
		}
	}()
}

// TestSluggishManager clicks, moves and types while the window manager takes much longer over each click than a person is
// waited for. Nothing is refused, and the program gets all of it in order.
func TestSluggishManager(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		sluggish(t, d.server.Display(), 600*time.Millisecond)
		d.words(t)
		for _, a := range []driver.Action{
			driver.Click{X: 50, Y: 60, Button: driver.ButtonLeft}, driver.Keypress{Keys: []string{"a"}},
			driver.Click{X: 70, Y: 80, Button: driver.ButtonLeft}, driver.Click{X: 90, Y: 95, Button: driver.ButtonLeft},
		} {
			if _, err := driver.Do(t.Context(), d, a); err != nil {
				t.Errorf("%s: %v", a.Kind(), err)
			}
		}
		if err := d.window.WaitFor(witness.ButtonUp, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		var words []string
		for _, e := range d.events(t) {
			if e.Kind != witness.Motion {
				words = append(words, e.String())
			}
		}
		want := "button 1 down (50,60), button 1 up (50,60), key a down, key a up, button 1 down (70,80), button 1 up (70,80), button 1 down (90,95), button 1 up (90,95)"
		if got := strings.Join(words, ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		d.free(t)
	})
}

// TestM10 is row M10 of the field cases: somebody else moves the pointer in the gap of a double click, and while a drag
// rests before it lets go. TestInterference has the moment between a motion and the press after it.
func TestM10(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink, Hold: 100 * time.Millisecond, DoubleClickGap: 150 * time.Millisecond, DragStep: 8})
		human := newPerson(t, d.server.Display())
		start, end := image.Pt(10, 10), image.Pt(10, 15) // one step
		if err := d.Move(t.Context(), driver.Move{X: start.X, Y: start.Y}); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			action driver.Action
			moment witness.Kind
			want   string // presses and releases
		}{
			{driver.Drag{Path: []image.Point{start, end}}, witness.Motion, "button 1 down (10,10), button 1 up (300,200)"},
			{driver.DoubleClick{X: 50, Y: 60}, witness.ButtonUp, "button 1 down (50,60), button 1 up (50,60)"},
		} {
			d.events(t)
			done := make(chan error, 1)
			go func() {
				_, err := driver.Do(context.Background(), d, test.action)
				done <- err
			}()
			if err := d.window.WaitFor(test.moment, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			human.moves(300, 200)
			if err := <-done; !errors.Is(err, driver.ErrInterference) || !strings.Contains(fmt.Sprint(err), "(300,200)") {
				t.Errorf("%s: got %v, want the interference, and where the pointer is", test.action.Kind(), err)
			}
			var words []string
			for _, e := range d.events(t) {
				words = append(words, e.String())
			}
			if got := strings.Join(words, ", "); got != test.want {
				t.Errorf("%s: got %s, want %s", test.action.Kind(), got, test.want)
			}
			d.free(t)
		}
	})
}

// TestTwoDriversOnOneDisplay has two drivers act in turn: neither takes the other's doings for its own, nor for those
// of a driver that died.
func TestTwoDriversOnOneDisplay(t *testing.T) {
	first := newDesktop(t, x11.Options{Sink: x11.SinkXTEST, Hold: 200 * time.Millisecond})
	done := make(chan error, 1)
	go func() {
		done <- first.Keypress(context.Background(), driver.Keypress{Keys: []string{"CTRL", "a"}})
	}()
	if err := first.window.WaitFor(witness.KeyDown, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	second := desktop{open(t, x11.Options{Display: first.server.Display(), Sink: x11.SinkXTEST}), first.server, first.window}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := second.Click(t.Context(), driver.Click{X: 9, Y: 9, Button: driver.ButtonLeft}); err != nil {
		t.Error(err)
	}
	events := first.events(t)
	if held := events[2].Time - events[1].Time; held < 190 {
		t.Errorf("the chord was held for %d ms, want 200: the second driver must not touch it", held)
	}
	first.free(t)
}

// TestWatchdog checks the life of a watchdog: it ends with the driver, signals for the driver's process do not reach it,
// and one that cannot be had is an error or a warning.
func TestWatchdog(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := xvfb.ForTest(t, 64, 64)
	var log lines
	opts := x11.Options{Display: server.Display(), Sink: x11.SinkXTEST, Watchdog: []string{self, "watchdog"}, Logger: log.logger()}
	d, err := x11.Open(t.Context(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Errorf("Close took %v, want it to take the end of the watchdog, no longer", took)
	}
	if got := log.String(); got != "" {
		t.Errorf("got log %s, want nothing to say", got)
	}

	opts.Watchdog = []string{"/no/such/program"}
	if d, err := x11.Open(t.Context(), &opts); d != nil || !strings.Contains(fmt.Sprint(err), "starting the watchdog: running /no/such/program") {
		t.Errorf("got %v, %v, want to be told which program", d, err)
	}
	opts.Watchdog = []string{"false"}
	if _, err := exec.LookPath("false"); err != nil {
		t.Skip("needs false")
	}
	if err := open(t, opts).Close(); err != nil {
		t.Error(err)
	}
	if got := log.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "running false") {
		t.Errorf("got log %s, want a warning", got)
	}
}

// TestWatchdogAndSignals interrupts the watchdog's group and hangs up, as the end of a terminal does: it still does its
// work.
func TestWatchdogAndSignals(t *testing.T) {
	s := newStage(t)
	a := startActor(t, s.server.Display(), x11.SinkXTEST, "drag")
	if err := s.window.WaitFor(witness.ButtonDown, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // It ignores them from soon after its start.
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if err := a.watchdog.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond)
	a.kill(false)
	deadline := time.Now().Add(5 * time.Second)
	for s.trace(t) != "" {
		if time.Now().After(deadline) {
			t.Fatal(s.trace(t))
		}
		time.Sleep(time.Millisecond)
	}
}

// TestWatchRefuses gives a watchdog what it cannot watch.
func TestWatchRefuses(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	if err := x11.Watch(t.Context(), server.Display(), "me"); !errors.Is(err, driver.ErrInvalidAction) || !strings.Contains(fmt.Sprint(err), `driver "me"`) {
		t.Errorf("got %v, want the name refused", err)
	}
	if err := x11.Watch(t.Context(), ":12345", "1"); !errors.Is(err, driver.ErrNoDisplay) {
		t.Errorf("got %v, want no display", err)
	}
	if err := x11.Watch(t.Context(), server.Display(), "1234567"); err != nil {
		t.Errorf("got %v for a driver that is gone", err)
	}
	lasting := fmt.Sprint(newPerson(t, server.Display()).root) // a window that does not go away
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := x11.Watch(ctx, server.Display(), lasting); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline exceeded", err)
	}
	done := make(chan error)
	go func() { done <- x11.Watch(t.Context(), server.Display(), lasting) }()
	time.Sleep(50 * time.Millisecond)
	server.Kill()
	if err := <-done; !errors.Is(err, driver.ErrDisplayLost) {
		t.Errorf("got %v when the server went, want the display lost", err)
	}
}
