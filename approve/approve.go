// Package approve puts a person between what a model wants and what happens. An [Approver] answers one question
// at a time; everything that is not a clear yes is a no: no answer, an error, the end of input, a time-out, an
// approver that is not there.
package approve

import (
	"context"
	"encoding/json"
	"errors"

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

// A Request is one question. It is a copy: changing it changes nothing else.
type Request struct {
	// CallID is the id of the model's call that the question is about.
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

// AllowActions allows every action, and denies whatever has pending safety checks: those are for a person, or
// for an explicit choice such as AllowChecks.
var AllowActions Approver = Func(func(ctx context.Context, r Request) (Decision, error) {
	if err := context.Cause(ctx); err != nil {
		return Deny, err
	}
	return Decision(len(r.Checks) == 0 && r.Action != nil), nil
})
