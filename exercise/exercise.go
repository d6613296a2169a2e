// Package exercise lets a practice model drive a practice application through the whole stack: the OpenAI client,
// the runner, the toolset with its approvals and pictures, and the X11 driver, on a real X display. It needs no key and
// no network beyond the loopback interface.
//
// # What it proves
//
// The application draws at random what it demands and shows it in its window; the model finds out by looking at
// pictures alone. So a run that passes has seen, scaled, asked, clicked and typed right. Nobody is taken at his
// word: [Run] compares the record that the application saved with what was demanded, every X event that the
// application received with every action that the model asked for, and asks the server over a connection of its own
// whether a key or button is still down.
//
// # Elsewhere
//
// With [Options].Guest the desktop is one elsewhere, as in a sandbox, with a window manager, Chromium and an editor. Only the
// application and the hands are there then. After the application comes an errand, as a person's first might be: a room is
// booked on a page in Chromium, and a note with the number of the booking is saved with the editor. What the page's
// server stored and what is in the file is compared with what was to be.
//
// # What is where
//
// Package app is the application, package booking the page, package model the model. They do not know each other;
// internal/palette is the colours that they paint and it looks for.
package exercise

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/exercise/booking"
	"github.com/deskagent/deskagent/exercise/model"
	"github.com/deskagent/deskagent/internal/xvfb"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// Options describes an exercise. The zero Options is one on a private display of 1280x800 pixels.
type Options struct {
	// Display is the X display to work on, such as ":3". Empty means a private one, of Width by Height pixels, zero
	// standing for 1280 and 800; it ends with the exercise.
	Display       string
	Width, Height int
	// Guest is a desktop elsewhere. It takes the place of Display, Sink and Watchdog, and adds the errand.
	Guest *Guest
	// View says how pictures for the model are made from the screen.
	View scaling.View
	// At is the upper left corner of the window, of 1000x640 pixels, in screen space; nil puts it in the middle of
	// what the model sees. It has to fit in there.
	At *image.Point
	// Seed chooses what the application demands; zero means a random seed, which the report tells.
	Seed uint64
	// Sink chooses the driver's way to send events.
	Sink x11.Sink
	// Watchdog is the command of the driver's watchdog, as in x11.Options.
	Watchdog []string
	// Approver is asked about each action and about the safety checks that come with saving. Nil allows all actions
	// and, by their codes, the model's two checks: what there is to lose is the exercise's own.
	Approver approve.Approver
	// Out is a directory, created if need be, that keeps each step's calls and picture (step-01.json, step-01.png
	// and so on), the event log (events.jsonl), the record (record.json) and the report (report.json). Empty keeps
	// nothing.
	Out string
	// OnTurn, OnCall, OnPicture, OnAnswer and OnDiagnostic watch the run, and are called one at a time. OnTurn gets each
	// response before its calls are carried out, OnAnswer each question that was put to the approver, with how long it
	// took. Any of them may be nil.
	OnTurn       func(*runner.Turn)
	OnCall       func(toolset.Call)
	OnPicture    func(toolset.Shot)
	OnAnswer     func(q approve.Request, d approve.Decision, err error, took time.Duration)
	OnDiagnostic func(runner.Diagnostic)
	// Logger gets a line for each step at level info, and the rest at debug; nil discards.
	Logger *slog.Logger

	// wrap puts a driver around the driver, for tests that have it go wrong.
	wrap func(driver.Driver) driver.Driver
}

// A Guest is a desktop elsewhere, by the commands that lead there.
type Guest struct {
	// Serve returns the command of a "deskagent serve" there, with more flags at its end.
	Serve func(flags ...string) []string
	// Practice is the command of [Practise].
	Practice []string
}

const (
	maxSteps       = 200
	pixelsPerNotch = 120
	// waitTime is a little more than the application's slow task takes.
	waitTime = 250 * time.Millisecond
	// The application reacts at once and paints all of it in one go, so less time is needed than of programs that
	// nobody knows.
	settleGrace = 50 * time.Millisecond
	settleQuiet = 20 * time.Millisecond
	// settleDeadline is the driver's own.
	settleDeadline = 3 * time.Second
	task           = "Do what the practice desk asks for, then save the record."
	errand         = "Book what the page in the browser asks for, and write down what it then says."
)

// withDefaults returns a copy of o, checked, with nothing left out that has a default.
func (o *Options) withDefaults() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Guest != nil && (r.Display != "" || r.Width != 0 || r.Height != 0 || r.Sink != "") {
		return r, errors.New("a display, a size or a sink is given for a guest, which has its own")
	}
	if r.Display != "" && (r.Width != 0 || r.Height != 0) {
		return r, fmt.Errorf("a size of %dx%d is given for display %q, which has its own", r.Width, r.Height, r.Display)
	}
	if r.Width < 0 || r.Height < 0 {
		return r, fmt.Errorf("display size %dx%d is negative", r.Width, r.Height)
	}
	r.Width, r.Height = cmp.Or(r.Width, 1280), cmp.Or(r.Height, 800)
	for r.Seed == 0 {
		r.Seed = rand.Uint64() >> 33 // short enough to be typed again
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	if r.Approver == nil {
		codes := []string{model.CodeReplaces, model.CodePersonal}
		r.Approver = approve.AllowChecks(approve.AllowActions, codes, r.Logger)
	}
	if r.wrap == nil {
		r.wrap = func(d driver.Driver) driver.Driver { return d }
	}
	return r, nil
}

// Run runs one exercise and reports how it went. An error means that there was none: something could not be
// started, or ctx is over; whatever goes wrong later makes the report fail. When Run returns, all that it started
// has ended. Only one exercise at a time may run in a process with the robotgo sink.
func Run(ctx context.Context, opts *Options) (*Report, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("exercise: %w", err)
	}
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := stage{opts: o, challenge: app.NewChallenge(o.Seed)}
	if err := s.open(ctx); err != nil {
		return nil, fmt.Errorf("exercise: %w", errors.Join(err, s.close()))
	}
	s.play(ctx, cancel)
	if o.Guest != nil && s.report.Reason == "" {
		s.report.fail(s.runErrand(ctx))
	}
	s.report.fail(s.close())
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errAppEnded) {
		return nil, fmt.Errorf("exercise: %w", err)
	}
	s.report.Pass, s.report.Duration = s.report.Reason == "", time.Since(began)
	if o.Out != "" {
		if err := s.report.write(filepath.Join(o.Out, reportFile)); err != nil {
			return s.report, fmt.Errorf("exercise: keeping the report: %w", err)
		}
	}
	return s.report, nil
}

// The files in Options.Out.
const (
	eventsFile = "events.jsonl"
	recordFile = "record.json"
	reportFile = "report.json"
	stepFiles  = "step-%02d.%s"
)

var errAppEnded = errors.New("the practice application ended in the middle")

// A stage is everything that an exercise starts. What is opened is closed in the reverse order.
type stage struct {
	opts      Options
	challenge app.Challenge
	dir       string // for the record and the event log
	place     place
	model     *model.Server
	runner    *runner.Runner
	client    openai.Client
	script    script
	steps     int // of the conversations before
	report    *Report
	closers   []func() error
}

func (s *stage) onClose(f func() error) { s.closers = append(s.closers, f) }

// close ends what is still there, whatever errors that meets.
func (s *stage) close() error {
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last]())
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}

// open sets the stage.
func (s *stage) open(ctx context.Context) (err error) {
	if err := s.openFiles(); err != nil {
		return err
	}
	display, at, err := s.openPlace(ctx)
	if err != nil {
		return err
	}
	mapping, err := s.opts.View.Mapping(s.place.screen())
	if err != nil {
		return err
	}
	if at == nil {
		middle := middle(mapping.Crop(), app.Size)
		at = &middle
	}
	window := image.Rectangle{Min: *at, Max: at.Add(app.Size)}
	if !window.In(mapping.Crop()) {
		return fmt.Errorf("the window at %v does not fit into what the model sees of the screen, %v", window, mapping.Crop())
	}
	s.report = &Report{
		Seed: s.opts.Seed, Display: display, Screen: size(s.place.screen().Size()), Shown: mapping.String(),
		Window: fmt.Sprintf("%s%+d%+d", size(window.Size()), at.X, at.Y), Kinds: map[driver.Kind]Timing{},
	}
	d, err := s.openHands(ctx, display)
	if err != nil {
		return err
	}
	if err := s.place.practise(ctx, *at, s.opts.Seed); err != nil {
		return err
	}
	return s.openModel(s.opts.wrap(d))
}

// openPlace opens the desktop. It returns its display, and where the window is to be, nil for the middle.
func (s *stage) openPlace(ctx context.Context) (display string, at *image.Point, err error) {
	if s.opts.Guest != nil {
		s.place, err = openFar(ctx, s.opts.Guest.Practice)
		if err != nil {
			return "", nil, err
		}
		s.onClose(s.place.close)
		return "of a guest", s.opts.At, nil
	}
	if display = s.opts.Display; display == "" {
		server, err := xvfb.Start(ctx, &xvfb.Options{Width: s.opts.Width, Height: s.opts.Height})
		if err != nil {
			return "", nil, err
		}
		s.onClose(server.Close)
		display = server.Display()
	}
	events, err := os.Create(filepath.Join(s.dir, eventsFile))
	if err != nil {
		return "", nil, err
	}
	s.onClose(events.Close)
	n, err := openNear(display, s.dir, events, s.opts.Logger)
	if err != nil {
		return "", nil, err
	}
	s.place = n
	s.onClose(n.close)
	if s.opts.Display == "" {
		n.inspector.paintBackdrop()
	}
	return display, s.opts.At, nil
}

// openHands opens the driver for the practice application.
func (s *stage) openHands(ctx context.Context, display string) (driver.Driver, error) {
	if s.opts.Guest != nil {
		return s.openGuest(ctx, "--settle", fmt.Sprintf("%v,%v,%v", settleGrace, settleQuiet, settleDeadline))
	}
	d, err := x11.Open(ctx, &x11.Options{
		Display: display, Sink: s.opts.Sink, Watchdog: s.opts.Watchdog, Logger: s.opts.Logger, PixelsPerNotch: pixelsPerNotch,
		SettleGrace: settleGrace, SettleQuiet: settleQuiet, WaitTime: waitTime,
	})
	if err != nil {
		return nil, err
	}
	s.onClose(d.Close)
	s.report.Sink = d.Sink()
	return d, nil
}

// openGuest connects to the driver of a guest.
func (s *stage) openGuest(ctx context.Context, flags ...string) (driver.Driver, error) {
	d, err := remote.Start(ctx, s.opts.Guest.Serve(flags...), &remote.StartOptions{})
	if err != nil {
		return nil, err
	}
	s.onClose(d.Close)
	s.report.Sink = "the guest's"
	return d, nil
}

// middle returns where a window of the given size is in the middle of r.
func middle(r image.Rectangle, window image.Point) image.Point {
	return r.Min.Add(r.Size().Sub(window).Div(2))
}

func size(p image.Point) string { return fmt.Sprintf("%dx%d", p.X, p.Y) }

// openFiles makes the directory for what is written during the run.
func (s *stage) openFiles() (err error) {
	if s.dir = s.opts.Out; s.dir == "" {
		s.dir, err = os.MkdirTemp("", "deskagent-exercise-")
		s.onClose(func() error { return os.RemoveAll(s.dir) })
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(s.dir, "step-[0-9]*"))
	for _, name := range append(old, filepath.Join(s.dir, recordFile), filepath.Join(s.dir, reportFile)) {
		if gone := os.Remove(name); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

func (s *stage) openModel(d driver.Driver) (err error) {
	if s.model, err = model.Start(&model.Options{Logger: s.opts.Logger}); err != nil {
		return err
	}
	s.onClose(s.model.Close)
	// Its own connections: what is idle is closed before the model is, and no proxy comes in between.
	transport := &http.Transport{}
	s.onClose(func() error { transport.CloseIdleConnections(); return nil })
	s.client = openai.NewClient(option.WithBaseURL(s.model.URL()), option.WithAPIKey("practice"),
		option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0))
	tools, err := toolset.New(d, &toolset.Options{
		View: s.opts.View, OnCall: s.opts.OnCall, OnPicture: s.onPicture, OnError: s.report.fail, Logger: s.opts.Logger,
	})
	if err != nil {
		return err
	}
	s.runner, err = runner.New(runner.Registration{Computer: tools})
	return err
}

// play lets the model work and checks what came of it.
func (s *stage) play(ctx context.Context, cancel context.CancelCauseFunc) {
	// An application that ends by itself ends the run.
	watched, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.place.ended():
			cancel(errAppEnded)
		case <-over:
		}
	}()
	s.report.Answer = s.converse(ctx, task)
	close(over)
	<-watched
	o, err := s.place.outcome(ctx)
	if err != nil {
		s.report.fail(err)
		return
	}
	s.report.fail(checkRecord(o.Record, s.challenge.Want()))
	s.report.Events = len(o.Events)
	if err := s.script.check(o.Events); err != nil {
		s.report.fail(fmt.Errorf("what the application received is not what the model asked for: %w", err))
	}
	if o.Held != "" {
		s.report.fail(errors.New(o.Held))
	}
}

// runErrand lets another model do the errand, with hands that give real programs the time that they need, and checks what
// came of it.
func (s *stage) runErrand(ctx context.Context) error {
	d, err := s.openGuest(ctx)
	if err != nil {
		return err
	}
	if err := s.place.book(ctx, s.opts.Seed); err != nil {
		return fmt.Errorf("showing the practice page: %w", err)
	}
	if err := s.openModel(s.opts.wrap(d)); err != nil {
		return err
	}
	s.steps = s.report.Steps
	answer := s.converse(ctx, errand)
	s.report.Errand = &Errand{Answer: answer}
	o, err := s.place.booked(ctx)
	s.report.Errand.Booking, s.report.Errand.Note = o.Booking, o.Note
	if err != nil {
		return err
	}
	return checkErrand(o, booking.NewChallenge(s.opts.Seed).Want())
}

// converse has the model do a task, and takes down why it did not. It returns the model's last words.
func (s *stage) converse(ctx context.Context, task string) (answer string) {
	params := responses.ResponseNewParams{
		Model: "practice", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(task)},
	}
	for turn, err := range s.runner.Iterate(ctx, &s.client, params, runner.Options{
		Computer: toolset.Ask(approve.Func(s.ask)), MaxSteps: maxSteps, OnDiagnostic: s.onDiagnostic,
	}) {
		if err != nil {
			s.report.fail(err)
			return ""
		}
		if s.opts.OnTurn != nil {
			s.opts.OnTurn(turn)
		}
		s.onResponse(s.steps+turn.Step, json.RawMessage(turn.Response.RawJSON()))
		if turn.Final {
			answer = turn.Response.OutputText()
		}
	}
	return answer
}

// ask counts the questions and puts them to the approver.
func (s *stage) ask(ctx context.Context, r approve.Request) (approve.Decision, error) {
	if len(r.Checks) > 0 {
		s.report.Asked.Checks += len(r.Checks)
	} else {
		s.report.Asked.Actions++
	}
	begin := time.Now()
	decision, err := approve.Ask(ctx, s.opts.Approver, r)
	if s.opts.OnAnswer != nil {
		s.opts.OnAnswer(r, decision, err, time.Since(begin))
	}
	return decision, err
}

// onResponse keeps what the model said.
func (s *stage) onResponse(step int, response json.RawMessage) {
	s.report.Steps = step
	s.report.Tokens.Add(response)
	actions, output, err := s.script.add(step, response)
	s.opts.Logger.Info("exercise", "step", step, "actions", actions)
	s.report.Actions += len(actions)
	s.report.fail(err)
	var pretty bytes.Buffer
	s.report.fail(json.Indent(&pretty, output, "", "  "))
	s.keep(step, "json", append(pretty.Bytes(), '\n'))
}

// onPicture keeps what the model is going to see.
func (s *stage) onPicture(shot toolset.Shot) {
	s.script.mapping = shot.Mapping
	_, data, _ := strings.Cut(shot.Picture.ImageURL.Value, ";base64,")
	picture, err := base64.StdEncoding.DecodeString(data)
	s.report.fail(err)
	s.report.Pictures++
	s.report.PictureBytes += len(picture)
	s.keep(s.report.Steps, "png", picture)
	if s.opts.OnPicture != nil {
		s.opts.OnPicture(shot)
	}
}

func (s *stage) onDiagnostic(d runner.Diagnostic) {
	if d.API == runner.APIComputer && d.Stage == runner.StageAction {
		s.report.time(driver.Kind(d.Member), d.Duration)
	}
	if s.opts.OnDiagnostic != nil {
		s.opts.OnDiagnostic(d)
	}
}

// keep writes a file of a step when there is a directory to keep it in.
func (s *stage) keep(step int, extension string, data []byte) {
	if s.opts.Out != "" {
		s.report.fail(os.WriteFile(filepath.Join(s.dir, fmt.Sprintf(stepFiles, step, extension)), data, 0o644))
	}
}
