package app

import (
	"image"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// X buttons, by what they do.
const (
	buttonLeft        = 1
	buttonWheel       = 2
	buttonRight       = 3
	buttonScrollUp    = 4
	buttonScrollDown  = 5
	buttonScrollLeft  = 6
	buttonScrollRight = 7
	buttonBack        = 8
	buttonForward     = 9
)

const (
	// doubleClickTime and doubleClickReach bound the two presses of a double click, in milliseconds of server time
	// and in pixels; they are what toolkits use.
	doubleClickTime  = 400
	doubleClickReach = 5
	// snap is how close to the goal, in pixels, the handle has to be let go. A pixel of a picture at half the size
	// is two of the screen, and two of them are met: the handle's and the goal's.
	snap = 5
	// dragMotions is how many times the pointer has to move during a drag: programs take less for a click.
	dragMotions = 2
)

// tasks are the things to do, in the order of the window.
var tasks = []palette.Kind{
	palette.TextField, palette.TextArea, palette.CheckBox, palette.File, palette.Slider, palette.Hover, palette.List,
	palette.Context, palette.Gallery, palette.PadWheel, palette.PadBack, palette.PadForward, palette.HeldClick,
	palette.Slow, palette.Chord,
}

// A desk is the state of the window and the rules by which it changes. It knows neither X nor how it looks.
type desk struct {
	challenge Challenge
	visible

	replace bool  // all of the text with the focus is selected: what is typed next replaces it
	armed   press // the button that is down, with what it was pressed on
	last    press // the last press of the left button, for double clicks

	grabbed bool // the slider's handle follows the pointer
	grip    int  // from the handle's centre to where it is held
	motions int  // during this drag
	origin  int  // the slider's value before it
}

// visible is the state that shows. As long as it is the same, by ==, the window looks the same.
type visible struct {
	record   Record
	edit     *string // the text that has the focus: &record.Text, &record.Notes or nil
	firstRow int     // of the list
	scrolled int     // pixels of the gallery to the left of what shows
	menu     image.Rectangle
	busy     bool // the slow task is running
	saved    bool // the record was written when everything was done
}

// A press is a button on its way down or up.
type press struct {
	button int
	at     image.Point // window space
	state  uint16      // modifiers and buttons just before
	time   uint32      // of the server, in milliseconds
}

// An effect is what the world around the desk has to do after an event.
type effect int

const (
	nothing effect = iota
	startSlowTask
	saveRecord
)

func newDesk(c Challenge) *desk {
	return &desk{challenge: c, visible: visible{scrolled: galleryStart * cellWidth}}
}

// done reports whether a task is done.
func (d *desk) done(kind palette.Kind) bool {
	got, want := d.record, d.challenge.Want()
	switch kind {
	case palette.TextField:
		return got.Text == want.Text
	case palette.TextArea:
		return got.Notes == want.Notes
	case palette.CheckBox:
		return got.Checked
	case palette.File:
		return got.Opened
	case palette.Slider:
		return got.Slider == want.Slider
	case palette.Hover:
		return got.Hovered
	case palette.List:
		return got.Item == want.Item
	case palette.Context:
		return got.Choice == want.Choice
	case palette.Gallery:
		return got.Picture == want.Picture
	case palette.PadWheel:
		return got.WheelPad == want.WheelPad
	case palette.PadBack:
		return got.BackPad == want.BackPad
	case palette.PadForward:
		return got.ForwardPad == want.ForwardPad
	case palette.HeldClick:
		return got.HeldClick == want.HeldClick
	case palette.Slow:
		return got.Finished
	case palette.Chord:
		return got.Chord == want.Chord
	case palette.Save:
		return d.saved
	}
	return false
}

func (d *desk) lamp(kind palette.Kind) palette.Lamp {
	switch {
	case d.done(kind):
		return palette.Done
	case kind == palette.Slow && d.busy:
		return palette.Busy
	}
	return palette.Todo
}

// count returns how many of the tasks are done.
func (d *desk) count() int {
	n := 0
	for _, kind := range tasks {
		if d.done(kind) {
			n++
		}
	}
	return n
}

// at returns the control at a point of the window, and false between them.
func at(p image.Point) (palette.Kind, bool) {
	for kind, r := range areas {
		if p.In(r) {
			return kind, true
		}
	}
	return 0, false
}

// down handles a button that went down.
func (d *desk) down(p press) {
	if !d.menu.Empty() {
		if p.button == buttonLeft && p.at.In(d.menu) {
			d.record.Choice = d.challenge.Menu[min((p.at.Y-d.menu.Min.Y)/menuRow, menuItems-1)]
		}
		d.menu = image.Rectangle{} // a click beside a menu closes it and does nothing else
		return
	}
	kind, ok := at(p.at)
	if !ok {
		d.edit = nil
		return
	}
	switch p.button {
	case buttonScrollUp, buttonScrollDown:
		if kind == palette.List {
			d.firstRow = clamp(d.firstRow+(p.button*2-9)*notchRows, 0, listItems-listRows)
		}
		return
	case buttonScrollLeft, buttonScrollRight:
		if kind == palette.Gallery {
			d.scrolled = clamp(d.scrolled+(p.button*2-13)*cellWidth, 0, galleryItems*cellWidth-galleryView.Dx())
		}
		return
	case buttonLeft:
		d.leftDown(kind, p)
	case buttonRight:
		if kind == palette.Context {
			d.openMenu(p.at)
		}
	}
	d.armed = p
}

func (d *desk) leftDown(kind palette.Kind, p press) {
	d.edit, d.replace = nil, false
	switch kind {
	case palette.TextField:
		d.edit = &d.record.Text
	case palette.TextArea:
		d.edit = &d.record.Notes
	case palette.File:
		if p.follows(d.last) {
			d.record.Opened = true
		}
	case palette.Slider:
		if p.at.In(d.handle()) {
			d.grabbed, d.motions, d.origin = true, 0, d.record.Slider
			d.grip = p.at.X - sliderTrack.Min.X - d.record.Slider
		}
	}
	d.last = p
}

// follows reports whether p is the second press of a double click that began with first.
func (p press) follows(first press) bool {
	way := p.at.Sub(first.at)
	return first.button == p.button && p.time-first.time <= doubleClickTime &&
		max(way.X, -way.X, way.Y, -way.Y) <= doubleClickReach
}

// up handles a button that went up: that is a click when it went down on the same control.
func (d *desk) up(p press) effect {
	down := d.armed
	d.armed = press{}
	if d.grabbed && p.button == buttonLeft {
		d.grabbed = false
		switch off := d.record.Slider - d.challenge.Goal; {
		case d.motions < dragMotions:
			d.record.Slider = d.origin
		case max(off, -off) <= snap:
			d.record.Slider = d.challenge.Goal
		}
		return nothing
	}
	kind, ok := at(p.at)
	if from, _ := at(down.at); !ok || down.button != p.button || from != kind {
		return nothing
	}
	return d.click(kind, down)
}

func (d *desk) click(kind palette.Kind, p press) effect {
	switch kind {
	case palette.PadWheel:
		d.record.WheelPad = p.button
	case palette.PadBack:
		d.record.BackPad = p.button
	case palette.PadForward:
		d.record.ForwardPad = p.button
	}
	if p.button != buttonLeft {
		return nothing
	}
	switch kind {
	case palette.CheckBox:
		d.record.Checked = !d.record.Checked
	case palette.List:
		if p.at.In(listView) {
			d.record.Item = d.challenge.List[d.firstRow+(p.at.Y-listView.Min.Y)/rowHeight]
		}
	case palette.Gallery:
		if p.at.In(galleryView) {
			d.record.Picture = d.challenge.Gallery[(p.at.X-galleryView.Min.X+d.scrolled)/cellWidth]
		}
	case palette.HeldClick:
		switch p.state & modifiers {
		case xproto.ModMaskShift:
			d.record.HeldClick = "S"
		case xproto.ModMaskControl:
			d.record.HeldClick = "C"
		default:
			d.record.HeldClick = ""
		}
	case palette.Slow:
		if !d.busy && !d.record.Finished {
			d.busy = true
			return startSlowTask
		}
	case palette.Save:
		return saveRecord
	}
	return nothing
}

// move handles the pointer, with the buttons and modifiers that are down.
func (d *desk) move(p image.Point, state uint16) {
	const buttons = xproto.ButtonMask1 | xproto.ButtonMask2 | xproto.ButtonMask3 | xproto.ButtonMask4 | xproto.ButtonMask5
	if d.grabbed {
		d.motions++
		d.record.Slider = clamp(p.X-sliderTrack.Min.X-d.grip, 0, sliderTrack.Dx()-1)
		return
	}
	if kind, ok := at(p); ok && kind == palette.Hover && state&buttons == 0 && d.menu.Empty() {
		d.record.Hovered = true
	}
}

// modifiers are those that count; the locks do not.
const modifiers = xproto.ModMaskShift | xproto.ModMaskControl | xproto.ModMask1 | xproto.ModMask4

// key handles a key that went down.
func (d *desk) key(keysym uint32, state uint16) {
	r, ok := character(keysym)
	letter := ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	switch mods := state & modifiers; {
	case mods == xproto.ModMaskControl|xproto.ModMaskShift && letter:
		d.record.Chord = string(r &^ 0x20) // the capital, with Caps Lock too
	case mods == xproto.ModMaskControl && letter && r|0x20 == 'a':
		d.replace = d.edit != nil
	case d.edit == nil || mods&^xproto.ModMaskShift != 0:
	case keysym == keysymBackSpace:
		d.erase()
	case ok && (d.edit == &d.record.Notes || r != '\n' && r != '\t'):
		if d.replace {
			d.erase()
		}
		*d.edit += string(r)
	}
}

// erase takes away what is selected, or else the last character.
func (d *desk) erase() {
	if text := []rune(*d.edit); d.replace {
		*d.edit, d.replace = "", false
	} else if len(text) > 0 {
		*d.edit = string(text[:len(text)-1])
	}
}

// openMenu shows the menu next to the pointer, inside the window.
func (d *desk) openMenu(at image.Point) {
	size := image.Pt(menuWidth, menuItems*menuRow)
	at.X, at.Y = min(at.X+2, Size.X-size.X-margin), min(at.Y+2, Size.Y-size.Y-margin)
	d.menu = image.Rectangle{Min: at, Max: at.Add(size)}
}

// handle returns where the slider's handle is: the size of its mark, centred on its column of the track.
func (d *desk) handle() image.Rectangle {
	return centred(sliderTrack, palette.Mark{Kind: palette.Slider}.Size()).Sub(image.Pt(sliderTrack.Dx()/2-d.record.Slider, 0))
}

// finish ends the slow task.
func (d *desk) finish() { d.busy, d.record.Finished = false, true }

// save notes that the record has been written.
func (d *desk) save() { d.saved = d.record == d.challenge.Want() }

func clamp(n, low, high int) int { return min(max(n, low), high) }
