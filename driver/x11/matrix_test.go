package x11_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
)

// samples are texts of many scripts. The characters are chosen for what is special about them: beyond 16 bits, right to
// left, joined from several, upper case without a key of its own, repeated in a row.
var samples = []struct{ name, text string }{
	{"ASCII", printable()},
	{"Latin", "É è ç mañana Straße ŒUVRE žluťoučký Łódź İstanbul ısı Þórður €5 «ø» “ß” ÿŸ ẞ"},
	{"Greek", "Καλημέρα κόσμε, ἀρχή ΆΈΉΊΌΎΏ ςΣσ"},
	{"Cyrillic", "Привет, мир! Съешь ещё этих мягких булок. Їжак ґанок Ђорђе ЁЪЭ №"},
	{"Hebrew", "שלום עולם, בְּרֵאשִׁית"},
	{"Arabic", "السلام عليكم، ١٢٣ لَا"},
	{"Devanagari", "नमस्ते दुनिया, क्षत्रिय ज्ञ १२३"},
	{"Han", "中文测试，哈哈哈哈。漢字𠮷野家"},
	{"kana", "こんにちは、ｶﾀｶﾅ カタカナがぎぐ゛ー"},
	{"Hangul", "ㄱㄱㄱ 1ㄱ2ㄱㄱ3ㄱㄱㄱ 안녕하세요 각"},
	{"emoji", "😎🎉👍🏽 🩻🪛 👩‍👩‍👧 🏳️‍🌈 🇩🇪 1️⃣"},
	{"combining", "e\u0301 a\u0300\u0327 n\u0303 x\u0336\u0302 Z\u0351\u036b \u1112\u1161\u11ab"},
}

// manyLines are for fields that take Return and Tab.
const manyLines = "one\n\ttwo\n\n  three  \n"

func printable() string {
	var all strings.Builder
	for c := ' '; c <= '~'; c++ {
		all.WriteRune(c)
	}
	return all.String()
}

// keyboards are the keyboard maps that text is typed on.
var keyboards = []apptest.Keyboard{
	{Layout: "us"}, {Layout: "de"}, {Layout: "fr"}, {Layout: "es"}, {Layout: "it"}, {Layout: "ru"}, {Layout: "us", Variant: "dvorak"},
	{Layout: "us", Variant: "intl"}, {Layout: "us,ru", Group: 1}, {Layout: "de,us", Group: 1},
}

// types checks that a text arrives in the application as it is, and leaves no trace on the keyboard.
func (r room) types(t *testing.T, text string) {
	t.Helper()
	before := r.desktop.Keymap(t)
	if err := r.Type(t.Context(), driver.Type{Text: text}); err != nil {
		t.Error(err)
	}
	if difference := apptest.Difference(r.field.Take(t, text), text); difference != "" {
		t.Errorf("typing %.40q: %s", text, difference)
	}
	if after := r.desktop.Keymap(t); after != before {
		t.Errorf("typing %.40q: the keyboard map is another: %s", text, apptest.Difference(after, before))
	}
}

// TestMatrix types texts of all scripts on many keyboards, with locks on and off, into real applications. Into a plain
// window each text goes on each keyboard with each lock; into the others, which take their time, all texts go as one on
// each keyboard, the locks taking turns. A long text goes where there is room for one. With cgo it is robotgo that is
// tested, and XTEST without.
func TestMatrix(t *testing.T) {
	long(t)
	locks := []byte{0, apptest.CapsLock, apptest.NumLock}
	var all strings.Builder
	for _, sample := range samples {
		all.WriteString(sample.text)
	}
	for _, kind := range apptest.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			r := newRoom(t, kind, x11.SinkAuto)
			if kind == apptest.Xlib {
				for _, keyboard := range keyboards {
					for _, keyboard.Locks = range locks {
						r.desktop.SetKeyboard(t, keyboard)
						for _, sample := range samples {
							t.Run(fmt.Sprintf("%v/%s", keyboard, sample.name), func(t *testing.T) { r.types(t, sample.text) })
						}
					}
				}
			}
			text := all.String()
			if !kind.OneLine() {
				text += manyLines
			}
			for i, keyboard := range keyboards {
				keyboard.Locks = locks[i%len(locks)]
				r.desktop.SetKeyboard(t, keyboard)
				t.Run(keyboard.String(), func(t *testing.T) { r.types(t, text) })
			}
			r.desktop.SetKeyboard(t, keyboards[0])
			if !kind.OneLine() {
				t.Run("long", func(t *testing.T) { r.types(t, strings.Repeat(sentence+"\n", 100)) })
			}
		})
	}
}

// sentence has 99 characters.
const sentence = "The quick brown fox jumps over the lazy dog; 0123456789 (twice!)? @home: ~/.config/{a,b} <-> C:\\ #%"

// TestTextCases is the rows of the field cases that are about text, in real applications: rows T22 and T23 because the
// terminal might have a shell in it.
func TestTextCases(t *testing.T) {
	long(t)
	const chinese = "我们在这里输入一段很长的中文文字，看看每一个字是否都按顺序到达。哈哈哈哈，"
	tests := []struct{ name, layout, text string }{
		{"T1", "us", "abc中文def"},
		{"T2", "us", "user@example.com"},
		{"T2", "de", "user@example.com"},
		{"T2", "fr", "user@example.com"},
		{"T4", "us", string([]rune(strings.Repeat(chinese, 6))[:200])},
		{"T15", "us", "mañana"},
		{"T16", "us", "Привет 世界 🎉"},
		{"T18", "us", strings.Repeat(sentence, 10)},
		{"T21", "us", strings.Repeat("foo_bar%baz", 50)},
		{"T22", "us", "it's $HOME `id`; rm -rf x"},
		{"T23", "us", "--help, -5"},
	}
	for _, kind := range []apptest.Kind{apptest.XTerm, apptest.GTKEntry, apptest.TkEntry, apptest.Chromium} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRoom(t, kind, x11.SinkAuto)
			for _, test := range tests {
				t.Run(test.name+"/"+test.layout, func(t *testing.T) {
					r.desktop.SetKeyboard(t, apptest.Keyboard{Layout: test.layout})
					r.types(t, test.text)
				})
			}
		})
	}
}
