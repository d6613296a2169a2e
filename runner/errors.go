package runner

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/openai/openai-go/v3"
)

// Sentinels of a runner that cannot take a run.
var (
	ErrBusy   = errors.New("the runner is busy with another run")
	ErrClosed = errors.New("the runner is closed")
)

// A ConfigError is why a runner was not made, or why a run was refused before its first save and its first request:
// the registration, the parameters, the options, the input or the record to resume from do not fit.
type ConfigError struct{ text string }

func (e *ConfigError) Error() string { return e.text }

func refuse(format string, args ...any) error { return &ConfigError{fmt.Sprintf(format, args...)} }

// Reason is the category of an [*Error].
type Reason string

// The reasons.
const (
	ReasonInvalidResponse Reason = "invalid_response" // the response, or the arguments of a call in it, do not fit
	ReasonStepLimit       Reason = "step_limit"       // the last permitted response still asks for something
	ReasonApproval        Reason = "approval"         // nobody to ask, not approved, or the approver failed
	ReasonBudget          Reason = "budget"           // the input is larger than the context budget
	ReasonReconcile       Reason = "reconcile"        // a browser call failed in a run with a ledger: look first
	ReasonNoEffect        Reason = "no_effect"        // the same calls again and again, and the picture stays
	ReasonCancelled       Reason = "cancelled"        // the context is done
	ReasonFailed          Reason = "failed"           // a function, a driver, a callback, a save or a request failed
)

// An Error is why a run ended that had begun. It says what was being done in words of this package and in numbers
// alone: what drivers, callbacks, pages, arguments and the API had to say is dropped, as it may hold credentials or
// private text.
type Error struct {
	Reason Reason
	// AttemptedCallIDs are the calls that entered dispatch, CompletedCallIDs those of them that produced an output,
	// over all turns and in order. An attempted call may have had an effect, a completed one need not.
	AttemptedCallIDs, CompletedCallIDs []string
	// StatusCode is the HTTP status of a request that the API refused, and APICode the API's own code for it, where
	// it has the form of one; otherwise zero.
	StatusCode int
	APICode    string

	text    string
	context error // that of a done context
}

func (e *Error) Error() string {
	text := "running: " + e.text
	switch {
	case e.APICode != "":
		text += fmt.Sprintf(" (HTTP status %d %s)", e.StatusCode, e.APICode)
	case e.StatusCode != 0:
		text += fmt.Sprintf(" (HTTP status %d)", e.StatusCode)
	}
	if e.context != nil {
		text += ": " + e.context.Error()
	}
	return text
}

// Unwrap returns the error of the context when that is why the run ended, and nothing else.
func (e *Error) Unwrap() error { return e.context }

// stop is the error with which a run ends; the ids are filled in by the run.
func stop(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, text: fmt.Sprintf(format, args...)}
}

// cancelled returns the error of a context that is done, nil before that.
func cancelled(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{Reason: ReasonCancelled, text: "cancelled", context: err}
	}
	return nil
}

// orCancelled returns the error of ctx if it is done, otherwise err: a cancellation is why things fail.
func orCancelled(ctx context.Context, err error) error {
	if stopped := cancelled(ctx); stopped != nil {
		return stopped
	}
	return err
}

// apiCode is what a code of the API looks like; anything else might be a text.
var apiCode = regexp.MustCompile(`^[a-z0-9_.-]{1,64}$`)

// requestFailed is the error of a request; cause is what the client had to say.
func requestFailed(step int, cause error) *Error {
	e := stop(ReasonFailed, "request %d", step)
	if api, ok := errors.AsType[*openai.Error](cause); ok {
		e.StatusCode = api.StatusCode
		if apiCode.MatchString(api.Code) {
			e.APICode = api.Code
		}
	}
	return e
}

// withReceipts completes err, which ends a run.
func (e *Error) withReceipts(r receipts) *Error {
	e.AttemptedCallIDs, e.CompletedCallIDs = slices.Clone(r.attempted), slices.Clone(r.completed)
	return e
}

// errPanicked stands for the panic of code that is not ours; its value is dropped with all other errors.
var errPanicked = errors.New("panic")

// guard calls code that is not ours; its panic becomes an error.
func guard(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return f()
}
