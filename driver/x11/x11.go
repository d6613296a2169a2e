// Package x11 is the driver for an X11 desktop: the nine methods of [driver.Driver] on a real X server.
//
//	d, err := x11.Open(ctx, &x11.Options{Display: ":3"})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	err = d.Click(ctx, driver.Click{X: 640, Y: 400, Button: driver.ButtonLeft})
//
// # Layers
//
// Everything a user can tell apart is written once, in this package: what a double click, a drag, a chord or a
// scrolled pixel is. It comes down to a few plain events, which a sink puts into the server: robotgo, or the XTEST
// protocol directly. Both give the same events. The keyboard map and the pictures have packages of their own.
//
// # Faults
//
// An action is checked as a whole before its first event: points against the size of the screen at that moment,
// keys and characters against the keyboard map in force. Keys and buttons are released on every way out, in the
// reverse order. A server that goes away is an error that wraps [driver.ErrDisplayLost]; no fault of X ends or
// crashes the process.
//
// The death of this process itself releases nothing: X keeps down what XTEST pressed. So the driver writes on the
// root window what it is about to press, and somebody undoes it: [Options].Watchdog at once, otherwise the next
// driver that is opened on the display.
//
// # Other hands
//
// A person may be at the same display. An action is refused, with [driver.ErrHeld], while somebody else holds a
// modifier or a button, which would give it another meaning; [Options].ClearModifiers lifts modifiers instead. Just
// before a press the pointer is looked for: when it is not where it was put, nothing is pressed and the error wraps
// [driver.ErrInterference]. The same holds before the wheel is turned and before a drag lets go, which it does then
// wherever the pointer is.
//
// # Keys and text
//
// Keys and characters are found on the keyboard map that is in force, in its group, with Shift and AltGr where they
// need them. A character alone types itself: "A" presses Shift and a. Together with a modifier a letter is its key, and
// another character brings the Shift it needs: ["CTRL","C"] is Ctrl+C and ["CTRL","+"] is, on a US keyboard,
// Ctrl+Shift+equal. Where the group in force has no Latin letters ["CTRL","C"] is the key that has c in another group;
// where none has, it is the key in the place of C on a US keyboard, which stands for c as long as the chord takes.
//
// What else the map lacks, be it F13 or a character of another script, is put on keycodes that mean nothing, for the time
// of the action: a text takes any Unicode characters but control characters, of which there are only newline, for
// Return, and tab. The clipboard is not touched, unless [Options].Paste says so. Keycodes get another meaning, and
// lose it again, only when the program has read what was typed with it, by its answer to a ping, or after 240ms if it
// is of those that do not answer; such a program is also given 60ms for every 64 characters. A program that answers
// pings but does not come to one within 5s is an error. Caps Lock, and whatever else is locked but for Num Lock, is
// lifted while text is typed.
//
// Text needs a window that has the focus, and is typed only as long as that does not change; the error says how far
// it came.
//
// # Coming to rest
//
// A picture that is taken after an action shows what the action came to. It waits until something has changed on the
// screen and then nothing for [Options].SettleQuiet; or until nothing has changed for [Options].SettleGrace, the time
// that a reaction may take to begin; or for [Options].SettleDeadline, when the screen still changes. The frame says
// which. What changes again and again in a small place, such as a caret or a spinner, is not waited for. A picture that
// follows another one without an action in between is taken at once, unless the screen had not come to rest.
//
// Wait waits in the same way, for what has changed since the last action or picture, but with more patience:
// [Options].WaitTime for something to change, and half of that for quiet. It ends as soon as the screen has come to rest.
//
// # Scrolling
//
// Programs scroll by notches of the wheel, of a size of their own. [Options].PixelsPerNotch translates; the
// default is what a notch moves in Debian's Chromium. Distances are rounded to the nearest notch, halves away from
// 0, and the remainder counts in the next Scroll, for each axis, so that a sequence of any length is off by less
// than a notch. The notches go one by one, at the pace of [Options].ScrollPace. A scroll that turns no notch, such
// as one by 0, moves the pointer and says to the logger, at level info, that this was all.
package x11

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/clipboard"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/driver/x11/internal/focus"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/robot"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
	"github.com/deskagent/deskagent/driver/x11/internal/xtest"
)

// A Sink names a way to put events into the server.
type Sink string

// The sinks. They are told apart only by what they need.
const (
	// SinkAuto is robotgo where it can be had, else XTEST.
	SinkAuto Sink = ""
	// SinkRobotgo is robotgo, with XTEST for what it does wrong or not at all. It needs cgo, and serves one display
	// per process at a time.
	SinkRobotgo Sink = "robotgo"
	// SinkXTEST is the XTEST protocol, without cgo.
	SinkXTEST Sink = "xtest"
)

// A Capture names a way to take pictures.
type Capture string

// The ways to take pictures. They show the same pixels.
const (
	// CaptureAuto reads the root window through memory that is shared with the server where that can be had, else
	// over a connection.
	CaptureAuto Capture = ""
	// CaptureDirect has pixels sent over a connection.
	CaptureDirect Capture = "direct"
	// CaptureKbinani is kbinani/screenshot, where it is right: $DISPLAY is the display, the depth is 24, the
	// session is not a Wayland one; elsewhere Open refuses. It is slower, and safe only in a process that has no
	// other X client: it changes tables that all xgb connections of a process read, without a lock.
	CaptureKbinani Capture = "kbinani"
)

// Options are the settings of a Driver. The zero value of each but Display is its default.
type Options struct {
	// Display names the X display, such as ":3". It is required: this package looks at no environment variable.
	Display string
	// Sink and Capture choose how events get in and pictures get out.
	Sink    Sink
	Capture Capture
	// DryRun, unless nil, is written a line for each event, and the server gets none. Actions are checked against the
	// display as ever, and pauses are left out. Sink is not looked at.
	DryRun io.Writer
	// Logger is told each action and its duration, at debug level; what was typed is not. What was found down or left
	// behind on the display is a warning. Nil discards.
	Logger *slog.Logger

	// Watchdog is the command of a process that releases what is down and restores the keyboard map as soon as this
	// process dies, whatever kills it: it calls [Watch] with the two arguments that are added here. The driver starts
	// it, outside of the process group, and waits for its end in Close. Empty means none; then the next driver does
	// it.
	Watchdog []string
	// Release has Open release the keys and buttons that it finds down.
	Release bool
	// ClearModifiers lifts modifiers that somebody else holds down, for the time of an action, and puts them back
	// after it. Otherwise the action is refused. Who lets go of a key in the meantime finds it down again.
	ClearModifiers bool

	// Paste has Type put the text on the clipboard, press PasteKeys, and put back what was on the clipboard once the
	// program that has the focus has fetched the text. It is for texts of megabytes, and for programs that take long
	// for each key: a short text takes about 60ms, a megabyte about 100ms. Newlines and tabs arrive as they are instead
	// of as keys.
	//
	// It costs the clipboard for a moment. Other programs see the text there, and clipboard managers keep it. What was
	// there is fetched from its owner before, for at most 2s and 64 MB, and what is not to be had in this way is lost
	// and said to the logger. Afterwards it is this driver that gives it to others: Close hands it over to a clipboard
	// manager; where there is none it is gone then, as it is when this process dies. A field that does not take the chord for pasting is an error after 5s. So is one whose
	// program asks for the clipboard by another connection to the server than that of its window.
	Paste bool
	// PasteKeys is the chord that pastes from the clipboard, in the names of [driver.Keypress]. Terminals mostly want
	// CTRL, SHIFT and V. Default CTRL and V.
	PasteKeys []string

	// Hold is how long a button or a chord stays down, and how long a drag rests before it moves and before it
	// lets go. Programs that look at the state of the keyboard from time to time miss what is shorter than their
	// interval. Default 10ms.
	Hold time.Duration
	// DoubleClickGap lies between the two clicks of a double click. Default 50ms.
	DoubleClickGap time.Duration
	// DoubleClickTime is how long programs may take a click for the continuation of the one before it. A double
	// click waits until a click before it at the same place is older, lest the two become a triple click; so does
	// a click after a double click. Default 500ms.
	DoubleClickTime time.Duration
	// DragStep is how far apart, in pixels, the points of a drag's motion are, at most. Default 8. With a single step
	// GTK begins no drag and no selection.
	DragStep int
	// DragPace is how long the pointer takes for one DragStep. Default 3ms. Without a pace Chromium drops nothing.
	DragPace time.Duration
	// PixelsPerNotch is how many pixels of a Scroll make one notch of the wheel. Default 120, which is how far one
	// notch moves a page in Chromium 156 of Debian 12.
	PixelsPerNotch int
	// ScrollPace lies between two notches. Chromium 156 loses up to 80 % of the way of 25 notches that come at once,
	// and nothing of them at 1ms. Default 3ms.
	ScrollPace time.Duration

	// SettleGrace, SettleQuiet and SettleDeadline are the times of coming to rest: how long a reaction to an action may
	// take to begin, how long nothing must change then, and how long a picture is held up at most. Default 200ms, 80ms
	// and 3s: GTK was seen to begin within 20ms, Chromium within 100, or 200 for a new tab, with pauses of up to 75ms
	// within a reaction that is not the loading of a page.
	SettleGrace, SettleQuiet, SettleDeadline time.Duration
	// WaitTime is the grace of a Wait, whose quiet time is half of it. Default 1s.
	WaitTime time.Duration
	// Monitor is the name of the monitor that pictures show, as RandR and xrandr have it, such as "DP-1". Empty stands
	// for the whole root window, with all monitors at their places. Coordinates are those of the root window in
	// either case.
	Monitor string
	// Pointer draws the pointer in pictures.
	Pointer bool
	// Masks are black in every picture, before it leaves the driver.
	Masks []Mask
}

// withDefaults checks o and returns a copy with nothing left out.
func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	switch r.Sink {
	case SinkAuto, SinkRobotgo, SinkXTEST:
	default:
		return r, fmt.Errorf("unknown sink %q, want %q or %q", r.Sink, SinkRobotgo, SinkXTEST)
	}
	switch r.Capture {
	case CaptureAuto, CaptureDirect, CaptureKbinani:
	default:
		return r, fmt.Errorf("unknown capture %q, want %q or %q", r.Capture, CaptureDirect, CaptureKbinani)
	}
	if len(r.PasteKeys) > 0 && !r.Paste {
		return r, fmt.Errorf("PasteKeys are %q and Paste is not set", r.PasteKeys)
	}
	if _, err := driver.ParseKeys(r.PasteKeys); err != nil {
		return r, fmt.Errorf("PasteKeys: %w", err)
	}
	if len(r.PasteKeys) == 0 {
		r.PasteKeys = []string{"CTRL", "V"}
	}
	r.Masks = slices.Clone(r.Masks)
	for _, m := range r.Masks {
		if err := m.check(); err != nil {
			return r, err
		}
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	for _, err := range []error{
		setDefault("Hold", &r.Hold, 10*time.Millisecond),
		setDefault("DoubleClickGap", &r.DoubleClickGap, 50*time.Millisecond),
		setDefault("DoubleClickTime", &r.DoubleClickTime, 500*time.Millisecond),
		setDefault("DragStep", &r.DragStep, 8),
		setDefault("DragPace", &r.DragPace, 3*time.Millisecond),
		setDefault("PixelsPerNotch", &r.PixelsPerNotch, 120),
		setDefault("ScrollPace", &r.ScrollPace, 3*time.Millisecond),
		setDefault("SettleGrace", &r.SettleGrace, 200*time.Millisecond),
		setDefault("SettleQuiet", &r.SettleQuiet, 80*time.Millisecond),
		setDefault("SettleDeadline", &r.SettleDeadline, 3*time.Second),
		setDefault("WaitTime", &r.WaitTime, time.Second),
	} {
		if err != nil {
			return r, err
		}
	}
	if r.Hold+r.DoubleClickGap >= r.DoubleClickTime {
		return r, fmt.Errorf("Hold %v and DoubleClickGap %v take longer than DoubleClickTime %v", r.Hold, r.DoubleClickGap, r.DoubleClickTime)
	}
	return r, nil
}

func setDefault[T int | time.Duration](name string, value *T, standard T) error {
	if *value < 0 {
		return fmt.Errorf("%s is %v, want 0 for the default or more", name, *value)
	}
	if *value == 0 {
		*value = standard
	}
	return nil
}

// A Driver drives one X display. It is a [driver.Driver], [driver.Sizer], [driver.Viewer] and [driver.Holder]. Its
// methods may be called from any goroutine; the actions run one after the other on a goroutine of its own.
type Driver struct {
	opts Options
	sink Sink // the one that was chosen
	jobs chan job
	// closing ends when Close is called, ended is closed when the worker is gone.
	closing context.Context
	close   context.CancelCauseFunc
	ended   chan struct{}
	// held is what was down when the driver was opened, and watchdog the one that was started; Open sets them.
	held     []string
	watchdog *watchdog
	// closeErr is what the worker met while closing; it is set before ended.
	closeErr error
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Sizer  = (*Driver)(nil)
	_ driver.Viewer = (*Driver)(nil)
	_ driver.Holder = (*Driver)(nil)
)

// ErrClosed is wrapped by the errors of a Driver after Close, and of an action that Close cut short.
var ErrClosed = errors.New("driver is closed")

// Open connects to a display and finds out whether it can be driven. What a driver that died has left behind it
// clears away first. Up to eight drivers may be open on one display, which is of use to look on while one acts. Its
// errors wrap [driver.ErrNoDisplay] when
// there is no display of that name, and [driver.ErrUnsupported] when it cannot be driven from here: it has no
// XTEST, its screen is not of depth 16, 24 or 30, this is not Linux, or robotgo was asked for and cannot be had.
func Open(ctx context.Context, opts *Options) (*Driver, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("opening an X11 driver: %w", err)
	}
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("driving a desktop on %s: %w", runtime.GOOS, driver.ErrUnsupported)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("opening display %q: %w", o.Display, err)
	}
	d := &Driver{opts: o, jobs: make(chan job), ended: make(chan struct{})}
	d.closing, d.close = context.WithCancelCause(context.Background())
	opened := make(chan error, 1)
	go d.work(opened)
	select {
	case err = <-opened:
	case <-ctx.Done():
		// A server that does not answer keeps the worker, which ends when the server does.
		err = context.Cause(ctx)
	}
	if err != nil {
		d.close(ErrClosed)
		return nil, fmt.Errorf("opening display %q: %w", o.Display, err)
	}
	return d, nil
}

// open is the worker's part of Open.
func (d *Driver) open() (_ *desk, err error) {
	conn, err := display.Open(d.opts.Display)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	eyes, err := openEyes(d.closing, conn, &d.opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			eyes.close()
		}
	}()
	var keys keymap
	if keys.xkb, err = xkb.Use(conn); err != nil {
		return nil, err
	}
	if keys.focus, err = focus.Open(conn); err != nil {
		return nil, err
	}
	layout, err := keyboard.Read(keys.xkb, nil)
	if err != nil {
		return nil, err
	}
	if err := d.closing.Err(); err != nil {
		return nil, err // Nobody waits any more, and robotgo is for one driver at a time.
	}
	var sink event.Sink
	if sink, keys.pen, err = d.openSinks(conn); err != nil {
		return nil, err
	}
	k := &desk{opts: &d.opts, conn: conn, keys: layout, keymap: keys, eyes: eyes, hands: hands{sink: sink, apart: d.sink == SinkRobotgo}}
	if d.opts.DryRun != nil {
		return k, nil
	}
	if d.opts.Paste {
		k.clipboard, err = clipboard.Open(d.opts.Display)
	}
	if err == nil {
		err = d.takePlace(k)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// openSinks opens the sink that the options ask for, and notes which one it is, and the one for text.
func (d *Driver) openSinks(conn *display.Conn) (sink, pen event.Sink, err error) {
	if d.opts.DryRun != nil {
		printer := event.Printer{W: d.opts.DryRun}
		return printer, printer, nil
	}
	direct, err := xtest.New(conn)
	if err != nil {
		return nil, nil, err
	}
	if d.opts.Sink != SinkXTEST {
		sink, err = robot.New(conn.Name)
		if err == nil || d.opts.Sink == SinkRobotgo || !errors.Is(err, driver.ErrUnsupported) {
			d.sink = SinkRobotgo
			return sink, direct, err
		}
	}
	d.sink = SinkXTEST
	return direct, direct, nil
}

// Sink tells which sink the driver uses, SinkRobotgo or SinkXTEST; neither in a dry run.
func (d *Driver) Sink() Sink { return d.sink }

// Close cuts short an action that is running, releases what is down and frees everything. When it returns, nothing
// of the driver is left, unless the server is alive but does not answer: that is the error. Closing a closed driver
// does nothing.
func (d *Driver) Close() error {
	d.close(ErrClosed)
	select {
	case <-d.ended:
		return d.closeErr
	case <-time.After(2 * grace):
		return fmt.Errorf("closing display %q: it has not answered for %v", d.opts.Display, 2*grace)
	}
}
