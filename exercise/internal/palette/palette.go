// Package palette documents the coloured marks that the practice application paints and the practice model reads.
// It is all that the two have in common besides the picture itself.
//
// # A mark
//
// A mark is a block of square cells, two rows high, that says what may be done where it is, whether that has been
// done, and with which text. From left to right its columns are
//
//	Start   both cells; this colour is used for nothing else
//	kind    two digits, the upper one first: the Kind
//	lamp    both cells: the Lamp
//	length  two digits: the number of text columns  ┐
//	text    two digits each: the characters         │ only in a mark with text
//	check   two digits: the sum of the text digits  ┘
//	End     both cells; this colour is used for nothing else
//
// A digit is one of six colours. Two digits count to 36; three make a character of ASCII. The centre of a mark
// always lies on the thing it belongs to, so that is where to point.
//
// The colours are far apart and a cell is [Cell] pixels wide, so that its centre keeps its colour when a picture is
// resampled to half the size.
package palette

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"slices"
)

// Cell is the side of a cell in screen pixels, Rows the number of cells in a column.
const (
	Cell = 10
	Rows = 2
)

// The colours that frame a mark.
var (
	Start = color.RGBA{0xc8, 0x00, 0x82, 0xff}
	End   = color.RGBA{0x00, 0xaf, 0xbe, 0xff}
)

// A Kind says what a mark is for. What to do with each is in its comment.
type Kind uint8

// The kinds of marks.
const (
	TextField   Kind = iota // click and type the text
	TextArea                // the same; the text has newlines and tabs
	CheckBox                // click
	List                    // scroll down or up until the ListItem with the same text shows, and click that
	ListItem                // see List
	Gallery                 // scroll right or left until the GalleryItem with the same text shows, and click that
	GalleryItem             // see Gallery
	File                    // double-click
	Context                 // click with the right button, then click the MenuItem with the same text
	MenuItem                // see Context
	Slider                  // drag onto the column of the SliderGoal, in the row of the Slider
	SliderGoal              // see Slider
	Chord                   // press Ctrl, Shift and the key of the text together
	Hover                   // move the pointer here
	PadWheel                // click with the wheel
	PadBack                 // click with the back button
	PadForward              // click with the forward button
	HeldClick               // click while holding a key: Shift when the text is "S", Ctrl when it is "C"
	Slow                    // click, and wait for the lamp to leave Busy
	Save                    // click when all else is done; its lamp says when everything is over
	Note                    // after Save: write the text down with the editor, in the file of the NoteFile
	NoteFile                // see Note
	kinds
)

var kindNames = [...]string{
	TextField: "text field", TextArea: "text area", CheckBox: "check box", List: "list", ListItem: "list item",
	Gallery: "gallery", GalleryItem: "gallery item", File: "file", Context: "context menu", MenuItem: "menu item",
	Slider: "slider", SliderGoal: "slider goal", Chord: "chord", Hover: "hover area", PadWheel: "wheel pad",
	PadBack: "back pad", PadForward: "forward pad", HeldClick: "held-key pad", Slow: "slow button", Save: "save button",
	Note: "note", NoteFile: "file of the note",
}

// String returns a name for people.
func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// A Lamp says how far a thing has come.
type Lamp uint8

// The lamps.
const (
	Todo Lamp = iota
	Busy      // it finishes by itself
	Done
)

// Lamps are the colours of the lamps.
var Lamps = [...]color.RGBA{Todo: {0xff, 0x8c, 0x00, 0xff}, Busy: {0x82, 0x50, 0xff, 0xff}, Done: {0x14, 0xb4, 0x50, 0xff}}

// Digits are the colours of the digits 0 to 5.
var Digits = [...]color.RGBA{
	{0x1e, 0x23, 0x32, 0xff}, // ink
	{0xdc, 0x32, 0x32, 0xff}, // red
	{0xf5, 0xd2, 0x28, 0xff}, // yellow
	{0x3c, 0x96, 0x5a, 0xff}, // green
	{0x28, 0x5a, 0xe6, 0xff}, // blue
	{0xff, 0xff, 0xff, 0xff}, // white
}

const base = len(Digits)

// MaxText is the number of characters that a mark can carry: one column counts the others.
const MaxText = (base*base - 1) * Rows / digitsPerChar

const digitsPerChar = 3

// A Mark is what a mark says. Text is ASCII.
type Mark struct {
	Kind Kind
	Lamp Lamp
	Text string
}

// A Column is one column of a mark, the upper cell first.
type Column [Rows]color.RGBA

func both(c color.RGBA) Column { return Column{c, c} }

func pair(n int) Column { return Column{Digits[n/base], Digits[n%base]} }

// Columns returns the columns to paint. It panics when the text is not ASCII or longer than [MaxText]: marks are
// written by programs, not by people.
func (m Mark) Columns() []Column {
	if len(m.Text) > MaxText {
		panic(fmt.Sprintf("palette: a mark has room for %d characters, not for %q", MaxText, m.Text))
	}
	columns := []Column{both(Start), pair(int(m.Kind)), both(Lamps[m.Lamp])}
	if m.Text != "" {
		digits := make([]int, 0, digitsPerChar*len(m.Text)+1)
		sum := 0
		for _, c := range []byte(m.Text) {
			if c >= 0x80 {
				panic(fmt.Sprintf("palette: %q is not ASCII", m.Text))
			}
			high, middle, low := int(c)/(base*base), int(c)/base%base, int(c)%base
			digits = append(digits, high, middle, low)
			sum += high + middle + low
		}
		if len(digits)%Rows != 0 {
			digits = append(digits, 0)
		}
		columns = append(columns, pair(len(digits)/Rows))
		for i := 0; i < len(digits); i += Rows {
			columns = append(columns, pair(digits[i]*base+digits[i+1]))
		}
		columns = append(columns, pair(sum%(base*base)))
	}
	return append(columns, both(End))
}

// Size returns the size of the mark in pixels.
func (m Mark) Size() image.Point { return image.Pt(len(m.Columns()), Rows).Mul(Cell) }

// Draw paints the mark with its upper left corner at p.
func (m Mark) Draw(dst draw.Image, p image.Point) {
	for x, column := range m.Columns() {
		for y, cell := range column {
			at := p.Add(image.Pt(x, y).Mul(Cell))
			draw.Draw(dst, image.Rectangle{Min: at, Max: at.Add(image.Pt(Cell, Cell))}, image.NewUniform(cell), image.Point{}, draw.Src)
		}
	}
}

// frame is the number of columns without text: Start, kind, lamp and End.
const frame = 4

// Decode reads the mark that was painted as columns. It returns false when they are not exactly those of a mark,
// give or take a slight change of each colour.
func Decode(columns []Column) (Mark, bool) {
	if len(columns) < frame || !alike(columns[0], both(Start)) || !alike(columns[len(columns)-1], both(End)) {
		return Mark{}, false
	}
	kind, ok := number(columns[1])
	lamp := slices.IndexFunc(Lamps[:], func(c color.RGBA) bool { return alike(columns[2], both(c)) })
	if !ok || kind >= int(kinds) || lamp < 0 {
		return Mark{}, false
	}
	m := Mark{Kind: Kind(kind), Lamp: Lamp(lamp)}
	if len(columns) == frame {
		return m, true
	}
	length, text, check := columns[frame-1], columns[frame:max(frame, len(columns)-2)], columns[len(columns)-2]
	if n, ok := number(length); !ok || n == 0 || n != len(text) {
		return Mark{}, false
	}
	m.Text, ok = decodeText(text, check)
	return m, ok
}

func decodeText(columns []Column, check Column) (string, bool) {
	digits := make([]int, 0, Rows*len(columns))
	sum := 0
	for _, column := range columns {
		for _, cell := range column {
			digit, ok := digit(cell)
			if !ok {
				return "", false
			}
			digits = append(digits, digit)
			sum += digit
		}
	}
	if want, ok := number(check); !ok || want != sum%(base*base) {
		return "", false
	}
	var text []byte
	for i := 0; i+digitsPerChar <= len(digits); i += digitsPerChar {
		c := digits[i]*base*base + digits[i+1]*base + digits[i+2]
		if c >= 0x80 {
			return "", false
		}
		text = append(text, byte(c))
	}
	return string(text), true
}

func number(c Column) (int, bool) {
	high, ok1 := digit(c[0])
	low, ok2 := digit(c[1])
	return high*base + low, ok1 && ok2
}

func digit(c color.RGBA) (int, bool) {
	i := slices.IndexFunc(Digits[:], func(d color.RGBA) bool { return Alike(c, d) })
	return i, i >= 0
}

func alike(a, b Column) bool { return Alike(a[0], b[0]) && Alike(a[1], b[1]) }

// Alike reports whether two colours are the same but for what resampling and lossy pictures do to the middle of a
// cell. No two colours of a kind are alike.
func Alike(a, b color.RGBA) bool {
	const tolerance = 40
	return diff(a.R, b.R) <= tolerance && diff(a.G, b.G) <= tolerance && diff(a.B, b.B) <= tolerance
}

func diff(a, b uint8) uint8 { return max(a, b) - min(a, b) }
