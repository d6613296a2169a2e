// Package app is the practice application: a real X client with one window full of small tasks, each marked as
// package palette describes. What it demands is drawn at random and shown in the window alone.
//
// # What it trusts
//
// It speaks to the X server over its own connection and reads the keyboard map by itself, so that what it received
// can be held against what a driver claims to have sent. It logs every X event it gets, and its save button writes
// the state of the window as a [Record].
//
// The window asks a window manager for a fixed place and size and takes the keyboard focus when it is clicked, so
// that it works with a window manager and without one.
package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

func init() {
	xgb.Logger = log.New(io.Discard, "", 0) // It prints two lines for each connection without ~/.Xauthority.
}

// slowTask is how long the slow task takes: longer than a picture, so that waiting for it is worth while.
const slowTask = 200 * time.Millisecond

// While the window does not show, it is asked for again.
const (
	askAgain = 200 * time.Millisecond
	maxAsked = 50
)

// Options describes an application. Nil means the zero Options, which lack a record and so cannot save.
type Options struct {
	// Display is the name of the X display, such as ":3"; empty means that of the environment.
	Display string
	// At is the window's upper left corner in screen space.
	At image.Point
	// Seed chooses what the window demands, as [NewChallenge] does.
	Seed uint64
	// Record is the file that the save button writes.
	Record string
	// Events gets the event log, one JSON object a line; nil discards it. It is written to by one goroutine.
	Events io.Writer
	// Logger gets what is worth knowing when something goes wrong; nil discards it.
	Logger *slog.Logger
}

// An App is a running practice application. Its methods are safe to use from several goroutines.
type App struct {
	opts   Options
	window *window
	desk   *desk
	cancel context.CancelFunc
	syncs  chan chan struct{} // requests of Sync
	done   chan struct{}      // closed when the loop has ended
	err    error              // why it ended; to be read after done

	mu     sync.Mutex
	events []Event
}

// Open shows the window and returns when it is on the screen and has the keyboard. It ends with ctx, with Close, or with the display.
func Open(ctx context.Context, opts *Options) (*App, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		o.Events = io.Discard
	}
	w, err := openWindow(o.Display, o.At)
	if err != nil {
		return nil, fmt.Errorf("opening the practice window on display %q at %v: %w", o.Display, o.At, err)
	}
	inner, cancel := context.WithCancel(ctx)
	a := &App{
		opts: o, window: w, desk: newDesk(NewChallenge(o.Seed)), cancel: cancel,
		syncs: make(chan chan struct{}), done: make(chan struct{}),
	}
	shown := make(chan struct{})
	go a.loop(inner, shown)
	select {
	case <-shown:
		return a, nil
	case <-a.done:
		cancel()
		return nil, fmt.Errorf("showing the practice window on display %q: %w", o.Display, cmp.Or(a.err, context.Cause(ctx)))
	}
}

// Done is closed when the application has ended.
func (a *App) Done() <-chan struct{} { return a.done }

// Close ends the application, waits for its end, and returns the error that ended it earlier, if one did.
func (a *App) Close() error {
	a.cancel()
	<-a.done
	return a.err
}

// Events returns the events received so far, in order.
func (a *App) Events() []Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

// Sync waits until everything that the server sent to the window before the call has been handled.
func (a *App) Sync(ctx context.Context) error {
	handled := make(chan struct{}, 1)
	select {
	case a.syncs <- handled:
	case <-a.done:
		return fmt.Errorf("waiting for the practice application: %w", errEnded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-handled:
		return nil
	case <-a.done:
		return fmt.Errorf("waiting for the practice application: %w", errEnded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Why an application ended by itself.
var (
	errEnded       = errors.New("it has ended")
	errDisplayLost = errors.New("the display went away")
	errClosed      = errors.New("the window was closed")
	errNotShown    = errors.New("the window manager does not show the window or give it the keyboard")
)

// loop owns the window and the desk. It ends with ctx or with an error, which it leaves in a.err.
func (a *App) loop(ctx context.Context, shown chan<- struct{}) {
	defer close(a.done)
	defer a.window.close()
	a.err = a.run(ctx, shown)
	if a.err != nil {
		a.opts.Logger.Error("practice application ended", "error", a.err)
	}
}

func (a *App) run(ctx context.Context, shown chan<- struct{}) error {
	picture := canvas{image.NewRGBA(image.Rectangle{Max: Size}), newFaces()}
	slow := time.NewTimer(0)
	<-slow.C
	defer slow.Stop()
	var waiting []chan struct{} // for their message to come back, in order
	// A window manager may overlook a window that comes while it starts itself, until something else happens.
	ask := time.NewTicker(askAgain)
	defer ask.Stop()
	asked := 0
	a.desk.paint(picture)
	a.window.paint(picture.RGBA)
	painted := a.desk.visible
	for {
		var effect effect
		select {
		case <-ctx.Done():
			return nil
		case <-slow.C:
			a.desk.finish()
		case <-ask.C:
			if asked++; asked > maxAsked {
				return errNotShown
			}
			a.window.show()
			continue
		case handled := <-a.syncs:
			waiting = append(waiting, handled)
			a.window.sendSync()
			continue
		case event, ok := <-a.window.events:
			if !ok {
				return errDisplayLost
			}
			if err := a.log(event); err != nil {
				return err
			}
			switch event := event.(type) {
			case xproto.ClientMessageEvent:
				if event.Type == a.window.protocol {
					return errClosed
				}
				if event.Type == a.window.sync && len(waiting) > 0 {
					waiting[0] <- struct{}{}
					waiting = waiting[1:]
				}
			case xproto.ExposeEvent:
				a.window.expose(image.Rect(int(event.X), int(event.Y), int(event.X+event.Width), int(event.Y+event.Height)))
				if shown != nil {
					a.window.focus(xproto.TimeCurrentTime)
				}
			case xproto.FocusInEvent:
				if shown != nil {
					if err := a.window.roundTrip(); err != nil {
						return fmt.Errorf("waiting for the display: %w", err)
					}
					close(shown)
					shown = nil
					ask.Stop()
				}
			case xproto.MappingNotifyEvent:
				keyboard, err := readKeyboard(a.window.conn)
				if err != nil {
					return err
				}
				a.window.keyboard = keyboard
			default:
				effect = a.input(event)
			}
		}
		switch effect {
		case startSlowTask:
			slow.Reset(slowTask)
		case saveRecord:
			if err := a.save(); err != nil {
				return err
			}
		}
		// A burst of events is painted once.
		if len(a.window.events) == 0 && a.desk.visible != painted {
			a.desk.paint(picture)
			a.window.paint(picture.RGBA)
			painted = a.desk.visible
		}
	}
}

// input hands an event of the pointer or the keyboard to the desk.
func (a *App) input(event xgb.Event) effect {
	switch e := event.(type) {
	case xproto.ButtonPressEvent:
		if e.Detail == buttonLeft {
			a.window.focus(e.Time)
		}
		a.desk.down(press{int(e.Detail), image.Pt(int(e.EventX), int(e.EventY)), e.State, uint32(e.Time)})
	case xproto.ButtonReleaseEvent:
		return a.desk.up(press{int(e.Detail), image.Pt(int(e.EventX), int(e.EventY)), e.State, uint32(e.Time)})
	case xproto.MotionNotifyEvent:
		a.desk.move(image.Pt(int(e.EventX), int(e.EventY)), e.State)
	case xproto.KeyPressEvent:
		keysym, _ := a.window.keyboard.lookup(e.Detail, e.State)
		a.desk.key(keysym, e.State)
	}
	return nothing
}

func (a *App) log(event xgb.Event) error {
	e := newEvent(event, a.window.keyboard)
	a.mu.Lock()
	a.events = append(a.events, e)
	a.mu.Unlock()
	if err := json.NewEncoder(a.opts.Events).Encode(e); err != nil {
		return fmt.Errorf("writing the event log: %w", err)
	}
	return nil
}

// save writes the record beside its place and moves it there, so that no reader ever finds half of it.
func (a *App) save() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving the record to %q: %w", a.opts.Record, err)
		}
	}()
	data, err := json.MarshalIndent(a.desk.record, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(a.opts.Record), ".record-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), a.opts.Record)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	a.desk.save()
	return nil
}
