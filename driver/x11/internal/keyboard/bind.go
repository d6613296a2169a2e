package keyboard

import (
	"fmt"
	"slices"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

// Bind gives keycodes their new meanings, all at once, and waits until the server has done it.
func Bind(x *xkb.Extension, bindings []Binding) error {
	keys := map[xproto.Keycode]xkb.Key{}
	for _, b := range bindings {
		key := xkb.Key{Types: [4]byte{b.Type}, Groups: 1, Width: byte(len(b.Symbols))}
		for _, symbol := range b.Symbols {
			key.Symbols = append(key.Symbols, xproto.Keysym(symbol))
		}
		keys[b.Code] = key
	}
	if err := change(x, keys); err != nil {
		return fmt.Errorf("binding %d keycodes: %w", len(keys), err)
	}
	return nil
}

// Restore gives keycodes back the meanings that they had before they were bound, and locks modifiers. It may be over a
// connection, and in a process, that did neither bind nor unlock.
func Restore(conn *display.Conn, bound map[xproto.Keycode]xkb.Key, locked byte) error {
	x, err := xkb.Use(conn)
	if err != nil {
		return fmt.Errorf("restoring the keyboard: %w", err)
	}
	if err := change(x, bound); err != nil {
		return fmt.Errorf("restoring %d keycodes: %w", len(bound), err)
	}
	x.Lock(locked, locked)
	return conn.Sync()
}

// change changes keys by one request, as a window manager may need 45ms to take note of each. The request is about a
// range of keys; those in between are set to what they are. Qt 5 takes the first group for the one in force when there is
// a new map, until it is told of the state again.
func change(x *xkb.Extension, keys map[xproto.Keycode]xkb.Key) error {
	if len(keys) == 0 {
		return nil
	}
	askState, askMap := x.AskState(), x.AskMap(nil)
	state, err := askState()
	if err != nil {
		return err
	}
	m, err := askMap()
	if err != nil {
		return err
	}
	first, last := xproto.Keycode(255), xproto.Keycode(0)
	for code := range keys {
		first, last = min(first, code), max(last, code)
	}
	if end := m.First + xproto.Keycode(len(m.Keys)-1); first < m.First || last > end {
		return fmt.Errorf("keycodes %d to %d: the keyboard has %d to %d", first, last, m.First, end)
	}
	changed := slices.Clone(m.Keys[first-m.First : last-m.First+1])
	for code, key := range keys {
		changed[code-first] = key
	}
	if err := x.SetKeys(first, changed); err != nil {
		return err
	}
	if state.Group != 0 {
		x.Announce()
	}
	return nil
}
