package x11_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"image"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/run"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// playthings are programs with things to drag, and what they say about it.
type playthings struct {
	places map[string][2]int
	said   chan map[string]json.RawMessage
}

func (p playthings) at(t *testing.T, place string) image.Point {
	t.Helper()
	xy, ok := p.places[place]
	if !ok {
		t.Fatalf("there is no %q among %v", place, p.places)
	}
	return image.Pt(xy[0], xy[1])
}

// hear waits until something has been said that is as wanted.
func (p playthings) hear(t *testing.T, name string, wanted func(value json.RawMessage) bool) {
	t.Helper()
	var last json.RawMessage
	for late := time.After(3 * time.Second); ; {
		select {
		case words := <-p.said:
			if value, ok := words[name]; ok {
				if last = value; wanted(value) {
					return
				}
			}
		case <-late:
			t.Errorf("%s: the last that was said is %.200q", name, last)
			return
		}
	}
}

// find waits for what a program says about its places.
func (p playthings) find(t *testing.T) {
	t.Helper()
	late := time.After(60 * time.Second)
	for {
		select {
		case words := <-p.said:
			var places map[string][2]int
			if words["places"] == nil {
				continue
			}
			if err := json.Unmarshal(words["places"], &places); err != nil {
				t.Fatal(err)
			}
			for name, at := range places {
				p.places[name] = at
			}
			return
		case <-late:
			t.Fatal("the program does not say where its things are")
		}
	}
}

func openPlaythings(t *testing.T, display, toolkit string) playthings {
	t.Helper()
	p := playthings{map[string][2]int{}, make(chan map[string]json.RawMessage, 10_000)}
	if toolkit == "Chromium" {
		openPage(t, display, p)
		p.find(t)
		return p
	}
	python := "/usr/bin/python3" // the one that the packages of the system are for
	if exec.CommandContext(t.Context(), python, "-c", "import gi; gi.require_version('Gtk', '3.0')").Run() != nil {
		t.Skip("needs GTK 3 for Python")
	}
	for _, part := range []string{"source", "target"} {
		r, w := io.Pipe()
		env := append(os.Environ(), "DISPLAY="+display, "NO_AT_BRIDGE=1", "LC_ALL=C.UTF-8")
		process, err := run.Start(t.Context(), []string{python, "testdata/drag.py", part}, &run.Options{Env: env, Output: w})
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan struct{})
		go func() {
			defer close(heard)
			for lines := bufio.NewScanner(r); lines.Scan(); {
				var words map[string]json.RawMessage
				if json.Unmarshal(lines.Bytes(), &words) == nil { // GTK has warnings to give, too.
					p.said <- words
				}
			}
		}()
		t.Cleanup(func() {
			process.Stop()
			w.Close()
			<-heard
		})
		p.find(t)
	}
	return p
}

func openPage(t *testing.T, display string, p playthings) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.ServeFile(w, r, "testdata/drag.html")
			return
		}
		var words map[string]json.RawMessage
		if json.NewDecoder(r.Body).Decode(&words) == nil {
			p.said <- words
		}
	}))
	profile, err := os.MkdirTemp("", "drag")
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{browser, "--app=" + server.URL, "--user-data-dir=" + profile, "--window-position=0,0", "--window-size=1000,700",
		"--ozone-platform=x11", "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--password-store=basic"}
	if os.Getuid() == 0 {
		argv = append(argv, "--no-sandbox") // It refuses to run as root with it.
	}
	process, err := run.Start(t.Context(), argv, &run.Options{Env: append(os.Environ(), "DISPLAY="+display)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Stop()
		server.CloseClientConnections()
		server.Close()
		for deadline := time.Now().Add(5 * time.Second); os.RemoveAll(profile) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // It goes on writing for a moment.
		}
	})
}

// TestDragBetweenWindows drags from a window of one plain X program into that of another. The press grabs the pointer for
// the first (X Window System Protocol, section 11, ButtonPress), which therefore gets all motion up to the release, over
// the other window too; that one gets nothing of it, and what comes after.
func TestDragBetweenWindows(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	from := witness.ForTestAt(t, server.Display(), image.Rect(20, 20, 220, 220))
	to := witness.ForTestAt(t, server.Display(), image.Rect(320, 120, 620, 420))
	begin, via, end := image.Pt(30, 40), image.Pt(270, 300), image.Pt(500, 200)
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		d := open(t, x11.Options{Display: server.Display(), Sink: sink})
		for _, a := range []driver.Action{
			driver.Drag{Path: []image.Point{begin, via, end}, Keys: []string{"SHIFT"}}, driver.Move{X: end.X + 1, Y: end.Y},
		} {
			if _, err := driver.Do(t.Context(), d, a); err != nil {
				t.Fatal(err)
			}
		}
		got := pointerEvents(t, from)
		if len(got) < 10 {
			t.Fatalf("the first window got %v, want a drag", got)
		}
		at := begin
		over := 0 // motions over the other window
		passed := false
		for i, e := range got {
			const shift, shiftAndLeft = xproto.ModMaskShift, xproto.ModMaskShift | xproto.ButtonMask1
			want := witness.Event{Kind: witness.Motion, State: shiftAndLeft, At: e.At}
			switch i {
			case 0:
				want = witness.Event{Kind: witness.Motion, State: shift, At: begin}
			case 1:
				want = witness.Event{Kind: witness.ButtonDown, Button: 1, State: shift, At: begin}
			case len(got) - 1:
				want = witness.Event{Kind: witness.ButtonUp, Button: 1, State: shiftAndLeft, At: end}
			}
			if e.Time = 0; e != want {
				t.Errorf("event %d: got %v in state %#x, want %v in %#x", i, e, e.State, want, want.State)
			}
			if step := length(e.At.Sub(at)); step > 9 {
				t.Errorf("event %d: %v is %.1f pixels from the last one, want 8 and the rounding", i, e, step)
			}
			at = e.At
			passed = passed || at == via
			if e.Kind == witness.Motion && at.In(image.Rect(320, 120, 620, 420)) {
				over++
			}
		}
		if over == 0 || !passed {
			t.Errorf("got %d motions over the other window, and the corner %v passed: %v", over, via, passed)
		}
		after := pointerEvents(t, to)
		if len(after) != 1 || after[0].Kind != witness.Motion || after[0].State != 0 || after[0].At != end.Add(image.Pt(1, 0)) {
			t.Errorf("the second window got %v, want only the motion after the drag", after)
		}
	})
}

func length(v image.Point) float64 { return math.Hypot(float64(v.X), float64(v.Y)) }

// pointerEvents are what a window has got of the pointer.
func pointerEvents(t *testing.T, window *witness.Window) []witness.Event {
	t.Helper()
	events, err := window.Events()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e witness.Event) bool { return e.Kind == witness.KeyDown || e.Kind == witness.KeyUp })
}

// TestDrags drags what people drag, in GTK and in Chromium: a slider, over a text, a pen, and a thing to where it is to
// be dropped, which for GTK is another program. Each has its own idea of when a drag begins, and where it ends.
func TestDrags(t *testing.T) {
	long(t)
	for _, toolkit := range []string{"GTK", "Chromium"} {
		t.Run(toolkit, func(t *testing.T) {
			desktop := apptest.NewDesktop(t)
			p := openPlaythings(t, desktop.Display(), toolkit)
			eachSink(t, func(t *testing.T, sink x11.Sink) {
				d := open(t, x11.Options{Display: desktop.Display(), Sink: sink})
				drag := func(path ...image.Point) {
					t.Helper()
					if err := d.Drag(t.Context(), driver.Drag{Path: path}); err != nil {
						t.Fatal(err)
					}
				}
				is := func(want string) func(json.RawMessage) bool {
					return func(value json.RawMessage) bool { return string(value) == want }
				}
				knob, right := p.at(t, "knob"), p.at(t, "right of the slider")
				drag(knob, right)
				p.hear(t, "slider", func(value json.RawMessage) bool { return slices.Contains([]string{"100", "100.0"}, string(value)) })
				drag(right.Sub(image.Pt(28, 0)), knob.Sub(image.Pt(20, 0)))
				p.hear(t, "slider", func(value json.RawMessage) bool { return slices.Contains([]string{"0", "0.0"}, string(value)) })

				drag(p.at(t, "begin of the text"), p.at(t, "end of the text"))
				p.hear(t, "selected", is(`"choose these words"`))

				corner := p.at(t, "sheet")
				stroke := []image.Point{corner.Add(image.Pt(20, 20)), corner.Add(image.Pt(200, 90)), corner.Add(image.Pt(300, 25)), corner.Add(image.Pt(21, 90))}
				drag(stroke...)
				tries := 1
				p.hear(t, "drawn", func(value json.RawMessage) bool {
					err := follows(value, stroke)
					if err != nil && tries < 4 {
						tries++ // A program that does not get to run for a moment cuts a corner.
						drag(stroke...)
						return false
					}
					if err != nil {
						t.Error(err)
					}
					return true
				})

				drag(p.at(t, "parcel"), p.at(t, "door"))
				p.hear(t, "dropped", is(`"parcel"`))
				// Selecting again begins with letting go of what was selected.
				if err := d.Click(t.Context(), driver.Click{X: stroke[0].X, Y: stroke[0].Y, Button: driver.ButtonLeft}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// follows tells whether a line that was drawn goes by the points of a path, all of them, from end to end.
func follows(drawn json.RawMessage, path []image.Point) error {
	var line [][2]int
	if err := json.Unmarshal(drawn, &line); err != nil {
		return err
	}
	next := 0
	for _, xy := range line {
		if next < len(path) && image.Pt(xy[0], xy[1]) == path[next] {
			next++
		}
	}
	if next < len(path) {
		return fmt.Errorf("the line does not get to %v: %v", path[next], line)
	}
	return nil
}
