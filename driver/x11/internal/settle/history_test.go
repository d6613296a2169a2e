package settle

import (
	"cmp"
	"image"
	"testing"
	"time"
)

var (
	screen  = image.Rect(0, 0, 1280, 800)
	window  = image.Rect(100, 100, 900, 700)
	label   = image.Rect(300, 300, 420, 320)
	spinner = image.Rect(600, 400, 632, 432)
	caret   = image.Rect(200, 500, 202, 520)
	entry   = image.Rect(100, 500, 500, 534)
)

// A painting is what is painted in each millisecond.
type painting func(ms int) []image.Rectangle

func once(at int, r image.Rectangle) painting { return every(1, at, at, r) }

// every paints the same places again and again, from a time to another.
func every(period, from, to int, places ...image.Rectangle) painting {
	return func(ms int) []image.Rectangle {
		if ms < from || ms > to || (ms-from)%period != 0 {
			return nil
		}
		return places
	}
}

// moving paints a place that moves to the right.
func moving(period, from, to int, r image.Rectangle, pixels int) painting {
	return func(ms int) []image.Rectangle {
		if ms < from || ms > to || (ms-from)%period != 0 {
			return nil
		}
		return []image.Rectangle{r.Add(image.Pt((ms-from)/period*pixels, 0))}
	}
}

func all(paintings ...painting) painting {
	return func(ms int) (places []image.Rectangle) {
		for _, p := range paintings {
			places = append(places, p(ms)...)
		}
		return places
	}
}

// tiles are small places all over the screen.
func tiles(n int) (places []image.Rectangle) {
	for i := range n {
		at := image.Pt(i%8*150, i/8*90)
		places = append(places, image.Rectangle{at, at.Add(image.Pt(60, 60))})
	}
	return places
}

const forever = 1 << 30

// TestHistory lets the rules of the package comment work on screens whose every millisecond is known. Looks are 5ms
// apart. Times are in milliseconds from the mark that the answer is for, and figures of the answer are with the default
// timing.
func TestHistory(t *testing.T) {
	tests := []struct {
		name    string
		paint   painting
		marks   []int // before the one at 0
		looks   int   // from when on there are looks, beside those for marks; 0 for the mark
		touch   int
		timing  Timing
		screen  func(ms int) image.Rectangle // nil for one that stays
		state   State
		at      int
		changed image.Rectangle
		recurs  image.Rectangle
	}{
		{name: "nothing", paint: once(-1, window), state: Unchanged, at: 200},
		{name: "nothing after a long action", touch: 700, state: Unchanged, at: 900},
		{name: "at once", paint: once(3, label), state: Settled, at: 95, changed: label},
		{name: "just within the grace", paint: once(195, label), state: Settled, at: 285, changed: label},
		{name: "later than the grace", paint: once(300, window), state: Unchanged, at: 200}, // row C2 of the field cases
		{name: "before the last event only", paint: once(3, label), touch: 10, state: Settled, at: 210, changed: label},
		{name: "before the last event, and after", paint: all(once(3, label), once(110, window)), touch: 10, state: Settled, at: 200, changed: window},
		{name: "again, within the quiet time", paint: all(once(3, label), once(90, window)), state: Settled, at: 180, changed: window},
		{name: "again, after the quiet time", paint: all(once(3, label), once(110, window)), state: Settled, at: 95, changed: label},
		{
			name: "before the last event, and a long quiet time", paint: once(95, label), touch: 100, timing: Timing{Quiet: 500 * time.Millisecond},
			state: Settled, at: 595, changed: label,
		},
		{name: "nothing, and a long grace", timing: Timing{Grace: 5 * time.Second, Deadline: time.Second}, state: Unchanged, at: 1000},
		{name: "fade", paint: every(16, 5, 205, label), state: Settled, at: 290, changed: label},
		{name: "small animation of 700ms", paint: every(20, 5, 705, label), state: Settled, at: 795, changed: label},
		{name: "large animation of 700ms", paint: every(20, 5, 705, window), state: Settled, at: 795, changed: window},
		{name: "large animation without end", paint: every(16, 5, forever, window), state: Changing, at: 3000, changed: window},
		{name: "small animation of 2s", paint: every(20, 5, 2005, label), state: Settled, at: 1005, changed: label, recurs: label},

		{name: "spinner that was there", paint: every(20, -500, forever, spinner), state: Unchanged, at: 1020, recurs: spinner},
		{name: "spinner that the action brings", paint: every(20, 5, forever, spinner), state: Settled, at: 1005, changed: spinner, recurs: spinner},
		{name: "spinner until what it is for", paint: all(every(20, 5, 300, spinner), once(301, window)), state: Settled, at: 395, changed: window},
		{
			name: "spinner in a window that the action brings", paint: all(once(5, window), every(20, 10, forever, spinner)),
			state: Settled, at: 1010, changed: window, recurs: spinner,
		},
		{
			name: "spinner where something was before the action", paint: all(once(-3, spinner.Inset(8)), every(20, 5, forever, spinner)),
			state: Settled, at: 1005, changed: spinner, recurs: spinner,
		},
		{
			name: "spinner where a fade was long before the action", paint: all(every(20, -590, -400, spinner), every(20, 5, forever, spinner)),
			marks: []int{-600}, looks: -600, state: Settled, at: 1005, changed: spinner, recurs: spinner,
		},
		{
			name: "spinner where something large has passed", state: Settled, at: 1550, changed: image.Rect(0, 400, 1100, 500), recurs: image.Rect(0, 400, 640, 500),
			paint: all(moving(10, 5, 1005, image.Rect(0, 400, 100, 500), 10), every(20, 1010, forever, spinner)),
		},
		{
			name: "dots in turn", state: Unchanged, at: 1100, recurs: image.Rect(600, 400, 622, 422),
			paint: all(every(400, -900, forever, image.Rect(600, 400, 608, 408)), every(400, -800, forever, image.Rect(614, 400, 622, 408)),
				every(400, -700, forever, image.Rect(614, 414, 622, 422)), every(400, -600, forever, image.Rect(600, 414, 608, 422))),
			timing: Timing{Quiet: 500 * time.Millisecond},
		},
		{
			name: "twice, in several parts", paint: every(1095, 5, 1100, image.Rect(600, 400, 632, 405), image.Rect(600, 410, 604, 432), image.Rect(628, 410, 632, 432)),
			timing: Timing{Quiet: 1200 * time.Millisecond}, state: Settled, at: 2300, changed: spinner,
		},
		{
			name: "spinner of many parts", state: Unchanged, at: 1020, recurs: spinner,
			paint: every(20, -500, forever, image.Rect(600, 400, 632, 405), image.Rect(600, 410, 604, 432), image.Rect(628, 410, 632, 432)),
		},
		{
			name: "spinner that is known", paint: every(20, -2000, forever, spinner), marks: []int{-1500}, looks: -1500,
			state: Unchanged, at: 200, recurs: spinner,
		},
		{
			name: "beside a spinner that is known", paint: all(every(20, -2000, forever, spinner), once(20, label)), marks: []int{-1500}, looks: -1500,
			state: Settled, at: 110, changed: label, recurs: spinner,
		},
		{
			name: "over the edge of a spinner that is known", marks: []int{-1500}, looks: -1500,
			paint: all(every(20, -2000, forever, spinner), once(20, spinner.Add(image.Pt(20, 0)))),
			state: Settled, at: 110, changed: spinner.Add(image.Pt(20, 0)), recurs: spinner,
		},
		{
			name: "over a spinner that is known", paint: all(every(20, -2000, 0, spinner), once(20, window)), marks: []int{-1500}, looks: -1500,
			state: Settled, at: 110, changed: window,
		},
		{
			name: "spinner that has ended", paint: all(every(20, -6000, -3900, spinner), once(20, spinner)), marks: []int{-5500}, looks: -5500,
			state: Settled, at: 110, changed: spinner,
		},
		{name: "caret", paint: every(500, -500, forever, caret), state: Settled, at: 590, touch: 450, changed: caret},
		{
			name: "caret that is known", paint: every(500, -3000, forever, caret), marks: []int{-3100}, looks: -3100, touch: 330,
			state: Unchanged, at: 530, recurs: caret,
		},
		{
			name: "caret that is known, just after input", paint: every(500, -3000, forever, caret), marks: []int{-3100}, looks: -3100, touch: 450,
			state: Settled, at: 590, changed: caret, recurs: caret,
		},
		{
			name: "caret that is known, without input", paint: every(500, -2990, forever, caret), marks: []int{-3100}, looks: -3100,
			state: Unchanged, at: 200, recurs: caret,
		},
		{
			name: "echo in an entry with a caret that is known", paint: all(every(500, -3000, forever, entry), once(110, entry)), marks: []int{-3100}, looks: -3100,
			touch: 100, state: Settled, at: 200, changed: entry, recurs: entry,
		},
		{
			name: "input beside a spinner that is known", paint: every(20, -2000, forever, spinner), marks: []int{-1500}, looks: -1500, touch: 50,
			state: Unchanged, at: 250, recurs: spinner,
		},
		{
			name: "caret and spinner that are known", paint: all(every(500, -3000, forever, caret), every(20, -3000, forever, spinner)),
			marks: []int{-3100}, looks: -3100, touch: 330, state: Unchanged, at: 530, recurs: caret.Union(spinner),
		},

		{name: "echo", paint: every(40, 5, 1525, label), touch: 1505, state: Settled, at: 1615, changed: label},
		{name: "late echo", paint: every(40, 5, 2405, label), touch: 1505, state: Settled, at: 2495, changed: label},
		{
			name: "something that moves", paint: moving(30, 5, forever, spinner, 2), state: Changing, at: 3000,
			changed: image.Rect(600, 400, 632+198, 432),
		},
		{
			name: "text that is printed", paint: moving(30, 5, 2000, image.Rect(0, 0, 8, 16), 8), state: Settled, at: 2075,
			changed: image.Rect(0, 0, 67*8, 16),
		},
		{
			name: "small things all over the screen", paint: every(20, 5, forever, tiles(56)...), state: Changing, at: 3000,
			changed: image.Rect(0, 0, 7*150+60, 6*90+60), recurs: image.Rect(0, 0, 7*150+60, 2*90+60),
		},
		{name: "very many things", paint: every(20, 5, forever, tiles(65)...), state: Changing, at: 3000, changed: image.Rect(0, 0, 7*150+60, 8*90+60)},
		{
			name: "another size of the screen", paint: all(once(10, window), once(20, caret.Add(image.Pt(1000, 0)))), state: Settled, at: 140, changed: image.Rect(0, 0, 640, 480),
			screen: func(ms int) image.Rectangle {
				if ms < 50 {
					return screen
				}
				return image.Rect(0, 0, 640, 480)
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const interval = 5
			test.timing.Quiet = cmp.Or(test.timing.Quiet, 90*time.Millisecond) // which the times above are made for
			timing, err := test.timing.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			epoch := time.Now()
			at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
			h := history{screen: screen}
			h.mark(at(-10000))
			var pending []image.Rectangle
			size := screen
			look := func(ms int) {
				h.see(at(ms), pending, size)
				pending = nil
			}
			marks := append(test.marks, 0)
			for ms := -9999; ; ms++ {
				if test.paint != nil {
					pending = append(pending, test.paint(ms)...)
				}
				if test.screen != nil {
					size = test.screen(ms)
				}
				if len(marks) > 0 && ms == marks[0] {
					marks = marks[1:]
					look(ms)
					h.mark(at(ms))
				}
				if ms == test.touch && ms > 0 {
					look(ms)
					h.touch(at(ms))
				}
				if ms < test.looks || ms%interval != 0 {
					continue
				}
				look(ms)
				if ms <= 0 || ms < test.touch {
					continue
				}
				r, due := h.verdict(at(ms), at(test.touch), timing)
				if at(ms).Before(due) {
					continue
				}
				if r.State != test.state || ms != test.at || r.Changed != test.changed || r.Recurring != test.recurs {
					t.Errorf("at %d got %v, changed %v, recurring %v\nwant %d %v, %v, %v", ms, r.State, r.Changed, r.Recurring, test.at, test.state, test.changed, test.recurs)
				}
				return
			}
		})
	}
}
