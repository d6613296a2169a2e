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

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// script is a sink that writes down the keycodes, as minus on release, and does something at the first motion.
type script struct {
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

// TestInterference is row M10 of the field cases: somebody moves the pointer between the motion and what is to be done
// there, which is not done.
func TestInterference(t *testing.T) {
	server := xvfb.ForTest(t, 320, 200)
	window := witness.ForTest(t, server.Display())
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	opts, err := (&Options{Display: server.Display(), Sink: SinkXTEST}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{opts: opts, jobs: make(chan job)}
	d.closing, d.close = context.WithCancelCause(context.Background())
	k, err := d.open()
	if err != nil {
		t.Fatal(err)
	}
	defer k.conn.Close()
	k.hands.sink = rival{k.hands.sink, conn}
	go func() {
		for j := range d.jobs {
			j.done <- d.perform(j, k)
		}
	}()
	defer close(d.jobs)
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
