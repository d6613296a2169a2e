package x11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/driver/x11/internal/focus"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/ward"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

const (
	// stride is how many characters are typed between two looks at ctx and the focus, and, while keycodes are bound,
	// between two waits for the program.
	stride = 64
	// unheard is how long a program that does not answer pings is given to read a stride. Slow ones read a character
	// in half a millisecond, and so stay ahead.
	unheard = 60 * time.Millisecond
	// farewell is how long such a program is given before a keycode loses its meaning. That is seldom, and a program that
	// has not come to run by then takes letters for others, and a shortcut for a letter.
	farewell = 4 * unheard
	// patience is how long a program that does answer may take. It may have to draw all that it has read.
	patience = 5 * time.Second
)

// A keymap is what an action does to the keyboard beside pressing keys, which is undone at its end.
type keymap struct {
	xkb   *xkb.Extension
	focus *focus.Focus
	// pen is the sink for text, XTEST with either sink: robotgo waits for the server at each event, which adds 2.5s
	// to 10,000 characters.
	pen event.Sink

	bound  map[xproto.Keycode]xkb.Key // that have another meaning for now, with their own
	reader focus.Window               // whose program looks them up
	locked byte                       // modifiers that were locked and are not now
}

// write types a text into the window that has the focus. Shift and AltGr stay down as long as one character after the
// other needs them.
func (k *desk) write(ctx context.Context, text string) (err error) {
	seen, err := k.look(true)
	if err != nil {
		return err
	}
	parts, err := k.keys.Text(ctx, text, seen.keyboard)
	if err != nil || len(parts) == 0 {
		return err
	}
	window, err := k.keymap.focus.Window()
	if err != nil {
		return err
	}
	if err := k.begin(&seen); err != nil {
		return err
	}
	sink, apart := k.hands.sink, k.hands.apart
	k.hands.sink, k.hands.apart = k.keymap.pen, false
	defer func() {
		err = cmp.Or(err, k.hands.releaseAll()) // by the sink that pressed, lest robotgo's overtake it
		k.hands.sink, k.hands.apart = sink, apart
	}()
	if err := k.liftLocks(seen.keyboard); err != nil {
		return err
	}
	if seen.keyboard.Group != 0 && k.opts.DryRun == nil {
		if err := k.sayGroup(parts[0].Strokes[0]); err != nil {
			return err
		}
	}
	total, typed := 0, 0
	for _, part := range parts {
		total += len(part.Strokes)
	}
	for _, part := range parts {
		if err := k.rebind(ctx, part.Bindings); err != nil {
			return fmt.Errorf("after %d of %d characters: %w", typed, total, err)
		}
		for strokes := range slices.Chunk(part.Strokes, stride) {
			if err := context.Cause(ctx); err != nil {
				return fmt.Errorf("after %d of %d characters: %w", typed, total, err)
			}
			if err := k.tap(strokes); err != nil {
				return err
			}
			if err := k.readBy(ctx, window); err != nil {
				return fmt.Errorf("after %d to %d of %d characters: %w", typed, typed+len(strokes), total, err)
			}
			typed += len(strokes)
		}
	}
	return nil
}

// sayGroup has programs told of the group in force. The server announces a new keyboard map at the first event of XTEST
// after one of another keyboard, at which Qt 5 forgets the group. To release a key that is not down is such an event, and
// no program sees it.
func (k *desk) sayGroup(up keyboard.Stroke) error {
	if err := k.hands.set(thing{key: up}, false); err != nil {
		return err
	}
	k.keymap.xkb.Announce()
	return nil
}

// tap types characters, and leaves down what the last one was held with.
func (k *desk) tap(strokes []keyboard.Stroke) error {
	for _, stroke := range strokes {
		held := k.keys.Holding(stroke.Mods)
		if !slices.EqualFunc(held, k.hands.down, func(s keyboard.Stroke, t thing) bool { return t == thing{key: s} }) {
			if err := k.hands.release(len(k.hands.down)); err != nil {
				return err
			}
			for _, modifier := range held {
				if err := k.hands.press(thing{key: modifier}); err != nil {
					return err
				}
			}
		}
		if err := k.hands.press(thing{key: stroke}); err != nil {
			return err
		}
		if err := k.hands.release(1); err != nil {
			return err
		}
	}
	return nil
}

// readBy waits until the server has passed on what was typed, and the program has read it if that matters. It makes
// sure that all went to the window.
func (k *desk) readBy(ctx context.Context, window focus.Window) error {
	if len(k.keymap.bound) > 0 {
		if err := k.untilRead(ctx, unheard); err != nil {
			return err
		}
	} else if err := k.hands.sink.Sync(); err != nil {
		return err
	}
	return k.keymap.focus.Still(window)
}

// liftLocks unlocks, until the end of the action, what would change the text. The ward knows of it before.
func (k *desk) liftLocks(state xkb.State) error {
	obstacles := k.keys.Obstacles(state)
	if obstacles == 0 || k.opts.DryRun != nil {
		return nil
	}
	k.keymap.locked = state.Locked & obstacles
	if _, err := k.hands.ward.Add(ward.State{Locked: k.keymap.locked}); err != nil {
		return err
	}
	k.keymap.xkb.Lock(obstacles, 0)
	return nil
}

// rebind gives keycodes new meanings, when the program has read all that had the old ones.
func (k *desk) rebind(ctx context.Context, bindings []keyboard.Binding) error {
	if len(bindings) > 0 && len(k.keymap.bound) > 0 {
		if err := k.untilRead(ctx, farewell); err != nil {
			return err
		}
	}
	return k.bind(ctx, bindings)
}

// bind gives keycodes a meaning that they have not, until the end of the action. The ward knows of it before.
func (k *desk) bind(ctx context.Context, bindings []keyboard.Binding) (err error) {
	if len(bindings) == 0 {
		return nil
	}
	if k.opts.DryRun != nil {
		for _, b := range bindings {
			fmt.Fprintf(k.opts.DryRun, "keycode %d stands for %v\n", b.Code, b.Symbols)
		}
		return nil
	}
	k.keymap.reader, err = k.keymap.focus.Window()
	if err != nil && !errors.Is(err, focus.ErrNone) { // A chord may be for the window manager.
		return err
	}
	bound, inUse := map[xproto.Keycode]xkb.Key{}, false
	for _, b := range bindings {
		if _, ok := k.keymap.bound[b.Code]; !ok {
			bound[b.Code] = k.keys.Key(b.Code)
			inUse = inUse || len(bound[b.Code].Symbols) > 0
		}
	}
	if inUse { // The program may have presses of it still to read.
		if err := k.untilRead(ctx, farewell); err != nil {
			return err
		}
	}
	if _, err := k.hands.ward.Add(ward.State{Bound: bound}); err != nil {
		return err
	}
	k.keymap.bound = k.hands.ward.State().Bound
	if err := keyboard.Bind(k.keymap.xkb, bindings); err != nil {
		return err
	}
	// Chromium fetches the new map a moment after it was told of it, and takes what it reads before that by the old one.
	_, err = k.caughtUp(ctx)
	return err
}

// untilRead waits until the program has read what it was sent, after which keycodes may change their meaning; one that does
// not answer is given some time.
func (k *desk) untilRead(ctx context.Context, silent time.Duration) error {
	if err := k.hands.sink.Sync(); err != nil {
		return err
	}
	answered, err := k.caughtUp(ctx)
	if err == nil && !answered {
		err = sleep(ctx, silent)
	}
	return err
}

// caughtUp waits until the program has come to what it was sent, and reports whether it is one that says so.
func (k *desk) caughtUp(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("there was no answer for %v", patience))
	defer cancel()
	return k.keymap.focus.Caught(ctx, k.keymap.reader)
}

// putBack undoes at the end of an action, when nothing is down any more, what it did to the keyboard.
func (k *desk) putBack(ctx context.Context) (err error) {
	if len(k.keymap.bound) == 0 && k.keymap.locked == 0 {
		return nil
	}
	if len(k.keymap.bound) > 0 {
		if err = k.untilRead(ctx, farewell); ctx.Err() != nil {
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/2) // The caller waits no longer than grace.
			defer cancel()
			err = k.untilRead(short, farewell)
		}
	}
	if late := keyboard.Restore(k.conn, k.keymap.bound, k.keymap.locked); late != nil {
		return cmp.Or(err, late)
	}
	k.keymap.bound, k.keymap.locked = nil, 0
	left := k.hands.ward.State() // what could not be released
	left.Bound, left.Locked = nil, 0
	return cmp.Or(err, k.hands.ward.Set(left))
}
