//go:build linux && cgo

// Package robot is the event sink that goes through robotgo. It is the only user of robotgo and of cgo.
//
// robotgo does well what this package lets it do: motion, the left, middle and right button, the wheel, and the
// keys in its table. It takes every unknown button for the left one and sends keycode 204 for a key it does not
// know, so for everything else XTEST is called beside it, on its connection. So it is for the modifiers of chords: robotgo
// waits for the server after each event, which made a chord of three keys take half as long again (BenchmarkOwnTime of
// package x11). It also lets Xlib end the process on any X error, which is why that connection is opened behind error
// handlers.
//
// robotgo has one display per process, in a C variable, and so there is one Sink at a time. All calls are made on one
// thread, which does nothing else: when the server goes away in the middle of a call, Xlib leaves the display locked to
// the thread of that call, and a call from another one would never return.
package robot

/*
#cgo LDFLAGS: -lX11 -lXtst
#include <X11/Xlib.h>
#include <X11/extensions/XTest.h>
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

// keycode returns the keycode that robotgo will send for a symbol, 0 when there is none. robotgo looks into the same
// copy of the keyboard map, of which Xlib takes note as it reads that there is a new one: so the two agree, and it need
// not be the latest. What has been read is thrown away. XNextEvent waits for nothing then, not even for a dead server.
static int keycode(unsigned long symbol) {
	XEvent event;
	while (XQLength(display) > 0) XNextEvent(display, &event);
	return XKeysymToKeycode(display, symbol);
}

// fake_key and fake_button send what robotgo cannot. They do not wait for the server as it does, after each event: what
// it sends next waits for these too, and for the last ones await does.
static void fake_key(unsigned code, int down) {
	XTestFakeKeyEvent(display, code, down, CurrentTime);
}

static void fake_button(unsigned number, int down) {
	XTestFakeButtonEvent(display, number, down, CurrentTime);
}

static void await(void) {
	if (LastKnownRequestProcessed(display) != NextRequest(display) - 1) XSync(display, False);
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
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/go-vgo/robotgo"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
)

var owned atomic.Bool

// A Sink is an event.Sink. What it sends is on its way to the thread when a method returns, so that a few events in a
// row cost one switch of threads.
type Sink struct {
	sent  bool // since the last Sync
	calls chan func()
	ended chan struct{}

	fault error // the thread's: the first one since the last Sync
}

// New opens robotgo's display, the one with a name. It has been found good, and to have XTEST: robotgo itself crashes
// without the one and is silent about the other. The error wraps [driver.ErrUnsupported] while another Sink is open.
func New(displayName string) (event.Sink, error) {
	if !owned.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("robotgo for a second display in one process: %w", driver.ErrUnsupported)
	}
	s := &Sink{calls: make(chan func(), 64), ended: make(chan struct{})}
	opened := make(chan bool)
	go s.thread(displayName, opened)
	if !<-opened {
		s.Close()
		return nil, fmt.Errorf("robotgo: %w", driver.ErrNoDisplay)
	}
	return s, nil
}

// thread opens the display, makes the calls, and closes it.
func (s *Sink) thread(displayName string, opened chan<- bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.ended)
	robotgo.MouseSleep, robotgo.KeySleep = 0, 0 // Pauses are made above the sink, where they can be cancelled.
	robotgo.SetXDisplayName(displayName)
	name := C.CString(displayName)
	defer C.free(unsafe.Pointer(name))
	opened <- C.open_display(name) != 0
	for call := range s.calls {
		call()
	}
	robotgo.CloseMainDisplay()
	C.close_display()
}

// do has the thread make a call, after those before it.
func (s *Sink) do(call func() error) error {
	s.sent = true
	s.calls <- func() {
		if err := attempt(call); s.fault == nil {
			s.fault = err
		}
	}
	return nil
}

// attempt makes a call on the thread, unless the connection is gone: then Xlib is not to be called.
func attempt(call func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("robotgo: panic: %v", fault)
		}
	}()
	if err := fault(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return fmt.Errorf("robotgo: %w", err)
	}
	return fault()
}

// fault returns what the error handlers saw.
func fault() error {
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

// Move warps the pointer.
func (s *Sink) Move(screenPt image.Point) error {
	return s.do(func() error { robotgo.Move(screenPt.X, screenPt.Y); return nil })
}

var buttons = map[byte]string{1: "left", 2: "center", 3: "right"}

// Button presses and releases.
func (s *Sink) Button(number byte, down bool) error {
	return s.do(func() error {
		if name, ok := buttons[number]; ok {
			return robotgo.Toggle(name, event.Direction(down))
		}
		C.fake_button(C.uint(number), truth(down))
		return nil
	})
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
	return s.do(func() error { robotgo.Scroll(x, y, delay); return nil })
}

// Key presses and releases.
func (s *Sink) Key(code xproto.Keycode, symbol driver.Key, down bool) error {
	return s.do(func() error {
		if name, ok := nameOf(code, symbol); ok {
			return robotgo.KeyToggle(name, event.Direction(down))
		}
		C.fake_key(C.uint(code), truth(down))
		return nil
	})
}

// nameOf finds, on the thread, the name by which robotgo presses a key: it has to know the symbol, and Xlib to find that
// on the very key that is meant. robotgo always takes the first key of any group that has the symbol.
func nameOf(code xproto.Keycode, symbol driver.Key) (string, bool) {
	name, ok := keyName(symbol)
	return name, ok && C.keycode(C.ulong(symbol)) == C.int(code)
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Sync waits for the thread and the server.
func (s *Sink) Sync() error {
	if !s.sent {
		return nil
	}
	s.do(func() error { C.await(); return nil })
	s.sent = false
	done := make(chan error)
	s.calls <- func() {
		done <- s.fault
		s.fault = nil
	}
	return <-done
}

// Pointer costs no more than a Sync.
func (s *Sink) Pointer() (screenPt image.Point, err error) {
	s.do(func() error { screenPt.X, screenPt.Y = robotgo.Location(); return nil })
	err = s.Sync()
	return screenPt, err
}

// Close closes robotgo's connection, and lets another Sink have it.
func (s *Sink) Close() {
	close(s.calls)
	<-s.ended
	owned.Store(false)
}

// keyNames are the names under which robotgo presses the right key, all of them small: it adds Shift to a name
// with a capital. Missing are the modifiers, for the time they take, and those that it gets wrong: the numeric pad,
// Menu, the quote (it looks for the double one) and the less-than sign (it looks for the comma).
var keyNames = map[driver.Key]string{
	driver.KeyReturn: "enter", driver.KeyTab: "tab", driver.KeySpace: "space",
	0xff1b: "escape", 0xff08: "backspace", 0xffff: "delete", 0xff63: "insert",
	0xff50: "home", 0xff57: "end", 0xff55: "pageup", 0xff56: "pagedown",
	0xff51: "left", 0xff52: "up", 0xff53: "right", 0xff54: "down",
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
