// Package desktop is what deskagent does inside a sandbox: it is the program that starts there, brings up the desktop
// and watches it.
//
// # Ready
//
// A display is ready when the X server answers, a window manager has taken over, and the driver has opened it and
// taken a picture. Only then does the root window get [Mark], by which everyone knows that the display may be given to
// a model, and may be given one now. Nothing sleeps for a guessed time.
//
// # Crashes
//
// The X server and the window manager are watched. When one of them ends, [Run] says which and how, and ends, and the
// container with it: a desktop without its window manager would take input in a way that nobody expects.
package desktop

import (
	"context"
	"fmt"
	"image"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/run"
	"github.com/deskagent/deskagent/internal/xvfb"
)

const (
	// Display is the one display of a guest.
	Display = ":0"

	// Mark is the property of the root window that says that a display is a guest's, and ready.
	Mark = "_DESKAGENT_GUEST"

	// startTime bounds how long the desktop may take to be ready (row L7 of the field cases).
	startTime = 30 * time.Second

	// pollTime is between two looks at whether something is there yet.
	pollTime = 5 * time.Millisecond

	// background is the colour of the desktop, so that a picture of it is not black, as one of a dead screen is.
	background = 0x2e4a62
)

func init() {
	xgb.Logger = log.New(io.Discard, "", 0) // It prints two lines for each connection without ~/.Xauthority.
}

// Options describes a desktop. Nil means the zero Options.
type Options struct {
	// Screen is the size in pixels; zero means 1280x800.
	Screen image.Point
	// Output receives what the window manager says; nil discards it.
	Output io.Writer
	// Logger is told what happens; nil discards it.
	Logger *slog.Logger
}

// Run brings up the desktop on [Display] and watches it until ctx ends, which is no error, or until the X server or
// the window manager does, which is one.
func Run(ctx context.Context, opts *Options) error {
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	if o.Screen == (image.Point{}) {
		o.Screen = image.Pt(1280, 800)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(ctx)
	var preparing sync.WaitGroup
	defer func() {
		cancel()
		preparing.Wait()
	}()
	begin := time.Now()
	// A server that is started like this tells its number when it is ready; it neither writes a lock file nor believes
	// one, so what a killed server left does no harm. The process number in there is likely to be taken again in a
	// container that is started anew (row D1 of the field cases).
	server, err := xvfb.Start(ctx, &xvfb.Options{Width: o.Screen.X, Height: o.Screen.Y, Args: []string{Display}})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer server.Close()
	manager, err := run.Start(ctx, []string{"openbox", "--sm-disable"}, &run.Options{Env: append(os.Environ(), "DISPLAY="+Display), Output: o.Output})
	if err != nil {
		return interrupted(ctx, fmt.Errorf("starting the window manager: %w", err))
	}
	defer manager.Stop()
	ready := make(chan error, 1)
	preparing.Go(func() { ready <- prepare(ctx) })
	for {
		select {
		case err := <-ready:
			if err != nil {
				return interrupted(ctx, err)
			}
			o.Logger.Info("the desktop is ready", "screen", o.Screen, "after", time.Since(begin).Round(time.Millisecond))
			ready = nil
		case <-ctx.Done():
			return nil
		case <-server.Done():
			return interrupted(ctx, fmt.Errorf("the X server has ended by itself: %v", server.Err()))
		case <-manager.Done():
			select {
			case <-server.Done(): // so the window manager had to end, and may be noticed first
				return interrupted(ctx, fmt.Errorf("the X server has ended by itself: %v", server.Err()))
			case <-time.After(time.Second):
			}
			return interrupted(ctx, fmt.Errorf("the window manager has ended by itself: %v", manager.Err()))
		}
	}
}

// interrupted is nil instead of an error that only says that ctx has ended.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// prepare waits for the window manager, paints the background, has the driver take a picture, and sets the mark.
func prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("not there after %v", startTime))
	defer cancel()
	conn, err := xgb.NewConnDisplay(Display)
	if err != nil {
		return fmt.Errorf("connecting to display %s: %w", Display, err)
	}
	defer conn.Close()
	root := xproto.Setup(conn).DefaultScreen(conn).Root
	if err := poll(ctx, func() bool { return managed(conn, root) }); err != nil {
		return fmt.Errorf("waiting for the window manager: %w", err)
	}
	xproto.ChangeWindowAttributes(conn, root, xproto.CwBackPixel, []uint32{background})
	xproto.ClearArea(conn, false, root, 0, 0, 0, 0)
	d, err := x11.Open(ctx, &x11.Options{Display: Display})
	if err != nil {
		return fmt.Errorf("trying the driver: %w", err)
	}
	defer d.Close()
	if _, err := d.Screenshot(ctx); err != nil {
		return fmt.Errorf("trying to take a picture: %w", err)
	}
	atom, err := xproto.InternAtom(conn, false, uint16(len(Mark)), Mark).Reply()
	if err != nil {
		return fmt.Errorf("marking display %s as a guest's: %w", Display, err)
	}
	if err := xproto.ChangePropertyChecked(conn, xproto.PropModeReplace, root, atom.Atom, xproto.AtomString, 8, 1, []byte{'1'}).Check(); err != nil {
		return fmt.Errorf("marking display %s as a guest's: %w", Display, err)
	}
	return nil
}

// WaitReady waits until the desktop is ready. It says how far it has come when ctx ends first.
func WaitReady(ctx context.Context) error {
	state := "there is no X server"
	err := poll(ctx, func() bool {
		conn, err := xgb.NewConnDisplay(Display)
		if err != nil {
			return false
		}
		defer conn.Close()
		root := xproto.Setup(conn).DefaultScreen(conn).Root
		state = "there is an X server, but no window manager"
		if managed(conn, root) {
			state = "there is an X server and a window manager, but no picture yet"
		}
		_, ok := property(conn, root, Mark)
		return ok
	})
	if err != nil {
		return fmt.Errorf("waiting for the desktop on %s: %s: %w", Display, state, err)
	}
	return nil
}

func poll(ctx context.Context, there func() bool) error {
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for !there() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// managed tells whether a window manager is at work, by the Extended Window Manager Hints: the root window names a
// window of the manager, which names itself.
func managed(conn *xgb.Conn, root xproto.Window) bool {
	window, ok := property(conn, root, "_NET_SUPPORTING_WM_CHECK")
	if !ok || len(window) != 4 {
		return false
	}
	itself, ok := property(conn, xproto.Window(xgb.Get32(window)), "_NET_SUPPORTING_WM_CHECK")
	return ok && string(itself) == string(window)
}

func property(conn *xgb.Conn, window xproto.Window, name string) ([]byte, bool) {
	atom, err := xproto.InternAtom(conn, true, uint16(len(name)), name).Reply()
	if err != nil || atom.Atom == xproto.AtomNone {
		return nil, false
	}
	reply, err := xproto.GetProperty(conn, false, window, atom.Atom, xproto.GetPropertyTypeAny, 0, 64).Reply()
	if err != nil || reply.Format == 0 {
		return nil, false
	}
	return reply.Value, true
}
