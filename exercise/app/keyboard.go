package app

import (
	"fmt"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// Keysyms that the application knows besides characters.
const (
	keysymBackSpace = 0xff08
	keysymTab       = 0xff09
	keysymReturn    = 0xff0d
	keysymLevel3    = 0xfe03
)

// keyboard is the application's own reading of the keyboard map: it does not ask the driver what a key means.
type keyboard struct {
	first   xproto.Keycode
	per     int // keysyms per keycode
	keysyms []xproto.Keysym
}

func readKeyboard(conn *xgb.Conn) (keyboard, error) {
	setup := xproto.Setup(conn)
	m, err := xproto.GetKeyboardMapping(conn, setup.MinKeycode, byte(setup.MaxKeycode-setup.MinKeycode+1)).Reply()
	if err != nil {
		return keyboard{}, fmt.Errorf("reading the keyboard map: %w", err)
	}
	return keyboard{first: setup.MinKeycode, per: int(m.KeysymsPerKeycode), keysyms: m.Keysyms}, nil
}

// lookup returns what a key means in a state of the modifiers, and what it means without any. The rules are those
// of the X protocol, section "Keyboards": columns come in pairs, Shift selects the second of a pair, the group
// (bits 13 and 14) the pair, Caps Lock turns letters.
func (k keyboard) lookup(code xproto.Keycode, state uint16) (keysym, plain uint32) {
	plain = k.at(code, 0)
	column := int(state >> 13 & 3 * 2)
	if state&xproto.ModMask5 != 0 && k.per > 4 { // AltGr; X servers with XKB put its pair third
		column = 4
	}
	lowerCase, upperCase := k.at(code, column), k.at(code, column+1)
	if upperCase == 0 && isLetter(lowerCase) {
		upperCase = lowerCase - 'a' + 'A'
	}
	shift := state&xproto.ModMaskShift != 0
	if state&xproto.ModMaskLock != 0 && isLetter(lowerCase) {
		shift = !shift
	}
	if shift && upperCase != 0 {
		return upperCase, plain
	}
	return lowerCase, plain
}

func isLetter(keysym uint32) bool { return keysym >= 'a' && keysym <= 'z' }

func (k keyboard) at(code xproto.Keycode, column int) uint32 {
	i := int(code-k.first)*k.per + column
	if code < k.first || column >= k.per || i >= len(k.keysyms) {
		return 0
	}
	return uint32(k.keysyms[i])
}

// character returns the character of a keysym: Latin-1 as it stands, others by the Unicode rule, and Return and
// Tab as what they type.
func character(keysym uint32) (rune, bool) {
	switch {
	case keysym == keysymReturn:
		return '\n', true
	case keysym == keysymTab:
		return '\t', true
	case keysym >= 0x20 && keysym < 0x7f, keysym >= 0xa0 && keysym < 0x100:
		return rune(keysym), true
	case keysym > 0x1000000 && keysym <= 0x110ffff:
		return rune(keysym - 0x1000000), true
	}
	return 0, false
}
