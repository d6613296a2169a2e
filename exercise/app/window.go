package app

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"strings"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// A window is the X side of the application: it shows pictures and hands out events. One goroutine owns it.
type window struct {
	conn     *xgb.Conn
	id       xproto.Window
	pixmap   xproto.Pixmap // the picture that shows; what is uncovered is copied from here
	gc       xproto.Gcontext
	keyboard keyboard
	sync     xproto.Atom // type of the messages that the window sends itself
	protocol xproto.Atom // WM_PROTOCOLS
	shown    *image.RGBA // what the pixmap holds
	events   chan xgb.Event
}

var errDepth = errors.New("the practice application needs a screen of depth 24 with 32 bits a pixel, low byte first")

// openWindow connects to the display and maps a window at a point of the screen.
func openWindow(display string, at image.Point) (_ *window, err error) {
	conn, err := xgb.NewConnDisplay(display)
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	w := &window{conn: conn, shown: image.NewRGBA(image.Rectangle{Max: Size}), events: make(chan xgb.Event, 256)}
	go w.receive()
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	setup := xproto.Setup(conn)
	screen := setup.DefaultScreen(conn)
	if !showsPictures(setup, screen) {
		return nil, errDepth
	}
	if room := image.Rect(0, 0, int(screen.WidthInPixels), int(screen.HeightInPixels)); !(image.Rectangle{Min: at, Max: at.Add(Size)}).In(room) {
		return nil, fmt.Errorf("the window of %dx%d pixels at %v does not fit on the screen of %dx%d", Size.X, Size.Y, at, room.Dx(), room.Dy())
	}
	if w.keyboard, err = readKeyboard(conn); err != nil {
		return nil, err
	}
	if err := w.create(screen, at); err != nil {
		return nil, err
	}
	return w, nil
}

// showsPictures reports whether the screen takes pixels as paint sends them.
func showsPictures(setup *xproto.SetupInfo, screen *xproto.ScreenInfo) bool {
	for _, format := range setup.PixmapFormats {
		if format.Depth == screen.RootDepth && format.Depth == 24 {
			return format.BitsPerPixel == 32 && setup.ImageByteOrder == xproto.ImageOrderLSBFirst
		}
	}
	return false
}

func (w *window) create(screen *xproto.ScreenInfo, at image.Point) error {
	for _, id := range []*uint32{(*uint32)(&w.id), (*uint32)(&w.pixmap), (*uint32)(&w.gc)} {
		var err error
		if *id, err = w.conn.NewId(); err != nil {
			return fmt.Errorf("allocating an X resource: %w", err)
		}
	}
	const events = xproto.EventMaskKeyPress | xproto.EventMaskKeyRelease | xproto.EventMaskButtonPress |
		xproto.EventMaskButtonRelease | xproto.EventMaskPointerMotion | xproto.EventMaskExposure |
		xproto.EventMaskStructureNotify | xproto.EventMaskFocusChange
	width, height := uint16(Size.X), uint16(Size.Y)
	if err := xproto.CreateWindowChecked(w.conn, screen.RootDepth, w.id, screen.Root, int16(at.X), int16(at.Y), width, height, 0,
		xproto.WindowClassInputOutput, screen.RootVisual, xproto.CwEventMask, []uint32{events}).Check(); err != nil {
		return fmt.Errorf("creating the window: %w", err)
	}
	if err := xproto.CreatePixmapChecked(w.conn, screen.RootDepth, w.pixmap, xproto.Drawable(w.id), width, height).Check(); err != nil {
		return fmt.Errorf("creating the pixmap: %w", err)
	}
	// Copying from a pixmap uncovers nothing, so there is no need to hear of it.
	if err := xproto.CreateGCChecked(w.conn, w.gc, xproto.Drawable(w.id), xproto.GcGraphicsExposures, []uint32{0}).Check(); err != nil {
		return fmt.Errorf("creating the graphics context: %w", err)
	}
	if err := w.introduce(at); err != nil {
		return err
	}
	w.show()
	return nil
}

// introduce tells a window manager about the window, as the ICCCM says: its name, a fixed place and size, that it
// wants the keyboard, and that it would rather be asked than killed.
func (w *window) introduce(at image.Point) error {
	atoms := map[string]xproto.Atom{"WM_PROTOCOLS": 0, "WM_DELETE_WINDOW": 0, "_DESKAGENT_SYNC": 0}
	for name := range atoms {
		reply, err := xproto.InternAtom(w.conn, false, uint16(len(name)), name).Reply()
		if err != nil {
			return fmt.Errorf("interning atom %s: %w", name, err)
		}
		atoms[name] = reply.Atom
	}
	w.sync, w.protocol = atoms["_DESKAGENT_SYNC"], atoms["WM_PROTOCOLS"]
	words := func(values ...uint32) []byte {
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, values) // a buffer takes everything
		return b.Bytes()
	}
	x, y, width, height := uint32(at.X), uint32(at.Y), uint32(Size.X), uint32(Size.Y)
	const (
		userPosition, programSize, minSize, maxSize, winGravity = 1 << 0, 1 << 3, 1 << 4, 1 << 5, 1 << 9
		staticGravity                                           = 10 // the place is that of the content, not of a frame
		inputHint                                               = 1 << 0
	)
	for _, p := range []struct {
		property, kind xproto.Atom
		format         byte
		data           []byte
	}{
		{xproto.AtomWmName, xproto.AtomString, 8, []byte("Practice desk")},
		{xproto.AtomWmClass, xproto.AtomString, 8, []byte("practice\x00Deskagent\x00")},
		{xproto.AtomWmHints, xproto.AtomWmHints, 32, words(inputHint, 1, 0, 0, 0, 0, 0, 0, 0)},
		{xproto.AtomWmNormalHints, xproto.AtomWmSizeHints, 32, words(userPosition|programSize|minSize|maxSize|winGravity,
			x, y, width, height, width, height, width, height, 0, 0, 0, 0, 0, 0, 0, 0, staticGravity)},
		{w.protocol, xproto.AtomAtom, 32, words(uint32(atoms["WM_DELETE_WINDOW"]))},
	} {
		n := uint32(len(p.data)) * 8 / uint32(p.format)
		if err := xproto.ChangePropertyChecked(w.conn, xproto.PropModeReplace, w.id, p.property, p.kind, p.format, n, p.data).Check(); err != nil {
			return fmt.Errorf("describing the window: %w", err)
		}
	}
	return nil
}

// receive hands out events until the connection is closed. X errors are answers to requests that may rightly come
// too late, such as taking the focus for a window that has just been covered, and are dropped.
func (w *window) receive() {
	defer close(w.events)
	for {
		event, xerr := w.conn.WaitForEvent()
		switch {
		case event != nil:
			w.events <- event
		case xerr == nil:
			return
		}
	}
}

// close closes the connection, and with it the window, and waits for the end of receive.
func (w *window) close() {
	w.conn.Close()
	for range w.events {
	}
}

// show asks for the window to be shown; that it is shown is an event.
func (w *window) show() { xproto.MapWindow(w.conn, w.id) }

// paint puts a picture of the window on the screen. Only the rows that changed are sent; they appear at once.
func (w *window) paint(picture *image.RGBA) {
	first, last := 0, Size.Y
	same := func(y int) bool {
		at := y * picture.Stride
		return bytes.Equal(picture.Pix[at:at+picture.Stride], w.shown.Pix[at:at+picture.Stride])
	}
	for first < last && same(first) {
		first++
	}
	for first < last && same(last-1) {
		last--
	}
	const maxRequest = 1 << 17 // half of what every server takes
	rows := maxRequest / (Size.X * 4)
	for y := first; y < last; y += rows {
		n := min(rows, last-y)
		data := bytes.Clone(picture.Pix[y*picture.Stride : (y+n)*picture.Stride])
		for i := 0; i < len(data); i += 4 { // the server wants blue first
			data[i], data[i+2] = data[i+2], data[i]
		}
		xproto.PutImage(w.conn, xproto.ImageFormatZPixmap, xproto.Drawable(w.pixmap), w.gc, uint16(Size.X), uint16(n), 0, int16(y), 0, 24, data)
	}
	copy(w.shown.Pix[first*picture.Stride:], picture.Pix[first*picture.Stride:last*picture.Stride])
	w.expose(image.Rect(0, first, Size.X, last))
}

// expose copies a part of the pixmap to the window.
func (w *window) expose(r image.Rectangle) {
	if !r.Empty() {
		xproto.CopyArea(w.conn, xproto.Drawable(w.pixmap), xproto.Drawable(w.id), w.gc, int16(r.Min.X), int16(r.Min.Y),
			int16(r.Min.X), int16(r.Min.Y), uint16(r.Dx()), uint16(r.Dy()))
	}
}

// focus takes the keyboard focus.
func (w *window) focus(time xproto.Timestamp) {
	xproto.SetInputFocus(w.conn, xproto.InputFocusPointerRoot, w.id, time)
}

// roundTrip waits until the server has dealt with everything sent.
func (w *window) roundTrip() error {
	_, err := xproto.GetInputFocus(w.conn).Reply()
	return err
}

// sendSync sends the window a message, which arrives behind everything that is on its way.
func (w *window) sendSync() {
	message := xproto.ClientMessageEvent{Format: 32, Window: w.id, Type: w.sync, Data: xproto.ClientMessageDataUnionData32New(make([]uint32, 5))}
	xproto.SendEvent(w.conn, false, w.id, xproto.EventMaskNoEvent, string(message.Bytes()))
}

func eventName(e xgb.Event) string { return strings.TrimPrefix(fmt.Sprintf("%T", e), "xproto.") }
