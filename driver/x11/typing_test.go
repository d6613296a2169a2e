package x11_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/witness"
)

// A typist is a driver at a desktop with a window manager and a window that answers pings.
type typist struct {
	desktop
	*apptest.Desktop
}

func newTypist(t *testing.T, opts x11.Options) typist {
	t.Helper()
	d := apptest.NewDesktop(t)
	opts.Display = d.Display()
	window := witness.ForTest(t, d.Display())
	if err := window.AnswerPings(); err != nil {
		t.Fatal(err)
	}
	return typist{desktop{open(t, opts), d.Server, window}, d}
}

// types types a text, and checks what the window got and that nothing is left of it.
func (d typist) types(t *testing.T, text string) {
	t.Helper()
	before := d.Keymap(t)
	if err := d.Type(t.Context(), driver.Type{Text: text}); err != nil {
		t.Errorf("%.40q: %v", text, err)
	}
	if got := d.typed(t); got != text {
		t.Errorf("got %s", apptest.Difference(got, text))
	}
	d.free(t)
	if d.Keymap(t) != before {
		t.Errorf("after %.40q the keyboard is not as it was", text)
	}
}

// scripts is a text of all the samples.
func scripts() string {
	all := manyLines
	for _, sample := range samples {
		all += sample.text + "\n"
	}
	return all
}

// TestLayouts types the scripts on every layout, in each state of the locks.
func TestLayouts(t *testing.T) {
	long(t)
	d := newTypist(t, x11.Options{Sink: x11.SinkXTEST})
	for _, keyboard := range []apptest.Keyboard{
		{Layout: "us"}, {Layout: "us", Locks: apptest.CapsLock}, {Layout: "us", Locks: apptest.NumLock}, {Layout: "us", Locks: 0xff},
		{Layout: "de"}, {Layout: "de", Locks: apptest.CapsLock | apptest.NumLock}, {Layout: "fr"}, {Layout: "fr", Locks: apptest.CapsLock},
		{Layout: "es"}, {Layout: "it"}, {Layout: "ru"}, {Layout: "ru", Locks: apptest.CapsLock}, {Layout: "gr"}, {Layout: "il"},
		{Layout: "us", Variant: "dvorak"}, {Layout: "us", Variant: "intl"}, {Layout: "us,ru", Group: 1}, {Layout: "us,ru"},
		{Layout: "de,us", Group: 1}, {Layout: "us,ru,de", Group: 1},
	} {
		t.Run(keyboard.String(), func(t *testing.T) {
			d.SetKeyboard(t, keyboard)
			d.types(t, scripts())
		})
	}
}

// TestTyping is rows T1 to T22 of the field cases as far as they are about one text on one layout.
func TestTyping(t *testing.T) {
	long(t)
	paragraph := strings.Repeat("人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。", 5)
	us, russian := apptest.Keyboard{Layout: "us"}, apptest.Keyboard{Layout: "us,ru", Group: 1}
	tests := []struct {
		row      string
		keyboard apptest.Keyboard
		text     string
	}{
		{"T1", us, "abc中文def"}, {"T2", us, "user@example.com"}, {"T2", apptest.Keyboard{Layout: "de"}, "user@example.com"},
		{"T2", apptest.Keyboard{Layout: "fr"}, "user@example.com"}, {"T4", us, paragraph},
		{"T5", us, "ㄱㄱㄱ"}, {"T5", us, "1ㄱ2ㄱㄱ3ㄱㄱㄱ"}, {"T5", us, "哈哈哈哈"}, {"T5", us, "ддддД"},
		{"T7", us, "É è ç"}, {"T7", apptest.Keyboard{Layout: "fr"}, "É è ç"},
		{"T8", russian, "/usr/bin"}, {"T9", us, "😎"}, {"T11", apptest.Keyboard{Layout: "us", Variant: "intl"}, "`^~\"'"},
		{"T15", us, "mañana"}, {"T15", apptest.Keyboard{Layout: "es"}, "mañana"}, {"T16", us, "Привет 世界 🎉"}, {"T16", russian, "Привет 世界 🎉"},
		{"T19", us, "🩻 🪛 👩‍👩‍👧"}, {"T21", us, strings.Repeat("foo_bar%baz", 50)}, {"T21", russian, strings.Repeat("foo_bar%baz", 50)},
		{"T22", us, "it's $HOME `id`; rm -rf x"}, {"T22", apptest.Keyboard{Layout: "de"}, "it's $HOME `id`; rm -rf x"},
	}
	t.Setenv("LC_ALL", "C") // T9: whatever the locale
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newTypist(t, x11.Options{Sink: sink})
		for _, test := range tests {
			t.Run(test.row+" "+test.keyboard.String(), func(t *testing.T) {
				d.SetKeyboard(t, test.keyboard)
				d.types(t, test.text)
			})
		}
	})
}

// TestSlowReader types more characters than there are empty keycodes into a window that is far behind: no keycode
// changes its meaning before the window has looked it up.
func TestSlowReader(t *testing.T) {
	var different strings.Builder
	for r := range rune(150) {
		different.WriteRune('一' + r)
	}
	for _, test := range []struct {
		name   string
		perKey time.Duration
		pings  bool
	}{
		{"answers pings", 3 * time.Millisecond, true},
		{"does not", time.Nanosecond, false}, // It has to keep the pace, but looks at the map at every key.
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDesktop(t, x11.Options{Sink: x11.SinkXTEST})
			if test.pings {
				if err := d.window.AnswerPings(); err != nil {
					t.Fatal(err)
				}
			}
			d.window.TakeTime(test.perKey)
			// The letters at the end are on the layout and keep the window busy when the map is put back.
			text := different.String() + strings.Repeat("abc", 20) + "末"
			if err := d.Type(t.Context(), driver.Type{Text: text}); err != nil {
				t.Fatal(err)
			}
			if got := d.typed(t); got != text {
				t.Errorf("got %s", apptest.Difference(got, text))
			}
		})
	}
}

// TestHungReader checks that a program that says it answers pings, and does not, is an error and not a wait for ever.
func TestHungReader(t *testing.T) {
	d := newTypist(t, x11.Options{Sink: x11.SinkXTEST})
	before := d.Keymap(t)
	d.window.TakeTime(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := d.Type(ctx, driver.Type{Text: strings.Repeat("éa", 200)})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "after 0 to 64 of 400 characters: waiting for the program") {
		t.Errorf("got %v, want the deadline exceeded after 0 to 64 characters", err)
	}
	if took := time.Since(start); took > 1200*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if d.Keymap(t) != before {
		t.Error("the keyboard is not as it was")
	}
}

// TestCancelTyping ends a text in its middle: the map and the locks come back, and the error says how far it came.
func TestCancelTyping(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newTypist(t, x11.Options{Sink: sink})
		d.SetKeyboard(t, apptest.Keyboard{Layout: "de", Locks: apptest.CapsLock | apptest.NumLock})
		before := d.Keymap(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Type(ctx, driver.Type{Text: strings.Repeat("aB@é中", 100_000)}) }()
		if err := d.window.WaitFor(witness.KeyDown, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		cancel()
		err := <-done
		var least, most int
		if _, scan := fmt.Sscanf(fmt.Sprint(err), "typing 500000 characters: after %d to %d of 500000", &least, &most); scan != nil {
			_, scan = fmt.Sscanf(fmt.Sprint(err), "typing 500000 characters: after %d of 500000", &least)
			if most = least; scan != nil || !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v, want it cancelled, and the count", err)
			}
		}
		if got := len([]rune(d.typed(t))); got < least || got > most || got == 0 {
			t.Errorf("got %d characters, want %d to %d", got, least, most)
		}
		d.free(t)
		if d.Keymap(t) != before {
			t.Error("the keyboard is not as it was")
		}
	})
}

// TestT13 is row T13 of the field cases: many accented letters take no time, and the server answers meanwhile.
func TestT13(t *testing.T) {
	d := newTypist(t, x11.Options{Sink: x11.SinkXTEST})
	const n, budget = 500, 10 * time.Millisecond
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- d.Type(context.Background(), driver.Type{Text: strings.Repeat("ä", n)}) }()
	for asked := true; asked; {
		begin := time.Now()
		if _, err := d.window.Pointer(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("the server took %v to answer", took)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			asked = false
		case <-time.After(time.Millisecond):
		}
	}
	if took := time.Since(start); took > n*budget {
		t.Errorf("took %v, want at most %v", took, n*budget)
	}
	if got := d.typed(t); got != strings.Repeat("ä", n) {
		t.Errorf("got %s", apptest.Difference(got, strings.Repeat("ä", n)))
	}
}

// TestT18 is row T18 of the field cases: long texts arrive whole, at least ten times as fast as at 10ms a character.
func TestT18(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := newDesktop(t, x11.Options{Sink: sink})
		for _, n := range []int{1000, 10_000} {
			text := strings.Repeat("The quick brown fox; 0123!\n", n)[:n]
			start := time.Now()
			if err := d.Type(t.Context(), driver.Type{Text: text}); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			t.Logf("%d characters took %v", n, took)
			if most := time.Duration(n) * time.Millisecond; took > most {
				t.Errorf("%d characters took %v, want at most %v", n, took, most)
			}
			if got := d.typed(t); got != text {
				t.Errorf("got %s", apptest.Difference(got, text))
			}
		}
	})
}

// TestT17 is row T17 of the field cases: text that would go nowhere, or no longer to where it went, is an error that
// says how much was typed.
func TestT17(t *testing.T) {
	text := driver.Type{Text: "abc é"}
	t.Run("no focus", func(t *testing.T) {
		d := newDesktop(t, x11.Options{Sink: x11.SinkXTEST})
		d.setFocus(t, xproto.InputFocusNone)
		if err := d.Type(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no window has the keyboard focus") {
			t.Errorf("got %v", err)
		}
		if err := d.Type(t.Context(), driver.Type{}); err != nil {
			t.Errorf("typing nothing: got %v", err)
		}
	})
	t.Run("only a window manager", func(t *testing.T) {
		d := newTypist(t, x11.Options{Sink: x11.SinkXTEST})
		d.window.Close()
		if err := d.Type(t.Context(), text); err == nil || !strings.Contains(err.Error(), "no window has the keyboard focus") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("under the pointer", func(t *testing.T) {
		d := newDesktop(t, x11.Options{Sink: x11.SinkXTEST})
		d.setFocus(t, xproto.InputFocusPointerRoot)
		if err := d.Type(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if got := d.typed(t); got != text.Text {
			t.Errorf("got %q, want %q", got, text.Text)
		}
	})
	for _, script := range []string{"a", "é"} {
		for name, leave := range map[string]func(typist){
			"closed":    func(d typist) { d.window.Close() },
			"elsewhere": func(d typist) { d.setFocus(t, xproto.InputFocusNone) },
		} {
			t.Run(script+" "+name, func(t *testing.T) {
				d := newTypist(t, x11.Options{Sink: x11.SinkXTEST})
				before := d.Keymap(t)
				const total = 200_000
				done := make(chan error, 1)
				go func() { done <- d.Type(context.Background(), driver.Type{Text: strings.Repeat(script, total)}) }()
				if err := d.window.WaitFor(witness.KeyDown, 5*time.Second); err != nil {
					t.Fatal(err)
				}
				leave(d)
				err := <-done
				var least, most int
				if _, scan := fmt.Sscanf(fmt.Sprint(err), "typing 200000 characters: after %d to %d of 200000 characters: ", &least, &most); scan != nil {
					t.Fatalf("got %v, want the count", err)
				}
				if name == "elsewhere" {
					if got := len([]rune(d.typed(t))); got < least || got > most {
						t.Errorf("got %d characters, want %d to %d", got, least, most)
					}
				}
				if d.Keymap(t) != before {
					t.Error("the keyboard is not as it was")
				}
			})
		}
	}
}

// setFocus moves the focus, as another client.
func (d desktop) setFocus(t *testing.T, to xproto.Window) {
	t.Helper()
	x, err := xgb.NewConnDisplay(d.server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := xproto.SetInputFocusChecked(x, xproto.InputFocusNone, to, xproto.TimeCurrentTime).Check(); err != nil {
		t.Fatal(err)
	}
}
