package clipboard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// A program is another client, which owns the clipboard or asks for it.
type program struct {
	*display.Conn
	window xproto.Window
}

func newProgram(t *testing.T, name string) program {
	t.Helper()
	conn, err := display.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	window, err := xproto.NewWindowId(conn.X)
	if err != nil {
		t.Fatal(err)
	}
	xproto.CreateWindow(conn.X, 0, window, conn.Screen.Root, 0, 0, 1, 1, 0, xproto.WindowClassInputOnly, 0, xproto.CwEventMask, []uint32{xproto.EventMaskPropertyChange})
	return program{conn, window}
}

// atom may be called from any goroutine.
func (p program) atom(t *testing.T, name string) xproto.Atom {
	t.Helper()
	r, err := xproto.InternAtom(p.X, false, uint16(len(name)), name).Reply()
	if err != nil {
		t.Error(err)
		return xproto.AtomNone
	}
	return r.Atom
}

// own takes the clipboard, and answers each request with a property of what give returns, or not at all when it returns
// false. It returns the names of the targets that it was asked for, when it has ended.
func (p program) own(t *testing.T, give func(target string) (kind string, format byte, data []byte, answer bool)) (asked func() []string) {
	t.Helper()
	xproto.SetSelectionOwner(p.X, p.window, p.atom(t, "CLIPBOARD"), xproto.TimeCurrentTime)
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	var names []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			event, fault := p.X.WaitForEvent()
			if event == nil && fault == nil {
				return
			}
			e, ok := event.(xproto.SelectionRequestEvent)
			if !ok {
				continue
			}
			name, err := xproto.GetAtomName(p.X, e.Target).Reply()
			if err != nil {
				return
			}
			names = append(names, name.Name)
			kind, format, data, answers := give(name.Name)
			if !answers {
				continue
			}
			property := xproto.Atom(xproto.AtomNone)
			if kind != "" {
				property = e.Property
				xproto.ChangeProperty(p.X, xproto.PropModeReplace, e.Requestor, property, p.atom(t, kind), format, uint32(len(data)/int(format/8)), data)
			}
			notify := xproto.SelectionNotifyEvent{Time: e.Time, Requestor: e.Requestor, Selection: e.Selection, Target: e.Target, Property: property}
			xproto.SendEvent(p.X, false, e.Requestor, xproto.EventMaskNoEvent, string(notify.Bytes()))
		}
	}()
	return func() []string {
		p.Close()
		<-ended
		return names
	}
}

// ask asks for the clipboard in a target; the kind is empty when it is refused.
func (p program) ask(t *testing.T, target string, when xproto.Timestamp) (kind string, data []byte) {
	t.Helper()
	property := p.atom(t, "ANSWER")
	xproto.ConvertSelection(p.X, p.window, p.atom(t, "CLIPBOARD"), p.atom(t, target), property, when)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var answer xproto.SelectionNotifyEvent
	err := p.Await(ctx, func(event xgb.Event) (ok bool) {
		answer, ok = event.(xproto.SelectionNotifyEvent)
		return ok
	})
	if err != nil {
		t.Fatalf("asking for %s: %v", target, err)
	}
	if answer.Property == xproto.AtomNone {
		return "", nil
	}
	r, err := xproto.GetProperty(p.X, true, p.window, property, xproto.GetPropertyTypeAny, 0, 1<<20).Reply()
	if err != nil {
		t.Fatal(err)
	}
	name, err := xproto.GetAtomName(p.X, r.Type).Reply()
	if err != nil {
		t.Fatal(err)
	}
	return name.Name, r.Value
}

// newRig returns a display, a clipboard on it and a program that pastes.
func newRig(t *testing.T) (server *xvfb.Server, c *Clipboard, paster program) {
	t.Helper()
	server = xvfb.ForTest(t, 64, 64)
	c, err := Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, c, newProgram(t, server.Display())
}

// list is a list of targets, as bytes.
func (p program) list(t *testing.T, names ...string) (data []byte) {
	for _, name := range names {
		data = append(data, words(uint32(p.atom(t, name)))...)
	}
	return data
}

// TestTargets asks for a text in all targets that there are, and in some that there are not.
func TestTargets(t *testing.T) {
	for _, text := range []string{"caf\u00e9\n", "中文"} {
		_, c, p := newRig(t)
		if _, err := c.Lend(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		tests := []struct{ target, kind, data string }{
			{"UTF8_STRING", "UTF8_STRING", text}, {"TEXT", "UTF8_STRING", text},
			{"text/plain;charset=utf-8", "text/plain;charset=utf-8", text}, {"image/png", "", ""}, {"STRING", "", ""},
		}
		names := []string{"TARGETS", "MULTIPLE", "TIMESTAMP", "UTF8_STRING", "text/plain;charset=utf-8", "TEXT"}
		if text != "中文" {
			tests[len(tests)-1].kind, tests[len(tests)-1].data = "STRING", "caf\xe9\n"
			names = append(names, "STRING")
		}
		for _, test := range tests {
			if kind, data := p.ask(t, test.target, xproto.TimeCurrentTime); kind != test.kind || string(data) != test.data {
				t.Errorf("%s: got %q of %q, want %q of %q", test.target, data, kind, test.data, test.kind)
			}
		}
		if kind, data := p.ask(t, "TARGETS", xproto.TimeCurrentTime); kind != "ATOM" || string(data) != string(p.list(t, names...)) {
			t.Errorf("got targets %v of %q, want %q", data, kind, names)
		}
		kind, data := p.ask(t, "TIMESTAMP", xproto.TimeCurrentTime)
		if kind != "INTEGER" || len(data) != 4 {
			t.Fatalf("got timestamp %v of %q", data, kind)
		}
		since := xproto.Timestamp(xgb.Get32(data))
		if kind, _ := p.ask(t, "UTF8_STRING", since); kind == "" {
			t.Error("refused at the time when it was acquired")
		}
		if kind, _ := p.ask(t, "UTF8_STRING", since-1); kind != "" {
			t.Error("given to one who asked about before it was acquired")
		}
		if err := c.Return(); err != nil {
			t.Error(err)
		}
		if kind, _ := p.ask(t, "UTF8_STRING", xproto.TimeCurrentTime); kind != "" {
			t.Error("the clipboard is not empty afterwards")
		}
	}
}

// TestSaved lends from owners of many kinds, and looks at what is there again and what was said to be lost.
func TestSaved(t *testing.T) {
	wide := strings.Repeat("abcd", 50_000)
	for _, test := range []struct {
		name string
		give func(p program, target string) (kind string, format byte, data []byte, answer bool)
		want map[string]string // data by target, afterwards
		lost []string
	}{
		{"many targets", func(p program, target string) (string, byte, []byte, bool) {
			switch target {
			case "TARGETS":
				return "ATOM", 32, p.list(t, "TARGETS", "DELETE", "INSERT_SELECTION", "SAVE_TARGETS", "MULTIPLE", "TIMESTAMP", "text/html", "image/png", "PIXMAP", "LENGTH", "bad"), true
			case "text/html":
				return "text/html", 8, []byte("<b>"), true
			case "image/png":
				return "image/png", 8, []byte(wide), true
			case "PIXMAP":
				return "PIXMAP", 32, words(7), true
			case "LENGTH":
				return "INTEGER", 32, words(3), true
			}
			return "", 8, nil, true
		}, map[string]string{"text/html": "<b>", "image/png": wide, "LENGTH": string(words(3)), "PIXMAP": "", "bad": ""},
			[]string{"PIXMAP: " + errHandle.Error(), "bad: " + errRefused.Error()}},
		{"no list of targets", func(p program, target string) (string, byte, []byte, bool) {
			if target == "STRING" {
				return "STRING", 8, []byte("old"), true
			}
			return "", 8, nil, true
		}, map[string]string{"STRING": "old", "UTF8_STRING": ""}, []string{"UTF8_STRING: " + errRefused.Error()}},
		{"hangs", func(p program, target string) (string, byte, []byte, bool) {
			switch target {
			case "TARGETS":
				return "ATOM", 32, p.list(t, "STRING", "hard", "more"), true
			case "STRING":
				return "STRING", 8, []byte("easy"), true
			}
			return "", 8, nil, false
		}, map[string]string{"STRING": "easy", "hard": "", "more": ""}, []string{"hard: " + errLate.Error(), "more: " + errLate.Error()}},
		{"goes away", func(p program, target string) (string, byte, []byte, bool) {
			switch target {
			case "TARGETS":
				return "ATOM", 32, p.list(t, "STRING", "hard", "more"), true
			case "STRING":
				return "STRING", 8, []byte("easy"), true
			}
			p.X.Close()
			return "", 8, nil, false
		}, map[string]string{"STRING": "", "hard": ""}, []string{"hard: " + errGone.Error(), "more: " + errGone.Error()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, c, p := newRig(t)
			owner := newProgram(t, server.Display())
			asked := owner.own(t, func(target string) (string, byte, []byte, bool) { return test.give(owner, target) })
			start := time.Now()
			lost, err := c.Lend(t.Context(), "lent")
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > saveTime+time.Second {
				t.Errorf("saving took %v", took)
			}
			if !slices.Equal(lost, test.lost) {
				t.Errorf("lost %q, want %q", lost, test.lost)
			}
			for _, name := range asked() {
				if slices.Contains([]string{"DELETE", "INSERT_SELECTION", "SAVE_TARGETS"}, name) {
					t.Errorf("asked for %s, which does something", name)
				}
			}
			if err := c.Return(); err != nil {
				t.Error(err)
			}
			for target, want := range test.want {
				if kind, data := p.ask(t, target, xproto.TimeCurrentTime); string(data) != want || (kind == "") != (want == "") {
					t.Errorf("%s: got %d bytes of %q, want %d", target, len(data), kind, len(want))
				}
			}
		})
	}
}

// TestFetched lends a text to programs that do not just fetch it.
func TestFetched(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for _, test := range []struct {
		name string
		do   func(t *testing.T, c *Clipboard, reader, other program, cancel context.CancelFunc)
		want string // in the error, or none
	}{
		{"stops", func(t *testing.T, _ *Clipboard, reader, _ program, _ context.CancelFunc) {
			reader.ask(t, "TARGETS", xproto.TimeCurrentTime)
			reader.ask(t, "STRING", xproto.TimeCurrentTime)
		}, "after 0 of 500000 bytes: the program did not fetch more within 5s"}, // It was begun by INCR, and not gone on with.
		{"another one looks", func(t *testing.T, _ *Clipboard, _, other program, _ context.CancelFunc) {
			other.ask(t, "TARGETS", xproto.TimeCurrentTime)
		}, "another program asked for it, and not the one with the focus within 5s"},
		{"taken", func(t *testing.T, _ *Clipboard, _, other program, _ context.CancelFunc) {
			xproto.SetSelectionOwner(other.X, other.window, other.atom(t, "CLIPBOARD"), xproto.TimeCurrentTime)
		}, ErrTaken.Error()},
		{"cancelled", func(_ *testing.T, _ *Clipboard, _, _ program, cancel context.CancelFunc) { cancel() }, "after 0 of 500000 bytes: context canceled"},
		{"gone", func(_ *testing.T, c *Clipboard, _, _ program, _ context.CancelFunc) { c.conn.X.Close() }, driver.ErrDisplayLost.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, c, reader := newRig(t)
			other, former := newProgram(t, server.Display()), newProgram(t, server.Display())
			asked := former.own(t, func(target string) (string, byte, []byte, bool) {
				if target == "STRING" {
					return "STRING", 8, []byte("former"), true
				}
				return "", 8, nil, true
			})
			defer asked()
			if _, err := c.Lend(t.Context(), long); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- c.Fetched(ctx, reader.window) }()
			test.do(t, c, reader, other, cancel)
			err := <-done
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err := c.Return(); err != nil && !errors.Is(err, driver.ErrDisplayLost) {
				t.Error(err)
			}
			if test.name == "taken" {
				owner, err := c.owner(c.atoms.clipboard)
				if err != nil || owner != other.window {
					t.Errorf("got owner %d, %v, want %d who took it", owner, err, other.window)
				}
			}
		})
	}
}

// TestCancelSaving checks that a cancelled Lend leaves the clipboard to its owner, and Close no goroutine.
func TestCancelSaving(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	owner := newProgram(t, server.Display())
	asked := owner.own(t, func(string) (string, byte, []byte, bool) { return "", 8, nil, false })
	before := runtime.NumGoroutine()
	c, err := Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Lend(ctx, "lent"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline exceeded", err)
	}
	if now, err := c.owner(c.atoms.clipboard); err != nil || now != owner.window {
		t.Errorf("got owner %d, %v, want %d as before", now, err, owner.window)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want %d as before", runtime.NumGoroutine(), before)
		}
	}
	if got, want := fmt.Sprint(asked()), "[TARGETS]"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}
