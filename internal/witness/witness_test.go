package witness_test

import (
	"errors"
	"fmt"
	"image"
	"image/draw"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
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

// TestShow lets another client look.
func TestShow(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	w := witness.ForTest(t, server.Display())
	whole := image.NewRGBA(image.Rect(0, 0, 640, 480)) // takes several requests
	random := rand.New(rand.NewPCG(1, 2))
	for i := range whole.Pix {
		whole.Pix[i] = byte(random.Uint32())
	}
	other := image.NewRGBA(image.Rect(600, 470, 640, 480))
	for i := range other.Pix {
		other.Pix[i] = byte(random.Uint32())
	}
	want := image.NewRGBA(whole.Rect)
	draw.Draw(want, whole.Rect, whole, image.Point{}, draw.Src)
	part := image.Rect(620, 475, 637, 478)
	draw.Draw(want, part, other, part.Min, draw.Src)
	for _, picture := range []*image.RGBA{whole, other.SubImage(part).(*image.RGBA)} {
		if err := w.Show(picture); err != nil {
			t.Fatal(err)
		}
	}

	x, err := xgb.NewConnDisplay(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	root := xproto.Setup(x).DefaultScreen(x).Root
	got, err := xproto.GetImage(x, xproto.ImageFormatZPixmap, xproto.Drawable(root), 0, 0, 640, 480, ^uint32(0)).Reply()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(want.Pix); i += 4 {
		if g, w := got.Data[i:i+3], want.Pix[i:i+3]; g[0] != w[2] || g[1] != w[1] || g[2] != w[0] {
			t.Fatalf("at (%d,%d): got %v, blue first, want %v, red first", i/4%640, i/4/640, g, w)
		}
	}
}

func TestShowRefuses(t *testing.T) {
	w := witness.ForTest(t, xvfb.ForTest(t, 64, 64, "-screen", "0", "64x64x16").Display())
	if err := w.Show(image.NewRGBA(image.Rect(0, 0, 1, 1))); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v at depth 16, want ErrUnsupported", err)
	}
}
