//go:build linux && cgo

// Package robot is the event sink that goes through robotgo. It is the only user of robotgo and of cgo.
//
// robotgo does well what this package lets it do: motion, the left, middle and right button, the wheel, and the
// keys in its table. It takes every unknown button for the left one and sends keycode 204 for a key it does not
// know, so everything else goes to the XTEST sink beneath. It also lets Xlib end the process on any X error, which
// is why its connection is opened behind error handlers.
//
// robotgo has one display per process, in a C variable, and so there is one Sink at a time.
package robot

/*
#cgo LDFLAGS: -lX11
#include <X11/Xlib.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

// XGetMainDisplay is robotgo's. It opens the display on first use, and when that fails it goes on to $DISPLAY and
// then to :0.0, so the caller has to see what it got.
extern Display *XGetMainDisplay(void);

static Display *display;
static XErrorHandler outer_error;
static XIOErrorHandler outer_io_error;

// What went wrong since the last look. All of it is used by one thread: Xlib calls the handlers on the thread that
// made the request.
static int lost;
static XErrorEvent fault;

// Where to go when the server goes away while this thread is opening a display.
static _Thread_local jmp_buf *opening;

static int on_error(Display *d, XErrorEvent *e) {
	if (d != display && opening == NULL) return outer_error(d, e);
	if (fault.error_code == 0) fault = *e;
	return 0;
}

static int on_io_error(Display *d) {
	if (opening != NULL) longjmp(*opening, 1);
	if (d != display) return outer_io_error(d);
	lost = 1;
	return 0;
}

// Xlib exits the process after an I/O error unless there is a handler for that too; then its calls fail. It belongs
// to a display, so while that is being opened the only way out is a jump, which gives up the memory of the attempt.
static void on_io_error_exit(Display *d, void *data) {}

static int open_display(const char *name) {
	jmp_buf broken;
	lost = 0;
	display = NULL;
	memset(&fault, 0, sizeof fault);
	outer_error = XSetErrorHandler(on_error);
	outer_io_error = XSetIOErrorHandler(on_io_error);
	opening = &broken;
	if (setjmp(broken) == 0) display = XGetMainDisplay();
	opening = NULL;
	if (display == NULL) return 0;
	XSetIOErrorExitHandler(display, on_io_error_exit, NULL);
	return strcmp(DisplayString(display), name) == 0;
}

// close_display comes after robotgo has closed its connection, which may still meet an error.
static void close_display(void) {
	display = NULL;
	XSetErrorHandler(outer_error);
	XSetIOErrorHandler(outer_io_error);
}

// keycode returns the keycode that robotgo will send for a symbol, 0 when there is none. Waiting for the server
// first throws away what it tells every client, such as that there is a new keyboard map, of which Xlib takes note
// on the way.
static int keycode(unsigned long symbol) {
	if (lost) return 0;
	XSync(display, True);
	return lost ? 0 : XKeysymToKeycode(display, symbol);
}

static int is_lost(void) { return lost; }

static int take_fault(char *text, int size, int *request) {
	int code = fault.error_code;
	if (code != 0) {
		XGetErrorText(display, code, text, size);
		*request = fault.request_code;
		memset(&fault, 0, sizeof fault);
	}
	return code;
}
*/
import "C"

import (
	"fmt"
	"image"
	"sync/atomic"
	"unsafe"

	"github.com/go-vgo/robotgo"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/driver/x11/internal/xtest"
)

var owned atomic.Bool

// A Sink is an event.Sink; what it sends has happened when the method returns, unless XTEST sent it.
type Sink struct {
	*xtest.Sink // for what robotgo does wrong or not at all
	// pending says that XTEST events may be on their way, which robotgo's must not overtake on its own connection.
	pending bool
}

// New opens robotgo's display, the one that conn is connected to. The display has been found good: robotgo itself
// crashes without one. The error wraps [driver.ErrUnsupported] while another Sink is open.
func New(conn *display.Conn) (event.Sink, error) {
	under, err := xtest.New(conn)
	if err != nil {
		return nil, err
	}
	if !owned.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("robotgo for a second display in one process: %w", driver.ErrUnsupported)
	}
	robotgo.MouseSleep, robotgo.KeySleep = 0, 0 // Pauses are made above the sink, where they can be cancelled.
	robotgo.SetXDisplayName(conn.Name)
	name := C.CString(conn.Name)
	defer C.free(unsafe.Pointer(name))
	s := &Sink{Sink: under}
	if C.open_display(name) == 0 {
		s.Close()
		return nil, fmt.Errorf("robotgo: %w", driver.ErrNoDisplay)
	}
	return s, nil
}

// Move warps the pointer.
func (s *Sink) Move(screenPt image.Point) error {
	return s.robotgo(func() error { robotgo.Move(screenPt.X, screenPt.Y); return nil })
}

var buttons = map[byte]string{1: "left", 2: "center", 3: "right"}

// Button presses and releases.
func (s *Sink) Button(number byte, down bool) error {
	name, ok := buttons[number]
	if !ok {
		s.pending = true
		return s.Sink.Button(number, down)
	}
	return s.robotgo(func() error { return robotgo.Toggle(name, event.Direction(down)) })
}

// Wheel scrolls. robotgo counts up and left as positive.
func (s *Sink) Wheel(number byte, notches int) error {
	var x, y int
	switch number {
	case 4:
		y = notches
	case 5:
		y = -notches
	case 6:
		x = notches
	case 7:
		x = -notches
	}
	const delay = 0
	return s.robotgo(func() error { robotgo.Scroll(x, y, delay); return nil })
}

// Key goes through robotgo when it has a name for the symbol and Xlib finds it on the very key that is meant:
// robotgo always takes the first key of any group that has the symbol.
func (s *Sink) Key(code xproto.Keycode, symbol driver.Key, down bool) error {
	name, ok := keyName(symbol)
	if !ok || C.keycode(C.ulong(symbol)) != C.int(code) {
		s.pending = true
		return s.Sink.Key(code, symbol, down)
	}
	return s.robotgo(func() error { return robotgo.KeyToggle(name, event.Direction(down)) })
}

// robotgo makes one call of robotgo, after all that XTEST was to send before it.
func (s *Sink) robotgo(call func() error) error {
	if s.pending {
		if err := s.Sink.Sync(); err != nil {
			return err
		}
		s.pending = false
	}
	if err := s.fault(); err != nil {
		return err // Xlib is not to be called once its connection is gone.
	}
	if err := call(); err != nil {
		return fmt.Errorf("robotgo: %w", err)
	}
	return s.fault()
}

// fault returns what the error handlers saw.
func (s *Sink) fault() error {
	if C.is_lost() != 0 {
		return driver.ErrDisplayLost
	}
	text := (*C.char)(C.malloc(256))
	defer C.free(unsafe.Pointer(text))
	var request C.int
	if code := C.take_fault(text, 256, &request); code != 0 {
		return fmt.Errorf("X error %d of request %d: %s", code, request, C.GoString(text))
	}
	return nil
}

// Sync waits for what XTEST sent. robotgo waits at each of its calls.
func (s *Sink) Sync() error {
	s.pending = false
	return s.Sink.Sync()
}

// Close closes robotgo's connection, and lets another Sink have it.
func (s *Sink) Close() {
	robotgo.CloseMainDisplay()
	C.close_display()
	owned.Store(false)
}

// keyNames are the names under which robotgo presses the right key, all of them small: it adds Shift to a name
// with a capital. Missing are those that it gets wrong: the numeric pad, Menu, the quote (it looks for the double
// one) and the less-than sign (it looks for the comma).
var keyNames = map[driver.Key]string{
	driver.KeyReturn: "enter", driver.KeyTab: "tab", driver.KeySpace: "space",
	0xff1b: "escape", 0xff08: "backspace", 0xffff: "delete", 0xff63: "insert",
	0xff50: "home", 0xff57: "end", 0xff55: "pageup", 0xff56: "pagedown",
	0xff51: "left", 0xff52: "up", 0xff53: "right", 0xff54: "down",
	driver.KeyShift: "shift", 0xffe2: "rshift", driver.KeyControl: "ctrl", 0xffe4: "rctrl",
	driver.KeyAlt: "alt", 0xffea: "ralt", driver.KeySuper: "cmd", 0xffec: "rcmd",
	driver.KeyCapsLock: "capslock", driver.KeyNumLock: "num_lock", 0xff61: "print",
	0xffbe: "f1", 0xffbf: "f2", 0xffc0: "f3", 0xffc1: "f4", 0xffc2: "f5", 0xffc3: "f6",
	0xffc4: "f7", 0xffc5: "f8", 0xffc6: "f9", 0xffc7: "f10", 0xffc8: "f11", 0xffc9: "f12",
}

func keyName(symbol driver.Key) (string, bool) {
	switch r, _ := symbol.Rune(); {
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
		return string(r), true
	case r == '-', r == '=', r == '[', r == ']', r == ';', r == '\\', r == ',', r == '.', r == '/', r == '`':
		return string(r), true
	}
	name, ok := keyNames[symbol]
	return name, ok
}
