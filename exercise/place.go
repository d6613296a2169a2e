package exercise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/exercise/booking"
	child "github.com/deskagent/deskagent/internal/run"
)

// A place is the desktop that an exercise is done on, but for the hands: what is shown there, and what came of it.
type place interface {
	// screen is the area of the desktop.
	screen() image.Rectangle
	// practise shows the practice application, for a seed, with its upper left corner at a point of the screen.
	practise(ctx context.Context, at image.Point, seed uint64) error
	// ended is closed when the application has ended by itself.
	ended() <-chan struct{}
	// outcome is what the application has received and saved so far.
	outcome(ctx context.Context) (outcome, error)
	// book closes the application and shows the practice page in a browser, for a seed.
	book(ctx context.Context, seed uint64) error
	// booked is what the page's server has stored, and the file that was asked for there.
	booked(ctx context.Context) (errandOutcome, error)
	close() error
}

// An outcome is what came of the practice application.
type outcome struct {
	Events []app.Event `json:"events"`
	Record []byte      `json:"record"` // the file; nil if there is none
	Held   string      `json:"held"`   // why what the server says of keys and buttons is not right; empty when it is
}

// An errandOutcome is what came of the errand.
type errandOutcome struct {
	Booking booking.Booking `json:"booking"`
	Note    string          `json:"note"` // what is in the file
}

// near is a place on a display of this machine.
type near struct {
	display   string
	dir       string    // for the record
	events    io.Writer // of the application
	logger    *slog.Logger
	inspector *inspector
	app       *app.App
	page      *booking.Server
	browser   *child.Process
	profile   string
}

func openNear(display, dir string, events io.Writer, logger *slog.Logger) (*near, error) {
	i, err := openInspector(display)
	if err != nil {
		return nil, err
	}
	return &near{display: display, dir: dir, events: events, logger: logger, inspector: i}, nil
}

func (n *near) screen() image.Rectangle { return n.inspector.screen }

func (n *near) practise(ctx context.Context, at image.Point, seed uint64) (err error) {
	n.app, err = app.Open(ctx, &app.Options{
		Display: n.display, At: at, Seed: seed, Record: filepath.Join(n.dir, recordFile), Events: n.events, Logger: n.logger,
	})
	return err
}

func (n *near) ended() <-chan struct{} { return n.app.Done() }

func (n *near) outcome(ctx context.Context) (o outcome, err error) {
	if err := n.app.Sync(ctx); err != nil {
		return o, err
	}
	o.Events = n.app.Events()
	if o.Record, err = os.ReadFile(filepath.Join(n.dir, recordFile)); errors.Is(err, fs.ErrNotExist) {
		o.Record, err = nil, nil
	}
	if held := n.inspector.check(); held != nil {
		o.Held = held.Error()
	}
	return o, err
}

// browserTime bounds how long a browser may take to show the page, on a machine where several start at a time.
const browserTime = 2 * time.Minute

// noteFolder is where the note is asked for: the home of the guest's user.
const noteFolder = "/home/desk"

func (n *near) book(ctx context.Context, seed uint64) (err error) {
	if err := n.app.Close(); err != nil {
		return err
	}
	n.app = nil
	if n.page, err = booking.Start(seed, noteFolder); err != nil {
		return err
	}
	if n.profile, err = os.MkdirTemp("", "deskagent-browser-"); err != nil {
		return err
	}
	// As large as the page needs, and as leaves the lower right corner of the desktop free.
	n.browser, err = child.Start(context.WithoutCancel(ctx), []string{"chromium", "--user-data-dir=" + n.profile, "--no-first-run",
		"--window-position=20,10", "--window-size=1100,740", n.page.URL()}, &child.Options{Env: append(os.Environ(), "DISPLAY="+n.display)})
	if err != nil {
		return err
	}
	select {
	case <-n.page.Shown():
		return nil
	case <-n.browser.Done():
		return fmt.Errorf("the browser has ended: %w", n.browser.Err())
	case <-time.After(browserTime):
		return fmt.Errorf("the browser does not show the page within %v", browserTime)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (n *near) booked(context.Context) (o errandOutcome, err error) {
	if o.Booking, err = n.page.Booked(); err != nil {
		return o, err
	}
	note, err := os.ReadFile(o.Booking.File)
	o.Note = string(note)
	return o, err
}

func (n *near) close() error {
	var errs []error
	if n.app != nil {
		errs = append(errs, n.app.Close())
	}
	if n.browser != nil {
		n.browser.Stop()
	}
	if n.page != nil {
		errs = append(errs, n.page.Close())
	}
	if n.profile != "" {
		errs = append(errs, os.RemoveAll(n.profile))
	}
	return errors.Join(append(errs, n.inspector.close())...)
}

// The messages between a far place and the one who practises there: a JSON object a line, each request with its answer.
type (
	farRequest struct {
		Do   string      `json:"do"` // practise, outcome, book or booked
		At   image.Point `json:"at"`
		Seed uint64      `json:"seed"`
	}
	farAnswer struct {
		Error   string           `json:"error,omitempty"`
		Ended   bool             `json:"ended,omitempty"` // no answer: the application has ended
		Screen  *image.Rectangle `json:"screen,omitempty"`
		Outcome *outcome         `json:"outcome,omitempty"`
		Errand  *errandOutcome   `json:"errand,omitempty"`
	}
)

// Practise is the far end of an exercise whose desktop is elsewhere: it shows the practice application and the practice page on
// a display of the machine that it runs on, until its input ends. In a guest "deskagent guest practice" calls it.
func Practise(ctx context.Context, display string, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "deskagent-practice-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n, err := openNear(display, dir, io.Discard, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	// The end of the input ends what is being done as well.
	requests := make(chan farRequest)
	go func() {
		defer cancel()
		for d := json.NewDecoder(in); ; {
			var r farRequest
			if d.Decode(&r) != nil {
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	encoder := json.NewEncoder(out)
	screen := n.screen()
	if err := encoder.Encode(farAnswer{Screen: &screen}); err != nil {
		return err
	}
	var ended <-chan struct{}
	for {
		var a farAnswer
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
			a.Ended, ended = true, nil
		case r := <-requests:
			if err := n.answer(ctx, r, &a); err != nil {
				a = farAnswer{Error: err.Error()}
			}
			if ended = nil; n.app != nil {
				ended = n.app.Done()
			}
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

// answer does what a request asks for.
func (n *near) answer(ctx context.Context, r farRequest, a *farAnswer) error {
	switch {
	case r.Do == "practise" && n.app == nil:
		return n.practise(ctx, r.At, r.Seed)
	case r.Do == "outcome" && n.app != nil:
		o, err := n.outcome(ctx)
		a.Outcome = &o
		return err
	case r.Do == "book" && n.app != nil:
		return n.book(ctx, r.Seed)
	case r.Do == "booked" && n.page != nil:
		o, err := n.booked(ctx)
		a.Errand = &o
		return err
	}
	return fmt.Errorf("%q cannot be done now", r.Do)
}

// far is a place that a command leads to.
type far struct {
	process *child.Process
	in      io.WriteCloser
	encoder *json.Encoder
	answers chan farAnswer
	gone    chan struct{} // closed when the application has ended
	area    image.Rectangle
}

// openFar starts the command, at whose other end is [Practise].
func openFar(ctx context.Context, argv []string) (*far, error) {
	process, conn, err := child.Connect(context.WithoutCancel(ctx), argv, nil)
	if err != nil {
		return nil, err
	}
	f := &far{process: process, in: conn.In, encoder: json.NewEncoder(conn.In), answers: make(chan farAnswer), gone: make(chan struct{})}
	go func() {
		defer conn.Out.Close()
		defer close(f.answers)
		for d := json.NewDecoder(conn.Out); ; {
			var a farAnswer
			if d.Decode(&a) != nil {
				return
			}
			if a.Ended {
				close(f.gone)
				continue
			}
			f.answers <- a
		}
	}()
	a, err := f.next(ctx)
	if err == nil && a.Screen == nil {
		err = errors.New("it does not say how large its screen is")
	}
	if err != nil {
		return nil, fmt.Errorf("practising elsewhere: %w", errors.Join(err, f.close()))
	}
	f.area = *a.Screen
	return f, nil
}

// next waits for an answer.
func (f *far) next(ctx context.Context) (farAnswer, error) {
	select {
	case a, ok := <-f.answers:
		if !ok {
			return a, errors.Join(errors.New("the other end has gone"), f.process.Err())
		}
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return farAnswer{}, context.Cause(ctx)
	}
}

func (f *far) ask(ctx context.Context, r farRequest) (farAnswer, error) {
	if err := f.encoder.Encode(r); err != nil {
		return farAnswer{}, err
	}
	return f.next(ctx)
}

func (f *far) screen() image.Rectangle { return f.area }
func (f *far) ended() <-chan struct{}  { return f.gone }

func (f *far) practise(ctx context.Context, at image.Point, seed uint64) error {
	_, err := f.ask(ctx, farRequest{Do: "practise", At: at, Seed: seed})
	return err
}

func (f *far) outcome(ctx context.Context) (outcome, error) {
	a, err := f.ask(ctx, farRequest{Do: "outcome"})
	if err != nil || a.Outcome == nil {
		return outcome{}, err
	}
	return *a.Outcome, nil
}

func (f *far) book(ctx context.Context, seed uint64) error {
	_, err := f.ask(ctx, farRequest{Do: "book", Seed: seed})
	return err
}

func (f *far) booked(ctx context.Context) (errandOutcome, error) {
	a, err := f.ask(ctx, farRequest{Do: "booked"})
	if err != nil || a.Errand == nil {
		return errandOutcome{}, err
	}
	return *a.Errand, nil
}

// close ends the other end, and waits until it has cleared up.
func (f *far) close() error {
	const patience = 15 * time.Second
	f.in.Close()
	late := time.AfterFunc(patience, f.process.Stop)
	defer late.Stop()
	for range f.answers { // until the other end closes its output
	}
	return f.process.Err()
}
