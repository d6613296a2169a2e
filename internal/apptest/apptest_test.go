package apptest

import (
	"os/exec"
	"testing"
)

// TestFields lets xdotool type into every kind of field.
func TestFields(t *testing.T) {
	xdotool := find(t, "xdotool")
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			d := NewDesktop(t)
			f := d.Open(t, kind)
			for _, want := range []string{"Hello, ", "world"} {
				cmd := exec.CommandContext(t.Context(), xdotool, "type", want)
				cmd.Env = []string{"DISPLAY=" + d.Display()}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("xdotool: %v: %s", err, out)
				}
				if got := f.Take(t, want); got != want {
					t.Error(Difference(got, want))
				}
			}
		})
	}
}

func TestKeyboard(t *testing.T) {
	d := NewDesktop(t)
	seen := map[string]Keyboard{}
	for _, k := range []Keyboard{
		{Layout: "us"}, {Layout: "us", Variant: "dvorak"}, {Layout: "us,ru"}, {Layout: "us,ru", Group: 1}, {Layout: "us", Locks: CapsLock},
		{Layout: "us", Locks: CapsLock | NumLock},
	} {
		d.SetKeyboard(t, k)
		keymap := d.Keymap(t)
		if other, ok := seen[keymap]; ok {
			t.Errorf("%v looks like %v", k, other)
		}
		seen[keymap] = k
		if again := d.Keymap(t); again != keymap {
			t.Errorf("%v looks different the second time", k)
		}
	}
}

func TestDifference(t *testing.T) {
	tests := []struct{ got, want, says string }{
		{"same", "same", ""},
		{"Приват", "Привет", `at index 4 got "ат", want "ет"; got 6 characters, want 6`},
		{"ab", "abc", `at index 2 got "", want "c"; got 2 characters, want 3`},
	}
	for _, test := range tests {
		if got := Difference(test.got, test.want); got != test.says {
			t.Errorf("%q and %q: got %s, want %s", test.got, test.want, got, test.says)
		}
	}
}
