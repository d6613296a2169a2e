package main

import (
	"context"
	"fmt"
	"image"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
)

// A task is one thing that is measured. Its functions are given the number of the round.
type task struct {
	name    string
	action  func(round int) driver.Action
	xdotool func(round int) []string // the same, as its arguments
	want    func(round int) string   // what the window sees, in the words of seen
	isText  bool
}

// place is a point far from that of the round before: two double clicks at one place have to wait for each other.
func place(round int) image.Point { return image.Pt(100+50*(round%4), 100+50*(round/4%3)) }

// aside is a point far from every place, for double clicks after clicks.
func aside(round int) image.Point { return place(round).Add(image.Pt(25, 25)) }

// benchTasks are in the order of the table.
func benchTasks() []task {
	const notches = 25
	end := image.Pt(400, 300)
	tasks := []task{
		{
			name: "click",
			action: func(i int) driver.Action {
				return driver.Click{X: place(i).X, Y: place(i).Y, Button: driver.ButtonLeft}
			},
			xdotool: func(i int) []string { return append(moveTo(place(i)), "click", "1") },
			want:    func(i int) string { return clicks(1, 1, place(i)) },
		},
		{
			name:    "double click",
			action:  func(i int) driver.Action { return driver.DoubleClick{X: aside(i).X, Y: aside(i).Y} },
			xdotool: func(i int) []string { return append(moveTo(aside(i)), "click", "--repeat", "2", "--delay", "50", "1") },
			want:    func(i int) string { return clicks(2, 1, aside(i)) },
		},
		{
			name:    "chord",
			action:  func(int) driver.Action { return driver.Keypress{Keys: []string{"CTRL", "SHIFT", "T"}} },
			xdotool: func(int) []string { return []string{"key", "ctrl+shift+t"} },
			want:    func(int) string { return "Control_L Shift_L t" },
		},
		{
			name:   "drag",
			action: func(i int) driver.Action { return driver.Drag{Path: []image.Point{place(i), end}} },
			xdotool: func(i int) []string {
				argv := append(moveTo(place(i)), "mousedown", "1", "sleep", "0.01")
				const steps = 40 // which it has none of itself
				for s := 1; s <= steps; s++ {
					argv = append(append(argv, moveTo(place(i).Add(end.Sub(place(i)).Mul(s).Div(steps)))...), "sleep", "0.003")
				}
				return append(argv, "sleep", "0.01", "mouseup", "1")
			},
			want: func(int) string { return clicks(1, 1, end) },
		},
		{
			name:   "scroll 3000 px",
			action: func(i int) driver.Action { return driver.Scroll{X: place(i).X, Y: place(i).Y, ScrollY: 3000} },
			xdotool: func(i int) []string {
				return append(moveTo(place(i)), "click", "--repeat", fmt.Sprint(notches), "--delay", "3", "5")
			},
			want: func(i int) string { return clicks(notches, 5, place(i)) },
		},
	}
	for _, text := range []struct {
		name, sample string
		length       int
		delay        []string // of xdotool between two characters
	}{
		{"10,000 ASCII", "The quick brown fox (No. 7) jumps over 13 lazy dogs; really? ", 10_000, []string{"--delay", "0"}},
		{"1,000 Cyrillic", "Съешь ещё этих мягких французских булок, да выпей чаю. ", 1000, nil},
		{"1,000 CJK", "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜", 1000, nil},
	} {
		sample := []rune(text.sample)
		all := string([]rune(strings.Repeat(text.sample, text.length/len(sample)+1))[:text.length])
		tasks = append(tasks, task{
			name:    text.name,
			action:  func(int) driver.Action { return driver.Type{Text: all} },
			xdotool: func(int) []string { return slices.Concat([]string{"type"}, text.delay, []string{all}) },
			want:    func(int) string { return all },
			isText:  true,
		})
	}
	return tasks
}

func moveTo(p image.Point) []string { return []string{"mousemove", fmt.Sprint(p.X), fmt.Sprint(p.Y)} }

// clicks is what the window sees of n clicks.
func clicks(n, button int, at image.Point) string {
	return strings.TrimSpace(strings.Repeat(fmt.Sprintf("button %d to %v ", button, at), n))
}

// seen tells what a window got: the text, or else the presses, and for buttons where they were let go.
func seen(events []witness.Event, isText bool) string {
	var words []string
	var text strings.Builder
	for _, e := range events {
		switch e.Kind {
		case witness.KeyDown:
			words = append(words, e.Key.String())
			if e.Text != 0 {
				text.WriteRune(e.Text)
			}
		case witness.ButtonDown:
			words = append(words, fmt.Sprintf("button %d", e.Button))
		case witness.ButtonUp:
			words = append(words, fmt.Sprintf("to %v", e.At))
		}
	}
	if isText {
		return text.String()
	}
	return strings.Join(words, " ")
}

// A measurement measures tasks on one display.
type measurement struct {
	ctx     context.Context
	display string
	window  *witness.Window
	rounds  int
	xdotool string // empty for no comparison
	say     func(what string)
}

// all measures every task, and tells which sink the driver used.
func (m *measurement) all(opts x11.Options) (x11.Sink, []benchRow, error) {
	tasks := benchTasks()
	own, err := m.allOwn(opts, tasks)
	if err != nil {
		return "", nil, err
	}
	d, err := x11.Open(m.ctx, &opts)
	if err != nil {
		return "", nil, err
	}
	defer d.Close()
	var rows []benchRow
	for i, t := range tasks {
		m.say(t.name)
		row, err := m.row(d, t)
		if err != nil {
			return "", nil, fmt.Errorf("measuring %s: %w", t.name, err)
		}
		row.Own = own[i]
		rows = append(rows, row)
	}
	return d.Sink(), rows, d.Close()
}

// allOwn measures how long the calls take of the tasks that have pauses, without the pauses. The driver is one of its
// own, as pauses are settings.
func (m *measurement) allOwn(opts x11.Options, tasks []task) ([]*float64, error) {
	const none = time.Nanosecond
	opts.Hold, opts.DoubleClickGap, opts.DragPace, opts.ScrollPace = none, none, none, none
	d, err := x11.Open(m.ctx, &opts)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	own := make([]*float64, len(tasks))
	for i, t := range tasks {
		if t.isText {
			continue
		}
		var times []time.Duration
		for round := range m.rounds {
			start := time.Now()
			if err := do(m.ctx, d, t.action(round)); err != nil {
				return nil, fmt.Errorf("measuring %s: %w", t.name, err)
			}
			times = append(times, time.Since(start))
		}
		median, _ := quantiles(times)
		own[i] = &median
	}
	return own, d.Close()
}

// row measures one task, deskagent and xdotool in turns.
func (m *measurement) row(d driver.Driver, t task) (benchRow, error) {
	rounds := m.rounds
	if t.isText {
		rounds = max(3, rounds/10)
	}
	var ours, theirs []time.Duration
	exact := 0
	for round := range rounds {
		took, got, err := m.time(t, func() error { return do(m.ctx, d, t.action(round)) })
		if err != nil {
			return benchRow{}, err
		}
		if want := t.want(round); got != want {
			return benchRow{}, fmt.Errorf("the window got %.80q, want %.80q", got, want)
		}
		ours = append(ours, took)
		if m.xdotool == "" {
			continue
		}
		argv := append([]string{m.xdotool}, t.xdotool(round)...)
		took, got, err = m.time(t, func() error {
			if out, err := onDisplay(m.ctx, m.display, argv...).CombinedOutput(); err != nil {
				return fmt.Errorf("running %s %s: %w, its last words: %q", argv[0], argv[1], err, out)
			}
			return nil
		})
		if err != nil {
			return benchRow{}, err
		}
		theirs = append(theirs, took)
		if got == t.want(round) {
			exact++
		}
	}
	row := benchRow{Name: t.name, Rounds: rounds}
	row.Median, row.P95 = quantiles(ours)
	if m.xdotool != "" {
		x := &xdoRow{Exact: exact}
		x.Median, x.P95 = quantiles(theirs)
		x.Ratio = x.Median / row.Median
		row.Xdotool = x
	}
	return row, nil
}

// time does something and tells how long it took until the window had all of it, and what that was.
func (m *measurement) time(t task, do func() error) (time.Duration, string, error) {
	if _, err := m.window.Events(); err != nil { // what is left of before
		return 0, "", err
	}
	start := time.Now()
	if err := do(); err != nil {
		return 0, "", err
	}
	events, err := m.window.Events()
	return time.Since(start), seen(events, t.isText), err
}

func do(ctx context.Context, d driver.Driver, a driver.Action) error {
	_, err := driver.Do(ctx, d, a)
	return err
}

// onDisplay is a command on a display. In another locale xdotool does not read UTF-8.
func onDisplay(ctx context.Context, display string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DISPLAY="+display, "LC_ALL=C.UTF-8")
	return cmd
}

// quantiles are the median and the time that 95 % of the times are within, in milliseconds.
func quantiles(times []time.Duration) (median, p95 float64) {
	sorted := slices.Sorted(slices.Values(times))
	ms := func(t time.Duration) float64 { return float64(t.Microseconds()) / 1000 }
	return ms(sorted[(len(sorted)-1)/2]), ms(sorted[(95*len(sorted)+99)/100-1])
}
