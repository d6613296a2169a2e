package exercise

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"math"
	"slices"
	"strings"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/exercise/booking"
	"github.com/deskagent/deskagent/scaling"
)

// checkRecord compares the saved record, nil for none, with what was demanded.
func checkRecord(record []byte, want app.Record) error {
	if record == nil {
		return errors.New("the record was not saved")
	}
	var got app.Record
	if err := json.Unmarshal(record, &got); err != nil {
		return fmt.Errorf("reading the record: %w", err)
	}
	if got != want {
		return fmt.Errorf("the record is %+v, want %+v", got, want)
	}
	return nil
}

// checkErrand compares what the page's server has stored with what was to be booked, and the note with what the page said.
func checkErrand(o errandOutcome, want booking.Record) error {
	if got := o.Booking.Record; got != want {
		return fmt.Errorf("the booking is %+v, want %+v", got, want)
	}
	// The editor may end the last line.
	if got := strings.TrimSuffix(o.Note, "\n"); got != o.Booking.Note {
		return fmt.Errorf("the note in %s is %q, want %q", o.Booking.File, o.Note, o.Booking.Note)
	}
	return nil
}

// A script is what the model asked for, in screen space, as far as this package can tell from its responses: the
// toolset and the driver are not asked.
type script struct {
	lines   []line
	mapping scaling.Mapping // of the picture that the model saw last
}

type line struct {
	step   int
	action driver.Action
}

// add takes down the calls of a response. It returns the kinds of the actions, and the response's output.
func (s *script) add(step int, response json.RawMessage) ([]driver.Kind, json.RawMessage, error) {
	var said struct{ Output json.RawMessage }
	var items []struct {
		Type    string
		Actions []json.RawMessage
	}
	if err := json.Unmarshal(response, &said); err != nil {
		return nil, nil, fmt.Errorf("step %d: reading the response: %w", step, err)
	}
	if err := json.Unmarshal(said.Output, &items); err != nil {
		return nil, nil, fmt.Errorf("step %d: reading the output: %w", step, err)
	}
	var kinds []driver.Kind
	for _, item := range items {
		for _, raw := range item.Actions {
			action, err := driver.DecodeAction(raw)
			if err != nil {
				return kinds, said.Output, fmt.Errorf("step %d: %w", step, err)
			}
			onScreen, err := s.toScreen(action)
			if err != nil {
				return kinds, said.Output, fmt.Errorf("step %d: %w", step, err)
			}
			kinds = append(kinds, action.Kind())
			s.lines = append(s.lines, line{step, onScreen})
		}
	}
	return kinds, said.Output, nil
}

func (s *script) toScreen(action driver.Action) (driver.Action, error) {
	points := driver.Points(action)
	for i, picturePt := range points {
		var err error
		if points[i], err = s.mapping.ToScreen(picturePt); err != nil {
			return nil, err
		}
	}
	switch a := action.(type) {
	case driver.Click:
		a.X, a.Y = points[0].X, points[0].Y
		return a, nil
	case driver.DoubleClick:
		a.X, a.Y = points[0].X, points[0].Y
		return a, nil
	case driver.Move:
		a.X, a.Y = points[0].X, points[0].Y
		return a, nil
	case driver.Drag:
		a.Path = points
		return a, nil
	case driver.Scroll:
		by := s.mapping.DistanceToScreen(image.Pt(a.ScrollX, a.ScrollY))
		a.X, a.Y, a.ScrollX, a.ScrollY = points[0].X, points[0].Y, by.X, by.Y
		return a, nil
	}
	return action, nil
}

// check compares the script with the events that the application received: those of the pointer's buttons and the
// keyboard have to be exactly what the actions mean, one after the other, and the pointer has to have been where it
// was to be.
func (s *script) check(events []app.Event) error {
	r := reader{}
	for _, e := range events {
		switch e.Kind {
		case app.KeyPress, app.KeyRelease, app.ButtonPress, app.ButtonRelease, app.Motion:
			r.events = append(r.events, e)
		}
	}
	if err := consistent(r.events); err != nil {
		return err
	}
	for _, l := range s.lines {
		if err := r.action(l.action); err != nil {
			text, _ := l.action.MarshalJSON() // it was made from JSON
			return fmt.Errorf("step %d, %s: %w", l.step, text, err)
		}
	}
	r.motions()
	if e, ok := r.peek(); ok {
		return fmt.Errorf("there is more than was asked for: %s", describe(e))
	}
	return nil
}

// The bits that a key, by its keysym without modifiers, or a button sets in the state of events while it is down.
var (
	keyMasks = map[uint32]uint16{
		0xffe1: xproto.ModMaskShift, 0xffe2: xproto.ModMaskShift, // left and right
		0xffe3: xproto.ModMaskControl, 0xffe4: xproto.ModMaskControl,
		0xffe9: xproto.ModMask1, 0xffea: xproto.ModMask1, // Alt
		0xffeb: xproto.ModMask4, 0xffec: xproto.ModMask4, // Super
	}
	buttonMasks = map[int]uint16{
		1: xproto.ButtonMask1, 2: xproto.ButtonMask2, 3: xproto.ButtonMask3, 4: xproto.ButtonMask4, 5: xproto.ButtonMask5,
	}
)

const (
	modifiers = xproto.ModMaskShift | xproto.ModMaskControl | xproto.ModMask1 | xproto.ModMask4 // the locks are not among them
	buttons   = xproto.ButtonMask1 | xproto.ButtonMask2 | xproto.ButtonMask3 | xproto.ButtonMask4 | xproto.ButtonMask5
)

// consistent checks that the events follow from one another: nothing goes down that is down or up that is not, the
// state of each event is what went before, and in the end all is up.
func consistent(events []app.Event) error {
	type part struct {
		key    bool
		detail int
	}
	down := map[part]uint16{}
	for _, e := range events {
		var state uint16
		for _, mask := range down {
			state |= mask
		}
		if e.State&(modifiers|buttons) != state {
			return fmt.Errorf("%s, but what went before makes state %#x", describe(e), state)
		}
		p := part{e.Kind == app.KeyPress || e.Kind == app.KeyRelease, e.Detail}
		_, isDown := down[p]
		switch e.Kind {
		case app.KeyPress, app.ButtonPress:
			if isDown {
				return fmt.Errorf("%s, but it is down already", describe(e))
			}
			if down[p] = buttonMasks[e.Detail]; p.key {
				down[p] = keyMasks[e.Plain]
			}
		case app.KeyRelease, app.ButtonRelease:
			if !isDown {
				return fmt.Errorf("%s, but it is not down", describe(e))
			}
			delete(down, p)
		}
	}
	if len(down) > 0 {
		return fmt.Errorf("%d keys and buttons are never released", len(down))
	}
	return nil
}

// A reader goes through events.
type reader struct {
	events  []app.Event
	pointer image.Point // where the last event was
	owed    image.Point // pixels scrolled so far beyond the last notch
}

func (r *reader) peek() (app.Event, bool) {
	if len(r.events) == 0 {
		return app.Event{}, false
	}
	return r.events[0], true
}

func (r *reader) next() (app.Event, bool) {
	e, ok := r.peek()
	if ok {
		r.events = r.events[1:]
		r.pointer = image.Pt(e.X, e.Y)
	}
	return e, ok
}

// motions skips motions and returns them.
func (r *reader) motions() []app.Event {
	var skipped []app.Event
	for {
		if e, ok := r.peek(); !ok || e.Kind != app.Motion {
			return skipped
		}
		e, _ := r.next()
		skipped = append(skipped, e)
	}
}

// action reads the events of one action.
func (r *reader) action(action driver.Action) error {
	switch a := action.(type) {
	case driver.Click:
		return r.holding(a.Keys, func(held uint16) error { return r.click(xButtons[a.Button], image.Pt(a.X, a.Y), held) })
	case driver.DoubleClick:
		return r.holding(a.Keys, func(held uint16) error {
			at := image.Pt(a.X, a.Y)
			return errors.Join(r.click(1, at, held), r.click(1, at, held))
		})
	case driver.Drag:
		return r.holding(a.Keys, func(held uint16) error { return r.drag(a.Path, held) })
	case driver.Move:
		return r.holding(a.Keys, func(uint16) error { return r.reach(image.Pt(a.X, a.Y), 0) })
	case driver.Scroll:
		return r.holding(a.Keys, func(held uint16) error { return r.scroll(a, held) })
	case driver.Keypress:
		return r.holding(a.Keys, func(uint16) error { return nil })
	case driver.Type:
		return r.typed(a.Text)
	}
	return nil
}

// xButtons are the X server's numbers of the buttons.
var xButtons = map[driver.Button]int{
	driver.ButtonLeft: 1, driver.ButtonWheel: 2, driver.ButtonRight: 3, driver.ButtonBack: 8, driver.ButtonForward: 9,
}

// holding reads the presses of keys, what happens inside, and the releases in the reverse order. Inside, the state
// is to show exactly the modifiers among them.
func (r *reader) holding(names []string, inside func(held uint16) error) error {
	keys, err := driver.ParseKeys(names)
	if err != nil {
		return err
	}
	var held uint16
	for _, key := range keys {
		if err := r.key(app.KeyPress, key, held); err != nil {
			return err
		}
		held |= keyMasks[uint32(key)]
	}
	if err := inside(held); err != nil {
		return err
	}
	for _, key := range slices.Backward(keys) {
		if err := r.key(app.KeyRelease, key, held); err != nil {
			return err
		}
		held &^= keyMasks[uint32(key)]
	}
	return nil
}

// key reads the press or release of a key, which may be named with or without what Shift makes of it; a letter in a
// chord stands for its key in either case.
func (r *reader) key(kind app.EventKind, key driver.Key, held uint16) error {
	r.motions()
	e, ok := r.next()
	named := func(keysym uint32) bool { return strings.EqualFold(driver.Key(keysym).String(), key.String()) }
	if !ok || e.Kind != kind || !named(e.Keysym) && !named(e.Plain) || e.State&modifiers != held {
		return fmt.Errorf("got %s, want %s of %v with modifiers %#x", describe(e), kind, key, held)
	}
	return nil
}

// button reads the press or release of a button.
func (r *reader) button(kind app.EventKind, button int, at image.Point, held uint16) error {
	e, ok := r.next()
	if !ok || e.Kind != kind || e.Detail != button || image.Pt(e.X, e.Y) != at || e.State&modifiers != held {
		return fmt.Errorf("got %s, want %s of button %d at %v with modifiers %#x", describe(e), kind, button, at, held)
	}
	return nil
}

func (r *reader) click(button int, at image.Point, held uint16) error {
	r.motions()
	if err := r.button(app.ButtonPress, button, at, held); err != nil {
		return err
	}
	return r.button(app.ButtonRelease, button, at, held)
}

// reach reads motions, with just the given buttons down, up to the point; none are needed when the pointer is there.
func (r *reader) reach(at image.Point, down uint16) error {
	for r.pointer != at {
		if e, ok := r.peek(); !ok || e.Kind != app.Motion || e.State&buttons != down {
			return fmt.Errorf("the pointer came to %v, then there was %s, want it to come to %v", r.pointer, describe(e), at)
		}
		r.next()
	}
	return nil
}

// drag reads a press on the first point, motion with the button down through all the points and some in between,
// and the release on the last.
func (r *reader) drag(path []image.Point, held uint16) error {
	r.motions()
	if err := r.button(app.ButtonPress, 1, path[0], held); err != nil {
		return err
	}
	before := len(r.events)
	for _, at := range path[1:] {
		if err := r.reach(at, xproto.ButtonMask1); err != nil {
			return err
		}
	}
	if n := before - len(r.events); n < len(path) {
		return fmt.Errorf("got %d motions for a path of %d points, want some in between", n, len(path))
	}
	return r.button(app.ButtonRelease, 1, path[len(path)-1], held)
}

// scroll reads the notches of the wheel that all scrolling so far makes, to the nearest, halves away from 0, without
// those that were there before; up and down come first.
func (r *reader) scroll(a driver.Scroll, held uint16) error {
	for _, axis := range []struct {
		distance      int
		owed          *int
		back, forward int
	}{{a.ScrollY, &r.owed.Y, 4, 5}, {a.ScrollX, &r.owed.X, 6, 7}} {
		*axis.owed += axis.distance
		notches, button := int(math.Round(float64(*axis.owed)/pixelsPerNotch)), axis.forward
		*axis.owed -= notches * pixelsPerNotch
		if notches < 0 {
			notches, button = -notches, axis.back
		}
		for n := range notches {
			if err := r.click(button, image.Pt(a.X, a.Y), held); err != nil {
				return fmt.Errorf("notch %d of %d: %w", n+1, notches, err)
			}
		}
	}
	return nil
}

// typed reads the keys of a text, and whatever modifiers that takes, until all are up again.
func (r *reader) typed(text string) error {
	down := map[int]bool{}
	rest := []rune(text)
	for len(rest) > 0 || len(down) > 0 {
		r.motions()
		e, ok := r.next()
		key := driver.Key(e.Keysym)
		switch {
		case ok && e.Kind == app.KeyRelease:
			delete(down, e.Detail)
			continue
		case ok && e.Kind == app.KeyPress && key.Modifier():
			down[e.Detail] = true
			continue
		case ok && e.Kind == app.KeyPress && len(rest) > 0 && e.State&modifiers&^xproto.ModMaskShift == 0:
			if want, fine := driver.RuneKey(rest[0]); fine && key == want {
				down[e.Detail] = true
				rest = rest[1:]
				continue
			}
		}
		return fmt.Errorf("got %s where %q was still to be typed", describe(e), string(rest))
	}
	return nil
}

// describe shows an event for an error; the zero Event stands for none.
func describe(e app.Event) string {
	switch e.Kind {
	case "":
		return "no further event"
	case app.Motion:
		return fmt.Sprintf("%s to (%d,%d) with state %#x", e.Kind, e.X, e.Y, e.State)
	case app.KeyPress, app.KeyRelease:
		return fmt.Sprintf("%s of %v at (%d,%d) with state %#x", e.Kind, driver.Key(e.Keysym), e.X, e.Y, e.State)
	}
	return fmt.Sprintf("%s of button %d at (%d,%d) with state %#x", e.Kind, e.Detail, e.X, e.Y, e.State)
}
