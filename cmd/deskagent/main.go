// Command deskagent gives an OpenAI model a pair of hands on a Linux desktop. Run "deskagent help".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/sandbox"
	"github.com/deskagent/deskagent/trace"
)

// The exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitDeclined = 3
)

// errInterrupted is why the context ended when a signal came.
var errInterrupted = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		signal.Stop(signals) // the next one ends the process at once
		cancel(errInterrupted)
	}()
	os.Exit(run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

// streams are what a command talks to. Results go to out, talk goes to err, and questions go to the terminal.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// run runs one command and returns its exit code. Nothing below it exits, and nothing else prints errors.
func run(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(s.err, "deskagent: error:", oneLine(err.Error()))
	}
	if hint := hintFor(err); hint != "" {
		fmt.Fprintln(s.err, "deskagent: hint:", hint)
	}
	return exitCode(err)
}

// command is what the subcommands share.
type command struct {
	streams
	verbose bool
	display string
	remote  string              // of commands with remoteFlag
	guest   inside              // of commands with inFlags
	onBox   func(trace.Sandbox) // is told of the sandbox that was opened; nil for nobody
}

const rootHelp = `deskagent gives an OpenAI model a pair of hands on a Linux desktop: it performs the computer
actions of the Responses API on a real X11 display, maps every coordinate exactly between
the picture that the model saw and the screen, and asks a person before it acts.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 declined.`

const rootExample = `  deskagent exercise                          drive a practice desktop through the whole stack, no key
  deskagent doctor                            what works here, and how to mend what does not
  deskagent act '{"type":"click","x":40,"y":30,"button":"left"}'
  deskagent screenshot -o screen.png
  deskagent run "Open the editor and write a haiku"`

func newRoot(s streams) *cobra.Command {
	c := &command{streams: s}
	root := &cobra.Command{
		Use:           "deskagent",
		Short:         "A pair of hands for a model on a Linux desktop",
		Long:          rootHelp,
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetVersionTemplate("deskagent {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().BoolVarP(&c.verbose, "verbose", "v", false, "say on standard error what is being done")
	root.PersistentFlags().StringVar(&c.display, "display", "", "the X display, such as :1 (default $DISPLAY)")
	root.AddCommand(newExercise(c), newRun(c), newResume(c), newLedger(c), newPictures(c), newView(c), newReplay(c), newAct(c),
		newScreenshot(c), newServe(c), newSandbox(c), newKeys(c), newBench(c), newDoctor(c), newGuest(c), newWatchdog())
	root.InitDefaultCompletionCmd()
	return root
}

// version tells the module's version, the commit where that is known, and the platform.
func version() string {
	v := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
				v += " " + setting.Value[:12]
			}
		}
	}
	return fmt.Sprintf("%s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (c *command) logger() *slog.Logger {
	if !c.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(c.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// displayName is the display to use. Libraries that look at $DISPLAY themselves are made to see the same one.
func (c *command) displayName() (string, error) {
	if c.display != "" {
		return c.display, os.Setenv("DISPLAY", c.display)
	}
	if name := os.Getenv("DISPLAY"); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("%w: DISPLAY is not set", driver.ErrNoDisplay)
}

// usageError is a command line that makes no sense: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// usage makes the errors of a cobra argument check usage errors.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// hintError is an error with a word on how to mend it.
type hintError struct {
	error
	hint string
}

func (e hintError) Unwrap() error { return e.error }

// errReported is wrapped by an error that has been shown already.
var errReported = errors.New("reported")

// childError is a command that ran on the user's behalf and whose exit code becomes ours. It has said itself what was wrong.
type childError struct{ code int }

func (e childError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func (e childError) Is(target error) bool { return target == errReported }

func exitCode(err error) int {
	var child childError
	switch {
	case errors.As(err, &child):
		return child.code
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.Is(err, approve.ErrDenied), errors.Is(err, remote.ErrDeclined):
		return exitDeclined
	}
	return exitFailed
}

func hintFor(err error) string {
	var h hintError
	switch {
	case errors.As(err, &h):
		return h.hint
	case errors.As(err, new(usageError)):
		return `"deskagent help" shows the commands, "deskagent COMMAND --help" their flags and examples`
	case errors.Is(err, sandbox.ErrNoEngine):
		return `install Docker and start it, or choose one with docker context use; "deskagent sandbox doctor" checks it`
	case errors.Is(err, sandbox.ErrNoBinary):
		return "make one with CGO_ENABLED=0 GOOS=linux go build -o deskagent-linux ./cmd/deskagent, and give it as --binary"
	case errors.Is(err, driver.ErrNoDisplay):
		return `start an X server and set DISPLAY, or give --display; "deskagent doctor" checks it, "deskagent exercise" brings its own`
	case errors.Is(err, driver.ErrHeld):
		return "let go, or give --clear-modifiers to lift modifiers for the time of an action, or --release to free what hangs"
	case errors.Is(err, driver.ErrUnknownKey):
		return `keys are single characters or names such as ENTER, ESC, CTRL, PAGEUP, F5; "deskagent keys" prints them all`
	}
	return ""
}
