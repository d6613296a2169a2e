// Package focus finds the window that gets what is typed, and asks its program whether it has caught up.
//
// A program answers _NET_WM_PING (Extended Window Manager Hints, version 1.5) when it comes to it, which is after all
// the events that it was sent before. So the answer says that every key has been read and looked up in the keyboard
// map. Toolkits answer for every program; what is written on bare Xlib, such as xterm, mostly does not.
package focus

import (
	"context"
	"errors"
	"fmt"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// ErrNone says that what is typed would go nowhere, and ErrMoved that it would go elsewhere than before.
var (
	ErrNone  = errors.New("no window has the keyboard focus")
	ErrMoved = errors.New("the keyboard focus went to another window")
)

// A Focus watches the focus of one display. It belongs to the goroutine of its connection.
type Focus struct {
	conn                          *display.Conn
	protocols, ping, managerCheck xproto.Atom
	asked                         uint32 // pings so far; each has a number, by which its answer is known
}

// A Window is the one that gets what is typed. The zero Window is none.
type Window struct {
	focus xproto.Window // as the server says, which may be that the focus follows the pointer
	id    xproto.Window
	top   xproto.Window // the child of the root window that id is or is in
}

// Open prepares to watch.
func Open(conn *display.Conn) (*Focus, error) {
	f := &Focus{conn: conn}
	for name, atom := range map[string]*xproto.Atom{
		"WM_PROTOCOLS": &f.protocols, "_NET_WM_PING": &f.ping, "_NET_SUPPORTING_WM_CHECK": &f.managerCheck,
	} {
		r, err := xproto.InternAtom(conn.X, false, uint16(len(name)), name).Reply()
		if err != nil {
			return nil, display.Err(err)
		}
		*atom = r.Atom
	}
	return f, nil
}

// Window finds the window that has the focus; where the focus follows the pointer, that is the one under it. The error
// wraps [ErrNone] when there is none, which includes the window on which a window manager parks the focus.
func (f *Focus) Window() (Window, error) {
	r, err := xproto.GetInputFocus(f.conn.X).Reply()
	if err != nil {
		return Window{}, display.Err(err)
	}
	id := r.Focus
	if f.followsPointer(id) {
		pointer, err := xproto.QueryPointer(f.conn.X, f.conn.Screen.Root).Reply()
		if err != nil {
			return Window{}, display.Err(err)
		}
		id = pointer.Child
	}
	if id == xproto.WindowNone || id == f.parking() {
		return Window{}, ErrNone
	}
	line := f.ancestry(id)
	if len(line) == 0 {
		return Window{}, ErrNone // It has gone in the meantime.
	}
	return Window{r.Focus, id, line[len(line)-1]}, nil
}

// Reader returns the window itself, or where the focus follows the pointer the innermost one under it: that is the
// program's own also where a window manager has put a frame around it.
func (f *Focus) Reader(w Window) (xproto.Window, error) {
	id := w.id
	for f.followsPointer(w.focus) {
		pointer, err := xproto.QueryPointer(f.conn.X, id).Reply()
		if err != nil {
			return 0, display.Err(err)
		}
		if pointer.Child == xproto.WindowNone {
			break
		}
		id = pointer.Child
	}
	return id, nil
}

// followsPointer reports whether keys go to the window under the pointer. With the focus on the root window they do
// too, as everything is in it.
func (f *Focus) followsPointer(focus xproto.Window) bool {
	return focus == xproto.InputFocusPointerRoot || focus == f.conn.Screen.Root
}

// Still makes sure that a window has the focus, or another one of the same top-level window.
func (f *Focus) Still(w Window) error {
	r, err := xproto.GetInputFocus(f.conn.X).Reply()
	if err != nil {
		return display.Err(err)
	}
	if r.Focus == w.focus && !f.followsPointer(w.focus) {
		return nil // as nearly always, and a text asks often
	}
	now, err := f.Window()
	if err == nil && now.top != w.top {
		err = ErrMoved
	}
	return err
}

// Caught reports whether the program that owns a window has come to what was sent before: true when it answers, false
// at once when it is of the kind that does not. It is an error when ctx ends before a program of the other kind has
// answered.
func (f *Focus) Caught(ctx context.Context, w Window) (bool, error) {
	for _, id := range f.ancestry(w.id) {
		if f.answers(id) {
			return f.askAndWait(ctx, id)
		}
	}
	return false, nil
}

func (f *Focus) askAndWait(ctx context.Context, id xproto.Window) (bool, error) {
	f.asked++
	mine := f.asked
	// The answer goes to the root window, for those who have selected what it is sent by: SubstructureNotify or
	// SubstructureRedirect, say the hints. Qt 5 says StructureNotify or SubstructureRedirect, and the latter is the window
	// manager's alone.
	f.selectOnRoot(xproto.EventMaskSubstructureNotify | xproto.EventMaskStructureNotify)
	defer f.selectOnRoot(xproto.EventMaskNoEvent)
	question := xproto.ClientMessageEvent{
		Format: 32, Window: id, Type: f.protocols,
		Data: xproto.ClientMessageDataUnionData32New([]uint32{uint32(f.ping), mine, uint32(id), 0, 0}),
	}
	err := xproto.SendEventChecked(f.conn.X, false, id, xproto.EventMaskNoEvent, string(question.Bytes())).Check()
	if err != nil {
		return false, nil // The window has gone, and with it who would have read anything.
	}
	err = f.conn.Await(ctx, func(event xgb.Event) bool {
		answer, ok := event.(xproto.ClientMessageEvent)
		return ok && answer.Type == f.protocols && answer.Format == 32 && answer.Window == f.conn.Screen.Root &&
			answer.Data.Data32[0] == uint32(f.ping) && answer.Data.Data32[1] == mine
	})
	if err != nil {
		return false, fmt.Errorf("waiting for the program to read what was typed: %w", err)
	}
	return true, nil
}

// selectOnRoot says which events of the root window the connection is sent: it wants no others.
func (f *Focus) selectOnRoot(mask uint32) {
	xproto.ChangeWindowAttributes(f.conn.X, f.conn.Screen.Root, xproto.CwEventMask, []uint32{mask})
}

// ancestry is a window and those it is in, without the root window. It ends early when one has gone.
func (f *Focus) ancestry(id xproto.Window) (line []xproto.Window) {
	for id != f.conn.Screen.Root && id != xproto.WindowNone {
		r, err := xproto.QueryTree(f.conn.X, id).Reply()
		if err != nil {
			return nil
		}
		line = append(line, id)
		id = r.Parent
	}
	return line
}

// answers reports whether a window says that its program answers pings.
func (f *Focus) answers(id xproto.Window) bool {
	for _, atom := range f.property(id, f.protocols, xproto.AtomAtom) {
		if atom == uint32(f.ping) {
			return true
		}
	}
	return false
}

// parking is the window of the window manager that takes the focus when no other has it, if there is one.
func (f *Focus) parking() xproto.Window {
	if value := f.property(f.conn.Screen.Root, f.managerCheck, xproto.AtomWindow); len(value) > 0 {
		return xproto.Window(value[0])
	}
	return xproto.WindowNone
}

// property reads a list of 32-bit values, which is empty when anything is not as it should be.
func (f *Focus) property(id xproto.Window, name, kind xproto.Atom) (values []uint32) {
	const most = 64
	r, err := xproto.GetProperty(f.conn.X, false, id, name, kind, 0, most).Reply()
	if err != nil || r.Format != 32 {
		return nil
	}
	for value := r.Value; len(value) >= 4; value = value[4:] {
		values = append(values, xgb.Get32(value))
	}
	return values
}
