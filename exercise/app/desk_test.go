package app

import (
	"image"
	"slices"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// A hand acts on a desk, in the middle of its controls unless told otherwise.
type hand struct {
	*desk
	time uint32
}

func newHand(seed uint64) *hand { return &hand{desk: newDesk(NewChallenge(seed)), time: 1000} }

func centre(r image.Rectangle) image.Point { return r.Min.Add(r.Max).Div(2) }

func (h *hand) clickAt(button int, at image.Point, state uint16) effect {
	h.time += 10
	h.down(press{button, at, state, h.time})
	return h.up(press{button, at, state, h.time})
}

func (h *hand) click(button int, kind palette.Kind) effect {
	return h.clickAt(button, centre(areas[kind]), 0)
}

func (h *hand) types(text string, state uint16) {
	for _, r := range text {
		keysym := uint32(r)
		switch r {
		case '\n':
			keysym = keysymReturn
		case '\t':
			keysym = keysymTab
		}
		h.key(keysym, state)
	}
}

func (h *hand) drag(from, to image.Point, motions int) {
	h.down(press{buttonLeft, from, 0, h.time})
	for i := range motions {
		h.move(from.Add(to.Sub(from).Mul(i+1).Div(motions)), xproto.ButtonMask1)
	}
	h.up(press{buttonLeft, to, xproto.ButtonMask1, h.time})
}

// TestTasks does each task right and, in as many ways as there are to do it wrong, wrong.
func TestTasks(t *testing.T) {
	goal := func(h *hand) image.Point { return image.Pt(sliderTrack.Min.X+h.challenge.Goal, centre(h.handle()).Y) }
	held := func(h *hand) uint16 {
		return map[string]uint16{"S": xproto.ModMaskShift, "C": xproto.ModMaskControl}[h.challenge.Held]
	}
	const ctrlShift = xproto.ModMaskControl | xproto.ModMaskShift
	for _, test := range []struct {
		name string
		kind palette.Kind
		do   func(h *hand)
		want bool
	}{
		{"type into the field", palette.TextField, func(h *hand) { h.click(1, palette.TextField); h.types(h.challenge.Text, 0) }, true},
		{"type without the focus", palette.TextField, func(h *hand) { h.types(h.challenge.Text, 0) }, false},
		{"type with Ctrl held", palette.TextField, func(h *hand) { h.click(1, palette.TextField); h.types(h.challenge.Text, xproto.ModMaskControl) }, false},
		{"type twice", palette.TextField, func(h *hand) {
			h.click(1, palette.TextField)
			h.types(h.challenge.Text+h.challenge.Text, 0)
		}, false},
		{"correct", palette.TextField, func(h *hand) {
			h.click(1, palette.TextField)
			h.types("wrong", 0)
			h.types("a", xproto.ModMaskControl)
			h.types(h.challenge.Text+"x", 0)
			h.key(keysymBackSpace, 0)
		}, true},
		{"Return and Tab in a single line", palette.TextField, func(h *hand) { h.click(1, palette.TextField); h.types("\n\t"+h.challenge.Text, 0) }, true},
		{"T22 T23 type into the area", palette.TextArea, func(h *hand) { h.click(1, palette.TextArea); h.types(h.challenge.Notes, 0) }, true},
		{"T22 lose the quotes", palette.TextArea, func(h *hand) {
			h.click(1, palette.TextArea)
			h.types(strings.NewReplacer("'", "", "`", "").Replace(h.challenge.Notes), 0)
		}, false},
		{"T23 lose the dashes", palette.TextArea, func(h *hand) {
			h.click(1, palette.TextArea)
			h.types(strings.TrimLeft(h.challenge.Notes, "-"), 0)
		}, false},
		{"check", palette.CheckBox, func(h *hand) { h.click(1, palette.CheckBox) }, true},
		{"check twice", palette.CheckBox, func(h *hand) { h.click(1, palette.CheckBox); h.click(1, palette.CheckBox) }, false},
		{"check with the right button", palette.CheckBox, func(h *hand) { h.click(3, palette.CheckBox) }, false},
		{"press here and release there", palette.CheckBox, func(h *hand) {
			h.down(press{1, centre(checkCard), 0, 1})
			h.up(press{1, centre(fileCard), 0, 2})
		}, false},
		{"double click", palette.File, func(h *hand) { h.click(1, palette.File); h.click(1, palette.File) }, true},
		{"click", palette.File, func(h *hand) { h.click(1, palette.File) }, false},
		{"click twice, slowly", palette.File, func(h *hand) {
			h.click(1, palette.File)
			h.time += doubleClickTime + 1
			h.click(1, palette.File)
		}, false},
		{"click twice, apart", palette.File, func(h *hand) {
			h.click(1, palette.File)
			h.clickAt(1, centre(fileCard).Add(image.Pt(doubleClickReach+1, 0)), 0)
		}, false},
		{"click something else between", palette.File, func(h *hand) {
			h.click(1, palette.File)
			h.click(1, palette.CheckBox)
			h.click(1, palette.File)
		}, false},
		{"drag", palette.Slider, func(h *hand) { h.drag(centre(h.handle()), goal(h).Add(image.Pt(snap, 0)), 5) }, true},
		{"drag too far", palette.Slider, func(h *hand) { h.drag(centre(h.handle()), goal(h).Add(image.Pt(snap+1, 0)), 5) }, false},
		{"drag without motion between", palette.Slider, func(h *hand) { h.drag(centre(h.handle()), goal(h), 1) }, false},
		{"drag from beside the handle", palette.Slider, func(h *hand) { h.drag(centre(h.handle()).Add(image.Pt(40, 0)), goal(h), 5) }, false},
		{"hover", palette.Hover, func(h *hand) { h.move(centre(hoverCard), 0) }, true},
		{"hover with a button down", palette.Hover, func(h *hand) { h.move(centre(hoverCard), xproto.ButtonMask1) }, false},
		{"hover elsewhere", palette.Hover, func(h *hand) { h.move(centre(listCard), 0) }, false},
		{"scroll and select", palette.List, func(h *hand) {
			for range listItems {
				h.click(buttonScrollDown, palette.List)
				if i := h.challenge.Item - h.firstRow; i >= 0 && i < listRows {
					h.clickAt(1, listView.Min.Add(image.Pt(50, i*rowHeight+18)), 0)
					return
				}
			}
		}, true},
		{"select without scrolling", palette.List, func(h *hand) {
			for i := range listRows {
				h.clickAt(1, listView.Min.Add(image.Pt(50, i*rowHeight+18)), 0)
			}
		}, false},
		{"choose from the menu", palette.Context, func(h *hand) {
			h.click(3, palette.Context)
			h.clickAt(1, h.menu.Min.Add(image.Pt(20, h.challenge.Choice*menuRow+17)), 0)
		}, true},
		{"choose another", palette.Context, func(h *hand) {
			h.click(3, palette.Context)
			h.clickAt(1, h.menu.Min.Add(image.Pt(20, (h.challenge.Choice+1)%menuItems*menuRow+17)), 0)
		}, false},
		{"open the menu with the left button", palette.Context, func(h *hand) {
			h.click(1, palette.Context)
			if !h.menu.Empty() {
				t.Error("the left button opened the menu")
			}
		}, false},
		{"close the menu by a click beside it", palette.CheckBox, func(h *hand) { h.click(3, palette.Context); h.click(1, palette.CheckBox) }, false},
		{"scroll sideways and select", palette.Gallery, func(h *hand) {
			button := buttonScrollRight
			if h.challenge.Picture < galleryStart {
				button = buttonScrollLeft
			}
			for range galleryItems {
				h.click(button, palette.Gallery)
				if at := image.Pt(galleryView.Min.X+h.challenge.Picture*cellWidth-h.scrolled+50, galleryView.Min.Y+20); at.In(galleryView) {
					h.clickAt(1, at, 0)
					return
				}
			}
		}, true},
		{"scroll the gallery by the other wheel", palette.Gallery, func(h *hand) {
			h.click(buttonScrollDown, palette.Gallery)
			for i := range 4 {
				h.clickAt(1, galleryView.Min.Add(image.Pt(i*cellWidth+50, 20)), 0)
			}
		}, false},
		{"wheel", palette.PadWheel, func(h *hand) { h.click(2, palette.PadWheel) }, true},
		{"M2 left for wheel", palette.PadWheel, func(h *hand) { h.click(1, palette.PadWheel) }, false},
		{"back", palette.PadBack, func(h *hand) { h.click(8, palette.PadBack) }, true},
		{"forward for back", palette.PadBack, func(h *hand) { h.click(9, palette.PadBack) }, false},
		{"forward", palette.PadForward, func(h *hand) { h.click(9, palette.PadForward) }, true},
		{"forward, then left", palette.PadForward, func(h *hand) { h.click(9, palette.PadForward); h.click(1, palette.PadForward) }, false},
		{"click with the key", palette.HeldClick, func(h *hand) { h.clickAt(1, centre(areas[palette.HeldClick]), held(h)) }, true},
		{"click with the key and Num Lock", palette.HeldClick, func(h *hand) { h.clickAt(1, centre(areas[palette.HeldClick]), held(h)|xproto.ModMask2) }, true},
		{"click without the key", palette.HeldClick, func(h *hand) { h.click(1, palette.HeldClick) }, false},
		{"click with both keys", palette.HeldClick, func(h *hand) { h.clickAt(1, centre(areas[palette.HeldClick]), ctrlShift) }, false},
		{"chord", palette.Chord, func(h *hand) { h.types(h.challenge.Chord, ctrlShift) }, true},
		{"chord without Shift", palette.Chord, func(h *hand) { h.types(h.challenge.Chord, xproto.ModMaskControl) }, false},
		{"chord and Alt", palette.Chord, func(h *hand) { h.types(h.challenge.Chord, ctrlShift|xproto.ModMask1) }, false},
		{"slow", palette.Slow, func(h *hand) {
			if got := h.click(1, palette.Slow); got != startSlowTask {
				t.Errorf("got effect %v, want the slow task to start", got)
			}
			if got := h.lamp(palette.Slow); got != palette.Busy {
				t.Errorf("got lamp %v, want it busy", got)
			}
			if got := h.click(1, palette.Slow); got != nothing {
				t.Errorf("got effect %v of a second click, want none", got)
			}
			h.finish()
		}, true},
		{"slow and not waited for", palette.Slow, func(h *hand) { h.click(1, palette.Slow) }, false},
		{"save too early", palette.Save, func(h *hand) {
			if got := h.click(1, palette.Save); got != saveRecord {
				t.Errorf("got effect %v, want the record saved", got)
			}
			h.save()
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(20) {
				h := newHand(seed)
				test.do(h)
				if got := h.done(test.kind); got != test.want {
					t.Fatalf("seed %d: the %v is done: got %v, want %v; record %+v of %+v", seed, test.kind, got, test.want, h.record, h.challenge)
				}
			}
		})
	}
}

func TestSaveWhenAllIsDone(t *testing.T) {
	d := newDesk(NewChallenge(1))
	d.record = d.challenge.Want()
	d.save()
	if got := d.count(); got != len(tasks) || d.lamp(palette.Save) != palette.Done {
		t.Errorf("got %d tasks done and lamp %v, want %d and the lamp done", got, d.lamp(palette.Save), len(tasks))
	}
}

// TestChallenges is what the rest relies on, for many seeds.
func TestChallenges(t *testing.T) {
	for seed := range uint64(500) {
		c := NewChallenge(seed)
		d := newDesk(c)
		if c.Item < listRows || c.Picture >= galleryStart && c.Picture < galleryStart+4 {
			t.Errorf("seed %d: item %d or picture %d shows without scrolling", seed, c.Item, c.Picture)
		}
		if len(c.Notes) > palette.MaxText || len(c.Text) > palette.MaxText {
			t.Errorf("seed %d: %q or %q is too long for a mark", seed, c.Notes, c.Text)
		}
		for _, want := range []string{"'", "$HOME", "`", "\n", "\t", " -"} { // rows T22 and T23
			if !strings.Contains(c.Notes, want) || !strings.HasPrefix(c.Notes, "--") {
				t.Errorf("seed %d: got notes %q, want %q in them", seed, c.Notes, want)
			}
		}
		for _, codes := range [][]string{c.List, c.Gallery, c.Menu} {
			if got := slices.Compact(slices.Sorted(slices.Values(codes))); len(got) != len(codes) {
				t.Errorf("seed %d: codes come twice in %v", seed, codes)
			}
		}
		if d.count() != 0 {
			t.Errorf("seed %d: %d tasks are done from the start", seed, d.count())
		}
	}
}

func TestAreasDoNotOverlap(t *testing.T) {
	window := image.Rectangle{Max: Size}
	for kind, r := range areas {
		if !r.In(window) || r.Empty() {
			t.Errorf("the %v is at %v, want it in %v", kind, r, window)
		}
		for other, s := range areas {
			if kind != other && r.Overlaps(s) {
				t.Errorf("the %v at %v and the %v at %v overlap", kind, r, other, s)
			}
		}
	}
}
