// Package witness is an X client that sees for itself what happens on a display: a plain window that writes down
// every input event it gets. Tests of drivers ask it, and the benchmark, so that no driver is its own judge.
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
	"unicode"

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

// A Window is a window that writes down its events. Its methods may be called from any goroutine.
type Window struct {
	x    *xgb.Conn
	area image.Rectangle
	root xproto.Window
	id   xproto.Window
	gc   xproto.Gcontext // that Show paints with
	// mark is the property that sync changes, rules the one that says that setxkbmap has changed the layout.
	mark, rules, protocols, ping xproto.Atom
	closing                      chan struct{}
	ended                        chan struct{}
	closed                       sync.Once

	mu       sync.Mutex
	events   []Event
	arrived  chan struct{} // closed and replaced at each event
	sent     uint32        // marks that were sent
	seen     uint32        // marks that came back
	buttons  []byte        // that are down, by the events
	keymap   *xproto.GetKeyboardMappingReply
	firstKey xproto.Keycode
	perKey   time.Duration // how long the window takes for a key
}

// Open opens a window on a display, over all of the screen, and gives it the focus. No window manager has a say in
// it.
func Open(display string) (*Window, error) { return OpenAt(display, image.Rectangle{}) }

// OpenAt is Open for a part of the screen, in root coordinates; an empty one is all of it.
func OpenAt(display string, area image.Rectangle) (*Window, error) {
	x, err := xgb.NewConnDisplay(display)
	if err != nil {
		return nil, fmt.Errorf("opening a window on display %q: %w", display, err)
	}
	screen := xproto.Setup(x).DefaultScreen(x)
	if area.Empty() {
		area = image.Rect(0, 0, int(screen.WidthInPixels), int(screen.HeightInPixels))
	}
	w := &Window{x: x, area: area, root: screen.Root, closing: make(chan struct{}), ended: make(chan struct{}), arrived: make(chan struct{})}
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
	for name, atom := range map[string]*xproto.Atom{
		"WITNESS_MARK": &w.mark, "WM_PROTOCOLS": &w.protocols, "_NET_WM_PING": &w.ping, "_XKB_RULES_NAMES": &w.rules,
	} {
		r, err := xproto.InternAtom(w.x, false, uint16(len(name)), name).Reply()
		if err != nil {
			return err
		}
		*atom = r.Atom
	}
	if err := w.useXKB(); err != nil {
		return err
	}
	err := w.readKeymap()
	if err != nil {
		return err
	}
	if w.id, err = xproto.NewWindowId(w.x); err != nil {
		return err
	}
	const grey, override = 0x808080, 1
	err = xproto.CreateWindowChecked(w.x, screen.RootDepth, w.id, screen.Root, int16(w.area.Min.X), int16(w.area.Min.Y), uint16(w.area.Dx()), uint16(w.area.Dy()), 0,
		xproto.WindowClassInputOutput, screen.RootVisual, xproto.CwBackPixel|xproto.CwOverrideRedirect|xproto.CwEventMask,
		[]uint32{grey, override, xproto.EventMaskKeyPress | xproto.EventMaskKeyRelease | xproto.EventMaskButtonPress |
			xproto.EventMaskButtonRelease | xproto.EventMaskPointerMotion | xproto.EventMaskPropertyChange}).Check()
	if err != nil {
		return err
	}
	if w.gc, err = xproto.NewGcontextId(w.x); err != nil {
		return err
	}
	if err := xproto.CreateGCChecked(w.x, w.gc, xproto.Drawable(w.id), 0, nil).Check(); err != nil {
		return err
	}
	if err := xproto.MapWindowChecked(w.x, w.id).Check(); err != nil {
		return err
	}
	return xproto.SetInputFocusChecked(w.x, xproto.InputFocusPointerRoot, w.id, xproto.TimeCurrentTime).Check()
}

// useXKB makes the window one of a client that speaks the X Keyboard Extension, as all do that use Xlib: events say then
// which group is in force. To be told of new symbols on keys such a client has to select it; of a new layout it is told
// by an event that xgb cannot read, hence the property.
func (w *Window) useXKB() error {
	const name = "XKEYBOARD"
	extension, err := xproto.QueryExtension(w.x, uint16(len(name)), name).Reply()
	if err != nil {
		return err
	}
	use := w.x.NewCookie(true, true)
	w.x.NewRequest([]byte{extension.MajorOpcode, 0, 2, 0, 1, 0, 0, 0}, use) // UseExtension, version 1.0
	if _, err := use.Reply(); err != nil {
		return err
	}
	const mapNotify, symbols = 1 << 1, 1 << 1
	sel := w.x.NewCookie(true, false)
	w.x.NewRequest([]byte{extension.MajorOpcode, 1, 4, 0, 0, 1, mapNotify, 0, 0, 0, 0, 0, symbols, 0, symbols, 0}, sel) // SelectEvents
	if err := sel.Check(); err != nil {
		return err
	}
	return xproto.ChangeWindowAttributesChecked(w.x, w.root, xproto.CwEventMask, []uint32{xproto.EventMaskPropertyChange}).Check()
}

// Show paints a picture on the window, at the place of its bounds in screen space, and returns when it is there. Alpha is
// not looked at. What another window covers in the meantime is lost. The screen has to have depth 24, as usual.
func (w *Window) Show(picture *image.RGBA) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("painting %v on a window: %w", picture.Rect, err)
		}
	}()
	setup := xproto.Setup(w.x)
	depth := setup.DefaultScreen(w.x).RootDepth
	if depth != 24 || setup.ImageByteOrder != xproto.ImageOrderLSBFirst {
		return fmt.Errorf("pixels of depth %d, byte order %d: %w", depth, setup.ImageByteOrder, driver.ErrUnsupported)
	}
	const maxRequest = 1 << 17 // half of what every server takes
	r := picture.Rect
	rows := max(1, maxRequest/max(1, 4*r.Dx()))
	for y := r.Min.Y; y < r.Max.Y; y += rows {
		n := min(rows, r.Max.Y-y)
		data := make([]byte, 0, 4*r.Dx()*n)
		for row := y; row < y+n; row++ {
			data = append(data, picture.Pix[picture.PixOffset(r.Min.X, row):][:4*r.Dx()]...)
		}
		for i := 0; i < len(data); i += 4 { // the server wants blue first
			data[i], data[i+2] = data[i+2], data[i]
		}
		xproto.PutImage(w.x, xproto.ImageFormatZPixmap, xproto.Drawable(w.id), w.gc, uint16(r.Dx()), uint16(n), int16(r.Min.X), int16(y), 0, depth, data)
	}
	_, err = xproto.GetInputFocus(w.x).Reply() // comes after all that was sent before
	return err
}

// AnswerPings makes the window answer _NET_WM_PING, each in its turn among the events, as toolkits do for their
// programs.
func (w *Window) AnswerPings() error {
	data := make([]byte, 4)
	xgb.Put32(data, uint32(w.ping))
	err := xproto.ChangePropertyChecked(w.x, xproto.PropModeReplace, w.id, w.protocols, xproto.AtomAtom, 32, 1, data).Check()
	if err != nil {
		return fmt.Errorf("announcing answers to pings: %w", err)
	}
	return nil
}

// TakeTime makes the window a slow one: it looks at a key that long after it has taken it off the queue, and at the
// next event not before.
func (w *Window) TakeTime(perKey time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.perKey = perKey
}

// ForTestAt opens a window over a part of the screen, as OpenAt does, and closes it when the test ends.
func ForTestAt(t testing.TB, display string, area image.Rectangle) *Window {
	t.Helper()
	w, err := OpenAt(display, area)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// ForTest opens a window over all of the screen and closes it when the test ends.
func ForTest(t testing.TB, display string) *Window {
	t.Helper()
	return ForTestAt(t, display, image.Rectangle{})
}

// Close closes the window and waits for its goroutine.
func (w *Window) Close() {
	w.closed.Do(func() {
		close(w.closing)
		w.x.Close()
	})
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
	if _, ok := event.(xproto.KeyPressEvent); ok && w.perKey > 0 {
		perKey := w.perKey
		w.mu.Unlock()
		select {
		case <-time.After(perKey):
		case <-w.closing:
		}
		w.mu.Lock()
		if w.readKeymap() != nil {
			return
		}
	}
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
		switch e.Atom {
		case w.mark:
			w.seen++
		case w.rules:
			if w.readKeymap() != nil {
				return
			}
		}
	case xproto.ClientMessageEvent:
		if e.Type == w.protocols && e.Data.Data32[0] == uint32(w.ping) {
			e.Window = w.root
			const toManager = xproto.EventMaskSubstructureNotify | xproto.EventMaskSubstructureRedirect
			xproto.SendEvent(w.x, false, w.root, toManager, string(e.Bytes()))
		}
	default:
		return
	}
	close(w.arrived)
	w.arrived = make(chan struct{})
}

// readKeymap reads the keyboard map, for what is written on the keys.
func (w *Window) readKeymap() error {
	setup := xproto.Setup(w.x)
	keymap, err := xproto.GetKeyboardMapping(w.x, setup.MinKeycode, byte(setup.MaxKeycode-setup.MinKeycode+1)).Reply()
	if err == nil {
		w.keymap = keymap
	}
	return err
}

// key returns the bare symbol of a key and the character it gives in a state, for the first two groups and four levels,
// which are those of the core keyboard map (The X Keyboard Extension: Protocol Specification, section 12.4). A letter
// is capital when one of Shift and Caps Lock is in force; other keys heed Shift only. A key that begins a character, a
// dead one, gives none.
func (w *Window) key(code xproto.Keycode, state uint16) (driver.Key, rune) {
	width := int(w.keymap.KeysymsPerKeycode)
	symbols := w.keymap.Keysyms[int(code-w.firstKey)*width:][:width]
	group := int(state >> 13 & 1)
	at := func(level int) driver.Key {
		if i := 2*group + level%2 + level/2*4; i < width {
			return driver.Key(symbols[i])
		}
		return 0
	}
	level := 0
	if state&altGr != 0 && at(2) != 0 {
		level = 2
	}
	wanted, shifted := at(level), at(level+1)
	lower, isCharacter := wanted.Rune()
	upper, _ := shifted.Rune()
	isLetter := isCharacter && lower != upper && unicode.ToUpper(lower) == upper
	if shift, caps := state&xproto.ModMaskShift != 0, state&xproto.ModMaskLock != 0; shift != (caps && isLetter) && shifted != 0 {
		wanted = shifted
	}
	switch text, ok := wanted.Rune(); {
	case ok:
		return at(0), text
	case wanted == driver.KeyReturn:
		return at(0), '\n'
	case wanted == driver.KeyTab:
		return at(0), '\t'
	}
	return at(0), 0
}

// altGr is the modifier of AltGr in the maps of xkeyboard-config.
const altGr = xproto.ModMask5

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
