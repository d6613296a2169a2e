package model

import (
	"fmt"
	"image"
	"slices"
	"strings"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// An action is a computer action in the API's form.
type action map[string]any

func click(button string, at image.Point, keys ...string) action {
	a := action{"type": "click", "button": button, "x": at.X, "y": at.Y}
	if len(keys) > 0 {
		a["keys"] = keys
	}
	return a
}

func doubleClick(at image.Point) action {
	return action{"type": "double_click", "x": at.X, "y": at.Y, "keys": nil}
}

func drag(path ...image.Point) action {
	points := make([]map[string]int, len(path))
	for i, p := range path {
		points[i] = map[string]int{"x": p.X, "y": p.Y}
	}
	return action{"type": "drag", "path": points}
}

func move(at image.Point) action { return action{"type": "move", "x": at.X, "y": at.Y} }

func scroll(at, by image.Point) action {
	return action{"type": "scroll", "x": at.X, "y": at.Y, "scroll_x": by.X, "scroll_y": by.Y}
}

func keypress(keys ...string) action { return action{"type": "keypress", "keys": keys} }

func typeText(text string) action { return action{"type": "type", "text": text} }

func wait() action       { return action{"type": "wait"} }
func screenshot() action { return action{"type": "screenshot"} }

// A turn is what the model says after a look at the screen: a batch of actions, or a final message.
type turn struct {
	actions []action
	risky   bool   // the actions need the user's consent
	message string // final when there are no actions
}

// allDone is the final message when nothing is left to do.
const allDone = "Everything is done and saved."

const (
	maxTries     = 3  // at one task before giving up
	maxTasks     = 4  // begun in one turn
	maxReversals = 6  // of the direction of scrolling
	notch        = 6  // heights of a mark: how far a turn of the wheel goes, at least
	maxWaits     = 10 // in a row
)

// A mind is what the model remembers between looks.
type mind struct {
	tasks  map[palette.Kind]*taskMemory
	menu   string // the item to choose once the menu shows
	note   note
	looked int // pictures looked at in a row with nothing to be done
}

// A taskMemory is about one task.
type taskMemory struct {
	tries int
	// pending counts the pictures to come in which the last try may not show yet.
	pending int
	scroll  scrolling
}

// scrolling remembers how far the search in a list or gallery has come.
type scrolling struct {
	items     string // that showed last time
	same      int    // pictures in a row with these items
	back      bool   // scroll up or left
	reversals int
}

func newMind() *mind { return &mind{tasks: map[palette.Kind]*taskMemory{}} }

// decide returns the next turn after a look at the marks on the screen, and at the screen itself.
func (m *mind) decide(seen []sighting, picture image.Image) turn {
	switch {
	case m.note.begun():
		return m.note.goOn(picture)
	case len(seen) == 0:
		return m.lookAgain("I give up: there are no marks on the screen.")
	case shows(seen, palette.Save, palette.Done) && m.note.begin(seen):
		return m.note.goOn(picture)
	case shows(seen, palette.Save, palette.Done):
		return turn{message: allDone}
	case slices.ContainsFunc(seen, is(palette.MenuItem)):
		return m.choose(seen)
	}
	// While the menu may be about to open, nothing else is safe to do.
	if menu := m.remember(palette.Context); menu.pending > 0 && shows(seen, palette.Context, palette.Todo) {
		menu.pending--
		return m.lookAgain("I give up: no menu opens.")
	}
	actions, stuck := m.work(seen)
	busy := shows(seen, palette.Slow, palette.Busy)
	switch {
	case stuck != nil:
		return turn{message: fmt.Sprintf("I give up: the %v at %v is stuck, nothing I did changed it.", stuck.Kind, stuck.at)}
	case len(actions) > 0:
		m.looked = 0
		return turn{actions: actions}
	case busy && m.looked < maxWaits:
		m.looked++
		return turn{actions: []action{wait()}}
	case busy || slices.ContainsFunc(seen, func(s sighting) bool { return s.task() && s.Lamp != palette.Done }):
		return m.lookAgain("I give up: the screen does not change any more.")
	}
	return m.save(seen)
}

// work returns actions for the first few tasks that are to be done, or the mark of one that cannot be.
func (m *mind) work(seen []sighting) (actions []action, stuck *sighting) {
	begun := 0
	for _, s := range seen {
		if !s.task() {
			continue
		}
		memory := m.remember(s.Kind)
		switch {
		case s.Lamp == palette.Done:
			*memory = taskMemory{}
		case s.Lamp == palette.Busy || begun == maxTasks:
		case memory.pending > 0:
			memory.pending--
		default:
			more, ok := m.attempt(s, memory, seen)
			if !ok {
				return nil, &s
			}
			if actions = append(actions, more...); len(more) > 0 {
				begun++
			}
			if s.Kind == palette.Context {
				return actions, nil // the menu is going to be in the way of the rest
			}
		}
	}
	return actions, nil
}

// task reports whether a mark stands for a task of its own.
func (s sighting) task() bool {
	switch s.Kind {
	case palette.ListItem, palette.GalleryItem, palette.MenuItem, palette.SliderGoal, palette.Save, palette.Note, palette.NoteFile:
		return false
	}
	return true
}

func shows(seen []sighting, kind palette.Kind, lamp palette.Lamp) bool {
	return slices.ContainsFunc(seen, func(s sighting) bool { return s.Kind == kind && s.Lamp == lamp })
}

func is(kind palette.Kind) func(sighting) bool {
	return func(s sighting) bool { return s.Kind == kind }
}

func (m *mind) remember(kind palette.Kind) *taskMemory {
	if m.tasks[kind] == nil {
		m.tasks[kind] = &taskMemory{}
	}
	return m.tasks[kind]
}

// lookAgain takes another picture, at once at first and then after a wait, and says why it gives up after that: the
// screen may be older than what was done last.
func (m *mind) lookAgain(message string) turn {
	m.looked++
	switch m.looked {
	case 1:
		return turn{actions: []action{screenshot()}}
	case 2, 3:
		return turn{actions: []action{wait()}}
	}
	return turn{message: message}
}

// try counts a try at a task; it reports false when there have been enough.
func (memory *taskMemory) try() bool {
	memory.tries++
	memory.pending = 2
	return memory.tries <= maxTries
}

// attempt returns what to do about one mark; ok is false when it has been tried often enough.
func (m *mind) attempt(s sighting, memory *taskMemory, seen []sighting) (actions []action, ok bool) {
	switch s.Kind {
	case palette.List:
		return memory.find(s, palette.ListItem, image.Pt(0, 1), seen)
	case palette.Gallery:
		return memory.find(s, palette.GalleryItem, image.Pt(1, 0), seen)
	}
	if !memory.try() {
		return nil, false
	}
	switch s.Kind {
	case palette.TextField, palette.TextArea:
		// What may be there already is wrong.
		actions = []action{click("left", s.at), keypress("CTRL", "A"), typeText(s.Text)}
	case palette.CheckBox:
		actions = []action{click("left", s.at)}
	case palette.File:
		actions = []action{doubleClick(s.at)}
	case palette.Slider:
		if i := slices.IndexFunc(seen, is(palette.SliderGoal)); i >= 0 {
			way := seen[i].at.X - s.at.X
			actions = []action{drag(s.at, s.at.Add(image.Pt(way/3, 0)), s.at.Add(image.Pt(way*2/3, 0)), s.at.Add(image.Pt(way, 0)))}
		}
	case palette.Hover:
		actions = []action{move(s.at)}
	case palette.Context:
		m.menu = s.Text
		actions = []action{click("right", s.at)}
	case palette.PadWheel:
		actions = []action{click("wheel", s.at)}
	case palette.PadBack:
		actions = []action{click("back", s.at)}
	case palette.PadForward:
		actions = []action{click("forward", s.at)}
	case palette.HeldClick:
		key := map[string]string{"S": "SHIFT", "C": "CTRL"}[s.Text]
		actions = []action{click("left", s.at, key)}
	case palette.Chord:
		// The click brings the window the keyboard.
		actions = []action{click("left", s.at), keypress("CTRL", "SHIFT", s.Text)}
	case palette.Slow:
		actions = []action{click("left", s.at), wait()}
	}
	return actions, true
}

// find clicks the item with the text of the list or gallery, or scrolls on until it shows. When what shows stays
// the same, the end is reached and the search goes on the other way, in smaller steps.
func (memory *taskMemory) find(list sighting, kind palette.Kind, axis image.Point, seen []sighting) (actions []action, ok bool) {
	var items []string
	var extent image.Rectangle
	for _, s := range seen {
		if s.Kind != kind {
			continue
		}
		if s.Text == list.Text {
			return []action{click("left", s.at)}, memory.try()
		}
		items = append(items, s.Text)
		extent = extent.Union(image.Rectangle{Min: s.at, Max: s.at.Add(s.size)})
	}
	sc := &memory.scroll
	if showing := strings.Join(items, " "); showing != sc.items {
		sc.items, sc.same = showing, 0
	} else if sc.same++; sc.same == 1 {
		return []action{wait()}, true // the picture may be older than the scrolling
	} else {
		sc.same = 0
		sc.back = !sc.back
		sc.reversals++
	}
	if sc.reversals > maxReversals || extent.Empty() {
		return nil, false
	}
	// Most of what shows, so that nothing is passed over; less after each time both ends have been reached, but as much as
	// turns a wheel: less would do nothing.
	most := (extent.Dx()*axis.X + extent.Dy()*axis.Y) * 3 / 4
	by := axis.Mul(max(most>>(sc.reversals/2), min(most, notch*list.size.Y)))
	if sc.back {
		by = image.Point{}.Sub(by)
	}
	return []action{scroll(list.at, by)}, true
}

// choose clicks the wanted item of the menu that shows.
func (m *mind) choose(seen []sighting) turn {
	i := slices.IndexFunc(seen, func(s sighting) bool { return s.Kind == palette.MenuItem && s.Text == m.menu })
	memory := m.remember(palette.MenuItem)
	switch {
	case i < 0:
		return m.lookAgain(fmt.Sprintf("I give up: the menu has no item %q.", m.menu))
	case memory.pending > 0:
		memory.pending--
		return m.lookAgain("I give up: the menu stays open.")
	case !memory.try():
		return turn{message: fmt.Sprintf("I give up: the menu item at %v is stuck.", seen[i].at)}
	}
	m.looked = 0
	return turn{actions: []action{click("left", seen[i].at)}}
}

// save clicks the save button; whether to go on is for the user to say.
func (m *mind) save(seen []sighting) turn {
	i := slices.IndexFunc(seen, is(palette.Save))
	memory := m.remember(palette.Save)
	switch {
	case i < 0:
		return m.lookAgain("I give up: there is no save button.")
	case memory.pending > 0:
		memory.pending--
		return m.lookAgain("I give up: the save button does not say that it has saved.")
	case !memory.try():
		return turn{message: fmt.Sprintf("I give up: the save button at %v is stuck.", seen[i].at)}
	}
	m.looked = 0
	return turn{actions: []action{click("left", seen[i].at)}, risky: true}
}
