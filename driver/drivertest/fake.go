// Package drivertest helps to test drivers and what is built on them: a driver that records instead of acting, and
// one contract test that every driver passes, the fake included.
package drivertest

import (
	"context"
	"fmt"
	"image"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/deskagent/deskagent/driver"
)

// A Fake is a [driver.Driver] and [driver.Sizer] without a desktop. It checks actions as a real driver does, with
// a plain US keyboard, and records them with the events that a real one would make of them. Set its fields before
// its first use; its methods may be called from any goroutine.
type Fake struct {
	// Screen is the area of the screen.
	Screen image.Rectangle
	// Hook, when not nil, is called with a copy of each action that has been found good, before its first event.
	// Its error becomes the action's, and there are no events then. It may block, as an action that takes long.
	Hook func(ctx context.Context, a driver.Action) error
	// Picture, when not nil, makes what Screenshot returns; otherwise that is grey.
	Picture func() *image.RGBA

	once sync.Once
	turn chan struct{} // holds a token while an action runs

	mu      sync.Mutex
	actions []driver.Action
	events  []string
	held    []string // in the order of the presses
	pointer image.Point
	calls   int // in progress
	overlap int
}

var (
	_ driver.Driver = (*Fake)(nil)
	_ driver.Sizer  = (*Fake)(nil)
)

// Actions returns the actions that were found good, in order, those that a Hook made fail included.
func (f *Fake) Actions() []driver.Action {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.actions)
}

// Events returns the presses and releases since the last call, in the words of [Rig].
func (f *Fake) Events() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

// Held returns what is down, in the words of [Rig].
func (f *Fake) Held() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.held)
}

// Pointer returns where the pointer is.
func (f *Fake) Pointer() image.Point {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pointer
}

// Overlap returns how many calls there were at one time, at most. Actions run one at a time whatever callers do;
// this tells whether the callers took turns.
func (f *Fake) Overlap() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.overlap
}

// Click records a click.
func (f *Fake) Click(ctx context.Context, a driver.Click) error {
	return f.do(ctx, a, func() error {
		if !a.Button.Valid() {
			return fmt.Errorf("%w %v", driver.ErrUnknownButton, a.Button)
		}
		return nil
	}, func() error {
		f.click(xButtons[a.Button])
		return nil
	})
}

// DoubleClick records two clicks.
func (f *Fake) DoubleClick(ctx context.Context, a driver.DoubleClick) error {
	return f.do(ctx, a, nil, func() error {
		f.click(xButtons[driver.ButtonLeft])
		f.click(xButtons[driver.ButtonLeft])
		return nil
	})
}

// dragPace is how long the fake stays at each point of a path, so that a drag can be cancelled half-way.
const dragPace = time.Millisecond

// Drag records a drag, at a millisecond per point.
func (f *Fake) Drag(ctx context.Context, a driver.Drag) error {
	return f.do(ctx, a, func() error {
		if len(a.Path) < 2 {
			return fmt.Errorf("%w: path of %d points, want 2 or more", driver.ErrInvalidAction, len(a.Path))
		}
		return nil
	}, func() error {
		f.press("button 1")
		for _, p := range a.Path[1:] {
			f.move(p)
			select {
			case <-time.After(dragPace):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

// Keypress records a chord.
func (f *Fake) Keypress(ctx context.Context, a driver.Keypress) error {
	return f.do(ctx, a, func() error {
		if len(a.Keys) == 0 {
			return fmt.Errorf("%w: no keys", driver.ErrInvalidAction)
		}
		return nil
	}, func() error {
		f.press(chord(a.Keys)...)
		return nil
	})
}

// Move records a motion.
func (f *Fake) Move(ctx context.Context, a driver.Move) error {
	return f.do(ctx, a, nil, func() error { return nil })
}

// Scroll records one notch for each axis that has a distance.
func (f *Fake) Scroll(ctx context.Context, a driver.Scroll) error {
	return f.do(ctx, a, func() error {
		for _, distance := range []int{a.ScrollX, a.ScrollY} {
			if distance < math.MinInt32 || distance > math.MaxInt32 {
				return fmt.Errorf("%w: %d pixels", driver.ErrInvalidAction, distance)
			}
		}
		return nil
	}, func() error {
		f.wheel(a.ScrollY, 4, 5)
		f.wheel(a.ScrollX, 6, 7)
		return nil
	})
}

// Type records the keys of a text.
func (f *Fake) Type(ctx context.Context, a driver.Type) error {
	return f.do(ctx, a, func() error {
		for i, r := range []rune(a.Text) {
			if r != '\n' && r != '\t' && (r < ' ' || r > '~') {
				return fmt.Errorf("character %+q at index %d: %w", r, i, driver.ErrUnsupported)
			}
		}
		return nil
	}, func() error {
		for _, r := range a.Text {
			keys := chord([]string{string(r)})
			f.press(keys...)
			f.release(len(keys))
		}
		return nil
	})
}

// Wait records a wait and takes no time.
func (f *Fake) Wait(ctx context.Context, a driver.Wait) error {
	return f.do(ctx, a, nil, func() error { return nil })
}

// Screenshot records a screenshot.
func (f *Fake) Screenshot(ctx context.Context) (frame *driver.Frame, err error) {
	err = f.do(ctx, driver.Screenshot{}, nil, func() error {
		picture := f.Picture
		if picture == nil {
			picture = f.grey
		}
		frame = &driver.Frame{Image: picture(), Taken: time.Now()}
		return nil
	})
	return frame, err
}

// Bounds returns Screen.
func (f *Fake) Bounds(ctx context.Context) (image.Rectangle, error) {
	return f.Screen, context.Cause(ctx)
}

func (f *Fake) grey() *image.RGBA {
	img := image.NewRGBA(f.Screen)
	for i := range img.Pix {
		img.Pix[i] = 0x80
		if i%4 == 3 {
			img.Pix[i] = 0xff
		}
	}
	return img
}

// do performs one action: it checks, presses the keys that are to be held, moves to the first point, acts and
// releases.
func (f *Fake) do(ctx context.Context, a driver.Action, check, act func() error) (err error) {
	f.once.Do(func() { f.turn = make(chan struct{}, 1) })
	f.count(1)
	defer f.count(-1)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", a.Kind(), err)
		}
	}()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	if err := f.check(a); err != nil {
		return err
	}
	f.mu.Lock()
	f.actions = append(f.actions, driver.Clone(a))
	f.mu.Unlock()
	if f.Hook != nil {
		if err := f.Hook(ctx, driver.Clone(a)); err != nil {
			return err
		}
	}
	defer func() { f.release(len(f.Held())) }()
	f.press(chord(driver.HeldKeys(a))...)
	if points := driver.Points(a); len(points) > 0 {
		f.move(points[0])
	}
	return act()
}

// check is what all kinds have in common.
func (f *Fake) check(a driver.Action) error {
	for _, p := range driver.Points(a) {
		if !p.In(f.Screen) {
			return fmt.Errorf("point %v: %w of %v", p, driver.ErrOutOfBounds, f.Screen)
		}
	}
	keys := driver.HeldKeys(a)
	if press, ok := a.(driver.Keypress); ok {
		keys = press.Keys
	}
	_, err := driver.ParseKeys(keys)
	return err
}

func (f *Fake) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls += n
	f.overlap = max(f.overlap, f.calls)
}

func (f *Fake) move(p image.Point) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pointer = p
}

func (f *Fake) press(things ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, thing := range things {
		f.held = append(f.held, thing)
		f.events = append(f.events, f.word(thing, "down"))
	}
}

// release releases the last n things, the last one first.
func (f *Fake) release(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		last := len(f.held) - 1
		f.events = append(f.events, f.word(f.held[last], "up"))
		f.held = f.held[:last]
	}
}

func (f *Fake) word(thing, direction string) string {
	if strings.HasPrefix(thing, "button ") {
		return fmt.Sprintf("%s %s %v", thing, direction, f.pointer)
	}
	return fmt.Sprintf("key %s %s", thing, direction)
}

// xButtons are the X numbers of the buttons.
var xButtons = map[driver.Button]int{driver.ButtonLeft: 1, driver.ButtonRight: 3, driver.ButtonWheel: 2, driver.ButtonBack: 8, driver.ButtonForward: 9}

func (f *Fake) click(number int) {
	f.press(fmt.Sprintf("button %d", number))
	f.release(1)
}

func (f *Fake) wheel(distance, back, forth int) {
	switch {
	case distance < 0:
		f.click(back)
	case distance > 0:
		f.click(forth)
	}
}

// The keys of a US keyboard that carry two characters other than a letter.
const (
	plainKeys   = "`1234567890-=[]\\;',./"
	shiftedKeys = "~!@#$%^&*()_+{}|:\"<>?"
)

// chord names the keys of a chord by what they give without Shift, with a Shift where one is needed. The names
// have been found good.
func chord(names []string) []string {
	symbols, err := driver.ParseKeys(names)
	if err != nil {
		panic(err)
	}
	modified := slices.ContainsFunc(symbols, driver.Key.Modifier)
	shifted := slices.Contains(symbols, driver.KeyShift)
	var keys []string
	for _, symbol := range symbols {
		r, _ := symbol.Rune()
		needsShift := unicode.IsUpper(r) && !modified
		if i := strings.IndexRune(shiftedKeys, r); i >= 0 {
			symbol, needsShift = driver.Key(plainKeys[i]), true
		} else if unicode.IsUpper(r) {
			symbol, _ = driver.RuneKey(unicode.ToLower(r))
		}
		if needsShift && !shifted {
			keys, shifted = append(keys, driver.KeyShift.String()), true
		}
		keys = append(keys, symbol.String())
	}
	return keys
}
