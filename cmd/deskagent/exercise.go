package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/exercise"
	"github.com/deskagent/deskagent/sandbox"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

const exerciseHelp = `Drives a practice application through the whole stack, without a key and without a network: a
practice model looks at each screenshot and answers with computer actions, and everything between
it and the desktop is the real thing. At the end the record that the application saved and the
events that it received are checked. The exit status is 0 when all of it was right.

The desktop is a private virtual display (Xvfb) of the size --screen, or the one that --display
names. --size and --crop say what the model is shown, as for "deskagent run".

--in docker does it in a sandbox, as "deskagent run" does with real tasks, and adds an errand: on a page in
Chromium a room is booked, and a note with the number of the booking saved with the editor. What the
page's server stored and what is in the file is checked. --in docker:NAME takes a sandbox that is up.

` + traceHelp

const exerciseExample = `  deskagent exercise
  deskagent exercise --screen 1920x1080 --size 1280x720
  deskagent exercise --screen 2560x1600 --crop 400,300,1600,1000 --size 1280x800
  deskagent exercise --in docker
  deskagent exercise --approve prompt --out steps
  deskagent exercise --json | tail -n 1`

func newExercise(c *command) *cobra.Command {
	e := &runExercise{command: c, approve: approveAllow}
	cmd := &cobra.Command{
		Use:     "exercise",
		Short:   "Drive a practice desktop through the whole stack, no key needed",
		Long:    exerciseHelp,
		Example: exerciseExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.Var(&e.screen, "screen", "size of the virtual display (default 1280x800)")
	viewFlags(cmd, &e.view)
	flags.Uint64Var(&e.seed, "seed", 0, "what the application demands (default a random one, which the report tells)")
	flags.StringVar((*string)(&e.sink), "sink", "", "how events are sent: robotgo or xtest (default robotgo where it can be had)")
	flags.Var(&e.approve, "approve", "who decides about actions: prompt, allow or deny")
	flags.StringVar(&e.keep, "out", "", "directory to keep every step's picture and calls in")
	flags.BoolVar(&e.json, "json", false, "write the report as one JSON object")
	tracingFlags(cmd, &e.tracing)
	inFlags(cmd, &e.guest)
	return cmd
}

// runExercise is one deskagent exercise.
type runExercise struct {
	*command
	screen  sizeFlag
	view    scaling.View
	seed    uint64
	sink    x11.Sink
	approve approveFlag
	keep    string
	json    bool
	tracing tracing

	declined bool // an answer was no
}

func (e *runExercise) run(ctx context.Context) (err error) {
	e.view.Most = toolset.DefaultFit
	if e.display != "" && e.screen != (sizeFlag{}) {
		return usagef("--screen is for a virtual display, and --display %s has its own size", e.display)
	}
	if _, _, err := e.guest.check(); err != nil {
		return err
	}
	if e.guest.given() && (e.display != "" || e.screen != (sizeFlag{}) || e.sink != "") {
		return usagef("--display, --screen and --sink are of this machine: leave them out with --in")
	}
	if e.display == "" {
		screen := image.Pt(1280, 800)
		if e.screen != (sizeFlag{}) {
			screen = image.Point(e.screen)
		}
		if _, err := e.view.Mapping(image.Rectangle{Max: screen}); err != nil {
			return usageError{err}
		}
	}
	approver, closeApprover, err := e.approver()
	if err != nil {
		return err
	}
	defer closeApprover()
	recorder, err := e.tracing.begin("", warnings(e.err))
	if err != nil {
		return err
	}
	defer recorder.close()
	options := &exercise.Options{
		Display: e.display, Width: e.screen.X, Height: e.screen.Y, View: e.view, Seed: e.seed, Sink: e.sink,
		Watchdog: watchdog(), Approver: approver, Out: e.keep, Logger: e.progress(),
	}
	e.onBox = recorder.sandbox
	if e.guest.given() {
		box, end, err := e.openBox(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		options.Watchdog = nil
		options.Guest = &exercise.Guest{
			Serve:    func(flags ...string) []string { return append(box.ServeArgv(), flags...) },
			Practice: box.ExecArgv(sandbox.ExecOptions{Input: true}, "deskagent", "guest", "practice"),
		}
	}
	recorder.watch(options)
	report, err := exercise.Run(ctx, options)
	recorder.end(report, err)
	if report == nil {
		report = &exercise.Report{Reason: err.Error()}
		if errors.Is(err, errInterrupted) {
			err = errInterrupted
		}
	}
	if writeErr := e.writeReport(report, err); writeErr != nil {
		return writeErr
	}
	switch {
	case err != nil:
		return err
	case !report.Pass && e.declined:
		return fmt.Errorf("the exercise did not pass: %w", approve.ErrDenied)
	case !report.Pass:
		return fmt.Errorf("the exercise did not pass: %s", report.Reason)
	}
	return nil
}

// writeReport writes the report. As JSON there is one in any case; for people, an error says it all.
func (e *runExercise) writeReport(report *exercise.Report, err error) error {
	if e.json {
		return json.NewEncoder(e.out).Encode(report)
	}
	if err != nil {
		return nil
	}
	_, writeErr := report.WriteTo(e.out)
	return writeErr
}

// approver is who is asked, nil for the exercise's own choice, and a function that ends it.
func (e *runExercise) approver() (approve.Approver, func(), error) {
	switch e.approve {
	case approveAllow:
		return nil, func() {}, nil
	case approveDeny:
		return e.noting(approve.DenyAll), func() {}, nil
	}
	terminal := &person{}
	if err := terminal.open(); err != nil {
		return nil, nil, nobodyToAsk(err)
	}
	return e.noting(terminal), terminal.close, nil
}

// noting asks a, and remembers that an answer was no.
func (e *runExercise) noting(a approve.Approver) approve.Approver {
	return approve.Func(func(ctx context.Context, r approve.Request) (approve.Decision, error) {
		answer, err := approve.Ask(ctx, a, r)
		e.declined = e.declined || answer != approve.Allow
		return answer, err
	})
}

// progress is a line for each step on standard error, or all there is to say with -v.
func (e *runExercise) progress() *slog.Logger {
	if e.verbose {
		return e.logger()
	}
	return slog.New(slog.NewTextHandler(e.err, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey && len(groups) == 0 {
		return slog.Attr{}
	}
	return a
}
