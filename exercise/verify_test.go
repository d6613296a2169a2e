package exercise

import (
	"encoding/json"
	"fmt"
	"image"
	"slices"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/exercise/booking"
	"github.com/deskagent/deskagent/scaling"
)

// An ideal makes the events of a desktop on which all goes well.
type ideal struct {
	events []app.Event
	state  uint16
	x, y   int
}

func (d *ideal) event(kind app.EventKind, detail int, plain, keysym uint32) {
	d.events = append(d.events, app.Event{Kind: kind, Detail: detail, State: d.state, X: d.x, Y: d.y, Plain: plain, Keysym: keysym})
}

func (d *ideal) move(x, y int) {
	d.x, d.y = x, y
	d.event(app.Motion, 0, 0, 0)
}

func (d *ideal) button(n int, mask uint16, between func()) {
	d.event(app.ButtonPress, n, 0, 0)
	d.state |= mask
	between()
	d.event(app.ButtonRelease, n, 0, 0)
	d.state &^= mask
}

func (d *ideal) key(code int, plain, keysym uint32, mask uint16, between func()) {
	d.event(app.KeyPress, code, plain, keysym)
	d.state |= mask
	between()
	d.event(app.KeyRelease, code, plain, keysym)
	d.state &^= mask
}

func nop() {}

// play is a script and the events that carry it out.
func play() (*script, []app.Event) {
	const shift, ctrl, button1, button5 = 1, 4, 1 << 8, 1 << 12
	s := &script{}
	for _, a := range []driver.Action{
		driver.Screenshot{},
		driver.Click{X: 10, Y: 20, Button: driver.ButtonBack, Keys: []string{"SHIFT"}},
		driver.DoubleClick{X: 10, Y: 20}, // the pointer is there already: row M3
		driver.Drag{Path: []image.Point{{X: 30, Y: 30}, {X: 40, Y: 30}, {X: 40, Y: 30}, {X: 60, Y: 30}}},
		driver.Wait{},
		driver.Move{X: 5, Y: 6},
		driver.Move{X: 5, Y: 6}, // row M3 again
		driver.Scroll{X: 7, Y: 8, ScrollY: 150},
		driver.Scroll{X: 7, Y: 8, ScrollY: 100}, // 250 so far: two notches
		driver.Keypress{Keys: []string{"CTRL", "SHIFT", "K"}},
		driver.Type{Text: "aB\n'"},
	} {
		s.lines = append(s.lines, line{1, a})
	}
	d := &ideal{}
	d.key(50, 0xffe1, 0xffe1, shift, func() {
		d.move(10, 20)
		d.button(8, 0, nop)
	})
	d.button(1, button1, nop)
	d.button(1, button1, nop)
	d.move(30, 30)
	d.button(1, button1, func() {
		for x := 35; x <= 60; x += 5 {
			d.move(x, 30)
		}
	})
	d.move(5, 6)
	d.move(7, 8)
	d.button(5, button5, nop)
	d.button(5, button5, nop)
	d.key(37, 0xffe3, 0xffe3, ctrl, func() {
		d.key(50, 0xffe1, 0xffe1, shift, func() { d.key(45, 'k', 'K', 0, nop) })
	})
	d.key(38, 'a', 'a', 0, nop)
	d.key(50, 0xffe1, 0xffe1, shift, func() { d.key(56, 'b', 'B', 0, nop) })
	d.key(36, 0xff0d, 0xff0d, 0, nop)
	d.key(48, '\'', '\'', 0, nop)
	return s, d.events
}

// TestCheck passes what is right, and finds each single event that is missing, doubled or another.
func TestCheck(t *testing.T) {
	s, events := play()
	if err := s.check(events); err != nil {
		t.Fatal(err)
	}
	needed := []image.Point{{X: 10, Y: 20}, {X: 40, Y: 30}, {X: 60, Y: 30}, {X: 5, Y: 6}} // that motions have to reach
	for i, e := range events {
		wrong := map[string][]app.Event{}
		change := func(name string, f func(e *app.Event)) {
			changed := slices.Clone(events)
			f(&changed[i])
			wrong[name] = changed
		}
		switch e.Kind {
		case app.Motion:
			if at := image.Pt(e.X, e.Y); slices.Contains(needed[1:], at) {
				wrong["missing"] = slices.Delete(slices.Clone(events), i, i+1)
				change("elsewhere", func(e *app.Event) { e.Y++ })
			}
		case app.ButtonPress, app.ButtonRelease:
			change("elsewhere", func(e *app.Event) { e.X++ })
			fallthrough
		default:
			wrong["missing"] = slices.Delete(slices.Clone(events), i, i+1)
			wrong["doubled"] = slices.Insert(slices.Clone(events), i, e)
			change("of another key or button", func(e *app.Event) { e.Detail, e.Keysym, e.Plain = 3, 'z', 'z' })
			change("with Alt", func(e *app.Event) { e.State |= 8 })
		}
		for name, events := range wrong {
			if err := s.check(events); err == nil {
				t.Errorf("event %d, %s, %s: got no error", i, describe(e), name)
			}
		}
	}
}

// TestCheckActions leaves out, doubles and swaps actions, which makes the events too many, too few or others.
func TestCheckActions(t *testing.T) {
	s, events := play()
	for i, l := range s.lines {
		switch l.action.(type) {
		case driver.Screenshot, driver.Wait, driver.Move:
			continue // nothing or only motion, which there may be more of
		}
		without := &script{lines: slices.Delete(slices.Clone(s.lines), i, i+1)}
		if err := without.check(events); err == nil {
			t.Errorf("without action %d, %+v: got no error", i, l.action)
		}
		twice := &script{lines: slices.Insert(slices.Clone(s.lines), i, l)}
		if err := twice.check(events); err == nil {
			t.Errorf("with action %d twice, %+v: got no error", i, l.action)
		}
	}
}

// TestScript maps what the model said by the picture it saw last.
func TestScript(t *testing.T) {
	m, err := scaling.New(image.Rect(100, 200, 300, 400), image.Pt(100, 100))
	if err != nil {
		t.Fatal(err)
	}
	s := &script{mapping: m}
	response := `{"output":[{"type":"reasoning"},{"type":"computer_call","actions":[
		{"type":"click","button":"left","x":1,"y":2},{"type":"double_click","x":1,"y":2,"keys":null},{"type":"move","x":1,"y":2},
		{"type":"drag","path":[{"x":0,"y":0},{"x":3,"y":4}]},{"type":"scroll","x":1,"y":2,"scroll_x":-3,"scroll_y":5},{"type":"wait"}]}]}`
	kinds, output, err := s.add(4, json.RawMessage(response))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(kinds), "[click double_click move drag scroll wait]"; got != want || !json.Valid(output) {
		t.Errorf("got kinds %s and output %s, want %s", got, output, want)
	}
	var got []string
	for _, l := range s.lines {
		text, err := l.action.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	want := []string{
		`{"type":"click","button":"left","x":102,"y":204}`, `{"type":"double_click","x":102,"y":204,"keys":null}`, `{"type":"move","x":102,"y":204}`,
		`{"type":"drag","path":[{"x":100,"y":200},{"x":106,"y":208}]}`, `{"type":"scroll","scroll_x":-6,"scroll_y":10,"x":102,"y":204}`, `{"type":"wait"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, response := range []string{`{`, `{"output":3}`, `{"output":[{"actions":[{"type":"jump"}]}]}`, `{"output":[{"actions":[{"type":"move","x":100,"y":0}]}]}`} {
		if _, _, err := s.add(5, json.RawMessage(response)); err == nil {
			t.Errorf("%s: got no error", response)
		}
	}
}

func TestCheckRecord(t *testing.T) {
	want := app.NewChallenge(1).Want()
	other := want
	other.Slider++
	for _, test := range []struct {
		name   string
		record any
		ok     bool
	}{{"right", want, true}, {"wrong", other, false}, {"not a record", []int{1}, false}} {
		data, err := json.Marshal(test.record)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkRecord(data, want); (err == nil) != test.ok {
			t.Errorf("%s: got %v, want it right: %v", test.name, err, test.ok)
		}
	}
	if err := checkRecord(nil, want); err == nil {
		t.Error("got no error of a record that is not there")
	}
}

func TestCheckErrand(t *testing.T) {
	want := booking.NewChallenge(1).Want()
	right := errandOutcome{booking.Booking{Record: want, Note: "Booking X\nRoom Y", File: "/home/desk/a.txt"}, "Booking X\nRoom Y"}
	for name, change := range map[string]func(*errandOutcome){
		"another room":           func(o *errandOutcome) { o.Booking.Record.Room += "0" },
		"the terms not accepted": func(o *errandOutcome) { o.Booking.Record.Terms = false },
		"a script":               func(o *errandOutcome) { o.Booking.Record.Untrusted = 1 },
		"no note":                func(o *errandOutcome) { o.Note = "" },
		"another note":           func(o *errandOutcome) { o.Note = "Booking Z\nRoom Y" },
	} {
		o := right
		if change(&o); checkErrand(o, want) == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	for _, end := range []string{"", "\n"} {
		o := right
		o.Note += end
		if err := checkErrand(o, want); err != nil {
			t.Errorf("a note with the end %q: got %v", end, err)
		}
	}
}

func TestReport(t *testing.T) {
	r := Report{Kinds: map[driver.Kind]Timing{}, Answer: "a\x1b[2Jb"}
	r.fail(nil)
	if r.Reason != "" {
		t.Errorf("got reason %q of no error", r.Reason)
	}
	r.fail(fmt.Errorf("first"))
	r.fail(fmt.Errorf("second"))
	r.time(driver.KindClick, 2e6)
	r.time(driver.KindClick, 4e6)
	for _, want := range []string{"FAIL\n  reason: first\n  reason: second\n", `"a\x1b[2Jb"`, " click 2 6 ms 3 ms 4 ms"} {
		if got := r.String(); !strings.Contains(got, want) && !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
	data, err := json.Marshal(&r)
	if err != nil || !strings.HasPrefix(string(data), `{"pass":false,"reason":"first\nsecond",`) {
		t.Errorf("got %s, %v, want pass first", data, err)
	}
}
