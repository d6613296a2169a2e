package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/sandbox/desktop"
	"github.com/deskagent/deskagent/sandbox/gateway"
	"github.com/deskagent/deskagent/toolset"
	"github.com/deskagent/deskagent/trace"
)

const (
	// guestProperty on the root window marks a display as a guest's: one that may be given to a model.
	guestProperty = desktop.Mark

	defaultModel = "gpt-5.4"
)

const runHelp = `Lets a model do a task on the display: it sees screenshots and answers with computer actions,
until it has a final answer, which goes to standard output; progress goes to standard error.
The key comes from OPENAI_API_KEY.

--approve says who decides about actions:
  prompt   you, on the terminal, before each one (default)
  allow    nobody: every action is allowed
  deny     nobody: every action is declined, so the run ends at the first
Safety checks that the API raises are put to you in any case, but with deny. With
--acknowledge-checks, those whose codes it lists are acknowledged, with a warning each.

A display that is not marked as a guest's is refused. This marks one:
  xprop -root -f _DESKAGENT_GUEST 8s -set _DESKAGENT_GUEST 1
--allow-host goes on without.

` + inHelp + `

` + agentInGuestHelp + `

Pictures show the whole screen, made to fit 1440x900 when it is larger; --size and --crop change
that. A picture that the API would make smaller, with which every point would be off, is refused;
--limits says what the model at hand takes, as the API's guide to images has it:
  whole     65535 pixels a side, 30000 patches of 32 by 32: gpt-5.6
  original  6000, 10000: gpt-5.5
  high      2048, 2500: gpt-5.4 (default)
  small     2048, 1536: gpt-5.4-mini and -nano, gpt-5.2, gpt-5-mini and -nano, o4-mini
  tiles     2048, the shorter side 768: computer-use-preview, gpt-4o, gpt-4.1

` + eyesHelp + `

` + picturesHelp + `

` + inputHelp + `

` + spendingHelp + `
--deadline bounds the time. A model that does the same --repeat-limit times, while the picture stays
the same, is told so, and the run ends when it goes on.

` + hostedHelp + `

` + ledgerHelp + `

` + followHelp + `
--stream shows what the model says, and summaries of what it thinks, as they arrive.

` + traceHelp + `

Text is typed; --paste has it pasted by way of the clipboard, and puts back what was there, beyond
the end of the run where a clipboard manager keeps it. Ctrl-C stops at once and releases every key
and button.`

const runExample = `  deskagent run "Open the editor and write a haiku"
  deskagent run --in docker --net allow=example.com "Look up what example.com is for"
  deskagent run --in docker --agent-in-guest --approve allow "Draw a house"
  deskagent run --approve allow --max-steps 50 "Tidy the files on the desktop into folders"
  deskagent run --stream --max-cost 0.50 --deadline 10m --ledger run1 "Fill in the form"
  deskagent run --tools web_search --mcp mail=https://mcp.example.com "Answer the latest mail"
  deskagent run --display :1 --crop 0,0,1280,800 "Read me the title of the open window"`

func newRun(c *command) *cobra.Command {
	r := &runTask{command: c}
	cmd := &cobra.Command{
		Use:     "run TASK",
		Short:   "Let a model do a task on the display",
		Long:    runHelp,
		Example: runExample,
		Args:    usage(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },
	}
	runFlags(cmd, r)
	hostedFlags(cmd, &r.hosted)
	cmd.Flags().IntVar(&r.maxSteps, "max-steps", runner.DefaultMaxSteps, "the most requests to make")
	cmd.Flags().BoolVar(&r.inGuest, "agent-in-guest", false, "with --in docker, have all of it done in there")
	cmd.Flags().StringVar(&r.boxed, "in-sandbox", "", "the sandbox that this is in")
	cmd.Flags().MarkHidden("in-sandbox") // it is there
	cmd.Flags().StringVar(&r.ledger, "ledger", "", "folder to keep the record of the run in")
	return cmd
}

// runFlags adds what every command has that lets a model work.
func runFlags(cmd *cobra.Command, r *runTask) {
	flags := cmd.Flags()
	flags.StringVar(&r.model, "model", defaultModel, "the model")
	flags.StringVar(&r.baseURL, "base-url", "", "address of the API (default that of OpenAI, or $OPENAI_BASE_URL)")
	flags.IntVar(&r.repeatLimit, "repeat-limit", runner.DefaultRepeatLimit, "how often the same may be done without effect; 0 for no limit")
	flags.DurationVar(&r.deadline, "deadline", 0, "the most time to take, such as 10m (default no bound)")
	flags.BoolVar(&r.stream, "stream", false, "show what the model says and thinks as it arrives")
	spendingFlags(cmd, &r.spending)
	inputFlags(cmd, &r.input)
	flags.Var(&r.approve, "approve", "who decides about actions: prompt, allow or deny")
	flags.StringSliceVar(&r.codes, "acknowledge-checks", nil, "codes of safety checks to acknowledge unasked")
	flags.BoolVar(&r.allowHost, "allow-host", false, "go on even if the display is not marked as a guest's")
	eyesFlags(cmd, &r.eyes)
	flags.StringVar(&r.encoding.Format, "format", "png", "how pictures are sent: png or jpeg")
	flags.IntVar(&r.encoding.Quality, "quality", 0, "quality of JPEG pictures, from 1 to 100 (default 85)")
	flags.Var(&r.pictures, "pictures", "how pictures go to the model: auto, inline or upload")
	flags.Var(&r.limits, "limits", "how large pictures may be: whole, original, high, small or tiles")
	handsFlags(cmd, &r.hands)
	remoteFlag(cmd, r.command)
	inFlags(cmd, &r.guest)
	tracingFlags(cmd, &r.tracing)
}

// runTask is one deskagent run.
type runTask struct {
	*command
	model, baseURL        string
	maxSteps, repeatLimit int
	deadline              time.Duration
	stream                bool
	spending              spending
	input                 inputBounds
	hosted                hosted
	ledger                string // the folder; empty for none
	inGuest               bool   // the agent is in the guest, too
	boxed                 string // of the agent in a guest: its sandbox, as JSON
	approve               approveFlag
	codes                 []string
	allowHost             bool
	eyes                  eyes
	encoding              toolset.Encoding
	pictures              picturesFlag
	limits                limitsFlag
	hands                 hands
	tracing               tracing
}

func (r *runTask) run(ctx context.Context, task string) (err error) {
	if strings.TrimSpace(task) == "" {
		return usagef("the task is empty")
	}
	if r.maxSteps < 1 {
		return usagef("--max-steps %d: want 1 or more", r.maxSteps)
	}
	if r.inGuest {
		return r.runInGuest(ctx, task)
	}
	s := &session{}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := r.prepare(s, task); err != nil {
		return err
	}
	if s.params.Tools, err = r.hosted.declarations(); err != nil {
		return err
	}
	if r.ledger != "" {
		if err := s.begin(r.ledger, r.model); err != nil {
			return err
		}
	}
	return r.play(ctx, s)
}

// prepare puts into a session what the flags ask for, as far as that needs no display: what is wrong with them is said
// before anything is opened.
func (r *runTask) prepare(s *session, task string) error {
	switch {
	case r.repeatLimit < 0:
		return usagef("--repeat-limit %d: want 0 or more", r.repeatLimit)
	case r.deadline < 0:
		return usagef("--deadline %v: want more than 0", r.deadline)
	}
	if err := r.eyes.resolve(); err != nil {
		return err
	}
	if _, _, err := r.guest.check(); err != nil {
		return err
	}
	price, err := r.spending.price(r.model)
	if err != nil {
		return err
	}
	budget, err := r.input.budget()
	if err != nil {
		return err
	}
	present, err := r.presenter()
	if err != nil {
		return usageError{err}
	}
	if s.client, err = newClient(r.baseURL, option.WithMiddleware(s.causes.middleware)); err != nil {
		return err
	}
	s.params = responses.ResponseNewParams{
		Model: r.model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(task)},
	}
	s.tools = toolset.Options{
		Window: r.eyes.focus == focusWindow, Limits: toolset.Limits(r.limits), Present: present, Logger: r.logger(),
	}
	s.runner = runner.Options{MaxSteps: r.maxSteps, RepeatLimit: r.repeatLimit, Stream: r.stream, ContextBudget: budget}
	spent := newSpent(r.spending, price)
	s.watch(observer{turn: spent.turn}) // first: the others show what it has added up
	if r.stream {
		s.watch(observer{event: (&streamed{out: r.err}).event})
		if summarises(r.model) {
			s.params.Reasoning = shared.ReasoningParam{Summary: shared.ReasoningSummaryAuto}
		}
	}
	if r.verbose {
		s.watch(diagnostics(r.logger()))
	}
	s.progress = &progress{out: r.err, spent: spent, started: time.Now()}
	s.watch(s.progress.observer())
	recorder, err := r.tracing.begin(task, warnings(r.err))
	if err != nil {
		return err
	}
	s.onClose(recorder.close)
	s.watch(recorder.observer())
	if r.boxed != "" { // by the command on the other side
		var box trace.Sandbox
		if err := json.Unmarshal([]byte(r.boxed), &box); err != nil {
			return usagef("--in-sandbox: %w", err)
		}
		recorder.sandbox(box)
	}
	r.onBox = func(box trace.Sandbox) {
		recorder.sandbox(box)
		if s.ledger != "" {
			keepBox(s.ledger, box, warnings(r.err))
		}
	}
	return nil
}

// play carries out a session on the display, and writes the answer.
func (r *runTask) play(ctx context.Context, s *session) (err error) {
	if r.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.deadline, errDeadline)
		defer cancel()
	}
	if address, _ := apiAddress(r.baseURL); apiSocket(address) != "" { // prepare has found it good
		var end context.CancelFunc
		if ctx, end, err = gateway.Watch(ctx, apiSocket(address)); err != nil {
			return err
		}
		defer end()
	}
	var terminal person
	defer terminal.close()
	if s.runner.Computer, err = r.policy(&terminal); err != nil {
		return err
	}
	s.approveMCP(r.mcpApprover(&terminal))
	s.watch(observer{turn: s.progress.spent.bound}) // after those who only watch, before those who go on
	if r.atTerminal() {
		s.watch(observer{turn: (&follow{&terminal, r.err}).turn})
	}
	if !r.elsewhere() { // There it is a guest's, or the other side makes sure.
		if err := r.checkGuest(r.allowHost); err != nil {
			return err
		}
	}
	endPictures, err := r.uploadPictures(ctx, s)
	if err != nil {
		return err
	}
	defer func() { endPictures(err) }()
	d, err := r.open(ctx, r.hands, r.eyes.sight)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := r.checkView(ctx, d); err != nil {
		return err
	}
	s.tools.View = r.eyes.view
	response, err := s.play(ctx, d)
	s.progress.end()
	if err != nil {
		return err
	}
	fmt.Fprintln(r.out, printable(response.OutputText()))
	return d.Close()
}

// presenter is nil, the default, where that would do the same: it sends files that the driver has as they are.
func (r *runTask) presenter() (func(context.Context, *image.RGBA) (toolset.Picture, error), error) {
	present, err := r.encoding.Presenter()
	if err != nil || r.encoding == (toolset.Encoding{Format: "png"}) {
		return nil, err
	}
	return present, nil
}

// checkGuest refuses a display that is not marked as a guest's.
func (c *command) checkGuest(allowHost bool) error {
	if allowHost {
		return nil
	}
	name, err := c.displayName()
	if err != nil {
		return err
	}
	conn, err := xgb.NewConnDisplay(name)
	if err != nil {
		return nil // opening the driver will say what is wrong
	}
	defer conn.Close()
	if _, ok := property(conn, xproto.Setup(conn).DefaultScreen(conn).Root, guestProperty); !ok {
		return hintError{
			fmt.Errorf("display %s is not marked as a guest's: a model should not be let loose on your own screen", name),
			"\"deskagent run --help\" tells how to mark a display, and --allow-host goes on without",
		}
	}
	return nil
}

// checkView has pictures without a size fit, and refuses a view that the screen does not have.
func (r *runTask) checkView(ctx context.Context, d driver.Sizer) error {
	r.eyes.view.Most = toolset.DefaultFit
	bounds, err := d.Bounds(ctx)
	if err != nil {
		return err
	}
	if _, err := r.eyes.view.Mapping(bounds); err != nil {
		return usageError{err}
	}
	return nil
}

// warnings is a logger for what must not go unseen, whatever the flags.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
}
