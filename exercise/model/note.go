package model

import (
	"image"
	"image/color"
	"slices"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

const (
	// stir is how much of the screen, one part in so many, has to look otherwise when a window has come or gone. A menu or a
	// caret is less.
	stir = 25
	// maxStir is how many pictures are looked at until it does: programs may take long to start on a busy machine.
	maxStir = 60
	// patience is after how many of those a key is pressed again.
	patience = 4
)

// A note is how far the writing of a note has come. The windows for it bear no marks: that they are there is told by how much
// of the screen has changed.
type note struct {
	text, file string
	steps      []noteStep // still to be done
	before     image.Image
	looked     int // pictures since the last step
}

// A noteStep is what to do once a window has come or gone since the step before, if it has to.
type noteStep struct {
	after   string // what has to have happened; empty for nothing
	actions []action
}

func (n *note) begun() bool { return n.text != "" }

// begin reads what to write and where, if the screen asks for a note.
func (n *note) begin(seen []sighting) bool {
	text, file := slices.IndexFunc(seen, is(palette.Note)), slices.IndexFunc(seen, is(palette.NoteFile))
	if text < 0 || file < 0 {
		return false
	}
	n.text, n.file = seen[text].Text, seen[file].Text
	return true
}

// plan is made when the size of the screen is known: the menu of the desktop is opened in the corner that windows leave free,
// and its second item is the editor.
func (n *note) plan(screen image.Rectangle) []noteStep {
	corner := screen.Max.Sub(image.Pt(4, 4))
	return []noteStep{
		{"", []action{click("right", corner), screenshot()}},
		{"", []action{keypress("DOWN"), keypress("DOWN"), keypress("ENTER"), wait()}},
		{"the editor opens", []action{typeText(n.text), keypress("CTRL", "S"), wait()}},
		{"a dialogue asks for a name", []action{typeText(n.file), wait()}},
		{"", []action{keypress("ENTER"), wait()}},
		{"the dialogue closes", nil},
	}
}

// goOn returns the next turn after a look at the screen.
func (n *note) goOn(picture image.Image) turn {
	if n.steps == nil {
		n.steps = n.plan(picture.Bounds())
	}
	step := n.steps[0]
	if step.after != "" && !stirred(n.before, picture) {
		n.looked++
		switch {
		case n.looked > maxStir:
			return turn{message: "I give up: I do not see that " + step.after + "."}
		case step.actions == nil && n.looked%patience == 0: // while it looks at the folder, the dialogue passes over keys
			return turn{actions: []action{keypress("ENTER"), wait()}}
		}
		return turn{actions: []action{wait()}}
	}
	n.steps, n.before, n.looked = n.steps[1:], picture, 0
	if len(n.steps) == 0 {
		return turn{message: allDone}
	}
	return turn{actions: step.actions}
}

// stirred reports whether two pictures of a screen differ by as much as a window.
func stirred(before, after image.Image) bool {
	r := before.Bounds()
	if r != after.Bounds() {
		return true
	}
	const every = 4 // pixels, each way, are enough
	changed, all := 0, 0
	for y := r.Min.Y; y < r.Max.Y; y += every {
		for x := r.Min.X; x < r.Max.X; x += every {
			all++
			if !same(before.At(x, y), after.At(x, y)) {
				changed++
			}
		}
	}
	return changed*stir > all
}

// same reports whether two colours are the same but for what lossy pictures do to them.
func same(a, b color.Color) bool {
	const tolerance = 6 << 8
	r1, g1, b1, _ := a.RGBA()
	r2, g2, b2, _ := b.RGBA()
	near := func(x, y uint32) bool { return max(x, y)-min(x, y) <= tolerance }
	return near(r1, r2) && near(g1, g2) && near(b1, b2)
}
