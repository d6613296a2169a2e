package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/toolset"
)

// ErrConsumed is what a sequence of [Runner.Iterate] yields that was ranged over before.
var ErrConsumed = errors.New("the run was iterated before")

// Run lets the model work: it sends params, carries out the calls of the response, sends their outputs with the whole
// history, and so on until a response asks for nothing more, which it returns. The parameters are read once, at the
// start; functions and the computer tool are added to their tools, and only hosted tools may be given there.
//
// A response is checked whole before anything in it is carried out, unless [Options.Eager] says otherwise; a failed
// request is never a reason to repeat a call. ctx reaches all callbacks, drivers and requests. When it is done, the run
// stops before the next step, and what is running is awaited.
//
// The error is [ErrBusy], [ErrClosed], a [*ConfigError] before anything has happened, otherwise an [*Error].
func (r *Runner) Run(ctx context.Context, client *openai.Client, params responses.ResponseNewParams, opts Options) (*responses.Response, error) {
	var last *Turn
	for turn, err := range r.Iterate(ctx, client, params, opts) {
		if err != nil {
			return nil, err
		}
		last = turn
	}
	return last.Response, nil
}

// Iterate is Run turn by turn. Each turn is yielded after its response was checked and before its calls are carried
// out, save for those that ran early; going on carries them out. Leaving the loop ends the run and carries out nothing.
// The last turn is final, or an error is yielded in its place, with a nil turn. The sequence can be ranged over once.
func (r *Runner) Iterate(ctx context.Context, client *openai.Client, params responses.ResponseNewParams, opts Options) iter.Seq2[*Turn, error] {
	var consumed atomic.Bool
	return func(yield func(*Turn, error) bool) {
		if consumed.Swap(true) {
			yield(nil, ErrConsumed)
			return
		}
		if err := r.begin(); err != nil {
			yield(nil, fmt.Errorf("starting a run: %w", err))
			return
		}
		end := sync.OnceFunc(r.end)
		defer end()
		run, err := r.admit(client, params, opts)
		if err == nil {
			err = run.loop(ctx, yield)
		}
		if err != nil {
			end() // before the caller hears of it, and perhaps begins another run
			yield(nil, err)
		}
	}
}

// receipts are the ids of the calls that were dispatched, and of those that produced an output, in that order.
type receipts struct{ attempted, completed []string }

// A run is one conversation.
type run struct {
	*inspector
	opts     Options
	requests *sender

	step     int // requests so far
	history  []entry
	trigger  *entry   // a compaction_trigger, sent once at the end of the input
	unused   []*grant // MCP approvals from before this run, to be asked for again
	receipts receipts
	repeats  repeats

	revision      int               // of the ledger
	recordedTools []json.RawMessage // for the ledger
	pending       []json.RawMessage // items of the current response, for the ledger
	outputs       []entry           // of the calls of the current response

	sameTurn    bool // a computer call of this response was carried out
	skipBrowser bool // a browser call of this response was not OK

	observing sync.Mutex // records come one at a time
}

// errLeft says that the caller left the loop.
var errLeft = errors.New("left")

// loop makes turns until the run ends. A nil error means that it has said all there is to say.
func (r *run) loop(ctx context.Context, yield func(*Turn, error) bool) error {
	err := r.askAgain(ctx)
	for final := false; err == nil && !final; {
		final, err = r.turn(ctx, yield)
	}
	if ended, ok := errors.AsType[*Error](err); ok {
		return ended.withReceipts(r.receipts)
	}
	return nil
}

// turn makes one request and carries out the calls of the response, and reports whether that was the last one. The
// order of the steps is what this package is about: nothing of a response is carried out before all of it was checked,
// recorded and shown.
func (r *run) turn(ctx context.Context, yield func(*Turn, error) bool) (final bool, err error) {
	input, err := r.nextInput(ctx)
	if err != nil {
		return false, err
	}
	r.step++
	if err := r.save(ctx, r.requestPhase(), nil); err != nil {
		return false, err
	}
	t, err := r.request(ctx, input)
	if err != nil {
		return false, err
	}
	phase := PhasePending
	if t.Final {
		phase = PhaseFinal
	}
	r.pending = t.raws()
	if err := r.save(ctx, phase, t.response); err != nil {
		return false, err
	}
	r.report(t.record)
	if err := r.prepare(t.calls); err != nil {
		return false, err
	}
	if err := cancelled(ctx); err != nil {
		return false, err
	}
	if !t.show(yield) {
		return false, errLeft
	}
	if err := cancelled(ctx); err != nil || t.Final {
		return t.Final, err
	}
	if r.lastStep() {
		return false, r.noStepLeft()
	}
	return false, r.finish(ctx, t)
}

// finish carries out what is left of a turn and takes it into the history.
func (r *run) finish(ctx context.Context, t *Turn) error {
	for _, c := range t.calls {
		if c.done {
			continue
		}
		if err := r.dispatch(ctx, c, t); err != nil {
			return err
		}
	}
	if err := cancelled(ctx); err != nil {
		return err
	}
	for _, it := range t.items {
		r.history = append(r.history, newEntry(it.replay(), it.fields))
	}
	r.history = append(r.history, r.outputs...)
	warning, repeated := r.noteRepeats(t)
	for _, text := range append(t.texts, warning...) {
		r.history = append(r.history, userMessage(text))
	}
	r.pending, r.outputs = nil, nil
	if err := r.save(ctx, PhaseBoundary, nil); err != nil {
		return err
	}
	return repeated
}

func (r *run) noStepLeft() error {
	return stop(ReasonStepLimit, "response %d, the last one permitted, asks for more", r.step)
}

func (r *run) lastStep() bool { return r.step >= r.opts.MaxSteps }

// nextInput is what the next request says.
func (r *run) nextInput(ctx context.Context) ([]entry, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	if r.lastStep() {
		return nil, stop(ReasonStepLimit, "no request is left")
	}
	input := r.history
	if r.trigger != nil {
		input = append(input[:len(input):len(input)], *r.trigger)
		r.trigger = nil
	}
	if r.opts.ContextBudget == nil {
		return input, nil
	}
	return r.opts.ContextBudget.bounded(ctx, input, r.isBrowser)
}

func (r *run) isBrowser(e entry) bool {
	t := r.tools[e.name]
	return t != nil && t.function == nil
}

// prepare decodes the arguments of the functions that are to be called.
func (r *run) prepare(calls []*call) error {
	for _, c := range calls {
		if c.kind != functionCall || c.execution != nil {
			continue
		}
		var err error
		if c.execution, err = c.tool.function.prepared(textOf(c.item.fields["arguments"])); err != nil {
			r.report(Diagnostic{API: APIResponses, Stage: StageArguments, Reason: OutcomeInvalidInput, CallID: c.id, Member: c.name})
			return stop(ReasonInvalidResponse, "response %d: arguments that the function does not take", r.step)
		}
	}
	return nil
}

// report hands a record to the observer, whose panic is nobody else's trouble.
func (r *run) report(d Diagnostic) {
	if r.opts.OnDiagnostic == nil {
		return
	}
	r.observing.Lock()
	defer r.observing.Unlock()
	_ = guard(func() error { r.opts.OnDiagnostic(d); return nil })
}

// stage runs one stage and reports it. A cancellation during the stage wins over its failure.
func (r *run) stage(ctx context.Context, d Diagnostic, f func() (Outcome, error)) error {
	start := time.Now()
	outcome, err := f()
	d.Reason, d.Duration = outcome, time.Since(start)
	if err != nil && outcome == "" {
		d.Reason = d.Stage.failure()
	}
	if err != nil && ctx.Err() != nil {
		d.Reason = OutcomeCancelled
	}
	r.report(d)
	if err != nil {
		return orCancelled(ctx, err)
	}
	return nil
}

// requestPhase is the phase while a request is on its way: hosted tools may act during it.
func (r *run) requestPhase() Phase {
	if len(r.hosted) > 0 {
		return PhasePending
	}
	return PhaseBoundary
}

// save commits the record, if there is a ledger.
func (r *run) save(ctx context.Context, phase Phase, final json.RawMessage) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	ledger := r.opts.Ledger
	if ledger == nil {
		return nil
	}
	r.revision++
	if phase != PhaseFinal {
		final = json.RawMessage("null")
	} else {
		final = redactedResponse(final)
	}
	c := Checkpoint{
		Version: checkpointVersion, RunID: ledger.RunID, Revision: r.revision, Phase: phase, MaxSteps: r.opts.MaxSteps,
		ConsumedRequests: r.step, Tools: r.recordedTools, OutputOverrideNames: r.overrides, History: raws(r.history),
		AttemptedCallIDs: r.receipts.attempted, ReturnedCallIDs: r.receipts.completed, PendingItems: r.pending,
		ReturnedOutputs: raws(r.outputs), FinalResponse: final,
	}.clone()
	if err := guard(func() error { return ledger.Save(ctx, c) }); err != nil {
		return orCancelled(ctx, stop(ReasonFailed, "saving revision %d", r.revision))
	}
	return nil
}

// usage is what a response says it cost, nil when it does not say so properly.
func usage(response json.RawMessage) *toolset.Usage {
	u := &toolset.Usage{}
	if u.Add(response); u.Incomplete {
		return nil
	}
	return u
}
