package x11

import (
	"context"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/xtest"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// script is a sink that writes down the keycodes, as minus on release, and does something at the first motion.
type script struct {
	event.Sink
	codes  []int
	onMove func() error
}

func (s *script) Move(image.Point) error        { return s.onMove() }
func (s *script) Button(n byte, _ bool) error   { return nil }
func (s *script) Wheel(n byte, count int) error { return nil }
func (s *script) Sync() error                   { return nil }
func (s *script) Close()                        {}
func (s *script) Key(code xproto.Keycode, _ driver.Key, down bool) error {
	if down {
		s.codes = append(s.codes, int(code))
	} else {
		s.codes = append(s.codes, -int(code))
	}
	if code == 3 {
		return errors.New("key 3 is broken")
	}
	return nil
}

// TestReleasedOnFault checks that everything is released, in the reverse order, when an action panics, when a
// press fails, and when a release fails.
func TestReleasedOnFault(t *testing.T) {
	tests := []struct {
		name   string
		press  []xproto.Keycode
		onMove func() error
		want   []int
		says   string
	}{
		{"panic", []xproto.Keycode{1, 2}, func() error { panic("out of hand") }, []int{1, 2, -2, -1}, "panic: out of hand"},
		{"error", []xproto.Keycode{1, 2}, func() error { return errors.New("stuck") }, []int{1, 2, -2, -1}, "stuck"},
		{"press and release fail", []xproto.Keycode{1, 3, 2}, nil, []int{1, 3, -3, -1}, "key 3 is broken"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := &Driver{opts: Options{Logger: slog.New(slog.DiscardHandler)}}
			d.closing, d.close = context.WithCancelCause(t.Context())
			defer d.close(nil)
			sink := &script{onMove: test.onMove}
			k := &desk{opts: &d.opts, hands: hands{sink: sink}}
			var held []thing
			for _, code := range test.press {
				held = append(held, thing{key: keyboard.Stroke{Code: code}})
			}
			err := d.perform(job{ctx: t.Context(), run: func(context.Context, *desk) error {
				if err := k.hands.press(held...); err != nil {
					return err
				}
				return sink.Move(image.Point{})
			}}, k)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %s", err, test.says)
			}
			if !slices.Equal(sink.codes, test.want) {
				t.Errorf("got %v, want %v", sink.codes, test.want)
			}
		})
	}
}

// rival is a sink with a person beside it who moves the pointer to (1,1) after each of its motions.
type rival struct {
	event.Sink
	conn *display.Conn
}

func (r rival) Move(screenPt image.Point) error {
	if err := errors.Join(r.Sink.Move(screenPt), r.Sink.Sync()); err != nil {
		return err
	}
	return xproto.WarpPointerChecked(r.conn.X, 0, r.conn.Screen.Root, 0, 0, 0, 0, 1, 1).Check()
}

// openDesk opens a driver by hand, and has its sink go through another.
func openDesk(t *testing.T, opts Options, wrap func(k *desk) event.Sink) *Driver {
	t.Helper()
	opts, err := opts.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{opts: opts, jobs: make(chan job)}
	d.closing, d.close = context.WithCancelCause(context.Background())
	k, err := d.open()
	if err != nil {
		t.Fatal(err)
	}
	k.hands.sink = wrap(k)
	go func() {
		for j := range d.jobs {
			j.done <- d.perform(j, k)
		}
	}()
	t.Cleanup(func() {
		close(d.jobs)
		k.conn.Close()
	})
	return d
}

// connect connects to a display as somebody else.
func connect(t *testing.T, displayName string) *display.Conn {
	t.Helper()
	conn, err := display.Open(displayName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestInterference is row M10 of the field cases: somebody moves the pointer between the motion and what is to be done
// there, which is not done.
func TestInterference(t *testing.T) {
	server := xvfb.ForTest(t, 320, 200)
	window := witness.ForTest(t, server.Display())
	conn := connect(t, server.Display())
	d := openDesk(t, Options{Display: server.Display(), Sink: SinkXTEST}, func(k *desk) event.Sink { return rival{k.hands.sink, conn} })
	for _, a := range []driver.Action{
		driver.Click{X: 50, Y: 60, Button: driver.ButtonRight, Keys: []string{"CTRL"}}, driver.DoubleClick{X: 50, Y: 60},
		driver.Drag{Path: []image.Point{{X: 50, Y: 60}, {X: 70, Y: 80}}}, driver.Scroll{X: 50, Y: 60, ScrollY: 120},
	} {
		_, err := driver.Do(t.Context(), d, a)
		if !errors.Is(err, driver.ErrInterference) || !strings.Contains(fmt.Sprint(err), "at (1,1), not at (50,60)") {
			t.Errorf("%s: got %v, want the interference, and where the pointer is", a.Kind(), err)
		}
	}
	events, err := window.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == witness.ButtonDown {
			t.Errorf("got %v, want nothing pressed", e)
		}
	}
	if held, err := window.Held(); err != nil || len(held) > 0 {
		t.Errorf("held %v, %v, want nothing", held, err)
	}
}

// auditor is a sink with a connection of its own that looks, before it passes an event on, whether what may be down is
// on record. It presses at once and lets go as late as it may.
type auditor struct {
	event.Sink
	conn   *display.Conn
	late   []func() error
	faults []string
}

func (a *auditor) expect(word uint32) {
	const name = "_DESKAGENT_WARD_0"
	atom, err := xproto.InternAtom(a.conn.X, true, uint16(len(name)), name).Reply()
	if err != nil {
		a.faults = append(a.faults, err.Error())
		return
	}
	record, err := xproto.GetProperty(a.conn.X, false, a.conn.Screen.Root, atom.Atom, xproto.AtomCardinal, 0, 64).Reply()
	if err != nil {
		a.faults = append(a.faults, err.Error())
		return
	}
	for value := record.Value; len(value) >= 4; value = value[4:] {
		if xgb.Get32(value) == word {
			return
		}
	}
	a.faults = append(a.faults, fmt.Sprintf("%#x is not on record, %x is", word, record.Value))
}

func (a *auditor) pass(word uint32, down bool, event func() error) error {
	checked := func() error {
		a.expect(word)
		return event()
	}
	if !down {
		a.late = append(a.late, checked)
		return nil
	}
	return errors.Join(a.Sync(), checked())
}

func (a *auditor) Button(number byte, down bool) error {
	return a.pass(2<<8|uint32(number), down, func() error { return a.Sink.Button(number, down) })
}

func (a *auditor) Wheel(number byte, notches int) error {
	return a.pass(2<<8|uint32(number), true, func() error { return a.Sink.Wheel(number, notches) })
}

func (a *auditor) Key(code xproto.Keycode, symbol driver.Key, down bool) error {
	return a.pass(1<<8|uint32(code), down, func() error { return a.Sink.Key(code, symbol, down) })
}

func (a *auditor) Sync() error {
	var faults []error
	for _, event := range a.late {
		faults = append(faults, event())
	}
	a.late = nil
	return errors.Join(append(faults, a.Sink.Sync())...)
}

// TestRecorded checks that the record of what may be down is on the display before the press and until the release, also
// where the events go another way than the record.
func TestRecorded(t *testing.T) {
	server := xvfb.ForTest(t, 320, 200)
	var a *auditor
	d := openDesk(t, Options{Display: server.Display(), Sink: SinkXTEST}, func(k *desk) event.Sink {
		apart, err := xtest.New(connect(t, server.Display()))
		if err != nil {
			t.Fatal(err)
		}
		a, k.hands.apart = &auditor{Sink: apart, conn: connect(t, server.Display())}, true
		return a
	})
	for range 20 {
		for _, action := range []driver.Action{
			driver.Keypress{Keys: []string{"CTRL", "a"}}, driver.Click{X: 5, Y: 5, Button: driver.ButtonBack, Keys: []string{"SHIFT"}},
			driver.Scroll{X: 5, Y: 5, ScrollY: 240}, driver.Drag{Path: []image.Point{{X: 1, Y: 1}, {X: 9, Y: 9}}}, driver.Click{X: 5, Y: 5, Button: driver.ButtonRight},
		} {
			if _, err := driver.Do(t.Context(), d, action); err != nil {
				t.Errorf("%s: %v", action.Kind(), err)
			}
		}
	}
	if len(a.faults) > 0 {
		t.Errorf("%d times, first %s", len(a.faults), a.faults[0])
	}
}

// TestToNotches is row S2 of the field cases, the arithmetic of it.
func TestToNotches(t *testing.T) {
	for _, perNotch := range []int{1, 2, 3, 53, 100, 120} {
		last := 0
		for distance := range 3 * perNotch {
			n, rest := toNotches(distance, perNotch)
			minus, minusRest := toNotches(-distance, perNotch)
			if n < last || minus != -n || minusRest != -rest || n*perNotch+rest != distance || 2*rest > perNotch || 2*rest < -perNotch {
				t.Errorf("%d pixels at %d: %d notches and %d over, and %d and %d for the opposite", distance, perNotch, n, rest, minus, minusRest)
			}
			last = n
		}
	}
}

func TestBetween(t *testing.T) {
	a, b := image.Pt(3, 200), image.Pt(-10, 7)
	if got := between(a, b, 7, 7); got != b {
		t.Errorf("got %v at the end, want %v", got, b)
	}
	if got, want := between(a, b, 1, 2), image.Pt(-3, 104); got != want {
		t.Errorf("got %v half-way, want %v", got, want)
	}
}

func TestTurns(t *testing.T) {
	a, b := image.Pt(0, 0), image.Pt(100, 0)
	for c, want := range map[image.Point]bool{
		{X: 200, Y: 0}: false, {X: 200, Y: 57}: false, {X: 200, Y: 58}: true, {X: 200, Y: -58}: true, {X: 100, Y: 1}: true, {X: 0, Y: 0}: true,
	} {
		if got := turns(a, b, c); got != want {
			t.Errorf("%v, %v, %v: got %v, want %v", a, b, c, got, want)
		}
	}
}
