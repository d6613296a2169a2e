package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// A session is what one run is made of: the options of the packages below, and those who watch. Whoever takes part in a
// run by flags of its own adds to a session before it is played.
type session struct {
	client *openai.Client
	params responses.ResponseNewParams
	// The observers in these are set by play, from observers.
	tools    toolset.Options
	runner   runner.Options
	causes   causes
	progress *progress
	ledger   string // the folder; empty for none

	observers []observer
	closers   []func() error // called by close, the last one first
}

// An observer watches a run. Its functions are called one at a time, and any of them may be nil.
type observer struct {
	turn       func(*runner.Turn) error // before its calls are carried out; an error ends the run
	event      func(responses.ResponseStreamEventUnion)
	call       func(toolset.Call)
	picture    func(toolset.Shot)
	diagnostic func(runner.Diagnostic)
	answer     func(answer) // of who is asked about computer calls
	end        func(error)  // when the run is over; nil when it went well
}

func (s *session) watch(o observer) { s.observers = append(s.observers, o) }

// onClose has f called when the run is over, however it ended.
func (s *session) onClose(f func() error) { s.closers = append(s.closers, f) }

// close ends what takes part in the run.
func (s *session) close() error {
	var errs []error
	for len(s.closers) > 0 {
		last := len(s.closers) - 1
		errs = append(errs, s.closers[last]())
		s.closers = s.closers[:last]
	}
	return errors.Join(errs...)
}

// play lets the model work on a desktop, and returns its last response.
func (s *session) play(ctx context.Context, d driver.Driver) (_ *responses.Response, err error) {
	defer func() { s.tellAll(func(o observer) { tell(o.end, err) }) }()
	answered := func(a answer) { s.tellAll(func(o observer) { tell(o.answer, a) }) }
	s.runner.Computer.Actions = noting(s.runner.Computer.Actions, answered)
	s.runner.Computer.SafetyChecks = noting(s.runner.Computer.SafetyChecks, answered)
	s.tools.OnError = s.causes.note
	s.tools.OnCall = func(c toolset.Call) { s.tellAll(func(o observer) { tell(o.call, c) }) }
	s.tools.OnPicture = func(p toolset.Shot) { s.tellAll(func(o observer) { tell(o.picture, p) }) }
	s.runner.OnDiagnostic = func(d runner.Diagnostic) { s.tellAll(func(o observer) { tell(o.diagnostic, d) }) }
	s.runner.OnEvent = func(_ context.Context, e responses.ResponseStreamEventUnion) error {
		s.tellAll(func(o observer) { tell(o.event, e) })
		return nil
	}
	tools, err := toolset.New(d, &s.tools)
	if err != nil {
		return nil, err
	}
	conversation, err := runner.New(runner.Registration{Computer: tools})
	if err != nil {
		return nil, err
	}
	var last *runner.Turn
	for turn, err := range conversation.Iterate(ctx, s.client, s.params, s.runner) {
		if err != nil {
			return nil, s.explain(ctx, err)
		}
		for _, o := range s.observers {
			if o.turn == nil {
				continue
			}
			if err := o.turn(turn); err != nil {
				return nil, err
			}
		}
		last = turn
	}
	return last.Response, nil
}

func (s *session) tellAll(what func(observer)) {
	for _, o := range s.observers {
		what(o)
	}
}

// tell calls f, unless there is none.
func tell[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

// explain adds what is known of the cause of an error, and what can be done about it.
func (s *session) explain(ctx context.Context, err error) error {
	e, ok := errors.AsType[*runner.Error](err)
	if !ok {
		return err
	}
	switch {
	case e.Reason == runner.ReasonCancelled:
		return context.Cause(ctx)
	case e.Reason == runner.ReasonStepLimit && s.runner.Ledger != nil && s.runner.Ledger.ResumeFrom != nil:
		return hintError{err, "the record fixes how many requests a run may make; a new run may make more"}
	case e.Reason == runner.ReasonStepLimit:
		return hintError{err, "--max-steps allows more"}
	case e.Reason == runner.ReasonNoEffect:
		return hintError{err, fmt.Sprintf("--repeat-limit is %d", s.runner.RepeatLimit)}
	case e.Reason == runner.ReasonBudget:
		return hintError{err, "--context-images and --context-bytes allow more"}
	case e.StatusCode == 401:
		return hintError{s.causes.explain(err), keyVariable + " is not accepted there"}
	}
	return s.causes.explain(err)
}
