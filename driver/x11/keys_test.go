package x11_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/witness"
)

// latinless are layouts without Latin letters. The Hebrew one has some capitals.
var latinless = []apptest.Keyboard{{Layout: "ru"}, {Layout: "gr"}, {Layout: "il"}, {Layout: "ru", Locks: apptest.CapsLock}, {Layout: "ua,gr", Group: 1}}

// TestShortcuts selects, copies and pastes in programs on layouts where the letters are elsewhere or missing.
func TestShortcuts(t *testing.T) {
	long(t)
	keyboards := append(latinless, apptest.Keyboard{Layout: "us"}, apptest.Keyboard{Layout: "us", Locks: apptest.CapsLock}, apptest.Keyboard{Layout: "fr"},
		apptest.Keyboard{Layout: "us,ru", Group: 1})
	for _, kind := range []apptest.Kind{apptest.Chromium, apptest.GTKEntry, apptest.GTKArea, apptest.Qt} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRoom(t, kind, x11.SinkAuto)
			for i, keyboard := range keyboards {
				r.desktop.SetKeyboard(t, keyboard)
				before := r.desktop.Keymap(t)
				text := fmt.Sprintf("слово word %d ", i)
				for _, a := range []driver.Action{
					driver.Type{Text: text}, driver.Keypress{Keys: []string{"CTRL", "A"}}, driver.Keypress{Keys: []string{"CTRL", "C"}},
					driver.Keypress{Keys: []string{"END"}}, driver.Keypress{Keys: []string{"CTRL", "V"}}, driver.Type{Text: "с"},
				} {
					if _, err := driver.Do(t.Context(), r, a); err != nil {
						t.Fatalf("%s: %v", keyboard, err)
					}
				}
				if got, want := r.field.Take(t, text+text+"с"), text+text+"с"; got != want {
					t.Errorf("%s: got %q, want %q", keyboard, got, want)
				}
				if r.desktop.Keymap(t) != before {
					t.Errorf("%s: the keyboard is not as it was", keyboard)
				}
			}
		})
	}
}

// TestChordsWithoutLatin presses chords on layouts without Latin letters. What a program makes of them is what it makes of
// them on a US keyboard.
func TestChordsWithoutLatin(t *testing.T) {
	long(t)
	chords := []string{"CTRL A", "CTRL C", "CTRL SHIFT T", "ALT F", "CTRL -", "CTRL z"}
	for _, kind := range []apptest.Kind{apptest.Chromium, apptest.XTerm, apptest.Xlib} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRoom(t, kind, x11.SinkAuto)
			result := func(keyboard apptest.Keyboard, want string) string {
				t.Helper()
				r.desktop.SetKeyboard(t, keyboard)
				for _, chord := range chords {
					if err := r.Keypress(t.Context(), driver.Keypress{Keys: strings.Fields(chord)}); err != nil {
						t.Fatalf("%s: %v", keyboard, err)
					}
				}
				if kind != apptest.Chromium {
					return r.field.Take(t, want)
				}
				var all []string
				for deadline := time.Now().Add(5 * time.Second); len(all) < len(chords) && time.Now().Before(deadline); time.Sleep(glance) {
					var some []string
					r.field.Ask(t, "shortcuts", &some)
					all = append(all, some...)
				}
				return strings.Join(all, ", ")
			}
			want := map[byte]string{}
			for _, locks := range []byte{0, apptest.CapsLock} {
				want[locks] = result(apptest.Keyboard{Layout: "us", Locks: locks}, "unknown")
			}
			for _, keyboard := range latinless {
				want := want[keyboard.Locks]
				if got := result(keyboard, want); got != want || len(want) < len(chords) {
					t.Errorf("%s: got %q, want %q", keyboard, got, want)
				}
			}
		})
	}
}

// TestGroupInQt types in the second group of a layout that has just been set, which Qt 5 takes for the first one, and
// again after each new keyboard map.
func TestGroupInQt(t *testing.T) {
	r := newRoom(t, apptest.Qt, x11.SinkAuto)
	for range 2 {
		r.desktop.SetKeyboard(t, apptest.Keyboard{Layout: "us,ru", Group: 1})
		for _, text := range []string{"слово", "слово and слово", "и слово"} {
			r.types(t, text)
		}
	}
}

// TestKeysNotOnTheMap presses keys that the map lacks, alone and in chords: the window sees them by name, and the map is
// afterwards what it was.
func TestKeysNotOnTheMap(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newTypist(t, x11.Options{Sink: sink, Hold: time.Nanosecond})
		before := d.Keymap(t)
		for _, test := range []struct{ keys, want string }{
			{"F13", "key F13 down, key F13 up"},
			{"CTRL F24", "key Control_L down, key F24 down, key F24 up, key Control_L up"},
			{"CTRL SHIFT ё", "key Control_L down, key Shift_L down, key ё down, key ё up, key Shift_L up, key Control_L up"},
			{"F13 F14", "key F13 down, key F14 down, key F14 up, key F13 up"},
			{"é", "key é down, key é up"},
		} {
			if err := d.Keypress(t.Context(), driver.Keypress{Keys: strings.Fields(test.keys)}); err != nil {
				t.Errorf("%s: %v", test.keys, err)
			}
			var words []string
			for _, e := range d.events(t) {
				words = append(words, e.String())
			}
			if got := strings.Join(words, ", "); got != test.want {
				t.Errorf("%s: got %s, want %s", test.keys, got, test.want)
			}
			if d.Keymap(t) != before {
				t.Errorf("after %s the keyboard is not as it was", test.keys)
			}
		}
		// Held for a click, too.
		if err := d.Click(t.Context(), driver.Click{X: 9, Y: 9, Button: driver.ButtonLeft, Keys: []string{"F20"}}); err != nil {
			t.Fatal(err)
		}
		if got := d.events(t); len(got) != 4 || got[0].Key.String() != "F20" || got[1].Kind != witness.ButtonDown {
			t.Errorf("got %v, want F20 held for a click", got)
		}
		if d.Keymap(t) != before {
			t.Error("after a click the keyboard is not as it was")
		}
	})
}
