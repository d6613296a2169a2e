package witness_test

import (
	"fmt"
	"image"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestWindow lets xdotool act and the window tell.
func TestWindow(t *testing.T) {
	program, err := exec.LookPath("xdotool")
	if err != nil {
		t.Skip("needs xdotool")
	}
	server := xvfb.ForTest(t, 640, 480)
	w := witness.ForTest(t, server.Display())
	do := func(args string) {
		t.Helper()
		c := exec.Command(program, strings.Fields(args)...)
		c.Env = append(c.Environ(), "DISPLAY="+server.Display())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("xdotool %s: %v: %s", args, err, out)
		}
	}
	tests := []struct{ do, events, held string }{
		{"mousemove 10 20", "motion (10,20)", "[]"},
		{"mousedown 3", "button 3 down (10,20)", "[button 3]"},
		{"mouseup 3", "button 3 up (10,20)", "[]"},
		{"mousedown 9", "button 9 down (10,20)", "[button 9]"},
		{"mouseup 9", "button 9 up (10,20)", "[]"},
		{"keydown ctrl", "key Control_L down", "[Control_L]"},
		{"keyup ctrl", "key Control_L up", "[]"},
		{"key A", "key Shift_L down, key a down, key Shift_L up, key a up", "[]"},
	}
	var text strings.Builder
	for _, test := range tests {
		do(test.do)
		events, err := w.Events()
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, e := range events {
			words = append(words, e.String())
			if e.Kind == witness.KeyDown && e.Text != 0 {
				text.WriteRune(e.Text)
			}
		}
		if got := strings.Join(words, ", "); got != test.events {
			t.Errorf("%s: got %s, want %s", test.do, got, test.events)
		}
		held, err := w.Held()
		if got := fmt.Sprint(held); err != nil || got != test.held {
			t.Errorf("%s: got held %s, %v, want %s", test.do, got, err, test.held)
		}
	}
	if got := text.String(); got != "A" {
		t.Errorf("got text %q, want A", got)
	}
	if got, err := w.Pointer(); err != nil || got != image.Pt(10, 20) {
		t.Errorf("got pointer %v, %v", got, err)
	}
	if err := w.WaitFor(witness.ButtonDown, time.Millisecond); err == nil {
		t.Error("got no error after waiting for what does not come")
	}
	w.Close()
	if _, err := w.Events(); err == nil {
		t.Error("got events from a closed window")
	}
}
