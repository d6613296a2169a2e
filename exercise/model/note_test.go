package model

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// screenWith is a screen with a white window, of a share of it in percent.
func screenWith(percent int) image.Image {
	screen := image.NewRGBA(image.Rect(0, 0, 400, 300))
	draw.Draw(screen, screen.Rect, image.NewUniform(color.RGBA{0x2e, 0x4a, 0x62, 0xff}), image.Point{}, draw.Src)
	draw.Draw(screen, image.Rect(0, 0, 400, 300*percent/100), image.White, image.Point{}, draw.Src)
	return screen
}

// TestNote goes through the writing of a note: each step waits for its window, and the last one presses Enter again.
func TestNote(t *testing.T) {
	seen := []sighting{
		{Mark: palette.Mark{Kind: palette.Save, Lamp: palette.Done}}, {Mark: palette.Mark{Kind: palette.Note, Text: "a\nb"}},
		{Mark: palette.Mark{Kind: palette.NoteFile, Text: "/x"}},
	}
	m := newMind()
	var said []string
	for _, window := range []int{
		0, 1, // the menu
		1, 1, 40, // the editor comes late
		40, 90, // the dialogue
		90,             // the name is typed
		90, 90, 90, 90, // it stays open
		40, // it closes
	} {
		turn := m.decide(seen, screenWith(window))
		words := turn.message
		for _, a := range turn.actions {
			words += fmt.Sprint(a["type"], " ")
		}
		said = append(said, strings.TrimSpace(words))
		seen = nil // the windows are in the way
	}
	want := []string{
		"click screenshot", "keypress keypress keypress wait", "wait", "wait", "type keypress wait", "wait", "type wait", "keypress wait",
		"wait", "wait", "wait", "keypress wait", allDone,
	}
	if got, want := strings.Join(said, "; "), strings.Join(want, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestNoteGivesUp never sees the editor.
func TestNoteGivesUp(t *testing.T) {
	n := note{text: "a", file: "/x"}
	for range maxStir + 3 {
		if turn := n.goOn(screenWith(10)); len(turn.actions) == 0 {
			if !strings.Contains(turn.message, "the editor opens") {
				t.Errorf("got %q, want it to miss the editor", turn.message)
			}
			return
		}
	}
	t.Error("it goes on for ever")
}

func TestStirred(t *testing.T) {
	for _, test := range []struct {
		before, after int
		want          bool
	}{{0, 0, false}, {0, 2, false}, {0, 10, true}, {50, 10, true}} {
		if got := stirred(screenWith(test.before), screenWith(test.after)); got != test.want {
			t.Errorf("from %d to %d percent: got %v, want %v", test.before, test.after, got, test.want)
		}
	}
	if !stirred(screenWith(0), image.NewRGBA(image.Rect(0, 0, 10, 10))) {
		t.Error("a screen of another size is said to be the same")
	}
}
