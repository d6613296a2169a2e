// Package keyboard knows which key of the keyboard, with Shift or without, gives which symbol.
//
// It reads the core keyboard map, which shows two groups of two levels: without and with Shift. What a layout has
// on further levels (AltGr) or in further groups, and symbols that no key has, are not found; this is where they
// are to be added.
package keyboard

import (
	"fmt"
	"unicode"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// A Stroke is one key to press, and whether Shift has to be down to get the symbol that is wanted.
type Stroke struct {
	Code xproto.Keycode
	// Symbol is what the key gives without any modifier.
	Symbol driver.Key
	Shift  bool
}

// A Map is a keyboard map as it was when it was read. It is not changed afterwards.
type Map struct {
	keys    []key // in the order of their codes
	numLock uint16
	shift   Stroke // the zero Stroke when there is no such key
}

type key struct {
	code   xproto.Keycode
	groups [2][2]driver.Key // by group and level; 0 where there is no symbol
}

// Read reads the map that is in force.
func Read(conn *display.Conn) (*Map, error) {
	first, last := conn.Setup.MinKeycode, conn.Setup.MaxKeycode
	symbols, err := xproto.GetKeyboardMapping(conn.X, first, byte(last-first+1)).Reply()
	if err != nil {
		return nil, fmt.Errorf("reading the keyboard map: %w", display.Err(err))
	}
	modifiers, err := xproto.GetModifierMapping(conn.X).Reply()
	if err != nil {
		return nil, fmt.Errorf("reading the modifier map: %w", display.Err(err))
	}
	m := &Map{}
	width := int(symbols.KeysymsPerKeycode)
	for i := 0; i+width <= len(symbols.Keysyms); i += width {
		m.keys = append(m.keys, newKey(first+xproto.Keycode(i/width), symbols.Keysyms[i:i+width]))
	}
	m.shift, _ = m.Stroke(driver.KeyShift, 0)
	if lock, ok := m.Stroke(driver.KeyNumLock, 0); ok {
		perModifier := int(modifiers.KeycodesPerModifier)
		for i, code := range modifiers.Keycodes {
			if code == lock.Code {
				m.numLock |= 1 << (i / perModifier)
			}
		}
	}
	return m, nil
}

// newKey sorts the symbols of one key by the rules of the X protocol, section 5: a second group that is missing
// is the first one again, and a letter alone stands for both of its cases.
func newKey(code xproto.Keycode, symbols []xproto.Keysym) key {
	k := key{code: code}
	for i, symbol := range symbols[:min(4, len(symbols))] {
		k.groups[i/2][i%2] = driver.Key(symbol)
	}
	if k.groups[1] == [2]driver.Key{} {
		k.groups[1] = k.groups[0]
	}
	for g, levels := range k.groups {
		if levels[1] == 0 {
			k.groups[g] = bothCases(levels[0])
		}
	}
	return k
}

func bothCases(symbol driver.Key) [2]driver.Key {
	if r, ok := symbol.Rune(); ok && unicode.IsLetter(r) {
		lower, _ := driver.RuneKey(unicode.ToLower(r))
		upper, _ := driver.RuneKey(unicode.ToUpper(r))
		return [2]driver.Key{lower, upper}
	}
	return [2]driver.Key{symbol, symbol}
}

// Stroke finds the key that gives a symbol in the given state of the keyboard, which says what group is in force
// and which locks are on: under Caps Lock it is "a" that needs Shift. The first key that has the symbol is taken,
// as on a plain US keyboard that is where a person would type it. Only characters and keys of the numeric pad are
// looked for on the shifted level: Shift and Alt is not what is meant by Meta, though it may be written on that
// key.
func (m *Map) Stroke(symbol driver.Key, state uint16) (Stroke, bool) {
	group := state >> 13 & 3
	if group > 1 {
		return Stroke{}, false // The core map does not show it.
	}
	_, isCharacter := symbol.Rune()
	for _, k := range m.keys {
		levels := k.groups[group]
		bare := m.bareLevel(levels, state)
		switch {
		case symbol == 0:
		case levels[bare] == symbol:
			return Stroke{Code: k.code, Symbol: levels[0]}, true
		case levels[1-bare] == symbol && m.shift.Code != 0 && (isCharacter || onNumericPad(symbol)):
			return Stroke{Code: k.code, Symbol: levels[0], Shift: true}, true
		}
	}
	return Stroke{}, false
}

// Shift is the Shift key, which is there when a Stroke needs it.
func (m *Map) Shift() Stroke { return m.shift }

// bareLevel is the level that a key has when it is pressed alone: a lock that applies to it swaps the two.
func (m *Map) bareLevel(levels [2]driver.Key, state uint16) int {
	lower, isCharacter := levels[0].Rune()
	upper, _ := levels[1].Rune()
	isLetter := isCharacter && lower != upper && unicode.ToUpper(lower) == upper
	if isLetter && state&xproto.ModMaskLock != 0 || onNumericPad(levels[1]) && state&m.numLock != 0 {
		return 1
	}
	return 0
}

// onNumericPad reports whether a symbol lies between KP_Space and KP_9.
func onNumericPad(symbol driver.Key) bool { return symbol >= 0xff80 && symbol <= 0xffb9 }

// Chord finds the keys of a chord, in order, with a Shift before the first key that needs one. Together with a
// modifier a letter means its key, in either case: CTRL and C is Ctrl+C and not Ctrl+Shift+C. It is an error, of a
// kind of package driver, when a key is not on the keyboard or is named twice.
func (m *Map) Chord(symbols []driver.Key, state uint16) ([]Stroke, error) {
	var modified, shifted bool
	for _, symbol := range symbols {
		modified = modified || symbol.Modifier()
		shifted = shifted || symbol == driver.KeyShift || symbol == shiftRight
	}
	var chord []Stroke
	down := map[xproto.Keycode]driver.Key{}
	for _, symbol := range symbols {
		stroke, ok := m.Stroke(symbol, state)
		if !ok {
			return nil, fmt.Errorf("key %v: %w by this keyboard map", symbol, driver.ErrUnsupported)
		}
		if other, ok := down[stroke.Code]; ok {
			return nil, fmt.Errorf("%w: keys %v and %v are one key", driver.ErrInvalidAction, other, symbol)
		}
		down[stroke.Code] = symbol
		r, _ := symbol.Rune()
		if stroke.Shift && !shifted && !(modified && unicode.IsLetter(r)) {
			chord, shifted = append(chord, m.shift), true
		}
		stroke.Shift = false
		chord = append(chord, stroke)
	}
	return chord, nil
}

const shiftRight driver.Key = 0xffe2

// Text finds the keys for a text, all of it. Newline is the Return key and tab the Tab key; of a carriage return
// and a newline only the newline counts. The error names the first character that no key gives and its index,
// counted in characters from 0, and wraps [driver.ErrUnsupported].
func (m *Map) Text(text string, state uint16) ([]Stroke, error) {
	characters := []rune(text)
	strokes := make([]Stroke, 0, len(characters))
	found := map[rune]Stroke{} // A text may be long and has few characters.
	for i, r := range characters {
		if r == '\r' && i+1 < len(characters) && characters[i+1] == '\n' {
			continue
		}
		stroke, ok := found[r]
		if !ok {
			symbol, isKey := driver.RuneKey(r)
			if stroke, ok = m.Stroke(symbol, state); !ok || !isKey {
				return nil, fmt.Errorf("character %q at index %d: %w by this keyboard map", r, i, driver.ErrUnsupported)
			}
			found[r] = stroke
		}
		strokes = append(strokes, stroke)
	}
	return strokes, nil
}
