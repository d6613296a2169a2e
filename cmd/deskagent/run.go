package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/toolset"
)

const (
	// keyVariable is where the API key comes from, and the only place.
	keyVariable = "OPENAI_API_KEY"

	// guestProperty on the root window marks a display as a guest's: one that may be given to a model.
	guestProperty = "_DESKAGENT_GUEST"

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

Pictures show the whole screen, made to fit 1440x900 when it is larger; --size and --crop change
that. A picture that the API would make smaller, with which every point would be off, is refused;
--limits says what the model at hand takes, as the API's guide to images has it:
  original  6000 pixels a side, 10000 patches of 32 by 32: gpt-5.5
  high      2048, 2500: gpt-5.4 (default)
  small     2048, 1536: gpt-5.4-mini and -nano, gpt-5.2, gpt-5-mini and -nano, o4-mini
  tiles     2048, the shorter side 768: computer-use-preview, gpt-4o, gpt-4.1

` + eyesHelp + `

Text is typed; --paste has it pasted by way of the clipboard, and puts back what was there for as
long as the run lasts. Ctrl-C stops at once and releases every key and button.`

const runExample = `  deskagent run "Open the editor and write a haiku"
  deskagent run --approve allow --max-steps 50 "Tidy the files on the desktop into folders"
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
	flags := cmd.Flags()
	flags.StringVar(&r.model, "model", defaultModel, "the model")
	flags.StringVar(&r.baseURL, "base-url", "", "address of the API (default that of OpenAI, or $OPENAI_BASE_URL)")
	flags.Int64Var(&r.maxSteps, "max-steps", toolset.DefaultMaxSteps, "the most requests to make")
	flags.Var(&r.approve, "approve", "who decides about actions: prompt, allow or deny")
	flags.StringSliceVar(&r.codes, "acknowledge-checks", nil, "codes of safety checks to acknowledge unasked")
	flags.BoolVar(&r.allowHost, "allow-host", false, "go on even if the display is not marked as a guest's")
	eyesFlags(cmd, &r.eyes)
	flags.StringVar(&r.encoding.Format, "format", "png", "how pictures are sent: png or jpeg")
	flags.IntVar(&r.encoding.Quality, "quality", 0, "quality of JPEG pictures, from 1 to 100 (default 85)")
	flags.Var(&r.limits, "limits", "how large pictures may be: original, high, small or tiles")
	handsFlags(cmd, &r.hands)
	remoteFlag(cmd, c)
	return cmd
}

// runTask is one deskagent run.
type runTask struct {
	*command
	model, baseURL string
	maxSteps       int64
	approve        approveFlag
	codes          []string
	allowHost      bool
	eyes           eyes
	encoding       toolset.Encoding
	limits         limitsFlag
	hands          hands
}

func (r *runTask) run(ctx context.Context, task string) error {
	if strings.TrimSpace(task) == "" {
		return usagef("the task is empty")
	}
	if r.maxSteps < 1 {
		return usagef("--max-steps %d: want 1 or more", r.maxSteps)
	}
	if err := r.eyes.resolve(); err != nil {
		return err
	}
	present, err := r.presenter()
	if err != nil {
		return usageError{err}
	}
	client, err := r.client()
	if err != nil {
		return err
	}
	policy, closePolicy, err := r.policy()
	if err != nil {
		return err
	}
	defer closePolicy()
	if r.remote == "" { // otherwise the other side does
		if err := r.checkGuest(r.allowHost); err != nil {
			return err
		}
	}
	d, err := r.open(ctx, r.hands, r.eyes.sight)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := r.checkView(ctx, d); err != nil {
		return err
	}
	progress := &progress{out: r.err, started: time.Now()}
	tools, err := toolset.New(d, &toolset.Options{
		View: r.eyes.view, Window: r.eyes.focus == focusWindow, Limits: toolset.Limits(r.limits), Present: present,
		OnCall: progress.call, OnPicture: progress.picture, Logger: r.logger(),
	})
	if err != nil {
		return err
	}
	response, err := tools.Run(ctx, client, responses.ResponseNewParams{
		Model: r.model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(task)},
	}, &toolset.RunOptions{Policy: policy, MaxSteps: openai.Int(r.maxSteps), OnResponse: progress.response})
	progress.end()
	if err != nil {
		return r.explain(err)
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

// explain adds what can be done about an error.
func (r *runTask) explain(err error) error {
	var e *toolset.Error
	var api *openai.Error
	switch {
	case errors.Is(err, errInterrupted):
		return errInterrupted
	case errors.As(err, &api) && api.StatusCode == 401:
		return hintError{err, keyVariable + " is not accepted there"}
	case errors.As(err, &e) && e.Reason == toolset.ReasonMaxSteps:
		return hintError{err, "--max-steps allows more"}
	}
	return err
}

// client makes the API's client. The key is never sent in clear over a network.
func (r *runTask) client() (*openai.Client, error) {
	key := os.Getenv(keyVariable)
	if key == "" {
		return nil, hintError{usagef("%s is not set", keyVariable), "put your key into it; \"deskagent exercise\" needs none"}
	}
	base := r.baseURL
	if base == "" {
		base = os.Getenv("OPENAI_BASE_URL")
	}
	options := []option.RequestOption{option.WithAPIKey(key)}
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return nil, usagef("address of the API %q: want something like https://api.example.com/v1", base)
		}
		if u.Scheme == "http" && !loopback(u.Hostname()) {
			return nil, usagef("address of the API %q: the key would go over the network in clear, use https", base)
		}
		options = append(options, option.WithBaseURL(base))
	}
	client := openai.NewClient(options...)
	return &client, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
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

// approveFlag is prompt, allow or deny.
type approveFlag string

const (
	approvePrompt approveFlag = "prompt"
	approveAllow  approveFlag = "allow"
	approveDeny   approveFlag = "deny"
)

func (f *approveFlag) String() string {
	if *f == "" {
		return string(approvePrompt)
	}
	return string(*f)
}

func (f *approveFlag) Type() string { return "WHO" }

func (f *approveFlag) Set(s string) error {
	switch v := approveFlag(s); v {
	case approvePrompt, approveAllow, approveDeny:
		*f = v
		return nil
	}
	return errors.New("want prompt, allow or deny")
}

// policy makes the policy of the flags, and a function that ends it.
func (r *runTask) policy() (toolset.Policy, func(), error) {
	var terminal person
	policy := toolset.Policy{SafetyChecks: &terminal}
	switch r.approve {
	case approveDeny:
		return toolset.Ask(approve.DenyAll), func() {}, nil
	case approveAllow:
		policy.Actions = approve.AllowActions
	default:
		if err := terminal.open(); err != nil {
			return policy, nil, nobodyToAsk(err)
		}
		policy.Actions = &terminal
	}
	if len(r.codes) > 0 {
		policy.SafetyChecks = approve.AllowChecks(policy.SafetyChecks, r.codes, warnings(r.err))
	}
	return policy, terminal.close, nil
}

func nobodyToAsk(err error) error {
	return hintError{fmt.Errorf("%w: there is nobody to ask: %w", approve.ErrDenied, err),
		"run in a terminal, or choose --approve allow where nothing of value can be lost"}
}

// person is the one at the terminal, which is opened when there is a first question.
type person struct {
	mu       sync.Mutex
	terminal *approve.Terminal
}

func (p *person) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal != nil {
		return nil
	}
	terminal, err := approve.OpenTerminal(nil)
	if err != nil {
		return err
	}
	p.terminal = terminal
	return nil
}

func (p *person) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal != nil {
		p.terminal.Close()
	}
}

func (p *person) Approve(ctx context.Context, r approve.Request) (approve.Decision, error) {
	if err := p.open(); err != nil {
		return approve.Deny, err
	}
	return p.terminal.Approve(ctx, r)
}

// progress says what happens, a line per step and action.
type progress struct {
	out     io.Writer
	started time.Time
	steps   int
	usage   toolset.Usage
}

func (p *progress) response(step int, response json.RawMessage) {
	before := p.usage.TotalTokens
	p.usage.Add(response)
	p.steps = step
	fmt.Fprintf(p.out, "step %d (%.1f s, %d tokens)\n", step, time.Since(p.started).Seconds(), p.usage.TotalTokens-before)
}

func (p *progress) call(call toolset.Call) {
	for i, a := range call.Actions {
		for _, line := range approve.Describe(approve.Request{Action: a, Shown: call.Shown[i]}) {
			fmt.Fprintln(p.out, "  "+line)
		}
	}
}

func (p *progress) picture(shot toolset.Shot) {
	if s := shot.Frame.Settling; s.State == driver.Changing {
		fmt.Fprintf(p.out, "  the screen still changes after %.1f s, in %v\n", s.Elapsed.Seconds(), s.Changed)
	}
}

func (p *progress) end() {
	fmt.Fprintf(p.out, "%d steps, %.1f s, tokens: %s\n", p.steps, time.Since(p.started).Seconds(), tokens(p.usage))
}

func tokens(u toolset.Usage) string {
	s := fmt.Sprintf("%d in, %d out, %d in all", u.InputTokens, u.OutputTokens, u.TotalTokens)
	if u.Incomplete {
		s += " (incomplete: a response did not say)"
	}
	return s
}

// warnings is a logger for what must not go unseen, whatever the flags.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
}
