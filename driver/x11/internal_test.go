package x11

import (
	"context"
	"errors"
	"image"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
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
