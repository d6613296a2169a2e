package palette_test

import (
	"image/color"
	"testing"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

var marks = []palette.Mark{
	{Kind: palette.TextField},
	{Kind: palette.Save, Lamp: palette.Done},
	{Kind: palette.Slow, Lamp: palette.Busy},
	{Kind: palette.Chord, Text: "K"},
	{Kind: palette.List, Text: "QX"},
	{Kind: palette.TextArea, Lamp: palette.Done, Text: "--it's\n\t`$HOME` ~\x00\x7f"},
	{Kind: palette.TextField, Text: "abcdefghijklmnopqrstuvw"}, // the longest there is
}

func TestRoundTrip(t *testing.T) {
	if got := len(marks[len(marks)-1].Text); got != palette.MaxText {
		t.Errorf("got a longest text of %d characters, want %d", got, palette.MaxText)
	}
	for _, want := range marks {
		got, ok := palette.Decode(want.Columns())
		if !ok || got != want {
			t.Errorf("got %+v, %v, want %+v", got, ok, want)
		}
	}
}

// TestDamageIsSeen changes each cell of each mark to each colour: what is still read must be what was written, or
// must differ where one cell can say so by itself, in the kind or the lamp.
func TestDamageIsSeen(t *testing.T) {
	colours := append([]color.RGBA{palette.Start, palette.End, {0x80, 0x80, 0x80, 0xff}}, palette.Digits[:]...)
	for _, want := range marks {
		for i := range want.Columns() {
			for row := range palette.Rows {
				for _, c := range colours {
					columns := want.Columns()
					columns[i][row] = c
					if got, ok := palette.Decode(columns); ok && got.Text != want.Text {
						t.Errorf("%+v with cell %d,%d changed to %v: got %+v", want, i, row, c, got)
					}
				}
			}
		}
		for i := range want.Columns() {
			if got, ok := palette.Decode(want.Columns()[:i]); ok {
				t.Errorf("%+v cut to %d columns: got %+v", want, i, got)
			}
		}
	}
}

func TestColoursAreFarApart(t *testing.T) {
	for _, group := range [][]color.RGBA{palette.Digits[:], palette.Lamps[:]} {
		group = append([]color.RGBA{palette.Start, palette.End}, group...)
		for i, a := range group {
			for _, b := range group[:i] {
				if palette.Alike(a, b) {
					t.Errorf("%v and %v are alike", a, b)
				}
			}
		}
	}
}
