package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"strings"
	"time"

	"golang.org/x/image/font/gofont/goregular"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/encode"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/scaling"
)

// A screenMeasurement measures pictures of one display.
type screenMeasurement struct {
	ctx     context.Context
	display string
	window  *witness.Window
	driver  *x11.Driver
	rounds  int
	rivals  []rival
	file    string      // that the rivals write
	desktop *image.RGBA // what the window shows
	screen  image.Rectangle
	size    image.Point // of the pictures
}

// A screenTask is one thing that is measured.
type screenTask struct {
	name     string
	do       func() (bytes int, err error)
	compared bool // with the rivals

	times []time.Duration
	bytes int
}

// measure does it once.
func (t *screenTask) measure() error {
	start := time.Now()
	bytes, err := t.do()
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	t.times = append(t.times, time.Since(start))
	t.bytes = bytes
	return nil
}

func (t *screenTask) row() screenRow {
	row := screenRow{Name: t.name, Rounds: len(t.times), Bytes: t.bytes}
	row.Median, row.P95 = quantiles(t.times)
	return row
}

// all measures every row, in the order of the table.
func (m *screenMeasurement) all() ([]screenRow, error) {
	if err := m.window.Show(m.desktop); err != nil {
		return nil, err
	}
	for _, size := range []image.Point{m.size, m.screen.Size()} {
		if err := m.check(size); err != nil {
			return nil, err
		}
	}
	ours, err := m.tasks()
	if err != nil {
		return nil, err
	}
	var theirs []*screenTask
	for _, r := range m.rivals {
		theirs = append(theirs, &screenTask{name: r.name, do: func() (int, error) { return m.runRival(r) }})
	}
	for round := range m.rounds {
		if err := m.tick(round); err != nil {
			return nil, err
		}
		tasks := ours
		if round%slow == 0 {
			tasks = append(ours[:len(ours):len(ours)], theirs...)
		}
		for _, t := range tasks {
			if err := t.measure(); err != nil {
				return nil, err
			}
		}
	}
	var rows []screenRow
	for _, t := range ours {
		row := t.row()
		if t.compared {
			row.Against = map[string]rivalRow{}
			for _, their := range theirs {
				r := their.row()
				row.Against[r.Name] = rivalRow{r.Rounds, r.Median, r.P95, r.Bytes, r.Median / row.Median}
			}
		}
		rows = append(rows, row)
	}
	rests, err := m.rests()
	return append(rows, rests...), err
}

// slow things are measured in one of so many rounds.
const slow = 4

// look takes a picture of a part of the screen in a size.
func (m *screenMeasurement) look(part image.Rectangle, size image.Point) (*driver.Frame, error) {
	return m.driver.View(m.ctx, func(driver.Scene) (image.Rectangle, image.Point, error) { return part, size, nil })
}

// url goes all the way from the screen to what a model gets.
func (m *screenMeasurement) url(size image.Point, encoder *encode.Encoder) (string, error) {
	frame, err := m.look(m.screen, size)
	if err != nil {
		return "", err
	}
	return encoder.DataURL(frame.Image)
}

// check makes sure that what a model would get is what the window shows.
func (m *screenMeasurement) check(size image.Point) error {
	mapping, err := scaling.New(m.screen, size)
	if err != nil {
		return err
	}
	encoder, err := encode.New(nil)
	if err != nil {
		return err
	}
	url, err := m.url(size, encoder)
	if err != nil {
		return err
	}
	got, err := decodeURL(url)
	if err != nil {
		return err
	}
	want, err := mapping.Picture(m.desktop)
	if err != nil {
		return err
	}
	if i := differ(got, want); i >= 0 {
		at := image.Pt(i/4%want.Rect.Dx(), i/4/want.Rect.Dx())
		return fmt.Errorf("the picture %v differs from what is on the screen, first at %v: got %v, want %v", mapping, at, got.At(at.X, at.Y), want.At(at.X, at.Y))
	}
	return nil
}

// decodeURL reads the picture in a data URL, a PNG without alpha.
func decodeURL(url string) (*image.RGBA, error) {
	text, ok := strings.CutPrefix(url, "data:image/png;base64,")
	if !ok {
		return nil, fmt.Errorf("decoding %.40q: no PNG", url)
	}
	decoded, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("decoding a PNG of %d characters: %w", len(text), err)
	}
	picture, ok := decoded.(*image.RGBA)
	if !ok {
		return nil, fmt.Errorf("decoding a PNG of %d characters: got a %T, want one without alpha", len(text), decoded)
	}
	return picture, nil
}

// differ is where the pixels of two pictures begin to differ, or -1.
func differ(a, b *image.RGBA) int {
	for i := range min(len(a.Pix), len(b.Pix)) {
		if a.Pix[i] != b.Pix[i] {
			return i
		}
	}
	if len(a.Pix) != len(b.Pix) {
		return min(len(a.Pix), len(b.Pix))
	}
	return -1
}

// tasks are what can be measured at any time, in the order of the table. They share the pictures and files that they make.
func (m *screenMeasurement) tasks() ([]*screenTask, error) {
	mapping, err := scaling.New(m.screen, m.size)
	if err != nil {
		return nil, err
	}
	smallEncoder, err := encode.New(nil)
	if err != nil {
		return nil, err
	}
	wholeEncoder, err := encode.New(nil)
	if err != nil {
		return nil, err
	}
	small := image.NewRGBA(image.Rectangle{Max: m.size})
	var frame *driver.Frame
	var file, photo, text []byte
	toURL := func(size image.Point, encoder *encode.Encoder) func() (int, error) {
		return func() (int, error) {
			url, err := m.url(size, encoder)
			return len(url), err
		}
	}
	tasks := []*screenTask{
		{name: "capture", do: func() (_ int, err error) {
			if frame, err = m.driver.Screenshot(m.ctx); err != nil {
				return 0, err
			}
			return len(frame.Image.Pix), nil
		}},
		{name: "scale to " + inPixels(m.size), do: func() (int, error) {
			source := scaling.Source{Pix: frame.Image.Pix, Stride: frame.Image.Stride, Bounds: frame.Area}
			return len(small.Pix), mapping.Draw(small, source)
		}},
		{name: "encode PNG", do: func() (_ int, err error) {
			file, err = encode.AppendPNG(file[:0], small)
			return len(file), err
		}},
		{name: "encode JPEG", do: func() (_ int, err error) {
			photo, err = encode.AppendJPEG(photo[:0], small, encode.DefaultQuality)
			return len(photo), err
		}},
		{name: "base64", do: func() (int, error) {
			text = encode.AppendDataURL(text[:0], encode.PNG, file)
			return len(text), nil
		}},
		{name: "screen to data URL", do: toURL(m.size, smallEncoder), compared: true},
		{name: "... of an unchanged one", do: toURL(m.size, smallEncoder)},
	}
	if m.size != m.screen.Size() {
		tasks = append(tasks, &screenTask{name: "... pixel for pixel", do: toURL(m.screen.Size(), wholeEncoder), compared: true})
	}
	return tasks, nil
}

// tick has the clock show the number of a round.
func (m *screenMeasurement) tick(round int) error {
	clock := image.Rect(10, 4, 130, 28).Intersect(m.desktop.Rect)
	d := canvas{RGBA: m.desktop.SubImage(clock).(*image.RGBA)}
	d.fill(clock, bar)
	d.write(image.Pt(16, 20), newFace(goregular.TTF), paper, fmt.Sprintf("round %d", round+1))
	return m.window.Show(d.RGBA)
}

// runRival has a rival take a picture, and returns the size of the file.
func (m *screenMeasurement) runRival(r rival) (int, error) {
	argv := r.argv(m.file)
	if out, err := onDisplay(m.ctx, m.display, argv...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("running %s: %w, its last words: %q", strings.Join(argv, " "), err, out)
	}
	info, err := os.Stat(m.file)
	if err != nil {
		return 0, err
	}
	return int(info.Size()), os.Remove(m.file)
}

// rests measures how soon a picture is taken after the screen has come to rest.
func (m *screenMeasurement) rests() (rows []screenRow, err error) {
	for _, t := range []struct {
		name      string
		animation time.Duration // how long the screen changes; negative if not at all
		want      driver.SettleState
	}{
		{"rest: nothing changes", -1, driver.Unchanged},
		{"rest: a change", 0, driver.Settled},
		{"rest: an animation", 700 * time.Millisecond, driver.Settled},
	} {
		task := screenTask{name: t.name}
		for range (m.rounds + slow - 1) / slow {
			took, err := m.rest(t.animation, t.want)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", t.name, err)
			}
			task.times = append(task.times, took)
		}
		rows = append(rows, task.row())
	}
	return rows, nil
}

// rest acts, has the screen change for some time, and tells how long after the last change the picture was taken. It has
// to show that change. Where this machine was so busy that the changes paused for long enough to look like rest, it is
// tried again.
func (m *screenMeasurement) rest(animation time.Duration, want driver.SettleState) (time.Duration, error) {
	const attempts, likeRest = 10, 50 * time.Millisecond // less than the SettleQuiet of the driver
	for attempt := 1; ; attempt++ {
		took, pause, err := m.tryRest(animation, want)
		if err == nil || pause < likeRest || attempt == attempts {
			return took, err
		}
	}
}

// tryRest is rest once. It also tells how long the changes paused at most.
func (m *screenMeasurement) tryRest(animation time.Duration, want driver.SettleState) (took, pause time.Duration, err error) {
	stage := image.Rect(0, 0, 400, 200).Add(image.Pt(20, 40)).Intersect(m.screen)
	if err := m.window.Show(m.desktop.SubImage(stage).(*image.RGBA)); err != nil {
		return 0, 0, err
	}
	// Let it come to rest, lest this change be taken for one that follows the action.
	if err := do(m.ctx, m.driver, driver.Move{X: stage.Max.X - 1, Y: stage.Max.Y - 1}); err != nil {
		return 0, 0, err
	}
	if _, err := m.look(stage, stage.Size()); err != nil {
		return 0, 0, err
	}

	if err := do(m.ctx, m.driver, driver.Move{X: stage.Min.X, Y: stage.Min.Y}); err != nil {
		return 0, 0, err
	}
	painting := paint(m.window, stage, animation)
	frame, err := m.look(stage, stage.Size())
	p := <-painting
	if err = errors.Join(err, p.err); err != nil {
		return 0, 0, err
	}
	took = frame.Taken.Sub(p.at)
	if frame.Settling.State != want || took < 0 {
		return 0, p.pause, fmt.Errorf("the picture was taken %v after the last change, of a screen that was %s; want %s", took, frame.Settling.State, want)
	}
	if !p.last.Empty() && frame.Image.RGBAAt(p.last.Min.X-stage.Min.X, 0) != ink {
		return 0, p.pause, fmt.Errorf("the picture does not show the last change, at %v", p.last)
	}
	return took, p.pause, nil
}

// painted is what paint has done.
type painted struct {
	at    time.Time       // of the last change, or of the call where there was none
	last  image.Rectangle // the last change
	pause time.Duration   // the longest time without one
	err   error
}

// paint fills a part of the window with ink, strip by strip, for some time: with one strip if that is zero, and with none
// if it is negative. It begins as late as a quick program, and sends what it has done when it has ended.
func paint(window *witness.Window, stage image.Rectangle, during time.Duration) <-chan painted {
	const frame, width = 16 * time.Millisecond, 8
	p := painted{at: time.Now()}
	ended := make(chan painted, 1)
	go func() {
		defer func() { ended <- p }()
		for start := p.at.Add(frame); during >= 0; {
			time.Sleep(frame)
			left := max(stage.Min.X, p.last.Max.X)
			strip := canvas{RGBA: image.NewRGBA(image.Rect(left, stage.Min.Y, left+width, stage.Max.Y))}
			strip.fill(strip.Rect, ink)
			if p.err = window.Show(strip.RGBA); p.err != nil {
				return
			}
			now := time.Now()
			p.pause = max(p.pause, now.Sub(p.at))
			p.at, p.last = now, strip.Rect
			if now.Sub(start) >= during {
				return
			}
		}
	}()
	return ended
}
