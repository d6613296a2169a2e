package toolset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// Sentinels in the chain of an [*Error]. What was not allowed wraps [approve.ErrDenied].
var (
	ErrBusy   = errors.New("the computer toolset is busy with another call")
	ErrClosed = errors.New("the computer toolset is closed")
)

// Reason is the category of an [*Error].
type Reason string

// The reasons. In those marked with a star the error that was met is in the chain.
const (
	ReasonInvalidCall       Reason = "invalid_call"        // the model's call is malformed or points outside its picture
	ReasonSafetyNotApproved Reason = "safety_not_approved" // pending safety checks were not approved
	ReasonActionDeclined    Reason = "action_declined"     // an action was not approved
	ReasonPolicyFailed      Reason = "policy_failed"       // * an approver failed
	ReasonDriverFailed      Reason = "driver_failed"       // * the driver failed
	ReasonBadScreenshot     Reason = "bad_screenshot"      // * there is no usable picture
	ReasonStale             Reason = "stale_picture"       // * the picture that the call was made for no longer holds
	ReasonCancelled         Reason = "cancelled"           // * the context is done
	ReasonBusy              Reason = "busy"                // another call or run is active
	ReasonClosed            Reason = "closed"              // Close was called before

	// Of runs only.
	ReasonBadRequest        Reason = "bad_request"        // the parameters or options do not fit; nothing was sent
	ReasonRequestFailed     Reason = "request_failed"     // * the API or the way to it failed
	ReasonInvalidResponse   Reason = "invalid_response"   // the response is not finished or malformed
	ReasonUnsupportedItem   Reason = "unsupported_item"   // the response holds what a computer-only run cannot handle
	ReasonDuplicateIdentity Reason = "duplicate_identity" // an item or call id came twice
	ReasonNoFinalMessage    Reason = "no_final_message"   // no call and no finished message
	ReasonMaxSteps          Reason = "max_steps"          // the last permitted response still asks for actions
)

// An Error is why a call or a run ended.
type Error struct {
	Reason Reason
	Err    error // never nil
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error that was met.
func (e *Error) Unwrap() error { return e.Err }

func fail(reason Reason, format string, args ...any) error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// cancelled returns the error of a context that is done, nil before that. Both the context's error and its cause
// can be found in it.
func cancelled(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &Error{ReasonCancelled, err}
}

// guard calls code that is not ours; its panic becomes its error.
func guard(f func() error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("panic: %w", v)
		default:
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f()
}

// A Diagnostic is the record of one finished stage of a call. It holds no text, argument, picture or error.
type Diagnostic struct {
	Stage   Stage
	Outcome Outcome
	// Member is the kind of the action; empty when the stage is about safety checks.
	Member driver.Kind
	CallID string
	// Duration is how long the stage took, the time of whoever was asked included.
	Duration time.Duration
}

// Stage is a part of a call.
type Stage string

// The stages.
const (
	StageApproval Stage = "approval"
	StageAction   Stage = "action"
)

func (s Stage) failure() Outcome {
	if s == StageApproval {
		return OutcomePolicyFailed
	}
	return OutcomeDriverFailed
}

// Outcome is how a stage ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted    Outcome = "completed"
	OutcomeCancelled    Outcome = "cancelled"
	OutcomePolicyFailed Outcome = "policy_failed" // not approved, for whatever reason
	OutcomeDriverFailed Outcome = "driver_failed" // the action or the picture failed
)
