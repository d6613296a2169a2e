package keyboard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

const (
	shift = xproto.ModMaskShift
	caps  = xproto.ModMaskLock
	num   = xproto.ModMask2
	altGr = xproto.ModMask5
)

// The types of the keys of small, by their numbers.
const (
	one = iota
	two
	letter
	pad
	four
)

var types = []xkb.Type{
	one:    {},
	two:    {Mods: shift, Levels: map[byte]int{shift: 1}},
	letter: {Mods: shift | caps, Levels: map[byte]int{shift: 1, caps: 1}},
	pad:    {Mods: shift | num, Levels: map[byte]int{shift: 1, num: 1}},
	four:   {Mods: shift | altGr, Levels: map[byte]int{shift: 1, altGr: 2, shift | altGr: 3}},
}

// newKey is a key of types by group, each with symbols for all its levels.
func newKey(groups ...any) (k xkb.Key) {
	k.Groups = byte(len(groups) / 2)
	for i := 0; i < len(groups); i += 2 {
		k.Types[i/2] = byte(groups[i].(int))
		symbols := groups[i+1].([]xproto.Keysym)
		k.Width = max(k.Width, byte(len(symbols)))
	}
	for i := 1; i < len(groups); i += 2 {
		symbols := groups[i].([]xproto.Keysym)
		k.Symbols = append(k.Symbols, append(symbols, make([]xproto.Keysym, int(k.Width)-len(symbols))...)...)
	}
	return k
}

type syms = []xproto.Keysym

// small is a keyboard of a few keys; the second group of some is a Russian one. Keycodes 20 and 25 mean nothing.
func small() *Map {
	keys := &xkb.Map{Types: types, First: 10, Keys: []xkb.Key{
		newKey(letter, syms{'a', 'A'}, letter, syms{0x6c6, 0x6e6}), // ф, as layouts have it
		newKey(two, syms{'1', '!'}),
		newKey(one, syms{'='}),
		newKey(letter, syms{'b', 'B'}),
		newKey(pad, syms{0xff9c, 0xffb1}),
		newKey(one, syms{0xffe1}),
		newKey(one, syms{0xffe3}),
		newKey(two, syms{0xffe9, 0xffe7}), // Alt, Meta
		newKey(one, syms{0xff0d}),
		newKey(four, syms{'<', '>', '|', 0xa6}),
		{},
		newKey(two, syms{'!', '|'}),
		newKey(letter, syms{0xe9, 0xc9}), // é
		newKey(two, syms{0xff09, 0xfe20}),
		newKey(one, syms{0xfe03}),
		{},
		newKey(one, syms{0xff7f}),
		newKey(one, syms{0xfe52}),                // dead circumflex
		newKey(one, syms{'c'}, one, syms{0x6d3}), // с
	}, Modifiers: make([]byte, 19)}
	keys.Modifiers[15-10], keys.Modifiers[16-10], keys.Modifiers[17-10] = shift, xproto.ModMaskControl, xproto.ModMask1
	keys.Modifiers[24-10], keys.Modifiers[26-10] = altGr, num
	return newMap(keys)
}

func word(s Stroke) string {
	return fmt.Sprint(s.Code) + map[byte]string{shift: "+", altGr: "'", shift | altGr: "'+"}[s.Mods]
}

func words(strokes []Stroke) string {
	var all []string
	for _, s := range strokes {
		all = append(all, word(s))
	}
	return strings.Join(all, " ")
}

func bound(bindings []Binding) string {
	var all []string
	for _, b := range bindings {
		word := fmt.Sprintf("%d=", b.Code)
		for _, symbol := range b.Symbols {
			word += symbol.String()
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

func TestStroke(t *testing.T) {
	tests := []struct {
		symbol driver.Key
		group  int
		locked byte
		want   string // keycode, with + for Shift and ' for AltGr
	}{
		{'a', 0, 0, "10"}, {'A', 0, 0, "10+"}, {'a', 0, caps, "10+"}, {'A', 0, caps, "10"},
		{'1', 0, 0, "11"}, {'!', 0, 0, "11+"}, {'1', 0, caps, "11"}, {'!', 0, caps, "11+"},
		{'=', 0, 0, "12"}, {'b', 0, 0, "13"}, {'B', 0, 0, "13+"}, {'B', 0, shift, "13"}, {'b', 0, shift, "none"},
		{0xff9c, 0, 0, "14"}, {0xffb1, 0, 0, "14+"}, {0xffb1, 0, num, "14"}, {0xff9c, 0, num, "14+"}, {'a', 0, num, "10"},
		{driver.KeyAlt, 0, 0, "17"}, {0xffe7, 0, 0, "none"}, // Shift and Alt is not Meta.
		{'<', 0, 0, "19"}, {0xa6, 0, 0, "19'+"}, {'q', 0, 0, "none"}, {0, 0, 0, "none"}, {'^', 0, 0, "none"},
		{'|', 0, 0, "21+"}, // AltGr is the last resort.
		{0xe9, 0, 0, "22"}, {0xc9, 0, 0, "22+"}, {0xe9, 0, caps, "22+"},
		{'a', 1, 0, "none"}, {0x01000444, 1, 0, "10"}, {0x6c6, 1, 0, "10"}, {0x01000424, 1, 0, "10+"}, {'!', 1, 0, "11+"}, {driver.KeyReturn, 1, 0, "18"},
		{'a', 2, 0, "10"}, // beyond the last group is the first one
	}
	m := small()
	for _, test := range tests {
		got := "none"
		if stroke, ok := m.Stroke(test.symbol, test.group, test.locked); ok {
			got = word(stroke)
		}
		if got != test.want {
			t.Errorf("%v in group %d under %#x: got %s, want %s", test.symbol, test.group, test.locked, got, test.want)
		}
	}
}

func TestChord(t *testing.T) {
	tests := []struct {
		keys  string
		state xkb.State
		want  string // the keycodes in order and what is bound, or the error
	}{
		{"ctrl a", xkb.State{}, "16 10 "}, {"ctrl A", xkb.State{}, "16 10 "}, {"ctrl A", xkb.State{Locked: caps}, "16 10 "},
		{"shift A", xkb.State{}, "15 10 "}, {"shift a", xkb.State{}, "15 10 "},
		{"A", xkb.State{}, "15 10 "}, {"a", xkb.State{Locked: caps}, "15 10 "}, {"A", xkb.State{Locked: caps}, "10 "},
		{"ctrl !", xkb.State{}, "16 15 11 "}, {"ctrl shift !", xkb.State{}, "16 15 11 "}, {"! >", xkb.State{}, "15 11 19 "}, {"alt ctrl 1", xkb.State{}, "17 16 11 "},
		{"ctrl ¦", xkb.State{}, "16 15 24 19 "}, {"altgr shift ¦", xkb.State{}, "24 15 19 "},
		{"a ctrl", xkb.State{}, "10 16 "}, {"ctrl ctrl", xkb.State{}, "one key"}, {"a A", xkb.State{}, "one key"},
		{"ctrl C", xkb.State{Group: 1}, "16 28 "}, {"ctrl c", xkb.State{Group: 1}, "16 28 "}, // where it is in the other group
		{"c", xkb.State{Group: 1}, "20 20=cC"}, {"C", xkb.State{Group: 1}, "15 20 20=cC"},
		{"ctrl z", xkb.State{Group: 1}, "16 20 20=zZ"}, {"ctrl Z", xkb.State{Group: 1}, "16 20 20=zZ"}, {"ctrl shift Z", xkb.State{Group: 1}, "16 15 20 20=zZ"}, {"中", xkb.State{}, "20 20=中中"},
		{"F13", xkb.State{}, "20 20=F13F13"}, {"ctrl F13 F14", xkb.State{}, "16 20 25 20=F13F13 25=F14F14"},
		{"F13 F13", xkb.State{}, "20 25 20=F13F13 25=F13F13"}, {"F13 F14 F15", xkb.State{}, "key F15: not supported"}, {"hyper a", xkb.State{}, "key Hyper_L: not supported"},
	}
	for _, test := range tests {
		symbols, err := driver.ParseKeys(strings.Fields(test.keys))
		if err != nil {
			t.Fatal(err)
		}
		chord, bindings, err := small().Chord(symbols, test.state)
		got := words(chord) + " " + bound(bindings)
		if err != nil {
			got = err.Error()
		}
		if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
			t.Errorf("%s: got %s, want %s", test.keys, got, test.want)
		}
	}
}

// TestChordWithoutLatin makes chords on a map that has a key of three in the place of US keys, two of them Russian and one
// with a capital Latin letter beside a Hebrew one.
func TestChordWithoutLatin(t *testing.T) {
	keys := &xkb.Map{Types: types, First: 50, Keys: []xkb.Key{
		newKey(one, syms{0xffe1}),
		{},
		newKey(two, syms{0xce6, 'Z'}),      // ז
		newKey(letter, syms{0x6de, 0x6fe}), // ч
		newKey(letter, syms{0x6d3, 0x6f3}), // с
		newKey(one, syms{0xff0d}),
		newKey(one, syms{0xffe3}),
	}, Modifiers: []byte{0: shift, 6: xproto.ModMaskControl}}
	for _, test := range []struct{ keys, want string }{
		{"ctrl c", "56 54 54=cC"}, {"ctrl C", "56 54 54=cC"}, {"ctrl shift c", "56 50 54 54=cC"}, {"ctrl x c", "56 53 54 53=xX 54=cC"},
		{"ctrl |", "56 51 51=||"}, // where there is nothing in its place
		{"ctrl v", "56 51 51=vV"}, // where there is no character
		{"c", "51 51=cC"},         // which is a text and no shortcut
		{"ctrl z", "56 52 52=zZ"}, {"Z", "50 52 "}, {"ctrl с", "56 54 "},
		{"ctrl c с", "one key"},
	} {
		symbols, err := driver.ParseKeys(strings.Fields(test.keys))
		if err != nil {
			t.Fatal(err)
		}
		chord, bindings, err := newMap(keys).Chord(symbols, xkb.State{})
		got := words(chord) + " " + bound(bindings)
		if err != nil {
			got = err.Error()
		}
		if got != test.want && (err == nil || !strings.Contains(got, test.want)) {
			t.Errorf("%s: got %s, want %s", test.keys, got, test.want)
		}
	}
}

func TestText(t *testing.T) {
	tests := []struct {
		text  string
		state xkb.State
		want  string // the parts, each the keycodes and what is bound
	}{
		{"aA\r\n\t!a", xkb.State{}, "10 10+ 18 23 11+ 10 "},
		{"\r|¦\n", xkb.State{}, "18 21+ 19'+ 18 "},
		{"aA1", xkb.State{Locked: caps | num}, "10 10+ 11 "}, // after the lock has been lifted
		{"фФa", xkb.State{Group: 1}, "10 10+ 20 20=aaaa"},
		{"xax", xkb.State{}, "20 10 20 20=xxxx"},
		{"^é", xkb.State{}, "20 22 20=^^^^"}, // never by a dead key
		{"wxyz", xkb.State{}, "20 25 20+ 25+ 20=wyww 25=xzxx"},
		{"klmnopqrxkyq", xkb.State{}, "20 25 20+ 25+ 20' 25' 20'+ 25'+ 20=kmoq 25=lnpr; 20 25 20+ 25+ 20=xyxx 25=kqkk"},
		{"ㄱㄱa😀", xkb.State{}, "20 20 10 25 20=ㄱㄱㄱㄱ 25=😀😀😀😀"},
		{"", xkb.State{}, ""},
	}
	for _, test := range tests {
		parts, err := small().Text(t.Context(), test.text, test.state)
		var got []string
		for _, part := range parts {
			got = append(got, words(part.Strokes)+" "+bound(part.Bindings))
		}
		if got := strings.Join(got, "; "); got != test.want || err != nil {
			t.Errorf("%q: got %s, %v, want %s", test.text, got, err, test.want)
		}
	}
}

// TestTwoLevels types on a map that has no type of keys for four levels.
func TestTwoLevels(t *testing.T) {
	keys := *small().keys
	keys.Types = slices.Clone(types)
	keys.Types[four].Mods |= num
	parts, err := newMap(&keys).Text(t.Context(), "wxyzWaw", xkb.State{})
	var got []string
	for _, part := range parts {
		got = append(got, words(part.Strokes)+" "+bound(part.Bindings))
	}
	if got, want := strings.Join(got, "; "), "20 25 20+ 25+ 20=wy 25=xz; 20 10 25 20=WW 25=ww"; got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// TestT16T26 is rows T16 and T26 of the field cases: what cannot be typed is named, with its index in characters.
func TestT16T26(t *testing.T) {
	full := small()
	full.empty = nil
	for _, test := range []struct {
		m          *Map
		text, want string
	}{
		{small(), "\x1b", `character '\x1b' at index 0: not supported as text`},
		{small(), "é\x00a", `character '\x00' at index 1: not supported as text`},
		{small(), "a\r\n\x7f", `character '\x7f' at index 3: not supported as text`},
		{small(), "é\xff", `byte 0xff, which is not UTF-8, at index 1: not supported as text`},
		{small(), "a\xed\xa0\x80", `byte 0xed, which is not UTF-8, at index 1: not supported as text`}, // half of a surrogate pair
		{small(), "1\ufffd", `character '�' at index 1: not supported as text`},                        // what JSON makes of one
		{full, "é1😀", `character '😀' at index 2: not supported by this keyboard map, which has no empty key to put it on`},
	} {
		parts, err := test.m.Text(t.Context(), test.text, xkb.State{})
		if parts != nil || !errors.Is(err, driver.ErrUnsupported) || err.Error() != test.want {
			t.Errorf("%q: got %v, %v, want %s", test.text, parts, err, test.want)
		}
	}
}

func TestObstacles(t *testing.T) {
	got := small().Obstacles(xkb.State{Base: shift, Latched: altGr, Locked: caps | num})
	if want := byte(altGr | caps); got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

// TestNoShift checks that nothing is typed in the wrong case where there is no Shift key.
func TestNoShift(t *testing.T) {
	m := newMap(&xkb.Map{Types: types, First: 10, Keys: []xkb.Key{newKey(letter, syms{'a', 'A'}), {}}, Modifiers: make([]byte, 2)})
	if _, ok := m.Stroke('A', 0, 0); ok {
		t.Error("got a capital without a Shift key")
	}
	parts, err := m.Text(t.Context(), "aBC", xkb.State{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		for _, stroke := range part.Strokes {
			if stroke.Mods != 0 {
				t.Errorf("got %v, which needs Shift", stroke)
			}
		}
	}
	if got := len(parts); got != 2 {
		t.Errorf("got %d parts, want 2", got)
	}
}
