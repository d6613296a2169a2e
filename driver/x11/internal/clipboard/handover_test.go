package clipboard

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// manage makes a program a clipboard manager, by the specification of freedesktop.org: asked to save, it fetches the
// content, all targets at once, says so, and takes the clipboard when its owner has gone. Pieces it does not take. It
// returns when it has the clipboard, with what it keeps there, by target.
func (p program) manage(t *testing.T) (kept func() map[string]string) {
	t.Helper()
	manager, clipboard, multiple := p.atom(t, "CLIPBOARD_MANAGER"), p.atom(t, "CLIPBOARD"), p.atom(t, "MULTIPLE")
	xproto.SetSelectionOwner(p.X, p.window, manager, xproto.TimeCurrentTime)
	if err := p.Sync(); err != nil {
		t.Fatal(err)
	}
	done := make(chan map[string]string, 1)
	read := func(window xproto.Window, property xproto.Atom) []byte {
		r, err := xproto.GetProperty(p.X, true, window, property, xproto.GetPropertyTypeAny, 0, 1<<20).Reply()
		if err != nil {
			t.Error(err)
			return nil
		}
		return r.Value
	}
	go func() {
		defer close(done)
		var order xproto.SelectionRequestEvent
		content := map[string]string{}
		for {
			event, fault := p.X.WaitForEvent()
			switch e := event.(type) {
			case nil:
				if fault == nil {
					return
				}
			case xproto.SelectionRequestEvent: // save
				order = e
				var pairs []byte
				for targets := read(e.Requestor, e.Property); len(targets) >= 4; targets = targets[4:] {
					target := xgb.Get32(targets)
					pairs = append(pairs, words(target, target)...)
				}
				pairs = append(pairs, words(uint32(p.atom(t, "image/none")), uint32(p.atom(t, "NONE")))...)
				xproto.ChangeProperty(p.X, xproto.PropModeReplace, p.window, multiple, p.atom(t, "ATOM_PAIR"), 32, uint32(len(pairs)/4), pairs)
				xproto.ConvertSelection(p.X, p.window, clipboard, multiple, multiple, e.Time)
			case xproto.SelectionNotifyEvent: // has been given
				for pairs := read(p.window, multiple); len(pairs) >= 8; pairs = pairs[8:] {
					if property := xproto.Atom(xgb.Get32(pairs[4:])); property != xproto.AtomNone {
						name, err := xproto.GetAtomName(p.X, property).Reply()
						if err != nil {
							t.Error(err)
							return
						}
						content[name.Name] = string(read(p.window, property))
					}
				}
				r, err := xproto.GetSelectionOwner(p.X, clipboard).Reply()
				if err != nil {
					t.Error(err)
					return
				}
				xproto.ChangeWindowAttributes(p.X, r.Owner, xproto.CwEventMask, []uint32{xproto.EventMaskStructureNotify})
				answer := xproto.SelectionNotifyEvent{Time: order.Time, Requestor: order.Requestor, Selection: manager, Target: order.Target, Property: order.Property}
				xproto.SendEvent(p.X, false, order.Requestor, xproto.EventMaskNoEvent, string(answer.Bytes()))
			case xproto.DestroyNotifyEvent: // is there to take
				done <- content
				return
			}
		}
	}()
	return func() map[string]string {
		t.Helper()
		select {
		case content := <-done:
			return content
		case <-time.After(5 * time.Second):
			t.Fatal("the owner of the clipboard does not go")
			return nil
		}
	}
}

// TestHandOver gives what was on the clipboard to a manager: it has all targets when the Clipboard is closed.
func TestHandOver(t *testing.T) {
	server, _, owner := newRig(t)
	c, err := Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large := strings.Repeat("copied ", 10_000)
	owner.own(t, func(target string) (string, byte, []byte, bool) {
		switch target {
		case "TARGETS":
			return "ATOM", 32, owner.list(t, "UTF8_STRING", "text/html"), true
		case "UTF8_STRING":
			return "UTF8_STRING", 8, []byte(large), true
		case "text/html":
			return "text/html", 8, []byte("<b>copied</b>"), true
		}
		return "", 0, nil, true
	})
	if err := c.HandOver(t.Context()); err != nil {
		t.Errorf("with nothing to hand over: %v", err)
	}
	if _, err := c.Lend(t.Context(), "lent"); err != nil {
		t.Fatal(err)
	}
	if err := c.Return(); err != nil {
		t.Fatal(err)
	}
	if err := c.HandOver(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no clipboard manager") {
		t.Errorf("got %v, want none", err)
	}
	kept := newProgram(t, server.Display()).manage(t)
	if err := c.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	got := kept()
	if len(got) != 2 || got["UTF8_STRING"] != large || got["text/html"] != "<b>copied</b>" {
		t.Errorf("the manager keeps %.100q, want both targets whole", got)
	}
}

// TestHandOverRefused meets managers that say no, and that say nothing.
func TestHandOverRefused(t *testing.T) {
	for name, want := range map[string]string{"no": "does not want it", "nothing": context.DeadlineExceeded.Error()} {
		t.Run(name, func(t *testing.T) {
			server, c, manager := newRig(t)
			xproto.SetSelectionOwner(manager.X, manager.window, manager.atom(t, "CLIPBOARD_MANAGER"), xproto.TimeCurrentTime)
			if err := manager.Sync(); err != nil {
				t.Fatal(err)
			}
			if name == "no" {
				go func() {
					for {
						event, fault := manager.X.WaitForEvent()
						if event == nil && fault == nil {
							return
						}
						if e, ok := event.(xproto.SelectionRequestEvent); ok {
							answer := xproto.SelectionNotifyEvent{Time: e.Time, Requestor: e.Requestor, Selection: e.Selection, Target: e.Target}
							xproto.SendEvent(manager.X, false, e.Requestor, xproto.EventMaskNoEvent, string(answer.Bytes()))
						}
					}
				}()
			}
			if _, err := c.Lend(t.Context(), "lent"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := c.HandOver(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			if paster := newProgram(t, server.Display()); !slices.Equal(pasted(t, paster), []byte("lent")) {
				t.Error("it is not on the clipboard any more")
			}
		})
	}
}

func pasted(t *testing.T, p program) []byte {
	t.Helper()
	_, data := p.ask(t, "UTF8_STRING", xproto.TimeCurrentTime)
	return data
}
