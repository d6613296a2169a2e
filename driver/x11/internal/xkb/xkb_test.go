package xkb

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/xvfb"
)

const (
	shift = xproto.ModMaskShift
	lock  = xproto.ModMaskLock
	alt   = xproto.ModMask5 // AltGr, by the rules of all layouts
)

// newExtension connects to a server of a layout, given as arguments of setxkbmap. The second connection is a witness
// that knows nothing of XKB.
func newExtension(t *testing.T, layout string) (*Extension, *display.Conn) {
	t.Helper()
	server := xvfb.ForTest(t, 320, 200)
	program, err := exec.LookPath("setxkbmap")
	if err != nil {
		t.Skip("needs setxkbmap")
	}
	args := append([]string{"-display", server.Display()}, strings.Fields(layout)...)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("setxkbmap %s: %v: %s", layout, err, out)
	}
	var conns [2]*display.Conn
	for i := range conns {
		if conns[i], err = display.Open(server.Display()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	x, err := Use(conns[0])
	if err != nil {
		t.Fatal(err)
	}
	return x, conns[1]
}

// TestMap checks keys of known layouts by group, modifiers and symbol.
func TestMap(t *testing.T) {
	for layout, keys := range map[string][]struct {
		code  xproto.Keycode
		group int
		mods  byte
		want  xproto.Keysym
	}{
		"us,ru": {
			{38, 0, 0, 'a'}, {38, 0, shift, 'A'}, {38, 0, lock, 'A'}, {38, 0, shift | lock, 'a'}, {10, 0, lock, '1'}, {10, 0, shift, '!'},
			{38, 1, 0, 0x6c6}, {38, 1, shift, 0x6e6}, {38, 2, 0, 'a'}, // ф
			{36, 1, 0, 0xff0d}, // Return has one group.
		},
		"de": {{24, 0, alt, '@'}, {20, 0, 0, 0xdf}, {20, 0, alt, '\\'}, {38, 3, 0, 'a'}},
	} {
		t.Run(layout, func(t *testing.T) {
			x, _ := newExtension(t, layout)
			m, err := x.Map(nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := m.First+xproto.Keycode(len(m.Keys)-1), xproto.Keycode(255); got != want {
				t.Errorf("got last keycode %d, want %d", got, want)
			}
			for _, test := range keys {
				k := m.Keys[test.code-m.First]
				group, ok := k.Group(test.group)
				got := k.Symbol(group, m.Types[k.Types[group]].Level(test.mods))
				if got != test.want || !ok {
					t.Errorf("key %d in group %d with %#x: got %#x, want %#x", test.code, test.group, test.mods, got, test.want)
				}
			}
			if _, ok := m.Keys[93-m.First].Group(0); ok {
				t.Error("got a group of a key that has none")
			}
			if got, want := fmt.Sprint(m.Modifiers[50-m.First], m.Modifiers[66-m.First], m.Modifiers[92-m.First], m.Modifiers[38-m.First]), "1 2 128 0"; got != want {
				t.Errorf("got modifiers %s of Shift, Caps Lock, AltGr and a, want %s", got, want)
			}
		})
	}
}

func TestGroup(t *testing.T) {
	for _, test := range []struct {
		groups byte
		state  int
		want   string
	}{
		{0, 0, "0 false"}, {1, 0, "0 true"}, {1, 3, "0 true"}, {2, 1, "1 true"},
		{3, 3, "0 true"},               // wrap
		{0x40 | 3, 3, "2 true"},        // clamp
		{0x80 | 0x10 | 3, 3, "1 true"}, // redirect
		{0x80 | 0x20 | 2, 3, "0 true"}, // redirect to a group that is not there
		{0x80 | 0x10 | 3, 2, "2 true"}, // none needed
		{0x40, 1, "0 false"}, {4, 3, "3 true"},
	} {
		group, ok := Key{Groups: test.groups}.Group(test.state)
		if got := fmt.Sprint(group, ok); got != test.want {
			t.Errorf("groups %#x, state %d: got %s, want %s", test.groups, test.state, got, test.want)
		}
	}
}

// TestSetKeys checks, by a client without XKB, that symbols change and come back, all at once.
func TestSetKeys(t *testing.T) {
	x, other := newExtension(t, "us")
	before := coreMap(t, other)
	m, err := x.Map(nil)
	if err != nil {
		t.Fatal(err)
	}
	const first, last = 93, 97
	old := m.Keys[first-m.First : last-m.First+1]
	changed := append([]Key(nil), old...)
	for _, i := range []int{0, len(changed) - 1} {
		changed[i] = Key{Types: [4]byte{1}, Groups: 1, Width: 2, Symbols: []xproto.Keysym{0x1000444, 0x101f600}} // ф, 😀
	}
	if err := x.SetKeys(first, changed); err != nil {
		t.Fatal(err)
	}
	after := coreMap(t, other)
	for code := range before {
		want := before[code]
		if code == first || code == last {
			want = "0x1000444 0x101f600"
		}
		if got := after[code]; !strings.HasPrefix(got, want) {
			t.Errorf("key %d: got %s, want %s", code, got, want)
		}
	}
	if got, err := x.Map(m); err != nil || got == m {
		t.Errorf("got %p, %v, want another map than %p", got, err, m)
	}
	if err := x.SetKeys(first, old); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(coreMap(t, other)), fmt.Sprint(before); got != want {
		t.Errorf("got map\n%s\nafterwards, want\n%s", got, want)
	}
	if got, err := x.Map(m); err != nil || got != m {
		t.Errorf("got %p, %v, want %p, which is in force again", got, err, m)
	}
}

// coreMap returns the symbols of each key as every client sees them.
func coreMap(t *testing.T, conn *display.Conn) map[int]string {
	t.Helper()
	if err := conn.Sync(); err != nil {
		t.Fatal(err)
	}
	first, n := conn.Setup.MinKeycode, byte(conn.Setup.MaxKeycode-conn.Setup.MinKeycode+1)
	r, err := xproto.GetKeyboardMapping(conn.X, first, n).Reply()
	if err != nil {
		t.Fatal(err)
	}
	keys := map[int]string{}
	for i := range int(n) {
		var words []string
		for _, symbol := range r.Keysyms[i*int(r.KeysymsPerKeycode):][:r.KeysymsPerKeycode] {
			if symbol != 0 {
				words = append(words, fmt.Sprintf("%#x", symbol))
			}
		}
		keys[int(first)+i] = strings.Join(words, " ")
	}
	return keys
}

// TestLock checks that locks are lifted and set, by the state that everybody sees.
func TestLock(t *testing.T) {
	x, other := newExtension(t, "us")
	for _, test := range []struct{ mask, locked, want byte }{
		{lock | alt, lock | alt, lock | alt}, {lock, 0, alt}, {alt | lock, lock, lock}, {0xff, 0, 0},
	} {
		x.Lock(test.mask, test.locked)
		state, err := x.State()
		if err != nil {
			t.Fatal(err)
		}
		seen, err := xproto.QueryPointer(other.X, other.Screen.Root).Reply()
		if err != nil {
			t.Fatal(err)
		}
		if state != (State{Locked: test.want}) || byte(seen.Mask) != test.want {
			t.Errorf("got state %+v, and %#x seen by others, want %#x", state, seen.Mask, test.want)
		}
	}
}

// TestCutShort checks that a bad reply is an error.
func TestCutShort(t *testing.T) {
	x, _ := newExtension(t, "us")
	var body writer
	body.put16(coreKeyboard, partTypes|partSymbols|partModifiers)
	reply, err := x.ask(getMap, append(body, make([]byte, 20)...))()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseMap(reply); err != nil {
		t.Error(err)
	}
	for _, n := range []int{32, 39, 100, len(reply) / 2, len(reply) - 8} {
		if m, err := parseMap(reply[:n]); err == nil {
			t.Errorf("%d of %d bytes: got %d keys, want an error", n, len(reply), len(m.Keys))
		}
	}
}
