package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/exercise"
	"github.com/deskagent/deskagent/internal/encode"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
	"github.com/deskagent/deskagent/trace"
)

const traceHelp = `--trace keeps a record of the run in a folder: calls, answers, times and pictures, for "deskagent
view" and "deskagent replay". Keys are never in it. --trace-mask-text leaves out typed text, the task
and the words of the model; pictures show what they show.`

// tracing says whether a run is recorded, and how.
type tracing struct {
	dir       string
	megabytes int64
	maskText  bool
	flags     *pflag.FlagSet
}

func tracingFlags(cmd *cobra.Command, t *tracing) {
	flags := cmd.Flags()
	t.flags = flags
	flags.StringVar(&t.dir, "trace", "", "folder to keep a record of the run in")
	flags.Int64Var(&t.megabytes, "trace-limit", trace.DefaultLimit/1_000_000, "how many megabytes the record may have")
	flags.BoolVar(&t.maskText, "trace-mask-text", false, "leave typed text out of the record")
}

// settings are the flags that were given. Addresses may hold passwords and are left out.
func (t *tracing) settings() map[string]string {
	given := map[string]string{}
	t.flags.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "in-sandbox": // has a record of its own
		case "mcp", "base-url":
			given[f.Name] = "(left out)"
		default:
			given[f.Name] = f.Value.String()
		}
	})
	return given
}

// check refuses flags that make no sense.
func (t *tracing) check() error {
	switch {
	case t.megabytes < 1:
		return usagef("--trace-limit %d: want 1 or more megabytes", t.megabytes)
	case t.maskText && t.dir == "":
		return usagef("--trace-mask-text is for --trace")
	}
	return nil
}

// begin starts the record, nil where none is wanted. What is wrong with it later is said to log.
func (t *tracing) begin(task string, log *slog.Logger) (*recorder, error) {
	if err := t.check(); err != nil || t.dir == "" {
		return nil, err
	}
	start := trace.Start{Program: "deskagent " + version(), Task: task, Settings: t.settings()}
	w, err := trace.Create(t.dir, start, &trace.Options{
		Limit: t.megabytes * 1_000_000, MaskText: t.maskText, Secrets: []string{os.Getenv(keyVariable)}, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return &recorder{w: w, cause: errors.New("the run did not begin")}, nil
}

// A recorder puts into a trace what the observers of a run are told. Its methods do nothing when it is nil.
type recorder struct {
	w     *trace.Writer
	cause error // of the end
}

// close ends the record. What was wrong with it has been said, and is no fault of the run.
func (r *recorder) close() error {
	if r != nil {
		_ = r.w.Close(r.cause)
	}
	return nil
}

func (r *recorder) observer() observer {
	if r == nil {
		return observer{}
	}
	return observer{
		turn: func(t *runner.Turn) error { r.response(json.RawMessage(t.Response.RawJSON())); return nil },
		call: r.call, picture: r.picture, diagnostic: r.diagnostic, answer: r.answer,
		end: func(err error) { r.cause = err },
	}
}

// watch has an exercise recorded.
func (r *recorder) watch(o *exercise.Options) {
	if r == nil {
		return
	}
	o.OnTurn = func(t *runner.Turn) { r.response(json.RawMessage(t.Response.RawJSON())) }
	o.OnCall, o.OnPicture, o.OnDiagnostic = r.call, r.picture, r.diagnostic
	o.OnAnswer = func(q approve.Request, d approve.Decision, err error, took time.Duration) {
		r.answer(answer{q, d, err, took})
	}
}

// end takes down how an exercise ended.
func (r *recorder) end(report *exercise.Report, err error) {
	if r == nil {
		return
	}
	r.cause = err
	if err == nil && !report.Pass {
		r.cause = errors.New(report.Reason)
	}
}

// sandbox may be called for none.
func (r *recorder) sandbox(s trace.Sandbox) {
	if r != nil {
		r.w.Sandbox(s)
	}
}

func (r *recorder) response(response json.RawMessage) { r.w.Response(trace.ReadResponse(response)) }

func (r *recorder) call(c toolset.Call) {
	var raw struct {
		Checks []trace.Check `json:"pending_safety_checks"`
	}
	_ = json.Unmarshal(c.Raw, &raw) // the toolset has checked it
	r.w.Call(trace.Call{ID: c.ID, Shown: trace.Actions(c.Shown), Actions: trace.Actions(c.Actions), Checks: raw.Checks})
}

// picture records the file that was sent; of a picture that was sent by reference, one of the same pixels.
func (r *recorder) picture(s toolset.Shot) {
	format, file := encode.PNG.String(), []byte(nil)
	if head, data, ok := strings.Cut(s.Picture.ImageURL.Value, ";base64,"); ok {
		format = strings.TrimPrefix(head, "data:image/")
		file, _ = base64.StdEncoding.DecodeString(data) // the toolset has read it
	} else {
		file, _ = encode.AppendPNG(nil, s.Image) // fails for pictures without pixels alone
	}
	r.w.Picture(trace.NewPicture(s.CallID, s.Frame, s.Mapping.Crop(), s.Mapping.Size()), format, file)
}

func (r *recorder) diagnostic(d runner.Diagnostic) {
	r.w.Stage(trace.Stage{API: string(d.API), Stage: string(d.Stage), Outcome: string(d.Reason), Member: d.Member, CallID: d.CallID, Took: d.Duration})
}

func (r *recorder) answer(a answer) {
	approval := trace.Approval{CallID: a.request.CallID, Allowed: a.decision == approve.Allow, Took: a.took}
	if a.err != nil {
		approval.Error = a.err.Error()
	}
	if a.request.Action != nil {
		approval.Action = &trace.Action{Action: a.request.Action}
	}
	for _, c := range a.request.Checks {
		approval.Checks = append(approval.Checks, trace.Check(c))
	}
	r.w.Approval(approval)
}

// An answer is a question that was put to an approver, and what it said.
type answer struct {
	request  approve.Request
	decision approve.Decision
	err      error
	took     time.Duration
}

// noting asks a, and has every answer told. Nobody stays nobody.
func noting(a approve.Approver, told func(answer)) approve.Approver {
	if a == nil {
		return nil
	}
	return approve.Func(func(ctx context.Context, q approve.Request) (approve.Decision, error) {
		begin := time.Now()
		decision, err := approve.Ask(ctx, a, q)
		told(answer{q, decision, err, time.Since(begin)})
		return decision, err
	})
}
