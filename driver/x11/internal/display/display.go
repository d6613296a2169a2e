// Package display is one connection to an X server: the screen it shows, the pointer, and what went wrong. All X
// requests of the driver that robotgo does not make go through it.
//
// A [Conn] belongs to one goroutine.
package display

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"log"
	"strings"
	"syscall"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

func init() {
	// xgb prints to standard error by default, two lines for each connection where there is no ~/.Xauthority. All
	// that it would say arrives here as an error too.
	xgb.Logger = log.New(io.Discard, "", 0)
}

// closeGrace is how long Close waits for a server that does not answer.
const closeGrace = time.Second

// A Conn is a connection to one X server. Its errors wrap [driver.ErrDisplayLost] once the server is gone.
type Conn struct {
	X      *xgb.Conn
	Name   string
	Screen *xproto.ScreenInfo
	Setup  *xproto.SetupInfo

	fault error // the first error of a request that has no reply, until Sync reports it
}

// Open connects to the display of the given name, such as ":3". The error is one line and wraps
// [driver.ErrNoDisplay].
func Open(name string) (*Conn, error) {
	if name == "" {
		return nil, fmt.Errorf("%w: no display name given", driver.ErrNoDisplay)
	}
	x, err := connect(name)
	if err != nil {
		// The server's own words may be in it, with line ends.
		return nil, fmt.Errorf("%w: %s", driver.ErrNoDisplay, strings.Join(strings.Fields(err.Error()), " "))
	}
	c := &Conn{X: x, Name: name, Setup: xproto.Setup(x)}
	if x.DefaultScreen >= len(c.Setup.Roots) {
		c.Close()
		return nil, fmt.Errorf("%w: the server has %d screens, numbered from 0", driver.ErrNoDisplay, len(c.Setup.Roots))
	}
	c.Screen = c.Setup.DefaultScreen(x)
	return c, nil
}

// connect connects to a server, which may be about to start anew: by default an X server does when its last client
// goes, and drops who comes at that moment.
func connect(name string) (*xgb.Conn, error) {
	const patience, interval = time.Second, 10 * time.Millisecond
	for deadline := time.Now().Add(patience); ; time.Sleep(interval) {
		x, err := xgb.NewConnDisplay(name)
		dropped := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if !dropped || time.Now().After(deadline) {
			return x, err
		}
	}
}

// Close ends the connection and waits until its goroutines have ended. A server that is alive but does not answer
// is given up after a second.
func (c *Conn) Close() error {
	c.X.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if event, err := c.X.WaitForEvent(); event == nil && err == nil {
				return
			}
		}
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(closeGrace):
		return fmt.Errorf("closing display %q: it has not answered for %v", c.Name, closeGrace)
	}
}

// Root is the root window, as what pictures are taken of.
func (c *Conn) Root() xproto.Drawable { return xproto.Drawable(c.Screen.Root) }

// Bounds asks for the size of the root window, which changes when the screen is resized.
func (c *Conn) Bounds() (image.Rectangle, error) { return c.AskBounds()() }

// AskBounds is Bounds in two steps: it sends the request, and what it returns waits for the reply. Several questions
// whose requests are sent first cost one wait.
func (c *Conn) AskBounds() func() (image.Rectangle, error) {
	geometry := xproto.GetGeometry(c.X, c.Root())
	return func() (image.Rectangle, error) {
		r, err := geometry.Reply()
		if err != nil {
			return image.Rectangle{}, Err(err)
		}
		return image.Rect(0, 0, int(r.Width), int(r.Height)), nil
	}
}

// An Input is what the input devices are at, all of them together.
type Input struct {
	Pointer image.Point      // in root coordinates
	Keys    []xproto.Keycode // that are down
	Buttons []byte           // that are down, of the first five: the server does not tell of others
}

// Pointer asks where the pointer is, in root coordinates.
func (c *Conn) Pointer() (image.Point, error) {
	r, err := xproto.QueryPointer(c.X, c.Screen.Root).Reply()
	if err != nil {
		return image.Point{}, Err(err)
	}
	return image.Pt(int(r.RootX), int(r.RootY)), nil
}

// Input asks for the state of the devices.
func (c *Conn) Input() (Input, error) { return c.AskInput()() }

// AskInput is Input in two steps, as AskBounds is Bounds.
func (c *Conn) AskInput() func() (Input, error) {
	keymap, pointer := xproto.QueryKeymap(c.X), xproto.QueryPointer(c.X, c.Screen.Root)
	return func() (in Input, err error) {
		keys, err := keymap.Reply()
		if err != nil {
			return in, Err(err)
		}
		at, err := pointer.Reply()
		if err != nil {
			return in, Err(err)
		}
		in.Pointer = image.Pt(int(at.RootX), int(at.RootY))
		for code := int(c.Setup.MinKeycode); code <= int(c.Setup.MaxKeycode); code++ {
			if keys.Keys[code/8]&(1<<(code%8)) != 0 {
				in.Keys = append(in.Keys, xproto.Keycode(code))
			}
		}
		for number := byte(1); number <= 5; number++ {
			if at.Mask&(xproto.ButtonMask1<<(number-1)) != 0 {
				in.Buttons = append(in.Buttons, number)
			}
		}
		return in, nil
	}
}

// Sync waits until the server has done all that was asked, and returns the first error that came up.
func (c *Conn) Sync() error { return c.AskSync()() }

// AskSync is Sync in two steps, as AskBounds is Bounds.
func (c *Conn) AskSync() func() error {
	anything := xproto.GetInputFocus(c.X)
	return func() error {
		if _, err := anything.Reply(); err != nil {
			return Err(err)
		}
		c.poll()
		fault := c.fault
		c.fault = nil
		return fault
	}
}

// Await waits for an event that is wanted, unless ctx ends first. Whoever selects events takes them off the queue this
// way, and selects none when done: a queue that nobody empties holds up the replies behind it.
func (c *Conn) Await(ctx context.Context, wanted func(xgb.Event) bool) error {
	const interval = 100 * time.Microsecond // xgb cannot wait for an event and a context at once
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		for event, more := c.next(); more; event, more = c.next() {
			if event != nil && wanted(event) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// poll takes what has arrived off the queue.
func (c *Conn) poll() {
	for more := true; more; {
		_, more = c.next()
	}
}

// next takes the next event or error off the queue, if there is one. The errors are those of requests without a reply.
func (c *Conn) next() (event xgb.Event, more bool) {
	event, err := c.X.PollForEvent()
	if err != nil && c.fault == nil {
		c.fault = Err(err)
	}
	return event, event != nil || err != nil
}

// Err turns an error of xgb into one of package driver: the end of the connection is a lost display.
func Err(err error) error {
	if errors.Is(err, io.EOF) {
		return driver.ErrDisplayLost
	}
	return fmt.Errorf("X error: %w", err)
}
