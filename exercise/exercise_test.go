package exercise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/internal/xvfb"
	"github.com/deskagent/deskagent/scaling"
)

// run runs an exercise on a private display, or skips the test where there is no Xvfb.
func run(t *testing.T, opts *Options) *Report {
	t.Helper()
	report, err := Run(t.Context(), opts)
	if errors.Is(err, xvfb.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// half shows the window alone, at half its size: the smaller the pictures, the sooner it is done.
var half = scaling.View{Size: app.Size.Div(2)}

// quick is an exercise on a display that the window fills.
func quick(o Options) *Options {
	o.View, o.Sink = half, x11.SinkXTEST
	if o.Display == "" {
		o.Width, o.Height = app.Size.X, app.Size.Y
	}
	return &o
}

// skipRace keeps the race detector to one run of each kind. It makes them ten times as slow, and the goroutines are
// the same in all.
func skipRace(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("takes too long with the race detector, which finds no more here than elsewhere")
	}
}

// TestRun is the exercise at the three sizes that it has to pass at, and where it is easy to go wrong: with the
// window in a corner (row M8 of the field cases), with a picture of uneven scale (X1) and a crop (X7), on both sinks.
func TestRun(t *testing.T) {
	at := func(x, y int) *image.Point { return &image.Point{X: x, Y: y} }
	for _, test := range []struct {
		name string
		opts Options
	}{
		{"1280x800", Options{Seed: 1}},
		{"1920x1080 as 1280x720", Options{Seed: 2, Width: 1920, Height: 1080, View: scaling.View{Size: image.Pt(1280, 720)}}},
		{"2560x1600 cropped", Options{Seed: 3, Width: 2560, Height: 1600,
			View: scaling.View{Crop: image.Rect(400, 300, 2000, 1300), Size: image.Pt(1280, 800)}}},
		{"M8 in the upper left corner", Options{Seed: 4, At: at(0, 0), Sink: x11.SinkXTEST}},
		{"in the lower right corner", Options{Seed: 5, At: at(280, 160), Sink: x11.SinkXTEST}},
		{"X1 X7 at half the size", Options{Seed: 6, Width: 2561, Height: 1603, At: at(777, 555), Sink: x11.SinkXTEST,
			View: scaling.View{Crop: image.Rect(501, 403, 2101, 1403), Size: image.Pt(801, 500)}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.opts.Seed != 1 {
				skipRace(t)
			}
			report := run(t, &test.opts)
			t.Log(report)
			if !report.Pass || report.Reason != "" {
				t.Errorf("got %v, want it to pass", report)
			}
			for _, kind := range driver.Kinds() {
				if report.Kinds[kind].Count == 0 {
					t.Errorf("the model did not use %s", kind)
				}
			}
			if report.Asked.Checks != 2 || report.Asked.Actions < report.Actions {
				t.Errorf("got %+v asked, want 2 checks and each of %d actions", report.Asked, report.Actions)
			}
			if report.Pictures != report.Steps-1 || report.PictureBytes < 1000*report.Pictures || report.Tokens.Incomplete || report.Tokens.InputTokens < 1000 {
				t.Errorf("got %d pictures of %d bytes and tokens %+v in %d steps", report.Pictures, report.PictureBytes, report.Tokens, report.Steps)
			}
		})
	}
}

// TestOut looks at what is kept.
func TestOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Left over from a longer run.
	if err := os.WriteFile(filepath.Join(dir, "step-99.png"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	report := run(t, quick(Options{Seed: 7, Out: dir}))
	var want []string
	for step := 1; step <= report.Steps; step++ {
		want = append(want, fmt.Sprintf("step-%02d.json", step))
		if step < report.Steps { // there is no picture after the last word
			want = append(want, fmt.Sprintf("step-%02d.png", step))
		}
	}
	want = append(want, "events.jsonl", "record.json", "report.json")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got files %v, want %v", got, want)
	}
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if p, err := png.Decode(bytes.NewReader(read("step-01.png"))); err != nil || p.Bounds().Size() != half.Size {
		t.Errorf("got picture %v, %v, want one of %v", p, err, half.Size)
	}
	var said []struct{ Actions []json.RawMessage }
	if err := json.Unmarshal(read("step-01.json"), &said); err != nil || len(said) != 1 || len(said[0].Actions) != 1 {
		t.Errorf("got calls %v, %v, want one with one action", said, err)
	}
	var back struct{ Pass *bool }
	if err := json.Unmarshal(read("report.json"), &back); err != nil || back.Pass == nil || *back.Pass != report.Pass {
		t.Errorf("got report %s, %v, want a top-level pass of %v", read("report.json"), err, report.Pass)
	}
	// Rows T22 and T23 of the field cases: what shells and option parsers stumble over arrived as it was.
	var record app.Record
	if err := json.Unmarshal(read("record.json"), &record); err != nil || record.Notes != app.NewChallenge(7).Notes || !strings.HasPrefix(record.Notes, "--it's ") {
		t.Errorf("got record %+v, %v, want the notes %q", record, err, app.NewChallenge(7).Notes)
	}
	if got := bytes.Count(read("events.jsonl"), []byte("\n")); got < report.Events {
		t.Errorf("got %d events in the log, want the %d that were checked", got, report.Events)
	}
}

// faulty is a driver with one thing wrong with it.
type faulty struct {
	driver.Driver
	click       func(driver.Click) driver.Click
	doubleClick func(context.Context, driver.DoubleClick) error
	drag        func(driver.Drag) driver.Drag
	typed       func(driver.Type) driver.Type
	scroll      func(driver.Scroll) driver.Scroll
	after       func() // each click
}

func (f faulty) Click(ctx context.Context, a driver.Click) error {
	if f.click != nil {
		a = f.click(a)
	}
	err := f.Driver.Click(ctx, a)
	if f.after != nil {
		f.after()
	}
	return err
}

func (f faulty) DoubleClick(ctx context.Context, a driver.DoubleClick) error {
	if f.doubleClick != nil {
		return f.doubleClick(ctx, a)
	}
	return f.Driver.DoubleClick(ctx, a)
}

func (f faulty) Drag(ctx context.Context, a driver.Drag) error {
	if f.drag != nil {
		a = f.drag(a)
	}
	return f.Driver.Drag(ctx, a)
}

func (f faulty) Type(ctx context.Context, a driver.Type) error {
	if f.typed != nil {
		a = f.typed(a)
	}
	return f.Driver.Type(ctx, a)
}

func (f faulty) Scroll(ctx context.Context, a driver.Scroll) error {
	if f.scroll != nil {
		a = f.scroll(a)
	}
	return f.Driver.Scroll(ctx, a)
}

// TestFaults makes the driver go wrong in one way at a time: the exercise is not to pass, and to say why.
func TestFaults(t *testing.T) {
	skipRace(t)
	button := func(from, to driver.Button) func(driver.Click) driver.Click {
		return func(a driver.Click) driver.Click {
			if a.Button == from {
				a.Button = to
			}
			return a
		}
	}
	for _, test := range []struct {
		name  string
		fault faulty
		want  []string
	}{
		{"M1 back for forward", faulty{click: button(driver.ButtonForward, driver.ButtonBack)}, []string{"want button_press of button 9"}},
		{"M2 left for wheel", faulty{click: button(driver.ButtonWheel, driver.ButtonLeft)}, []string{"want button_press of button 2", "the record was not saved"}},
		{"a pixel off", faulty{click: func(a driver.Click) driver.Click { a.X++; return a }}, []string{"want button_press of button"}},
		{"keys not held", faulty{click: func(a driver.Click) driver.Click { a.Keys = nil; return a }}, []string{"want key_press of"}},
		{"M5 drag ends elsewhere", faulty{drag: func(a driver.Drag) driver.Drag {
			// Two pixels are within what the slider forgives, so only the events can tell.
			a.Path = append(a.Path[:len(a.Path)-1:len(a.Path)-1], a.Path[len(a.Path)-1].Sub(image.Pt(2, 0)))
			return a
		}}, []string{"drag", "want it to come to"}},
		{"T23 dashes lost", faulty{typed: func(a driver.Type) driver.Type { a.Text = strings.TrimLeft(a.Text, "-"); return a }},
			[]string{"still to be typed", "the record was not saved"}},
		{"S5 the wrong way", faulty{scroll: func(a driver.Scroll) driver.Scroll { a.ScrollX, a.ScrollY = -a.ScrollX, -a.ScrollY; return a }},
			[]string{"notch 1 of", "want button_press of button"}},
		{"S1 a notch a pixel", faulty{scroll: func(a driver.Scroll) driver.Scroll { a.ScrollX, a.ScrollY = 5*a.ScrollX, 5*a.ScrollY; return a }},
			[]string{"want button_press of button"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			report := run(t, quick(Options{Seed: 8, wrap: func(d driver.Driver) driver.Driver {
				test.fault.Driver = d
				return test.fault
			}}))
			if report.Pass || report.Reason == "" {
				t.Errorf("got %v, want it to fail", report)
			}
			for _, want := range test.want {
				if !strings.Contains(report.Reason, want) {
					t.Errorf("got reason %s, want %q in it", report.Reason, want)
				}
			}
		})
	}
}

// TestFaultsOfOthers lets a second client do what a driver with a fault would.
func TestFaultsOfOthers(t *testing.T) {
	skipRace(t)
	for _, test := range []struct {
		name         string
		kind, detail byte
		up           byte // what ends it; zero leaves it down
		want         []string
	}{
		{"K4 a key left down", xproto.KeyPress, 50, 0, []string{"the key with code 50 is still down", "never released"}},
		{"M11 a button left down", xproto.ButtonPress, 1, 0, []string{"buttons are still down", "never released"}},
		{"one click too many", xproto.ButtonPress, 1, xproto.ButtonRelease, []string{"more than was asked for"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := xvfb.ForTest(t, app.Size.X, app.Size.Y)
			conn, err := xgb.NewConnDisplay(server.Display())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := xtest.Init(conn); err != nil {
				t.Fatal(err)
			}
			interfere := func() {
				for _, kind := range []byte{test.kind, test.up} {
					if kind == 0 {
						continue
					}
					if err := xtest.FakeInputChecked(conn, kind, test.detail, 0, xproto.WindowNone, 0, 0, 0).Check(); err != nil {
						t.Error(err)
					}
				}
			}
			// The last click is the one that saves: it comes with safety checks.
			checked := false
			report := run(t, quick(Options{Seed: 9, Display: server.Display(),
				Approver: approve.Func(func(_ context.Context, r approve.Request) (approve.Decision, error) {
					checked = checked || len(r.Checks) > 0
					return approve.Allow, nil
				}),
				wrap: func(d driver.Driver) driver.Driver {
					return faulty{Driver: d, after: func() {
						if checked {
							interfere()
						}
					}}
				}}))
			if report.Pass {
				t.Error("got a pass, want it to fail")
			}
			for _, want := range test.want {
				if !strings.Contains(report.Reason, want) {
					t.Errorf("got reason %s, want %q in it", report.Reason, want)
				}
			}
		})
	}
}

// TestApproval says no: to everything (row A1), and only to the safety checks (row A4). Nothing happens after a no
// (row A11).
func TestApproval(t *testing.T) {
	for _, test := range []struct {
		name     string
		approver approve.Approver
		clicks   bool
	}{
		{"A1 A11 deny all", approve.DenyAll, false},
		{"A4 deny the checks", approve.AllowActions, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			report := run(t, quick(Options{Seed: 10, Approver: test.approver, Out: dir}))
			if report.Pass || !strings.Contains(report.Reason, approve.ErrDenied.Error()) || !strings.Contains(report.Reason, "the record was not saved") {
				t.Errorf("got %v, want it to fail for want of approval", report)
			}
			events, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			if got := bytes.Contains(events, []byte("button_press")); got != test.clicks {
				t.Errorf("clicks arrived: got %v, want %v", got, test.clicks)
			}
		})
	}
}

// leftOver waits until no more goroutines are there than before and returns how many there are.
func leftOver(before int) (extra int) {
	for range 100 {
		if extra = runtime.NumGoroutine() - before; extra <= 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return extra
}

// TestCancel cancels in the middle: Run returns soon, and nothing of it is left.
func TestCancel(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough of that")
	var at time.Time
	asked := 0
	report, err := Run(ctx, quick(Options{Seed: 11,
		Approver: approve.Func(func(context.Context, approve.Request) (approve.Decision, error) {
			if asked++; asked == 10 {
				at = time.Now()
				cancel(enough)
			}
			return approve.Allow, nil
		}),
	}))
	if errors.Is(err, xvfb.ErrMissing) {
		t.Skip(err)
	}
	if took := time.Since(at); took > time.Second {
		t.Errorf("Run returned %v after it was cancelled, want it at once", took)
	}
	if !errors.Is(err, enough) || report != nil {
		t.Errorf("got %v, %v, want no report and the cause", report, err)
	}
	if extra := leftOver(before); extra > 0 {
		t.Errorf("%d goroutines are left", extra)
	}
}

// TestDisplayLost takes the display away in the middle.
func TestDisplayLost(t *testing.T) {
	server := xvfb.ForTest(t, app.Size.X, app.Size.Y)
	before := runtime.NumGoroutine()
	asked := 0
	report := run(t, quick(Options{Seed: 12, Display: server.Display(),
		Approver: approve.Func(func(context.Context, approve.Request) (approve.Decision, error) {
			if asked++; asked == 10 {
				server.Kill()
			}
			return approve.Allow, nil
		}),
	}))
	if report.Pass || !strings.Contains(report.Reason, "display") {
		t.Errorf("got %v, want it to fail for want of a display", report)
	}
	if extra := leftOver(before); extra > 0 {
		t.Errorf("%d goroutines are left", extra)
	}
}

func TestRunRefuses(t *testing.T) {
	server := xvfb.ForTest(t, 1280, 800)
	for name, opts := range map[string]*Options{
		"a size for a display that has one": {Display: server.Display(), Width: 1280},
		"a negative size":                   {Width: -1},
		"no such display":                   {Display: ":4095"},
		"a crop beyond the screen":          {Display: server.Display(), View: scaling.View{Crop: image.Rect(0, 0, 1281, 800)}},
		"a crop smaller than the window":    {Display: server.Display(), View: scaling.View{Crop: image.Rect(0, 0, 900, 800)}},
		"a window beyond the crop":          {Display: server.Display(), View: scaling.View{Crop: image.Rect(100, 0, 1280, 800)}, At: &image.Point{}},
		"an unknown sink":                   {Display: server.Display(), Sink: "telepathy"},
	} {
		if report, err := Run(t.Context(), opts); err == nil {
			t.Errorf("%s: got %v, want an error", name, report)
		}
	}
}
