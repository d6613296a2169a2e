// Package keyboard knows which keys, with which modifiers, give which symbols: the keys of a chord and those of a
// text. What no key gives it puts on keycodes that mean nothing.
//
// # Finding
//
// A symbol is looked for in the group that is in force, on the levels that Shift and AltGr lead to. Keys that only
// begin a character (dead keys) have symbols of their own and are never taken for it.
//
// # Binding
//
// A keyboard map has some twenty keycodes that mean nothing. Each can be given four symbols, the others with Shift, with
// AltGr, and with both; or two, where the map has no type of keys for four. Clients look into the map when they read a press, which is later than when it was made: a keycode may get
// its next meaning, or lose its last one, only when they have read all presses of it. That is up to the caller.
package keyboard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

// A Stroke is one key to press, and what has to be down to get the symbol that is wanted.
type Stroke struct {
	Code xproto.Keycode
	// Symbol is what the key gives without any modifier.
	Symbol driver.Key
	// Mods are the modifiers to hold, as a mask of core events; [Map.Holding] has their keys.
	Mods byte
}

// A Binding is a keycode that gets a meaning: symbols for the levels of a type of keys.
type Binding struct {
	Code    xproto.Keycode
	Type    byte // a number in the map's types
	Symbols []driver.Key
}

// twoLevels is a binding of a symbol for the key alone and one for Shift and the key.
func twoLevels(code xproto.Keycode, bare, shifted driver.Key) Binding {
	return Binding{code, xkb.TwoLevel, []driver.Key{bare, shifted}}
}

// A Map is a keyboard map as it was when it was read. It is not changed afterwards.
type Map struct {
	keys *xkb.Map
	// where has the places of each symbol, in the order of their keycodes; characters are there by driver.RuneKey.
	where        map[driver.Key][]place
	shift, altGr modifier
	numLock      byte             // the modifier of Num Lock
	empty        []xproto.Keycode // that mean nothing
	// fresh is the type of keys that empty keycodes get for a text, and levels the modifiers that lead to its levels.
	fresh  byte
	levels []byte
}

type place struct {
	code         xproto.Keycode
	group, level int
}

// A modifier is a key that is a modifier while it is down; the zero modifier is one that the map has not.
type modifier struct {
	key  Stroke
	mask byte
}

// Read reads the map that is in force, and returns old, which may be nil, when it is that one still.
func Read(x *xkb.Extension, old *Map) (*Map, error) { return Ask(x, old)() }

// Ask is Read in two steps: it sends the request, and what it returns waits for the reply.
func Ask(x *xkb.Extension, old *Map) func() (*Map, error) {
	var before *xkb.Map
	if old != nil {
		before = old.keys
	}
	answer := x.AskMap(before)
	return func() (*Map, error) {
		keys, err := answer()
		switch {
		case err != nil:
			return nil, err
		case keys == before:
			return old, nil
		}
		return newMap(keys), nil
	}
}

func newMap(keys *xkb.Map) *Map {
	m := &Map{keys: keys, where: map[driver.Key][]place{}}
	for i, k := range keys.Keys {
		code := keys.First + xproto.Keycode(i)
		if len(k.Symbols) == 0 && keys.Modifiers[i] == 0 {
			m.empty = append(m.empty, code)
		}
		for j, symbol := range k.Symbols {
			if symbol != 0 {
				at := place{code, j / int(k.Width), j % int(k.Width)}
				key := canonical(driver.Key(symbol))
				m.where[key] = append(m.where[key], at)
			}
		}
	}
	m.shift, m.altGr = m.modifier(driver.KeyShift), m.modifier(driver.KeyAltGr)
	m.numLock = m.modifier(driver.KeyNumLock).mask
	m.fresh, m.levels = xkb.TwoLevel, []byte{0}
	if m.shift.mask != 0 {
		m.levels = append(m.levels, m.shift.mask)
	}
	if four := slices.IndexFunc(keys.Types, m.isFourLevel); four >= 0 {
		m.fresh, m.levels = byte(four), append(m.levels, m.altGr.mask, m.shift.mask|m.altGr.mask)
	}
	return m
}

// isFourLevel reports whether Shift and AltGr, and nothing else, lead to the levels of a type.
func (m *Map) isFourLevel(t xkb.Type) bool {
	shift, altGr := m.shift.mask, m.altGr.mask
	return shift != 0 && altGr != 0 && t.Mods == shift|altGr && maps.Equal(t.Levels, map[byte]int{shift: 1, altGr: 2, shift | altGr: 3})
}

// canonical returns the one Key of a character that has several.
func canonical(symbol driver.Key) driver.Key {
	if r, ok := symbol.Rune(); ok {
		symbol, _ = driver.RuneKey(r)
	}
	return symbol
}

// modifier finds the first key with a symbol that stands for a modifier.
func (m *Map) modifier(symbol driver.Key) modifier {
	for _, at := range m.where[symbol] {
		if mask := m.keys.Modifiers[at.code-m.keys.First]; mask != 0 && at.level == 0 {
			return modifier{Stroke{Code: at.code, Symbol: symbol}, mask}
		}
	}
	return modifier{}
}

// Stroke finds the key that gives a symbol in a group, under the given locked modifiers: under Caps Lock it is "a"
// that needs Shift. The first key that has the symbol is taken, as on a plain US keyboard that is where a person
// would type it, but one without AltGr before one with it. For keys that are neither characters nor of the numeric
// pad only the bare key counts: Shift and Alt is not what is meant by Meta, though it may be written on that key.
func (m *Map) Stroke(symbol driver.Key, group int, locked byte) (found Stroke, ok bool) {
	_, isCharacter := symbol.Rune()
	for _, at := range m.where[canonical(symbol)] {
		k := m.keys.Keys[at.code-m.keys.First]
		if g, _ := k.Group(group); g != at.group {
			continue
		}
		mods, reached := m.reach(m.keys.Types[k.Types[at.group]], at.level, locked)
		if !reached || mods != 0 && !isCharacter && !onNumericPad(symbol) {
			continue
		}
		stroke := Stroke{Code: at.code, Symbol: driver.Key(k.Symbol(at.group, 0)), Mods: mods}
		if mods&m.altGr.mask == 0 {
			return stroke, true
		}
		if !ok {
			found, ok = stroke, true
		}
	}
	return found, ok
}

// reach finds the modifiers that lead to a level, beside those that are locked.
func (m *Map) reach(t xkb.Type, level int, locked byte) (mods byte, ok bool) {
	for _, mods := range []byte{0, m.shift.mask, m.altGr.mask, m.shift.mask | m.altGr.mask} {
		if t.Level(mods|locked) == level {
			return mods, true
		}
	}
	return 0, false
}

// Holding returns the keys to hold for the modifiers of a Stroke.
func (m *Map) Holding(mods byte) (keys []Stroke) {
	for _, modifier := range []modifier{m.shift, m.altGr} {
		if mods&modifier.mask != 0 {
			keys = append(keys, modifier.key)
		}
	}
	return keys
}

// onNumericPad reports whether a symbol lies between KP_Space and KP_9.
func onNumericPad(symbol driver.Key) bool { return symbol >= 0xff80 && symbol <= 0xffb9 }

// Chord finds the keys of a chord, in order, with the Shift and AltGr that a key needs before it. Together with a
// modifier a letter means its key, in either case: CTRL and C is Ctrl+C and not Ctrl+Shift+C. A character that the
// group in force lacks is then the key that has it in another group: programs look there for their shortcuts, and so
// do the people who have such a layout. Whatever else the map lacks comes with a binding, but for modifiers: of the key
// where a US keyboard has the character, or else of an empty keycode. It is an error, of a kind of package driver, when a
// key cannot be had or is named twice.
func (m *Map) Chord(symbols []driver.Key, state xkb.State) (chord []Stroke, bindings []Binding, err error) {
	modified := slices.ContainsFunc(symbols, driver.Key.Modifier)
	strokes := make([]Stroke, len(symbols))
	empty := m.empty
	var held byte
	for i, symbol := range symbols {
		stroke, ok := m.Stroke(symbol, state.Group, state.Locked)
		r, _ := symbol.Rune()
		isLetter := modified && unicode.IsLetter(r)
		if isLetter && stroke.Mods&^m.shift.mask == 0 && !sameLetter(stroke.Symbol, symbol) {
			ok = false // It is there as a capital alone, as on a Hebrew layout, and the key is another one without Shift.
		}
		if !ok && modified {
			stroke, ok = m.inAnyGroup(symbol)
		}
		if !ok && !symbol.Modifier() {
			var b Binding
			if modified {
				b, stroke, ok = m.onUSKey(symbol)
			}
			if !ok && len(empty) > 0 {
				b, stroke = m.newKey(empty[0], symbol)
				empty, ok = empty[1:], true
			}
			bindings = append(bindings, b)
		}
		if !ok {
			return nil, nil, fmt.Errorf("key %v: %w by this keyboard map", symbol, driver.ErrUnsupported)
		}
		for j, other := range strokes[:i] {
			if other.Code == stroke.Code {
				return nil, nil, fmt.Errorf("%w: keys %v and %v are one key", driver.ErrInvalidAction, symbols[j], symbol)
			}
		}
		if isLetter {
			stroke.Mods &^= m.shift.mask
		}
		strokes[i] = stroke
		held |= m.keys.Modifiers[stroke.Code-m.keys.First]
	}
	for _, stroke := range strokes {
		chord = append(chord, m.Holding(stroke.Mods&^held)...)
		held |= stroke.Mods
		stroke.Mods = 0
		chord = append(chord, stroke)
	}
	return chord, bindings, nil
}

// sameLetter reports whether two symbols are one letter, be it in two cases.
func sameLetter(a, b driver.Key) bool {
	r, isCharacter := a.Rune()
	other, _ := b.Rune()
	return isCharacter && unicode.ToLower(r) == unicode.ToLower(other)
}

// usRows are the keys of a US keyboard that have characters: those from a keycode on, bare and with Shift. The keycodes
// are those of evdev, which is behind every keyboard of today's X servers.
var usRows = []struct {
	first         xproto.Keycode
	bare, shifted string
}{
	{10, "1234567890-=", "!@#$%^&*()_+"},
	{24, "qwertyuiop[]", "QWERTYUIOP{}"},
	{38, "asdfghjkl;'`", "ASDFGHJKL:\"~"},
	{51, `\zxcvbnm,./`, "|ZXCVBNM<>?"},
}

// onUSKey makes a key for a chord out of the one that has a character on a US keyboard, if there is a key with some
// character in its place.
func (m *Map) onUSKey(symbol driver.Key) (Binding, Stroke, bool) {
	r, _ := symbol.Rune()
	for _, row := range usRows {
		i, mods := strings.IndexRune(row.bare, r), byte(0)
		if i < 0 {
			i, mods = strings.IndexRune(row.shifted, r), m.shift.mask
		}
		if i < 0 {
			continue
		}
		b := twoLevels(row.first+xproto.Keycode(i), driver.Key(row.bare[i]), driver.Key(row.shifted[i]))
		_, isCharacter := driver.Key(m.Key(b.Code).Symbol(0, 0)).Rune()
		return b, Stroke{b.Code, b.Symbols[0], mods}, isCharacter
	}
	return Binding{}, Stroke{}, false
}

// Key is what a key means. It is nothing for one that the keyboard has not.
func (m *Map) Key(code xproto.Keycode) xkb.Key {
	if i := int(code) - int(m.keys.First); i >= 0 && i < len(m.keys.Keys) {
		return m.keys.Keys[i]
	}
	return xkb.Key{}
}

// newKey makes a key for a chord out of a keycode. A letter gets both of its cases, as programs know a shortcut by the
// small one.
func (m *Map) newKey(code xproto.Keycode, symbol driver.Key) (Binding, Stroke) {
	b, stroke := twoLevels(code, symbol, symbol), Stroke{Code: code}
	r, isCharacter := symbol.Rune()
	if lower, upper := unicode.ToLower(r), unicode.ToUpper(r); isCharacter && lower != upper && m.shift.mask != 0 {
		b.Symbols[0], _ = driver.RuneKey(lower)
		b.Symbols[1], _ = driver.RuneKey(upper)
		if r == upper {
			stroke.Mods = m.shift.mask
		}
	}
	stroke.Symbol = b.Symbols[0]
	return b, stroke
}

// inAnyGroup finds the key that has a character bare, a letter in its small form.
func (m *Map) inAnyGroup(symbol driver.Key) (Stroke, bool) {
	r, isCharacter := symbol.Rune()
	small, _ := driver.RuneKey(unicode.ToLower(r))
	for _, at := range m.where[small] {
		if isCharacter && at.level == 0 {
			return Stroke{Code: at.code, Symbol: small}, true
		}
	}
	return Stroke{}, false
}
