package keyboard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

const (
	caps   = xproto.ModMaskLock
	num    = xproto.ModMask2
	second = 1 << 13 // group
)

// small is a keyboard of a few keys; the second group is a Russian one.
func small() *Map {
	m := &Map{numLock: num}
	for i, symbols := range [][]xproto.Keysym{
		10: {'a', 'A', 0x01000444, 0x01000424}, // ф
		11: {'1', '!'},
		12: {'='},
		13: {'b'}, // a letter alone is both cases
		14: {0xff9c, 0xffb1},
		15: {0xffe1},
		16: {0xffe3},
		17: {0xffe9, 0xffe7}, // Alt, Meta
		18: {0xff0d},
		19: {'<', '>', '<', '>', '|'},
		20: {},
		21: {'!'},
		22: {0xe9, 0xc9}, // é
		23: {0xff09, 0xfe20},
	} {
		if symbols != nil {
			m.keys = append(m.keys, newKey(xproto.Keycode(i), symbols))
		}
	}
	m.shift, _ = m.Stroke(driver.KeyShift, 0)
	return m
}

func TestStroke(t *testing.T) {
	tests := []struct {
		symbol driver.Key
		state  uint16
		want   string // keycode, with + for Shift
	}{
		{'a', 0, "10"}, {'A', 0, "10+"}, {'a', caps, "10+"}, {'A', caps, "10"},
		{'1', 0, "11"}, {'!', 0, "11+"}, {'1', caps, "11"}, {'!', caps, "11+"},
		{'=', 0, "12"}, {'b', 0, "13"}, {'B', 0, "13+"},
		{0xff9c, 0, "14"}, {0xffb1, 0, "14+"}, {0xffb1, num, "14"}, {0xff9c, num, "14+"},
		{driver.KeyAlt, 0, "17"}, {0xffe7, 0, "none"}, // Shift and Alt is not Meta.
		{'<', 0, "19"}, {'|', 0, "none"}, {'q', 0, "none"}, {0, 0, "none"},
		{0xe9, 0, "22"}, {0xc9, 0, "22+"}, {0xe9, caps, "22+"},
		{'a', second, "none"}, {0x01000444, second, "10"}, {0x01000424, second, "10+"}, {'!', second, "11+"}, {driver.KeyReturn, second, "18"},
		{'a', 2 * second, "none"},
	}
	m := small()
	for _, test := range tests {
		got := "none"
		if stroke, ok := m.Stroke(test.symbol, test.state); ok {
			got = word(stroke)
		}
		if got != test.want {
			t.Errorf("%v in state %#x: got %s, want %s", test.symbol, test.state, got, test.want)
		}
	}
}

func word(s Stroke) string {
	if s.Shift {
		return fmt.Sprintf("%d+", s.Code)
	}
	return fmt.Sprint(s.Code)
}

func TestChord(t *testing.T) {
	tests := []struct {
		keys  string
		state uint16
		want  string // the keycodes in order, or the error
	}{
		{"ctrl c", 0, "key c: not supported"},
		{"ctrl a", 0, "16 10"}, {"ctrl A", 0, "16 10"}, {"ctrl A", caps, "16 10"}, {"shift A", 0, "15 10"}, {"shift a", 0, "15 10"},
		{"A", 0, "15 10"}, {"a", caps, "15 10"}, {"A", caps, "10"},
		{"ctrl !", 0, "16 15 11"}, {"ctrl shift !", 0, "16 15 11"}, {"! >", 0, "15 11 19"}, {"alt ctrl 1", 0, "17 16 11"},
		{"a ctrl", 0, "10 16"}, {"ctrl ctrl", 0, "one key"}, {"a A", 0, "one key"}, {"F13", 0, "key F13: not supported"},
	}
	for _, test := range tests {
		symbols, err := driver.ParseKeys(strings.Fields(test.keys))
		if err != nil {
			t.Fatal(err)
		}
		chord, err := small().Chord(symbols, test.state)
		got := fmt.Sprint(err)
		if err == nil {
			words := []string{}
			for _, s := range chord {
				words = append(words, word(s))
			}
			got = strings.Join(words, " ")
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s, want %s", test.keys, got, test.want)
		}
	}
}

func TestText(t *testing.T) {
	strokes, err := small().Text("aA\r\n\t!a", 0)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{}
	for _, s := range strokes {
		words = append(words, word(s))
	}
	if got, want := strings.Join(words, " "), "10 10+ 18 23 11+ 10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"aéÉq": "'q' at index 3", "\x1b": `'\x1b' at index 0`, "a\xff": "'\ufffd' at index 1", "1😀": "'😀' at index 1", "a\u200b": `'\u200b' at index 1`,
	} {
		if strokes, err := small().Text(text, 0); strokes != nil || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %s", text, strokes, err, want)
		}
	}
}

// TestNoShift checks that nothing is typed in the wrong case where there is no Shift key.
func TestNoShift(t *testing.T) {
	m := &Map{keys: []key{newKey(10, []xproto.Keysym{'a', 'A'})}}
	if _, ok := m.Stroke('A', 0); ok {
		t.Error("got a capital without a Shift key")
	}
	if _, ok := m.Stroke('a', 0); !ok {
		t.Error("got no small letter")
	}
}
