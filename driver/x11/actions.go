package x11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/clipboard"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
)

// A desk is what the worker has of the display, and what it remembers from one action to the next.
type desk struct {
	opts   *Options
	conn   *display.Conn
	keys   *keyboard.Map
	keymap keymap
	eyes   *eyes
	hands  hands
	// clipboard is nil unless Options.Paste is set.
	clipboard *clipboard.Clipboard
	lifted    []keyboard.Stroke // modifiers of somebody else's, to be put back at the end of the action

	// The end of the last click with the left button.
	clicked struct {
		at     image.Point
		when   time.Time
		double bool
	}
	// owed is what was scrolled but did not make a notch, in pixels, by axis.
	owed struct{ x, y int }
}

// close ends what was opened beside the connection.
func (k *desk) close() error {
	k.hands.sink.Close()
	err := k.eyes.close()
	if k.clipboard == nil {
		return err
	}
	if k.clipboard.Serving() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), grace/2, errors.New("the clipboard manager does not answer"))
		defer cancel()
		if err := k.clipboard.HandOver(ctx); err != nil {
			k.opts.Logger.Warn("what was on the clipboard goes with this driver", "err", err)
		}
	}
	return cmp.Or(k.clipboard.Close(), err)
}

// The X numbers of the buttons and of the directions of the wheel.
var buttonNumbers = [...]byte{driver.ButtonLeft: 1, driver.ButtonRight: 3, driver.ButtonWheel: 2, driver.ButtonBack: 8, driver.ButtonForward: 9}

const (
	wheelUp    = 4
	wheelDown  = 5
	wheelLeft  = 6
	wheelRight = 7
)

var left = thing{button: buttonNumbers[driver.ButtonLeft]}

// maxScroll is the longest distance of one Scroll, in pixels: far beyond any page that is to be read, and near
// enough to stay quick.
const maxScroll = 100_000

// Click is [driver.Driver]'s.
func (d *Driver) Click(ctx context.Context, a driver.Click) error {
	at := image.Pt(a.X, a.Y)
	return d.act(ctx, fmt.Sprintf("clicking %v at %v", a.Button, at), func(ctx context.Context, k *desk) error {
		if !a.Button.Valid() {
			return fmt.Errorf("%w %v", driver.ErrUnknownButton, a.Button)
		}
		button := thing{button: buttonNumbers[a.Button]}
		p, err := k.check(ctx, a.Keys, []thing{button}, at)
		if err != nil {
			return err
		}
		if a.Button == driver.ButtonLeft {
			if err := k.letClickAge(ctx, at, false, &p.seen); err != nil {
				return err
			}
		}
		if err := k.moveHolding(p, at); err != nil {
			return err
		}
		return k.click(ctx, button, at, false)
	})
}

// DoubleClick is [driver.Driver]'s.
func (d *Driver) DoubleClick(ctx context.Context, a driver.DoubleClick) error {
	at := image.Pt(a.X, a.Y)
	return d.act(ctx, fmt.Sprintf("double-clicking at %v", at), func(ctx context.Context, k *desk) error {
		p, err := k.check(ctx, a.Keys, []thing{left}, at)
		if err != nil {
			return err
		}
		if err := k.letClickAge(ctx, at, true, &p.seen); err != nil {
			return err
		}
		if err := k.moveHolding(p, at); err != nil {
			return err
		}
		if err := k.click(ctx, left, at, false); err != nil {
			return err
		}
		if err := k.hands.pause(ctx, d.opts.DoubleClickGap); err != nil {
			return err
		}
		return k.click(ctx, left, at, true)
	})
}

// Drag is [driver.Driver]'s. A path needs two points at least; they may be equal.
func (d *Driver) Drag(ctx context.Context, a driver.Drag) error {
	return d.act(ctx, fmt.Sprintf("dragging along %s", pathWords(a.Path)), func(ctx context.Context, k *desk) error {
		if len(a.Path) < 2 {
			return fmt.Errorf("%w: path of %d points, want 2 or more", driver.ErrInvalidAction, len(a.Path))
		}
		p, err := k.check(ctx, a.Keys, []thing{left}, a.Path...)
		if err != nil {
			return err
		}
		if err := k.moveHolding(p, a.Path[0]); err != nil {
			return err
		}
		if err := k.stillAt(ctx, a.Path[0]); err != nil {
			return err
		}
		if err := k.hands.press(left); err != nil {
			return err
		}
		if err := k.hands.pause(ctx, d.opts.Hold); err != nil {
			return err
		}
		if err := k.follow(ctx, a.Path); err != nil {
			return err
		}
		if err := k.hands.pause(ctx, d.opts.Hold); err != nil {
			return err
		}
		if err := k.stillAt(ctx, a.Path[len(a.Path)-1]); err != nil {
			return err // The button goes up where the pointer is: there is no way to take back a drag.
		}
		return k.hands.release(1)
	})
}

// Keypress is [driver.Driver]'s.
func (d *Driver) Keypress(ctx context.Context, a driver.Keypress) error {
	return d.act(ctx, fmt.Sprintf("pressing %.100q", a.Keys), func(ctx context.Context, k *desk) error {
		if len(a.Keys) == 0 {
			return fmt.Errorf("%w: no keys", driver.ErrInvalidAction)
		}
		p, err := k.check(ctx, a.Keys, nil)
		if err != nil {
			return err
		}
		if err := k.begin(&p.seen, p.keys...); err != nil {
			return err
		}
		if err := k.hands.press(p.keys...); err != nil {
			return err
		}
		return k.hands.pause(ctx, d.opts.Hold)
	})
}

// Move is [driver.Driver]'s.
func (d *Driver) Move(ctx context.Context, a driver.Move) error {
	at := image.Pt(a.X, a.Y)
	return d.act(ctx, fmt.Sprintf("moving to %v", at), func(ctx context.Context, k *desk) error {
		p, err := k.check(ctx, a.Keys, nil, at)
		if err != nil {
			return err
		}
		return k.moveHolding(p, at)
	})
}

// Scroll is [driver.Driver]'s; the section on scrolling above says how pixels become notches.
func (d *Driver) Scroll(ctx context.Context, a driver.Scroll) error {
	at := image.Pt(a.X, a.Y)
	return d.act(ctx, fmt.Sprintf("scrolling by (%d,%d) at %v", a.ScrollX, a.ScrollY, at), func(ctx context.Context, k *desk) error {
		for _, distance := range []int{a.ScrollX, a.ScrollY} {
			if distance < -maxScroll || distance > maxScroll {
				return fmt.Errorf("%w: %d pixels, want at most %d", driver.ErrInvalidAction, distance, maxScroll)
			}
		}
		p, err := k.check(ctx, a.Keys, nil, at)
		if err != nil {
			return err
		}
		if err := k.moveHolding(p, at); err != nil {
			return err
		}
		if err := k.stillAt(ctx, at); err != nil {
			return err
		}
		down, err := k.scroll(ctx, &k.owed.y, a.ScrollY, wheelUp, wheelDown)
		if err != nil {
			return err
		}
		right, err := k.scroll(ctx, &k.owed.x, a.ScrollX, wheelLeft, wheelRight)
		if err == nil && down == 0 && right == 0 {
			k.sayNotTurned(a)
		}
		return err
	})
}

// Type is [driver.Driver]'s; the section on keys and text above says what can be typed. With [Options].Paste it pastes:
// any text but NUL characters and what is not UTF-8.
func (d *Driver) Type(ctx context.Context, a driver.Type) error {
	if d.opts.Paste {
		return d.act(ctx, fmt.Sprintf("pasting %d characters", utf8.RuneCountInString(a.Text)), func(ctx context.Context, k *desk) error {
			return k.paste(ctx, a.Text)
		})
	}
	return d.act(ctx, fmt.Sprintf("typing %d characters", utf8.RuneCountInString(a.Text)), func(ctx context.Context, k *desk) error {
		return k.write(ctx, a.Text)
	})
}

// A plan is an action that has been checked.
type plan struct {
	keys []thing // that are pressed first and released last
	seen view
}

// check finds the keys of an action, gives those a keycode that the map lacks, and looks at the action's points. All of
// an action is checked before its first event. What it is going to press besides its keys is recorded at once: then it
// need not be waited for.
func (k *desk) check(ctx context.Context, names []string, next []thing, points ...image.Point) (p plan, err error) {
	symbols, err := driver.ParseKeys(names)
	if err != nil {
		return p, err
	}
	if err := k.hands.record(next...); err != nil {
		return p, err
	}
	if p.seen, err = k.look(len(symbols) > 0); err != nil {
		return p, err
	}
	for _, at := range points {
		if bounds := p.seen.bounds; !at.In(bounds) {
			return p, fmt.Errorf("point %v: %w of %dx%d", at, driver.ErrOutOfBounds, bounds.Dx(), bounds.Dy())
		}
	}
	chord, bindings, err := k.keys.Chord(symbols, p.seen.keyboard)
	if err != nil {
		return p, err
	}
	if err := k.bind(ctx, bindings); err != nil {
		return p, err
	}
	for _, stroke := range chord {
		p.keys = append(p.keys, thing{key: stroke})
	}
	return p, nil
}

// moveHolding begins an action of the pointer: it presses the keys that are to be held, then moves, unless the
// pointer is there already.
func (k *desk) moveHolding(p plan, to image.Point) error {
	if err := k.begin(&p.seen, p.keys...); err != nil {
		return err
	}
	k.hands.was = p.seen.input.Pointer
	if err := k.hands.press(p.keys...); err != nil {
		return err
	}
	// What the server says is not enough: a motion may be waiting for a window manager that has frozen the pointer.
	if p.seen.input.Pointer == to && (k.hands.aim == to || !k.hands.aimed) {
		return nil
	}
	return k.hands.move(to)
}

// click presses and releases a button, if the pointer is where it was put.
func (k *desk) click(ctx context.Context, button thing, at image.Point, double bool) error {
	if err := k.stillAt(ctx, at); err != nil {
		return err
	}
	if err := k.hands.press(button); err != nil {
		return err
	}
	if button == left {
		defer func() { k.clicked.at, k.clicked.when, k.clicked.double = at, time.Now(), double }()
	}
	if err := k.hands.pause(ctx, k.opts.Hold); err != nil {
		return err
	}
	return k.hands.release(1)
}

// letClickAge waits until programs no longer take a click at a point for the continuation of the last one, when
// one of the two is a double click. Programs count clicks by time and place; nothing that is sent in between, such
// as motion to elsewhere and back, makes them start anew. It looks again at what may be different then.
func (k *desk) letClickAge(ctx context.Context, at image.Point, double bool, seen *view) (err error) {
	const near = 10 // pixels; toolkits allow about 5
	place := image.Rectangle{Min: k.clicked.at, Max: k.clicked.at}.Inset(-near)
	age := time.Since(k.clicked.when)
	if !double && !k.clicked.double || age >= k.opts.DoubleClickTime || !at.In(place) {
		return nil
	}
	if err := sleep(ctx, k.opts.DoubleClickTime-age); err != nil {
		return err
	}
	seen.input, err = k.conn.Input()
	return err
}

// follow moves along a path in steps, at an even speed. The points of the path are all visited. Where it turns it rests
// until programs have seen that: GTK looks at the last of the motions of a frame only, and would cut the corner.
func (k *desk) follow(ctx context.Context, path []image.Point) error {
	const frame = 20 * time.Millisecond // a little more than a 60th of a second
	path = slices.Compact(slices.Clone(path))
	step := float64(k.opts.DragStep)
	var since float64 // the way since the last pause
	for i, to := range path[1:] {
		from := path[i]
		distance := length(to.Sub(from))
		steps := int(math.Ceil(distance / step))
		for s := 1; s <= steps; s++ {
			if err := k.hands.move(between(from, to, s, steps)); err != nil {
				return err
			}
			if since += distance / float64(steps); since < step && ctx.Err() == nil {
				continue
			}
			since = max(0, since-step)
			if err := k.hands.pause(ctx, k.opts.DragPace); err != nil {
				return err
			}
		}
		if i+2 < len(path) && turns(from, to, path[i+2]) {
			if err := k.hands.pause(ctx, frame); err != nil {
				return err
			}
		}
	}
	return nil
}

func length(v image.Point) float64 { return math.Hypot(float64(v.X), float64(v.Y)) }

// turns reports whether the way over b is a corner, of more than 30 degrees, and not a stroke or a curve.
func turns(a, b, c image.Point) bool {
	u, v := b.Sub(a), c.Sub(b)
	return float64(u.X*v.X+u.Y*v.Y) < math.Cos(math.Pi/6)*length(u)*length(v)
}

// between is the point after s of n equal steps; the last one is exactly b.
func between(a, b image.Point, s, n int) image.Point {
	return a.Add(b.Sub(a).Mul(s).Div(n))
}

// scroll turns the wheel for one axis, and returns by how many notches. They go one by one: of those that come in one
// burst, browsers lose some.
func (k *desk) scroll(ctx context.Context, owed *int, distance int, back, forth byte) (turned int, err error) {
	turned, *owed = toNotches(distance+*owed, k.opts.PixelsPerNotch)
	notches, button := turned, forth
	if notches < 0 {
		notches, button = -notches, back
	}
	if k.opts.DryRun != nil && notches > 0 {
		return turned, k.hands.turn(button, notches)
	}
	for range notches {
		if err := k.hands.turn(button, 1); err != nil {
			return 0, err
		}
		if err := k.hands.pause(ctx, k.opts.ScrollPace); err != nil {
			return 0, err
		}
	}
	return turned, nil
}

// sayNotTurned says that a scroll came to nothing, which shows nowhere else.
func (k *desk) sayNotTurned(a driver.Scroll) {
	k.opts.Logger.Info("the wheel was not turned", "x", a.ScrollX, "y", a.ScrollY, "carried_x", k.owed.x, "carried_y", k.owed.y)
	if k.opts.DryRun != nil {
		fmt.Fprintf(k.opts.DryRun, "wheel not turned, (%d,%d) pixels carried\n", k.owed.x, k.owed.y)
	}
}

// toNotches rounds to the nearest notch, halves away from 0, and returns the pixels that are left over.
func toNotches(distance, perNotch int) (notches, rest int) {
	half := perNotch / 2
	if distance < 0 {
		half = -half
	}
	notches = (distance + half) / perNotch
	return notches, distance - notches*perNotch
}

// pathWords names a path by its ends, as it may be long.
func pathWords(path []image.Point) string {
	switch len(path) {
	case 0:
		return "nothing"
	case 1:
		return path[0].String()
	}
	return fmt.Sprintf("%v to %v (%d points)", path[0], path[len(path)-1], len(path))
}
