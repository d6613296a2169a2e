package model

import (
	"encoding/json"
	"fmt"
	"image"
	"slices"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// mark is a sighting at a place of its own.
func mark(kind palette.Kind, lamp palette.Lamp, text string) sighting {
	return sighting{palette.Mark{Kind: kind, Lamp: lamp, Text: text}, image.Pt(100, 20+30*int(kind)), image.Pt(40, 20)}
}

// kinds returns the types of a turn's actions.
func kinds(t turn) string {
	var types []string
	for _, a := range t.actions {
		types = append(types, a["type"].(string))
	}
	return strings.Join(types, " ")
}

// TestActions is what the model does about each kind of mark.
func TestActions(t *testing.T) {
	for _, test := range []struct {
		name string
		seen []sighting
		want string
	}{
		{"text field", []sighting{mark(palette.TextField, palette.Todo, "--a'b")},
			`[{"button":"left","type":"click","x":100,"y":20},{"keys":["CTRL","A"],"type":"keypress"},{"text":"--a'b","type":"type"}]`},
		{"check box", []sighting{mark(palette.CheckBox, palette.Todo, "")}, `[{"button":"left","type":"click","x":100,"y":80}]`},
		{"list item", []sighting{mark(palette.List, palette.Todo, "B"), mark(palette.ListItem, palette.Todo, "A"),
			{palette.Mark{Kind: palette.ListItem, Text: "B"}, image.Pt(7, 9), image.Pt(40, 20)}},
			`[{"button":"left","type":"click","x":7,"y":9}]`},
		{"list", []sighting{mark(palette.List, palette.Todo, "B"), {palette.Mark{Kind: palette.ListItem, Text: "A"}, image.Pt(10, 200), image.Pt(40, 20)},
			{palette.Mark{Kind: palette.ListItem, Text: "C"}, image.Pt(10, 280), image.Pt(40, 20)}},
			`[{"scroll_x":0,"scroll_y":75,"type":"scroll","x":100,"y":110}]`},
		{"gallery", []sighting{mark(palette.Gallery, palette.Todo, "B"), {palette.Mark{Kind: palette.GalleryItem, Text: "A"}, image.Pt(10, 200), image.Pt(40, 20)},
			{palette.Mark{Kind: palette.GalleryItem, Text: "C"}, image.Pt(130, 200), image.Pt(40, 20)}},
			`[{"scroll_x":120,"scroll_y":0,"type":"scroll","x":100,"y":170}]`},
		{"file", []sighting{mark(palette.File, palette.Todo, "")}, `[{"keys":null,"type":"double_click","x":100,"y":230}]`},
		{"context", []sighting{mark(palette.Context, palette.Todo, "A")}, `[{"button":"right","type":"click","x":100,"y":260}]`},
		{"slider", []sighting{mark(palette.Slider, palette.Todo, ""), {palette.Mark{Kind: palette.SliderGoal}, image.Pt(400, 500), image.Pt(40, 20)}},
			`[{"path":[{"x":100,"y":320},{"x":200,"y":320},{"x":300,"y":320},{"x":400,"y":320}],"type":"drag"}]`},
		{"chord", []sighting{mark(palette.Chord, palette.Todo, "K")},
			`[{"button":"left","type":"click","x":100,"y":380},{"keys":["CTRL","SHIFT","K"],"type":"keypress"}]`},
		{"hover", []sighting{mark(palette.Hover, palette.Todo, "")}, `[{"type":"move","x":100,"y":410}]`},
		{"wheel", []sighting{mark(palette.PadWheel, palette.Todo, "")}, `[{"button":"wheel","type":"click","x":100,"y":440}]`},
		{"back", []sighting{mark(palette.PadBack, palette.Todo, "")}, `[{"button":"back","type":"click","x":100,"y":470}]`},
		{"forward", []sighting{mark(palette.PadForward, palette.Todo, "")}, `[{"button":"forward","type":"click","x":100,"y":500}]`},
		{"held", []sighting{mark(palette.HeldClick, palette.Todo, "S")}, `[{"button":"left","keys":["SHIFT"],"type":"click","x":100,"y":530}]`},
		{"slow", []sighting{mark(palette.Slow, palette.Todo, "")}, `[{"button":"left","type":"click","x":100,"y":560},{"type":"wait"}]`},
		{"busy", []sighting{mark(palette.Slow, palette.Busy, ""), mark(palette.Save, palette.Todo, "")}, `[{"type":"wait"}]`},
		{"done", []sighting{mark(palette.Slow, palette.Done, ""), mark(palette.Save, palette.Todo, "")}, `[{"button":"left","type":"click","x":100,"y":590}]`},
		{"nothing", nil, `[{"type":"screenshot"}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(newMind().decide(test.seen, nil).actions)
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}

// TestStalePicture shows the same picture again and again: the model looks again, waits, tries again, and gives up
// with the name of what is stuck.
func TestStalePicture(t *testing.T) {
	m := newMind()
	seen := []sighting{mark(palette.CheckBox, palette.Todo, "")}
	for _, want := range []string{"click", "screenshot", "wait", "click", "screenshot", "wait", "click", "screenshot", "wait"} {
		if got := kinds(m.decide(seen, nil)); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if got := m.decide(seen, nil); len(got.actions) > 0 || !strings.Contains(got.message, "check box at (100,80) is stuck") {
		t.Errorf("got %+v, want it to give up", got)
	}
}

// TestL1 is row L1 of the field cases: whatever the screen shows for ever, the model comes to an end.
func TestL1(t *testing.T) {
	for name, seen := range map[string][]sighting{
		"nothing": nil,
		"busy":    {mark(palette.Slow, palette.Busy, "")},
		"save":    {mark(palette.Save, palette.Todo, "")},
		"no save": {mark(palette.CheckBox, palette.Done, "")},
		"menu":    {mark(palette.MenuItem, palette.Todo, "A")},
		"context": {mark(palette.Context, palette.Todo, "A")},
		"slider":  {mark(palette.Slider, palette.Todo, "")},
		"list":    {mark(palette.List, palette.Todo, "A"), mark(palette.ListItem, palette.Todo, "B")},
		"empty":   {mark(palette.List, palette.Todo, "A")},
		"item":    {mark(palette.List, palette.Todo, "A"), mark(palette.ListItem, palette.Todo, "A")},
		"saved":   {mark(palette.Save, palette.Done, "")},
	} {
		m := newMind()
		ended := false
		for range 60 {
			if got := m.decide(seen, nil); len(got.actions) == 0 {
				ended = got.message != ""
				break
			}
		}
		if !ended {
			t.Errorf("%s: the model goes on for ever", name)
		}
	}
}

// TestMenu opens a menu that shows late, and does nothing else meanwhile: a click beside it would close it.
func TestMenu(t *testing.T) {
	m := newMind()
	closed := []sighting{mark(palette.CheckBox, palette.Todo, ""), mark(palette.Context, palette.Todo, "B"), mark(palette.Slow, palette.Todo, "")}
	open := append(slices.Clone(closed[:1]), mark(palette.MenuItem, palette.Todo, "A"),
		sighting{palette.Mark{Kind: palette.MenuItem, Text: "B"}, image.Pt(5, 6), image.Pt(40, 20)})
	for i, step := range []struct {
		seen []sighting
		want string
	}{{closed, "click click"}, {closed, "screenshot"}, {open, "click"}, {open, "screenshot"}} {
		got := m.decide(step.seen, nil)
		if kinds(got) != step.want {
			t.Fatalf("step %d: got %q, want %q", i, kinds(got), step.want)
		}
		if i == 2 && (got.actions[0]["x"] != 5 || got.actions[0]["y"] != 6) {
			t.Errorf("got %v, want the item B clicked at (5,6)", got.actions)
		}
	}
}

// TestSearch looks for each item of a list that shows three of twenty, from wherever it stands, on desktops where
// what the model takes for most of what shows is a single row and where it is more than shows.
func TestSearch(t *testing.T) {
	const items, shown, height = 20, 3, 30
	for _, perRow := range []int{height / 2, height, 2 * height} { // pixels that a scroll takes for a row
		for wanted := range items {
			m := newMind()
			first, found := items/2, false
			for range 80 {
				seen := []sighting{mark(palette.List, palette.Todo, fmt.Sprint(wanted))}
				for i := range shown {
					seen = append(seen, sighting{palette.Mark{Kind: palette.ListItem, Text: fmt.Sprint(first + i)}, image.Pt(10, 200+i*height), image.Pt(40, 20)})
				}
				turn := m.decide(seen, nil)
				if len(turn.actions) == 0 {
					break
				}
				switch a := turn.actions[0]; a["type"] {
				case "scroll":
					first = min(max(first+a["scroll_y"].(int)/perRow, 0), items-shown)
				case "click":
					found = first+(a["y"].(int)-200)/height == wanted
				}
				if found {
					break
				}
			}
			if !found {
				t.Errorf("%d pixels a row: item %d was not found", perRow, wanted)
			}
		}
	}
}

// TestSaveComesLast saves when all is done, as the one thing that needs consent, and ends when that shows.
func TestSaveComesLast(t *testing.T) {
	m := newMind()
	todo, done := mark(palette.CheckBox, palette.Todo, ""), mark(palette.CheckBox, palette.Done, "")
	save := mark(palette.Save, palette.Todo, "")
	if got := m.decide([]sighting{todo, save}, nil); got.risky || len(got.actions) != 1 || got.actions[0]["y"] != todo.at.Y {
		t.Errorf("got %+v, want the check box clicked without consent", got)
	}
	if got := m.decide([]sighting{done, save}, nil); !got.risky || len(got.actions) != 1 || got.actions[0]["y"] != save.at.Y {
		t.Errorf("got %+v, want the save button clicked with consent", got)
	}
	if got := m.decide([]sighting{done, mark(palette.Save, palette.Done, "")}, nil); len(got.actions) > 0 || got.message == "" {
		t.Errorf("got %+v, want a final message", got)
	}
}
