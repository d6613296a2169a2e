package runner

import (
	"context"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/toolset"
)

// DefaultMaxSteps is how many requests a run may make when nothing else is said.
const DefaultMaxSteps = 20

// DefaultMaxConcurrentCalls is how many independent functions run beside each other when nothing else is said.
const DefaultMaxConcurrentCalls = 2

// Options are the choices of one run. The zero value means the documented defaults. Callbacks get copies; a panic in
// one counts as its error. They are called one at a time, but for functions that are independent.
type Options struct {
	// MaxSteps bounds the requests; retries of one request by the client count once. The last permitted response
	// starts nothing. Zero: [DefaultMaxSteps], or the limit of the record that is resumed.
	MaxSteps int
	// Stream asks for the responses as streams. Calls wait for the end of the stream.
	Stream bool
	// Eager lets calls run as soon as they have arrived whole. It needs Stream.
	Eager bool
	// MaxConcurrentCalls bounds the independent functions that run beside the stream. Zero:
	// [DefaultMaxConcurrentCalls].
	MaxConcurrentCalls int
	// RepeatLimit tells the model, with a user message, when it has made the same computer calls that many times in
	// succession and the pictures stayed the same; one more repetition ends the run with [ReasonNoEffect]. Zero: no
	// limit. [DefaultRepeatLimit] is a good choice.
	RepeatLimit int

	// OnEvent gets every event of a stream before it has an effect. Its error ends the run.
	OnEvent func(context.Context, responses.ResponseStreamEventUnion) error
	// BeforeEarlyCall decides about each call that may run early, just before it would. Nil: all run.
	BeforeEarlyCall func(context.Context, EarlyCall) (EarlyDecision, error)
	// ApproveMCP answers the approval requests of MCP servers. Nil, or an error, ends the run at the first one.
	ApproveMCP func(context.Context, responses.ResponseOutputItemMcpApprovalRequest) (bool, error)
	// Computer says who is asked about computer calls. The zero Policy declines them, which ends the run.
	Computer toolset.Policy
	// OnDiagnostic gets the record of each finished stage. Nothing it does has any effect on the run, save that the
	// run waits for it. Calls from independent functions come one at a time, too.
	OnDiagnostic func(Diagnostic)

	// RequestOptions go with every request. An Idempotency-Key in them, or in the client, is used for the first
	// request; each later one gets a new key of its own. There may be none with a Ledger.
	RequestOptions []option.RequestOption
	// Headers go with every request.
	Headers map[string]string
	// Timeout bounds each attempt of a request. Zero: no bound but that of the client.
	Timeout time.Duration

	// Ledger keeps a record of the run. Nil: none.
	Ledger *Ledger
	// ContextBudget bounds the input of each request. Nil: no bound.
	ContextBudget *ContextBudget
}

// An EarlyCall is a call that may run before its response is complete.
type EarlyCall struct {
	CallID string
	Name   string // of the function or the browser tool; empty for a computer call
	// Item is the whole call as it arrived: a function_call or a computer_call.
	Item []byte
}

// An EarlyDecision is an answer to whether a call is to run early.
type EarlyDecision string

// The two answers; any other ends the run.
const (
	ExecuteEarly EarlyDecision = "execute"
	DeferCall    EarlyDecision = "defer" // run this call, and all after it, once the response is complete
)

// check refuses options that contradict each other, fills in defaults, and copies what is behind pointers.
func (o *Options) check() error {
	switch {
	case o.MaxSteps < 0:
		return refuse("at most %d steps, want 1 or more", o.MaxSteps)
	case o.MaxConcurrentCalls < 0:
		return refuse("at most %d concurrent calls, want 1 or more", o.MaxConcurrentCalls)
	case o.RepeatLimit < 0:
		return refuse("a repeat limit of %d, want 1 or more", o.RepeatLimit)
	case o.Timeout < 0:
		return refuse("a timeout of %v", o.Timeout)
	case o.Eager && !o.Stream:
		return refuse("eager runs need streaming")
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = DefaultMaxSteps
		if o.Ledger != nil && o.Ledger.ResumeFrom != nil {
			o.MaxSteps = o.Ledger.ResumeFrom.MaxSteps
		}
	}
	if o.MaxConcurrentCalls == 0 {
		o.MaxConcurrentCalls = DefaultMaxConcurrentCalls
	}
	if o.Ledger != nil {
		o.Ledger = new(*o.Ledger)
		if err := o.Ledger.check(o); err != nil {
			return err
		}
	}
	if o.ContextBudget != nil {
		o.ContextBudget = new(*o.ContextBudget)
		return o.ContextBudget.check()
	}
	return nil
}
