package x11_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/witness"
)

// TestControlKeys presses Ctrl+A in programs on layouts where A is elsewhere or missing: it still selects all. Chromium
// knows shortcuts by the places of keys, and finds A nowhere on a layout that is Cyrillic or Greek alone.
func TestControlKeys(t *testing.T) {
	everywhere := []apptest.Keyboard{{Layout: "us"}, {Layout: "us", Locks: apptest.CapsLock}, {Layout: "fr"}, {Layout: "us,ru", Group: 1}}
	for kind, keyboards := range map[apptest.Kind][]apptest.Keyboard{
		apptest.Chromium: everywhere,
		apptest.GTKEntry: append(everywhere, apptest.Keyboard{Layout: "ru"}, apptest.Keyboard{Layout: "gr"}),
	} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRoom(t, kind, x11.SinkXTEST)
			for _, keyboard := range keyboards {
				r.desktop.SetKeyboard(t, keyboard)
				before := r.desktop.Keymap(t)
				for _, a := range []driver.Action{
					driver.Type{Text: "old старый"}, driver.Keypress{Keys: []string{"CTRL", "A"}}, driver.Type{Text: "new"},
				} {
					if _, err := driver.Do(t.Context(), r, a); err != nil {
						t.Fatalf("%s: %v", keyboard, err)
					}
				}
				if got, want := r.field.Take(t, "new"), "new"; got != want {
					t.Errorf("%s: got %q, want %q", keyboard, got, want)
				}
				if r.desktop.Keymap(t) != before {
					t.Errorf("%s: the keyboard is not as it was", keyboard)
				}
			}
		})
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
