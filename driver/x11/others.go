package x11

import (
	"cmp"
	"context"
	"fmt"
	"image"
	"slices"
	"strings"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/ward"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

// takePlace makes sure of a clean display and records this driver there.
func (d *Driver) takePlace(k *desk) error {
	place, left, err := ward.Claim(k.conn, keyboard.Restore)
	if err != nil {
		return err
	}
	if !left.Empty() {
		d.opts.Logger.Warn("cleared away what a driver that died left behind", "keys", left.Keys, "buttons", left.Buttons, "keycodes", left.Bound, "locks", left.Locked)
	}
	k.hands.ward = place
	if err := d.lookForHeld(k.conn); err != nil {
		return err
	}
	if len(d.opts.Watchdog) == 0 {
		return nil
	}
	d.watchdog, err = startWatchdog(d.opts.Watchdog, d.opts.Display, place, d.opts.Logger)
	return err
}

// HeldAtStart names the keys and buttons that were down when the driver was opened, such as "Control_L" and
// "button 1", and have been released if [Options].Release says so. A key that is down for a moment, such as the
// Return that started a command, is not among them.
func (d *Driver) HeldAtStart() []string { return slices.Clone(d.held) }

// moment is how long a person may take to let go of a key, and a window manager to let go of a click that it looks at
// first.
const moment = 250 * time.Millisecond

// busy is how long a window manager may take for that on a machine that has much else to do. It is waited for when the click was
// ours, or the pointer stands where it was before: with a person, neither would be so.
const busy = 3 * time.Second

// lookForHeld finds out what is down and releases it if that is wanted.
func (d *Driver) lookForHeld(conn *display.Conn) error {
	down, err := conn.Input()
	for deadline := time.Now().Add(moment); err == nil && len(down.Keys)+len(down.Buttons) > 0 && time.Now().Before(deadline); {
		time.Sleep(moment / 10)
		down, err = conn.Input()
	}
	if err != nil || len(down.Keys)+len(down.Buttons) == 0 {
		return err
	}
	strokes, err := strokesOf(conn, down.Keys)
	if err != nil {
		return err
	}
	d.held = names(strokes, down.Buttons)
	d.opts.Logger.Warn("keys or buttons are down", "held", d.held, "released", d.opts.Release)
	if d.opts.Release {
		return ward.Release(conn, ward.State{Keys: down.Keys, Buttons: down.Buttons})
	}
	return nil
}

// A view is what an action finds before it begins.
type view struct {
	bounds   image.Rectangle // of the screen
	input    display.Input
	keyboard xkb.State
}

// look asks the server for a view, with one wait. With the keyboard it reads the map again too, if that has changed.
func (k *desk) look(withKeyboard bool) (seen view, err error) {
	bounds, input := k.conn.AskBounds(), k.conn.AskInput()
	if withKeyboard {
		state, keys := k.keymap.xkb.AskState(), keyboard.Ask(k.keymap.xkb, k.keys)
		if seen.keyboard, err = state(); err != nil {
			return seen, err
		}
		layout, err := keys()
		if err != nil {
			return seen, err
		}
		k.keys = layout
	}
	if seen.bounds, err = bounds(); err != nil {
		return seen, err
	}
	seen.input, err = input()
	k.hands.late = false // The record was sent before this was asked.
	return seen, err
}

// begin comes before the first event of an action, when all has been checked. It sees to it that nobody else's
// modifiers or buttons get into the action. Things that are going to be pressed are recorded on the way, which saves a
// wait at each press.
func (k *desk) begin(seen *view, things ...thing) (err error) {
	if err := k.hands.record(things...); err != nil {
		return err
	}
	recorded := k.hands.recorded()
	k.eyes.ready()
	if err := recorded(); err != nil {
		return err
	}
	// Window managers have the server hold back all that follows a click until they have seen it, and so the release
	// of the last one.
	in := &seen.input
	for start := time.Now(); len(in.Buttons) > 0; {
		ours := !slices.ContainsFunc(in.Buttons, func(b byte) bool { return !slices.Contains(k.hands.let, b) })
		if past := time.Since(start); past > busy || past > moment && !ours {
			break
		}
		time.Sleep(moment / 250)
		if *in, err = k.conn.Input(); err != nil {
			return err
		}
	}
	k.hands.let = nil
	if len(in.Keys)+len(in.Buttons) == 0 {
		return nil
	}
	modifiers, err := k.modifiersAmong(in.Keys)
	if err != nil || len(modifiers)+len(in.Buttons) == 0 {
		return err
	}
	if len(in.Buttons) > 0 || !k.opts.ClearModifiers {
		return fmt.Errorf("%s: %w", strings.Join(names(modifiers, in.Buttons), ", "), driver.ErrHeld)
	}
	for _, stroke := range modifiers {
		k.lifted = append(k.lifted, stroke)
		if err := k.hands.set(thing{key: stroke}, false); err != nil {
			return err
		}
	}
	return k.hands.arrived() // before a text, which goes another way
}

// end comes after a call, however it went: nothing of it stays down, and what was lifted is put back. If the call was
// an action, that was the last of its input: what programs do while the keyboard is put in order is their reaction.
func (k *desk) end(ctx context.Context, acted bool) error {
	err := k.hands.releaseAll()
	if acted {
		k.eyes.end()
	}
	err = cmp.Or(err, k.putBack(ctx))
	if len(k.lifted) == 0 {
		return err
	}
	for _, stroke := range k.lifted {
		if late := k.hands.set(thing{key: stroke}, true); err == nil {
			err = late
		}
	}
	k.lifted = nil
	if late := k.hands.sink.Sync(); err == nil {
		err = late
	}
	return err
}

// stillAt makes sure, just before something is done there, that the pointer is where it was put. It gives a window
// manager time that has frozen the pointer at a press, to look at it first: motion waits meanwhile.
func (k *desk) stillAt(ctx context.Context, at image.Point) error {
	if k.opts.DryRun != nil {
		return nil // It was not moved.
	}
	const patience, interval = 200 * time.Millisecond, time.Millisecond
	for start := time.Now(); ; {
		is, err := k.hands.sink.Pointer()
		if err != nil {
			return err
		}
		if is == at {
			return nil
		}
		if past := time.Since(start); past > busy || past > patience && is != k.hands.was {
			return fmt.Errorf("%w: it is at %v, not at %v", driver.ErrInterference, is, at)
		}
		if err := sleep(ctx, interval); err != nil {
			return err
		}
	}
}

// modifiersAmong returns the keys of a list that are modifiers. The lock keys are not: they are down for a moment
// only, and what they lock is another matter.
func (k *desk) modifiersAmong(codes []xproto.Keycode) ([]keyboard.Stroke, error) {
	m, err := xproto.GetModifierMapping(k.conn.X).Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	strokes, err := strokesOf(k.conn, codes)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(strokes, func(s keyboard.Stroke) bool {
		return !slices.Contains(m.Keycodes, s.Code) || s.Symbol == driver.KeyCapsLock || s.Symbol == driver.KeyNumLock
	}), nil
}

// strokesOf finds out what is written on keys.
func strokesOf(conn *display.Conn, codes []xproto.Keycode) ([]keyboard.Stroke, error) {
	var strokes []keyboard.Stroke
	for _, code := range codes {
		symbols, err := xproto.GetKeyboardMapping(conn.X, code, 1).Reply()
		if err != nil {
			return nil, display.Err(err)
		}
		stroke := keyboard.Stroke{Code: code}
		if len(symbols.Keysyms) > 0 {
			stroke.Symbol = driver.Key(symbols.Keysyms[0])
		}
		strokes = append(strokes, stroke)
	}
	return strokes, nil
}

// names says which keys and buttons.
func names(keys []keyboard.Stroke, buttons []byte) []string {
	var words []string
	for _, stroke := range keys {
		words = append(words, stroke.Symbol.String())
	}
	for _, number := range buttons {
		words = append(words, fmt.Sprintf("button %d", number))
	}
	return words
}
