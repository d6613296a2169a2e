// Package approve puts a person between what a model wants and what happens. An [Approver] answers one question
// at a time; everything that is not a clear yes is a no: no answer, an error, the end of input, a time-out, an
// approver that is not there. [Ask] is the way to put a question, [Terminal] is a person, the others are policies.
//
// # What is shown
//
// [Describe] says in words what a question is about. All text that comes from a model or from the API is shown
// as Go string literals, whatever could not be seen or could change the screen as an escape, so that what a person
// reads is exactly what happens. None of it is ever taken for an answer.
package approve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/deskagent/deskagent/driver"
)

// ErrDenied is wrapped by the errors of whoever asked and was not allowed.
var ErrDenied = errors.New("not approved")

// A Decision is the answer to one question. The zero Decision is a no.
type Decision bool

// The two answers.
const (
	Deny  Decision = false
	Allow Decision = true
)

// A Request is one question: about Checks, about an Action or about a Tool. It is a copy: changing it changes nothing
// else.
type Request struct {
	// CallID is the id of the model's call, or approval request, that the question is about.
	CallID string
	// Call is the whole call, as JSON in the API's form.
	Call json.RawMessage
	// Checks are pending safety checks. When there are any, the question is whether to go on in spite of them,
	// and Action is nil; saying yes approves no action.
	Checks []SafetyCheck
	// Action is the very action that will be executed, in screen space; nil when the question is about Checks.
	Action driver.Action
	// Shown is the same action as the model put it, in the space of the picture it saw; nil when the two spaces
	// are the same.
	Shown driver.Action
	// Tool is a call of a tool on an MCP server, which the API makes, not this machine; otherwise nil.
	Tool *ToolCall
}

// A ToolCall is what an MCP server would be asked to do.
type ToolCall struct {
	Server    string // its label
	Name      string // of the tool
	Arguments string // JSON, as the model wrote it
}

// subjects is how many things r is about, of which there may be one.
func (r Request) subjects() (n int) {
	for _, about := range []bool{r.Action != nil, len(r.Checks) > 0, r.Tool != nil} {
		if about {
			n++
		}
	}
	return n
}

// A SafetyCheck is a warning that the API raised about a call.
type SafetyCheck struct {
	ID, Code, Message string // Code and Message may be empty
}

// An Approver answers questions.
//
// Approve is called before anything happens and may take as long as a person takes. It returns early, with an
// error, when ctx is done. Any error counts as a no. Calls come one at a time.
type Approver interface {
	Approve(ctx context.Context, r Request) (Decision, error)
}

// Ask puts a question to a, and makes sure of what holds for every approver: one that is nil denies, one that panics
// denies with an error, an error makes a yes a no, and so does a ctx that is done by the time of the answer. The
// approver gets a deep copy of r, so what it approved is what the caller still has.
//
// Ask waits for a to return: a time limit is for ctx to set and for a to keep.
func Ask(ctx context.Context, a Approver, r Request) (d Decision, err error) {
	if a == nil {
		return Deny, nil
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
			return
		case error:
			err = p
		default:
			err = fmt.Errorf("%v", p)
		}
		d, err = Deny, fmt.Errorf("asking about call %q: the approver panicked: %w", r.CallID, err)
	}()
	d, err = a.Approve(ctx, r.clone())
	if err == nil {
		err = context.Cause(ctx)
	}
	return d && err == nil, err
}

func (r Request) clone() Request {
	r.Call, r.Checks = bytes.Clone(r.Call), slices.Clone(r.Checks)
	if r.Action != nil {
		r.Action = driver.Clone(r.Action)
	}
	if r.Shown != nil {
		r.Shown = driver.Clone(r.Shown)
	}
	if r.Tool != nil {
		r.Tool = new(*r.Tool)
	}
	return r
}

// Func is a function as an Approver.
type Func func(ctx context.Context, r Request) (Decision, error)

// Approve calls f; a nil f denies.
func (f Func) Approve(ctx context.Context, r Request) (Decision, error) {
	if f == nil {
		return Deny, nil
	}
	return f(ctx, r)
}

// DenyAll answers every question with no.
var DenyAll Approver = Func(nil)

// AllowActions allows every action, and denies whatever has pending safety checks, and calls of tools elsewhere: those
// are for a person, or for an explicit choice such as AllowChecks.
var AllowActions Approver = Func(func(ctx context.Context, r Request) (Decision, error) {
	if err := context.Cause(ctx); err != nil {
		return Deny, err
	}
	return Decision(r.Action != nil && r.subjects() == 1), nil
})

// AllowChecks acknowledges pending safety checks without asking, provided that every check of the question has one
// of the codes; a check without a code is never covered. All other questions, those about actions included, go to
// next, and a nil next denies. It is for machines that hold nothing of value, and it is loud: each check that it
// acknowledges is a warning in log, and a nil log is [slog.Default], not silence.
func AllowChecks(next Approver, codes []string, log *slog.Logger) Approver {
	codes = slices.Clone(codes)
	if log == nil {
		log = slog.Default()
	}
	uncovered := func(c SafetyCheck) bool { return c.Code == "" || !slices.Contains(codes, c.Code) }
	return Func(func(ctx context.Context, r Request) (Decision, error) {
		if err := context.Cause(ctx); err != nil {
			return Deny, err
		}
		if len(r.Checks) == 0 || r.subjects() > 1 || slices.ContainsFunc(r.Checks, uncovered) {
			return Ask(ctx, next, r)
		}
		for _, c := range r.Checks {
			log.WarnContext(ctx, "safety check acknowledged without asking", "call", r.CallID, "check", c.ID, "code", c.Code, "message", c.Message)
		}
		return Allow, nil
	})
}
