// Package witness is an X client that sees for itself what happens on a display: a plain window that writes down
// every input event it gets. Tests of drivers ask it, so that no driver is its own judge.
package witness

import (
	"errors"
	"fmt"
	"image"
	"io"
	"log"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

func init() {
	xgb.Logger = log.New(io.Discard, "", 0) // It prints two lines for each connection without ~/.Xauthority.
}

// A Kind is what an [Event] is about.
type Kind string

// The kinds.
const (
	KeyDown    Kind = "key down"
	KeyUp      Kind = "key up"
	ButtonDown Kind = "button down"
	ButtonUp   Kind = "button up"
	Motion     Kind = "motion"
)

// An Event is one event as the window got it.
type Event struct {
	Kind Kind
	// Key is the symbol of the key without modifiers, and Text the character that it gives in State, or 0.
	Key  driver.Key
	Text rune
	// Button is the X number of a button.
	Button byte
	// State is the modifiers and buttons that were down just before, and the locks.
	State uint16
	// At is where the pointer was, in root coordinates.
	At image.Point
	// Time is the server's, in milliseconds.
	Time uint32
}

// String is short: "button 3 down (10,20)", "key Control_L up", "motion (3,4)".
func (e Event) String() string {
	what, direction, _ := strings.Cut(string(e.Kind), " ")
	switch e.Kind {
	case KeyDown, KeyUp:
		return fmt.Sprintf("%s %v %s", what, e.Key, direction)
	case ButtonDown, ButtonUp:
		return fmt.Sprintf("%s %d %s %v", what, e.Button, direction, e.At)
	}
	return fmt.Sprintf("%s %v", what, e.At)
}

// A Window is a window that covers the screen and writes down its events. Its methods may be called from any
// goroutine.
type Window struct {
	x      *xgb.Conn
	root   xproto.Window
	id     xproto.Window
	mark   xproto.Atom
	ended  chan struct{}
	closed sync.Once

	mu       sync.Mutex
	events   []Event
	arrived  chan struct{} // closed and replaced at each event
	sent     uint32        // marks that were sent
	seen     uint32        // marks that came back
	buttons  []byte        // that are down, by the events
	keymap   *xproto.GetKeyboardMappingReply
	firstKey xproto.Keycode
}

// Open opens a window on a display, over all of the screen, and gives it the focus. No window manager has a say in
// it.
func Open(display string) (*Window, error) {
	x, err := xgb.NewConnDisplay(display)
	if err != nil {
		return nil, fmt.Errorf("opening a window on display %q: %w", display, err)
	}
	w := &Window{x: x, root: xproto.Setup(x).DefaultScreen(x).Root, ended: make(chan struct{}), arrived: make(chan struct{})}
	if err := w.open(); err != nil {
		x.Close()
		return nil, fmt.Errorf("opening a window on display %q: %w", display, err)
	}
	go w.read()
	if _, err := w.Events(); err != nil {
		w.Close()
		return nil, fmt.Errorf("opening a window on display %q: %w", display, err)
	}
	return w, nil
}

func (w *Window) open() error {
	setup := xproto.Setup(w.x)
	screen := setup.DefaultScreen(w.x)
	w.firstKey = setup.MinKeycode
	if err := w.readKeymap(); err != nil {
		return err
	}
	mark, err := xproto.InternAtom(w.x, false, uint16(len("WITNESS_MARK")), "WITNESS_MARK").Reply()
	if err != nil {
		return err
	}
	w.mark = mark.Atom
	if w.id, err = xproto.NewWindowId(w.x); err != nil {
		return err
	}
	const grey, override = 0x808080, 1
	err = xproto.CreateWindowChecked(w.x, screen.RootDepth, w.id, screen.Root, 0, 0, screen.WidthInPixels, screen.HeightInPixels, 0,
		xproto.WindowClassInputOutput, screen.RootVisual, xproto.CwBackPixel|xproto.CwOverrideRedirect|xproto.CwEventMask,
		[]uint32{grey, override, xproto.EventMaskKeyPress | xproto.EventMaskKeyRelease | xproto.EventMaskButtonPress |
			xproto.EventMaskButtonRelease | xproto.EventMaskPointerMotion | xproto.EventMaskPropertyChange}).Check()
	if err != nil {
		return err
	}
	if err := xproto.MapWindowChecked(w.x, w.id).Check(); err != nil {
		return err
	}
	return xproto.SetInputFocusChecked(w.x, xproto.InputFocusPointerRoot, w.id, xproto.TimeCurrentTime).Check()
}

// ForTest opens a window and closes it when the test ends.
func ForTest(t testing.TB, display string) *Window {
	t.Helper()
	w, err := Open(display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// Close closes the window and waits for its goroutine.
func (w *Window) Close() {
	w.closed.Do(w.x.Close)
	<-w.ended
}

// read writes events down until the connection ends.
func (w *Window) read() {
	defer close(w.ended)
	for {
		event, err := w.x.WaitForEvent()
		if event == nil && err == nil {
			return
		}
		w.note(event)
	}
}

func (w *Window) note(event xgb.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case xproto.KeyPressEvent:
		key, text := w.key(e.Detail, e.State)
		w.events = append(w.events, Event{Kind: KeyDown, Key: key, Text: text, State: e.State, At: image.Pt(int(e.RootX), int(e.RootY)), Time: uint32(e.Time)})
	case xproto.KeyReleaseEvent:
		key, text := w.key(e.Detail, e.State)
		w.events = append(w.events, Event{Kind: KeyUp, Key: key, Text: text, State: e.State, At: image.Pt(int(e.RootX), int(e.RootY)), Time: uint32(e.Time)})
	case xproto.ButtonPressEvent:
		w.buttons = append(w.buttons, byte(e.Detail))
		w.events = append(w.events, Event{Kind: ButtonDown, Button: byte(e.Detail), State: e.State, At: image.Pt(int(e.RootX), int(e.RootY)), Time: uint32(e.Time)})
	case xproto.ButtonReleaseEvent:
		w.buttons = slices.DeleteFunc(w.buttons, func(b byte) bool { return b == byte(e.Detail) })
		w.events = append(w.events, Event{Kind: ButtonUp, Button: byte(e.Detail), State: e.State, At: image.Pt(int(e.RootX), int(e.RootY)), Time: uint32(e.Time)})
	case xproto.MotionNotifyEvent:
		w.events = append(w.events, Event{Kind: Motion, State: e.State, At: image.Pt(int(e.RootX), int(e.RootY)), Time: uint32(e.Time)})
	case xproto.MappingNotifyEvent:
		if w.readKeymap() != nil {
			return // The connection has ended, which the next event says.
		}
	case xproto.PropertyNotifyEvent:
		if e.Atom != w.mark {
			return
		}
		w.seen++
	default:
		return
	}
	close(w.arrived)
	w.arrived = make(chan struct{})
}

// readKeymap reads the keyboard map, for what is written on the keys.
func (w *Window) readKeymap() (err error) {
	setup := xproto.Setup(w.x)
	w.keymap, err = xproto.GetKeyboardMapping(w.x, setup.MinKeycode, byte(setup.MaxKeycode-setup.MinKeycode+1)).Reply()
	return err
}

// key returns the bare symbol of a key and the character it gives in a state. A letter is capital when one of
// Shift and Caps Lock is in force, as under XKB; other keys heed Shift only.
func (w *Window) key(code xproto.Keycode, state uint16) (driver.Key, rune) {
	width := int(w.keymap.KeysymsPerKeycode)
	first := int(code-w.firstKey)*width + int(state>>13&1)*2
	symbols := w.keymap.Keysyms[first : first+2]
	plain, shifted := driver.Key(symbols[0]), driver.Key(symbols[1])
	wanted := plain
	isLetter := plain >= 'a' && plain <= 'z'
	if shift, caps := state&xproto.ModMaskShift != 0, state&xproto.ModMaskLock != 0; shift != (caps && isLetter) && shifted != 0 {
		wanted = shifted
	}
	switch text, ok := wanted.Rune(); {
	case ok:
		return plain, text
	case wanted == driver.KeyReturn:
		return plain, '\n'
	case wanted == driver.KeyTab:
		return plain, '\t'
	}
	return plain, 0
}

// Events returns what the window has got since the last call, all that the server has handled before included.
func (w *Window) Events() ([]Event, error) {
	if err := w.sync(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events, nil
}

// sync sends a mark that comes back as an event, after all the events before it.
func (w *Window) sync() error {
	w.mu.Lock()
	w.sent++
	mine := w.sent
	w.mu.Unlock()
	err := xproto.ChangePropertyChecked(w.x, xproto.PropModeReplace, w.id, w.mark, xproto.AtomCardinal, 8, 0, nil).Check()
	if err != nil {
		return fmt.Errorf("marking the events of a window: %w", err)
	}
	for {
		w.mu.Lock()
		arrived, there := w.arrived, w.seen >= mine
		w.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-arrived:
		case <-w.ended:
			return errors.New("reading the events of a window: the connection ended")
		}
	}
}

// WaitFor waits until the window has got an event of a kind, which stays to be returned by Events.
func (w *Window) WaitFor(kind Kind, timeout time.Duration) error {
	late := time.After(timeout)
	for {
		w.mu.Lock()
		arrived := w.arrived
		found := slices.ContainsFunc(w.events, func(e Event) bool { return e.Kind == kind })
		w.mu.Unlock()
		if found {
			return nil
		}
		select {
		case <-arrived:
		case <-w.ended:
			return fmt.Errorf("waiting for %s: the connection ended", kind)
		case <-late:
			return fmt.Errorf("waiting for %s: there was none within %v", kind, timeout)
		}
	}
}

// Pointer asks the server where the pointer is, in root coordinates.
func (w *Window) Pointer() (image.Point, error) {
	r, err := xproto.QueryPointer(w.x, w.root).Reply()
	if err != nil {
		return image.Point{}, fmt.Errorf("asking for the pointer: %w", err)
	}
	return image.Pt(int(r.RootX), int(r.RootY)), nil
}

// Held tells what is down now, keys by their symbols and buttons by number, such as "Control_L" and "button 1". It
// asks the server, and goes by the events for buttons after the fifth, of which the server does not tell.
func (w *Window) Held() ([]string, error) {
	if err := w.sync(); err != nil {
		return nil, err
	}
	keys, err := xproto.QueryKeymap(w.x).Reply()
	if err != nil {
		return nil, fmt.Errorf("asking for the keys that are down: %w", err)
	}
	pointer, err := xproto.QueryPointer(w.x, w.root).Reply()
	if err != nil {
		return nil, fmt.Errorf("asking for the buttons that are down: %w", err)
	}
	held := []string{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for code := int(w.firstKey); code < 256; code++ {
		if keys.Keys[code/8]&(1<<(code%8)) != 0 {
			symbol, _ := w.key(xproto.Keycode(code), 0)
			held = append(held, symbol.String())
		}
	}
	for number := byte(1); number < 32; number++ {
		if number <= 5 && pointer.Mask&(xproto.ButtonMask1<<(number-1)) != 0 || number > 5 && slices.Contains(w.buttons, number) {
			held = append(held, fmt.Sprintf("button %d", number))
		}
	}
	return held, nil
}
