package drivertest

import (
	"context"
	"errors"
	"fmt"
	"image"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// A Rig is a driver on a desktop of its own with a US keyboard and nothing but a window over the whole screen, and
// the view that somebody else has of it.
type Rig struct {
	Driver driver.Driver
	// Screen is the area of the screen, at least 400x300, from (0,0).
	Screen image.Rectangle
	// Events returns the presses and releases since its last call, in order: "key Control_L down", with the symbol
	// that the key has without Shift, or "button 3 up (10,20)", with the X number and the place of the pointer.
	Events func() []string
	// Held returns what is down: "Control_L" or "button 1".
	Held func() []string
	// Pointer returns where the pointer is.
	Pointer func() image.Point
}

// Run checks that a driver keeps the contract of [driver.Driver]. It calls open for a rig, which open's t ends.
func Run(t *testing.T, open func(t *testing.T) Rig) {
	r := open(t)
	t.Run("effects", r.effects)
	t.Run("refusals", r.refusals)
	t.Run("cancelled before", r.cancelledBefore)
	t.Run("M11 cancelled in a drag", r.cancelledDrag)
	t.Run("one at a time", r.oneAtATime)
	t.Run("screenshot", r.screenshot)
	t.Run("size", r.size)
}

// promptly is how long a driver may take to come back when it is told to stop.
const promptly = time.Second

// settle leaves the rig with nothing down and no events outstanding, and the pointer at a place no row uses.
func (r Rig) settle(t *testing.T) {
	t.Helper()
	if err := r.Driver.Move(t.Context(), driver.Move{X: home.X, Y: home.Y}); err != nil {
		t.Fatal(err)
	}
	r.Events()
}

var home = image.Pt(399, 299)

// perform does an action and checks what holds for all of them.
func (r Rig) perform(ctx context.Context, t *testing.T, a driver.Action) error {
	t.Helper()
	given := driver.Clone(a)
	_, err := driver.Do(ctx, r.Driver, given)
	if !reflect.DeepEqual(given, a) {
		t.Errorf("the action became %#v, want it unchanged: %#v", given, a)
	}
	if got := r.Held(); len(got) > 0 {
		t.Errorf("held %v afterwards, want nothing", got)
	}
	return err
}

func (r Rig) effects(t *testing.T) {
	last := r.Screen.Max.Sub(image.Pt(1, 1))
	tests := []struct {
		name   string
		action driver.Action
		want   string // the events, with equal turns of the wheel counted once
		at     image.Point
	}{
		{"M1 left", click(10, 20, driver.ButtonLeft), "button 1 down (10,20), button 1 up (10,20)", image.Pt(10, 20)},
		{"M1 right", click(11, 20, driver.ButtonRight), "button 3 down (11,20), button 3 up (11,20)", image.Pt(11, 20)},
		{"M1 wheel", click(12, 20, driver.ButtonWheel), "button 2 down (12,20), button 2 up (12,20)", image.Pt(12, 20)},
		{"M1 back", click(13, 20, driver.ButtonBack), "button 8 down (13,20), button 8 up (13,20)", image.Pt(13, 20)},
		{"M1 forward", click(14, 20, driver.ButtonForward), "button 9 down (14,20), button 9 up (14,20)", image.Pt(14, 20)},
		{"M8 click at 0", click(0, 250, driver.ButtonLeft), "button 1 down (0,250), button 1 up (0,250)", image.Pt(0, 250)},
		{"click at the last pixel", click(last.X, last.Y, driver.ButtonLeft),
			fmt.Sprintf("button 1 down %v, button 1 up %v", last, last), last},
		{"click holding", driver.Click{X: 50, Y: 60, Button: driver.ButtonBack, Keys: []string{"CTRL", "shift"}},
			"key Control_L down, key Shift_L down, button 8 down (50,60), button 8 up (50,60), key Shift_L up, key Control_L up", image.Pt(50, 60)},
		{"double click", driver.DoubleClick{X: 70, Y: 80},
			"button 1 down (70,80), button 1 up (70,80), button 1 down (70,80), button 1 up (70,80)", image.Pt(70, 80)},
		{"double click holding", driver.DoubleClick{X: 170, Y: 80, Keys: []string{"ALT"}},
			"key Alt_L down, button 1 down (170,80), button 1 up (170,80), button 1 down (170,80), button 1 up (170,80), key Alt_L up", image.Pt(170, 80)},
		{"M5 drag", driver.Drag{Path: []image.Point{{X: 10, Y: 10}, {X: 200, Y: 100}, {X: 33, Y: 44}}},
			"button 1 down (10,10), button 1 up (33,44)", image.Pt(33, 44)},
		{"M8 drag from 0", driver.Drag{Path: []image.Point{{}, {X: 9, Y: 9}}}, "button 1 down (0,0), button 1 up (9,9)", image.Pt(9, 9)},
		{"M3 drag of equal points", driver.Drag{Path: []image.Point{{X: 5, Y: 5}, {X: 5, Y: 5}}}, "button 1 down (5,5), button 1 up (5,5)", image.Pt(5, 5)},
		{"drag holding", driver.Drag{Path: []image.Point{{X: 1, Y: 2}, {X: 3, Y: 4}}, Keys: []string{"META"}},
			"key Super_L down, button 1 down (1,2), button 1 up (3,4), key Super_L up", image.Pt(3, 4)},
		{"K9 chord", driver.Keypress{Keys: []string{"CTRL", "C"}}, "key Control_L down, key c down, key c up, key Control_L up", home},
		{"chord with Shift", driver.Keypress{Keys: []string{"CTRL", "+"}},
			"key Control_L down, key Shift_L down, key = down, key = up, key Shift_L up, key Control_L up", home},
		{"capital letter", driver.Keypress{Keys: []string{"A"}}, "key Shift_L down, key a down, key a up, key Shift_L up", home},
		{"named key", driver.Keypress{Keys: []string{"PageUp"}}, "key Page_Up down, key Page_Up up", home},
		{"move", driver.Move{X: 321, Y: 123}, "", image.Pt(321, 123)},
		{"move holding", driver.Move{X: 320, Y: 123, Keys: []string{"SHIFT"}}, "key Shift_L down, key Shift_L up", image.Pt(320, 123)},
		{"M5 scroll down", driver.Scroll{X: 30, Y: 40, ScrollY: 300}, "button 5 down (30,40), button 5 up (30,40)", image.Pt(30, 40)},
		{"scroll up", driver.Scroll{X: 31, Y: 40, ScrollY: -300}, "button 4 down (31,40), button 4 up (31,40)", image.Pt(31, 40)},
		{"S5 scroll right", driver.Scroll{X: 32, Y: 40, ScrollX: 300}, "button 7 down (32,40), button 7 up (32,40)", image.Pt(32, 40)},
		{"S4 scroll left", driver.Scroll{X: 33, Y: 40, ScrollX: -300}, "button 6 down (33,40), button 6 up (33,40)", image.Pt(33, 40)},
		{"scroll by nothing", driver.Scroll{X: 34, Y: 40}, "", image.Pt(34, 40)},
		{"scroll holding", driver.Scroll{X: 35, Y: 40, ScrollY: 300, Keys: []string{"CTRL"}},
			"key Control_L down, button 5 down (35,40), button 5 up (35,40), key Control_L up", image.Pt(35, 40)},
		{"type", driver.Type{Text: "a-\n\t1"},
			"key a down, key a up, key - down, key - up, key Return down, key Return up, key Tab down, key Tab up, key 1 down, key 1 up", home},
		{"type with Shift", driver.Type{Text: "?"}, "key Shift_L down, key / down, key / up, key Shift_L up", home},
		{"type nothing", driver.Type{}, "", home},
		{"wait", driver.Wait{}, "", home},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r.settle(t)
			if err := r.perform(t.Context(), t, test.action); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(turnsOnce(r.Events()), ", "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if got := r.Pointer(); got != test.at {
				t.Errorf("pointer at %v, want %v", got, test.at)
			}
		})
	}
}

func click(x, y int, button driver.Button) driver.Click {
	return driver.Click{X: x, Y: y, Button: button}
}

// turnsOnce leaves one notch of each run of equal ones: how many there are is a setting of the driver.
func turnsOnce(events []string) []string {
	var once []string
	for i := 0; i < len(events); i++ {
		again := i+1 < len(events) && len(once) >= 2 && slices.Equal(once[len(once)-2:], events[i:i+2])
		if again && events[i] >= "button 4" && events[i] < "button 8" {
			i++
			continue
		}
		once = append(once, events[i])
	}
	return once
}

func (r Rig) refusals(t *testing.T) {
	w, h := r.Screen.Dx(), r.Screen.Dy()
	outside := fmt.Sprintf("(%d,10)", w)
	tests := []struct {
		name   string
		action driver.Action
		want   error
		says   string
	}{
		{"click right of the screen", click(w, 10, driver.ButtonLeft), driver.ErrOutOfBounds, outside},
		{"click below the screen", click(10, h, driver.ButtonLeft), driver.ErrOutOfBounds, fmt.Sprintf("(10,%d)", h)},
		{"click left of the screen", click(-1, 10, driver.ButtonLeft), driver.ErrOutOfBounds, "(-1,10)"},
		{"click beyond 16 bits", click(1<<16+10, 10, driver.ButtonLeft), driver.ErrOutOfBounds, "(65546,10)"},
		{"double click outside", driver.DoubleClick{X: w, Y: 10}, driver.ErrOutOfBounds, outside},
		{"move outside", driver.Move{X: w, Y: 10}, driver.ErrOutOfBounds, outside},
		{"scroll outside", driver.Scroll{X: w, Y: 10, ScrollY: 300}, driver.ErrOutOfBounds, outside},
		{"M12 drag to outside", driver.Drag{Path: []image.Point{{X: 1, Y: 1}, {X: w, Y: 10}}}, driver.ErrOutOfBounds, outside},
		{"M12 drag over outside", driver.Drag{Path: []image.Point{{X: 1, Y: 1}, {X: w, Y: 10}, {X: 2, Y: 2}}}, driver.ErrOutOfBounds, outside},
		{"M12 drag of no points", driver.Drag{}, driver.ErrInvalidAction, "0 points"},
		{"M12 drag of one point", driver.Drag{Path: []image.Point{{X: 1, Y: 1}}}, driver.ErrInvalidAction, "1 point"},
		{"M2 no button", click(1, 1, 0), driver.ErrUnknownButton, "Button(0)"},
		{"M2 sixth button", click(1, 1, driver.ButtonForward+1), driver.ErrUnknownButton, "Button(6)"},
		{"K8 unknown key in a chord", driver.Keypress{Keys: []string{"CTRL", "NOPE", "W"}}, driver.ErrUnknownKey, `"NOPE"`},
		{"T24 a shell's command for a key", driver.Keypress{Keys: []string{"a; touch /tmp/pwn"}}, driver.ErrUnknownKey, `"a; touch /tmp/pwn"`},
		{"no keys", driver.Keypress{}, driver.ErrInvalidAction, "keys"},
		{"click holding an unknown key", driver.Click{X: 1, Y: 1, Button: driver.ButtonLeft, Keys: []string{"CTRL", "NOPE"}}, driver.ErrUnknownKey, `"NOPE"`},
		{"double click holding an unknown key", driver.DoubleClick{X: 1, Y: 1, Keys: []string{"NOPE"}}, driver.ErrUnknownKey, `"NOPE"`},
		{"drag holding an unknown key", driver.Drag{Path: []image.Point{{}, {}}, Keys: []string{"NOPE"}}, driver.ErrUnknownKey, `"NOPE"`},
		{"move holding an unknown key", driver.Move{X: 1, Y: 1, Keys: []string{"NOPE"}}, driver.ErrUnknownKey, `"NOPE"`},
		{"scroll holding an unknown key", driver.Scroll{X: 1, Y: 1, ScrollY: 300, Keys: []string{"NOPE"}}, driver.ErrUnknownKey, `"NOPE"`},
		{"scroll by far too much", driver.Scroll{X: 1, Y: 1, ScrollY: math.MaxInt}, driver.ErrInvalidAction, fmt.Sprint(math.MaxInt)},
		{"scroll by far too little", driver.Scroll{X: 1, Y: 1, ScrollX: math.MinInt}, driver.ErrInvalidAction, fmt.Sprint(math.MinInt)},
		{"T26 a character that no key gives", driver.Type{Text: "ab\x01c"}, driver.ErrUnsupported, `'\x01' at index 2`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r.settle(t)
			err := r.perform(t.Context(), t, test.action)
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("got error %v, want %q and %s", err, test.want, test.says)
			}
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("got error %q, want one line", err)
			}
			r.untouched(t)
		})
	}
}

// untouched checks that there has been no event since settle.
func (r Rig) untouched(t *testing.T) {
	t.Helper()
	if got := r.Events(); len(got) > 0 {
		t.Errorf("got events %v, want none", got)
	}
	if got := r.Pointer(); got != home {
		t.Errorf("pointer at %v, want it left at %v", got, home)
	}
}

func (r Rig) cancelledBefore(t *testing.T) {
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for _, a := range []driver.Action{
		click(1, 1, driver.ButtonLeft), driver.DoubleClick{X: 1, Y: 1}, driver.Drag{Path: []image.Point{{}, {X: 1}}},
		driver.Keypress{Keys: []string{"a"}}, driver.Move{X: 1, Y: 1}, driver.Screenshot{}, driver.Scroll{X: 1, Y: 1, ScrollY: 300},
		driver.Type{Text: "a"}, driver.Wait{},
	} {
		t.Run(string(a.Kind()), func(t *testing.T) {
			r.settle(t)
			if err := r.perform(ctx, t, a); !errors.Is(err, why) {
				t.Errorf("got error %v, want %v", err, why)
			}
			r.untouched(t)
		})
	}
}

func (r Rig) cancelledDrag(t *testing.T) {
	r.settle(t)
	path := make([]image.Point, 10_000) // takes far longer than this test waits
	for i := range path {
		path[i] = image.Pt(10+i%2*300, 10)
	}
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var cancelled time.Time
	go func() {
		for len(r.Held()) < 2 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
		cancelled = time.Now()
		cancel(why)
	}()
	err := r.perform(ctx, t, driver.Drag{Path: path, Keys: []string{"CTRL"}})
	took := time.Since(cancelled)
	if !errors.Is(err, why) {
		t.Fatalf("got error %v, want %v", err, why)
	}
	if took > promptly {
		t.Errorf("came back after %v, want at most %v", took, promptly)
	}
	got := r.Events()
	for i, e := range got {
		got[i], _, _ = strings.Cut(e, " (")
	}
	if want := "key Control_L down, button 1 down, button 1 up, key Control_L up"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}

func (r Rig) oneAtATime(t *testing.T) {
	r.settle(t)
	const callers, calls = 4, 5
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range calls {
				if err := r.Driver.Keypress(t.Context(), driver.Keypress{Keys: []string{"CTRL", string(rune('a' + i))}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := r.Events()
	if want := callers * calls * 4; len(got) != want {
		t.Fatalf("got %d events, want %d", len(got), want)
	}
	for chord := range slices.Chunk(got, 4) {
		if chord[0] != "key Control_L down" || chord[3] != "key Control_L up" || strings.TrimSuffix(chord[1], "down") != strings.TrimSuffix(chord[2], "up") {
			t.Errorf("got %v, want a whole chord", chord)
		}
	}
}

func (r Rig) screenshot(t *testing.T) {
	r.settle(t)
	before := time.Now()
	frame, err := r.Driver.Screenshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := frame.Image.Bounds(); got != r.Screen {
		t.Errorf("got a picture of %v, want %v", got, r.Screen)
	}
	if !frame.Image.Opaque() {
		t.Error("the picture is not opaque")
	}
	if frame.Taken.Before(before) || frame.Taken.After(time.Now()) {
		t.Errorf("taken at %v, want between %v and now", frame.Taken, before)
	}
	r.untouched(t)
}

func (r Rig) size(t *testing.T) {
	s, ok := r.Driver.(driver.Sizer)
	if !ok {
		t.Skip("the driver is no driver.Sizer, which it need not be")
	}
	if got, err := s.Bounds(t.Context()); err != nil || got != r.Screen {
		t.Errorf("got %v, %v, want %v", got, err, r.Screen)
	}
}
