package app

import (
	"fmt"
	"image"
	"slices"
	"strings"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// Size is the size of the window in pixels.
var Size = image.Pt(1000, 640)

// Where things are, in window space.
var (
	saveButton = rect(816, 14, 164, 36)
	nameCard   = rect(20, 68, 480, 78)
	nameField  = rect(34, 100, 452, 36)
	notesCard  = rect(20, 158, 480, 160)
	notesField = rect(34, 190, 452, 118)
	checkCard  = rect(20, 330, 234, 66)
	fileCard   = rect(266, 330, 234, 66)
	sliderCard = rect(20, 408, 480, 110)
	// The track's columns are where the centre of the handle can be.
	sliderTrack = rect(60, 454, trackWidth, 6)
	hoverCard   = rect(20, 530, 480, 90)
	listCard    = rect(512, 68, 228, 250)
	listView    = rect(518, 130, 216, listRows*rowHeight)
	contextCard = rect(752, 68, 228, 250)
	galleryCard = rect(512, 330, 468, 110)
	galleryView = rect(524, 374, 4*cellWidth, 56)
)

const (
	margin       = 20 // around everything
	listRows     = 5
	rowHeight    = 36
	notchRows    = 3   // that a notch of the wheel moves the list by, as is usual
	cellWidth    = 110 // of a gallery item; a notch moves the gallery by one
	galleryStart = 4   // the item that is the leftmost at first
	trackWidth   = 400
	goalMin      = 100 // keeps the goal clear of where the handle starts
	menuRow      = 34
	menuWidth    = 196
)

// areas are the areas of the controls that react to the pointer; they do not overlap.
var areas = map[palette.Kind]image.Rectangle{
	palette.Save: saveButton, palette.TextField: nameField, palette.TextArea: notesField, palette.CheckBox: checkCard,
	palette.File: fileCard, palette.Slider: sliderCard, palette.Hover: hoverCard, palette.List: listCard,
	palette.Context: contextCard, palette.Gallery: galleryCard,
	palette.PadWheel: tile(0), palette.PadBack: tile(1), palette.PadForward: tile(2),
	palette.HeldClick: tile(3), palette.Slow: tile(4), palette.Chord: tile(5),
}

func rect(x, y, w, h int) image.Rectangle { return image.Rect(x, y, x+w, y+h) }

// tile returns the place of the i-th of the six small cards, three in a row.
func tile(i int) image.Rectangle { return rect(512+i%3*160, 452+i/3*88, 148, 80) }

var (
	listNames = [listItems]string{
		"Ash", "Aspen", "Beech", "Birch", "Cedar", "Cherry", "Chestnut", "Cypress", "Elder", "Elm", "Fir", "Hawthorn",
		"Hazel", "Hornbeam", "Juniper", "Larch", "Lime", "Maple", "Oak", "Pine", "Poplar", "Rowan", "Spruce", "Willow",
	}
	galleryNames = [galleryItems]string{
		"Dawn", "Field", "Lake", "Coast", "Ridge", "Forest", "River", "Meadow", "Valley", "Harbour", "Island", "Dusk",
	}
	menuNames = [menuItems]string{"Duplicate", "Rename", "Archive"}
)

// paint draws the whole window.
func (d *desk) paint(c canvas) {
	c.fill(c.Rect, ground)
	d.paintHeader(c)
	d.paintText(c)
	d.paintControls(c)
	d.paintList(c)
	d.paintGallery(c)
	d.paintTiles(c)
	d.paintMenu(c)
}

func (d *desk) paintHeader(c canvas) {
	end := c.write(image.Pt(20, 40), c.title, ink, "Practice desk")
	c.write(end.Add(image.Pt(14, 0)), c.text, grey, fmt.Sprintf("%d of %d tasks done", d.count(), len(tasks)))
	c.box(saveButton, 8, accent)
	c.mark(saveButton.Min.Add(image.Pt(14, 8)), palette.Mark{Kind: palette.Save, Lamp: d.lamp(palette.Save)})
	label := "Save record"
	if d.saved {
		label = "Saved"
	}
	c.write(saveButton.Min.Add(image.Pt(66, 23)), c.strong, surface, label)
}

// card paints a card with a heading and an explanation, and returns where its content starts.
func (c canvas) card(r image.Rectangle, heading, explanation string) image.Point {
	c.outlined(r, 10, line, surface)
	end := c.write(r.Min.Add(image.Pt(14, 23)), c.strong, ink, heading)
	c.write(end.Add(image.Pt(8, 0)), c.small, grey, explanation)
	return r.Min.Add(image.Pt(14, 34))
}

func (d *desk) paintText(c canvas) {
	c.card(nameCard, "Name", "type  "+d.challenge.Text)
	d.paintField(c, nameField, &d.record.Text)
	mark := palette.Mark{Kind: palette.TextField, Lamp: d.lamp(palette.TextField), Text: d.challenge.Text}
	c.mark(nameField.Min.Add(image.Pt(8, 8)), mark)
	d.paintLines(c.within(nameField.Inset(2)), nameField.Min.Add(image.Pt(8+mark.Size().X+10, 23)), &d.record.Text)

	c.card(notesCard, "Notes", "type  "+strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(d.challenge.Notes))
	d.paintField(c, notesField, &d.record.Notes)
	mark = palette.Mark{Kind: palette.TextArea, Lamp: d.lamp(palette.TextArea), Text: d.challenge.Notes}
	c.mark(notesField.Min.Add(image.Pt(8, 8)), mark)
	d.paintLines(c.within(notesField.Inset(2)), notesField.Min.Add(image.Pt(8, 50)), &d.record.Notes)
}

func (d *desk) paintField(c canvas, r image.Rectangle, text *string) {
	edge := line
	if d.edit == text {
		edge = accent
	}
	c.outlined(r, 6, edge, sunken)
}

// paintLines paints what has been typed, and the caret behind it.
func (d *desk) paintLines(c canvas, p image.Point, text *string) {
	const lineHeight, tabStop = 22, 4
	for i, row := range strings.Split(*text, "\n") {
		end := c.write(p.Add(image.Pt(0, i*lineHeight)), c.mono, ink, strings.ReplaceAll(row, "\t", strings.Repeat(" ", tabStop)))
		if d.edit == text && i == strings.Count(*text, "\n") {
			c.fill(image.Rect(end.X+1, end.Y-12, end.X+2, end.Y+4), accent)
		}
	}
}

func (d *desk) paintControls(c canvas) {
	p := c.card(checkCard, "Terms", "click to accept")
	c.mark(p, palette.Mark{Kind: palette.CheckBox, Lamp: d.lamp(palette.CheckBox)})
	box := rect(p.X+56, p.Y, 20, 20)
	if d.record.Checked {
		c.box(box, 5, accent)
		c.check(box)
	} else {
		c.outlined(box, 5, grey, surface)
	}
	c.write(p.Add(image.Pt(86, 15)), c.text, ink, "I have read them")

	p = c.card(fileCard, "File", "double-click to open")
	c.mark(p, palette.Mark{Kind: palette.File, Lamp: d.lamp(palette.File)})
	state := "report.txt"
	if d.record.Opened {
		state = "report.txt is open"
	}
	c.write(p.Add(image.Pt(56, 15)), c.text, ink, state)

	c.card(sliderCard, "Level", "drag the handle above the goal")
	c.box(sliderTrack.Inset(-1), 4, line)
	c.box(image.Rect(sliderTrack.Min.X-1, sliderTrack.Min.Y-1, sliderTrack.Min.X+d.record.Slider+1, sliderTrack.Max.Y+1), 4, accent)
	handle := d.handle()
	c.outlined(handle.Inset(-4), 6, accent, surface)
	c.mark(handle.Min, palette.Mark{Kind: palette.Slider, Lamp: d.lamp(palette.Slider)})
	goal := image.Pt(sliderTrack.Min.X+d.challenge.Goal, sliderTrack.Max.Y+14)
	c.fill(image.Rect(goal.X, sliderTrack.Max.Y+4, goal.X+1, goal.Y), grey)
	mark := palette.Mark{Kind: palette.SliderGoal}
	c.mark(goal.Sub(image.Pt(mark.Size().X/2, 0)), mark)
	c.write(goal.Add(image.Pt(28, 15)), c.small, grey, "goal")

	p = c.card(hoverCard, "Hover", "bring the pointer here without pressing")
	c.mark(p, palette.Mark{Kind: palette.Hover, Lamp: d.lamp(palette.Hover)})
	state = "Nobody has been here yet"
	if d.record.Hovered {
		state = "Thank you for coming"
	}
	c.write(p.Add(image.Pt(56, 15)), c.text, ink, state)
}

// check paints a tick.
func (c canvas) check(box image.Rectangle) {
	for i := range 12 {
		y := 9 + i // down to the corner, then up
		if i > 3 {
			y = 12 - (i - 3)
		}
		c.fill(rect(box.Min.X+4+i, box.Min.Y+y, 2, 3), surface)
	}
}

func (d *desk) paintList(c canvas) {
	code := d.challenge.List[d.challenge.Item]
	p := c.card(listCard, "List", fmt.Sprintf("find  %s %s", code, listNames[d.challenge.Item]))
	c.mark(p, palette.Mark{Kind: palette.List, Lamp: d.lamp(palette.List), Text: code})
	c.outlined(listView.Inset(-1), 6, line, sunken)
	for i := range listRows {
		n := d.firstRow + i
		r := rect(listView.Min.X, listView.Min.Y+i*rowHeight, listView.Dx()-8, rowHeight)
		item := palette.Mark{Kind: palette.ListItem, Text: d.challenge.List[n]}
		if item.Text == d.record.Item {
			item.Lamp = palette.Done
			c.box(r.Inset(2), 5, tint)
		}
		c.mark(r.Min.Add(image.Pt(8, 8)), item)
		c.write(r.Min.Add(image.Pt(108, 23)), c.text, ink, listNames[n])
	}
	c.box(scrollBar(rect(listView.Max.X-6, listView.Min.Y+2, 4, listView.Dy()-4), false, d.firstRow, listRows, listItems), 2, grey)
}

func (d *desk) paintGallery(c canvas) {
	code := d.challenge.Gallery[d.challenge.Picture]
	p := c.card(galleryCard, "Gallery", "")
	c.mark(image.Pt(p.X+70, p.Y-24), palette.Mark{Kind: palette.Gallery, Lamp: d.lamp(palette.Gallery), Text: code})
	c.write(image.Pt(p.X+162, p.Y-11), c.small, grey, fmt.Sprintf("find  %s %s, sideways", code, galleryNames[d.challenge.Picture]))
	c.outlined(galleryView.Inset(-1), 6, line, sunken)
	view := c.within(galleryView)
	for n, code := range d.challenge.Gallery {
		r := rect(galleryView.Min.X+n*cellWidth-d.scrolled, galleryView.Min.Y, cellWidth, galleryView.Dy())
		item := palette.Mark{Kind: palette.GalleryItem, Text: code}
		if code == d.record.Picture {
			item.Lamp = palette.Done
			view.box(r.Inset(2), 5, tint)
		}
		view.writeCentred(image.Rect(r.Min.X, r.Min.Y+4, r.Max.X, r.Min.Y+24), c.small, ink, galleryNames[n])
		view.mark(centred(image.Rect(r.Min.X, r.Min.Y+24, r.Max.X, r.Max.Y-6), item.Size()).Min, item)
	}
	bar := rect(galleryView.Min.X+2, galleryView.Max.Y+2, galleryView.Dx()-4, 4)
	c.box(scrollBar(bar, true, d.scrolled, galleryView.Dx(), galleryItems*cellWidth), 2, grey)
}

// scrollBar returns the thumb in a bar: which part of all shows, from first on.
func scrollBar(bar image.Rectangle, sideways bool, first, shown, all int) image.Rectangle {
	if sideways {
		return rect(bar.Min.X+bar.Dx()*first/all, bar.Min.Y, bar.Dx()*shown/all, bar.Dy())
	}
	return rect(bar.Min.X, bar.Min.Y+bar.Dy()*first/all, bar.Dx(), bar.Dy()*shown/all)
}

func (d *desk) paintTiles(c canvas) {
	heldKey := map[string]string{"S": "Shift", "C": "Ctrl"}[d.challenge.Held]
	slow := "takes a moment"
	if d.busy {
		slow = "working…"
	}
	for _, t := range []struct {
		kind                 palette.Kind
		heading, explanation string
		text                 string
	}{
		{palette.PadWheel, "Wheel", "wheel click", ""},
		{palette.PadBack, "Back", "back button", ""},
		{palette.PadForward, "Forward", "forward button", ""},
		{palette.HeldClick, "Held", heldKey + "+click", d.challenge.Held},
		{palette.Slow, "Slow", slow, ""},
		{palette.Chord, "Chord", "Ctrl+Shift+" + d.challenge.Chord, d.challenge.Chord},
	} {
		r := areas[t.kind]
		p := c.card(r, t.heading, "")
		c.write(r.Min.Add(image.Pt(14, 42)), c.small, grey, t.explanation)
		c.mark(p.Add(image.Pt(0, 18)), palette.Mark{Kind: t.kind, Lamp: d.lamp(t.kind), Text: t.text})
	}
	p := c.card(contextCard, "Menu", "right-click for more")
	code := d.challenge.Menu[d.challenge.Choice]
	c.mark(p, palette.Mark{Kind: palette.Context, Lamp: d.lamp(palette.Context), Text: code})
	c.write(p.Add(image.Pt(0, 44)), c.small, grey, fmt.Sprintf("choose  %s %s", code, menuNames[d.challenge.Choice]))
	if chosen := slices.Index(d.challenge.Menu, d.record.Choice); chosen >= 0 {
		c.write(p.Add(image.Pt(0, 204)), c.small, ink, fmt.Sprintf("last chosen: %s", menuNames[chosen]))
	}
	for i, width := range []int{200, 176, 188, 120, 0, 196, 148} { // something to right-click on
		c.box(rect(p.X, p.Y+66+i*18, width, 6).Intersect(contextCard), min(3, width/2), ground)
	}
}

func (d *desk) paintMenu(c canvas) {
	if d.menu.Empty() {
		return
	}
	c.outlined(d.menu.Inset(-1), 6, grey, surface)
	for i, code := range d.challenge.Menu {
		p := d.menu.Min.Add(image.Pt(8, i*menuRow+7))
		c.mark(p, palette.Mark{Kind: palette.MenuItem, Text: code})
		c.write(p.Add(image.Pt(92, 15)), c.text, ink, menuNames[i])
	}
}
