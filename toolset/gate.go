package toolset

import (
	"context"
	"fmt"
	"time"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
)

// A gate is what every stage of one call or run goes through.
type gate struct {
	policy Policy
	report func(context.Context, Diagnostic)
}

func (t *Toolset) gate(policy Policy, onDiagnostic func(Diagnostic)) gate {
	if onDiagnostic == nil {
		onDiagnostic = t.opts.OnDiagnostic
	}
	return gate{policy, func(ctx context.Context, d Diagnostic) {
		t.opts.Logger.DebugContext(ctx, "computer call", "stage", d.Stage, "outcome", d.Outcome, "member", d.Member,
			"call_id", d.CallID, "duration", d.Duration)
		if onDiagnostic != nil {
			t.observe("diagnostics", func() { onDiagnostic(d) })
		}
	}}
}

// approveChecks puts the pending safety checks of c, if any, in one question.
func (g gate) approveChecks(ctx context.Context, c *computerCall) error {
	if len(c.checks) == 0 {
		return nil
	}
	return g.stage(ctx, c, StageApproval, "", func() (Reason, error) {
		return ask(ctx, g.policy.SafetyChecks, ReasonSafetyNotApproved,
			approve.Request{CallID: c.id, Call: c.view(), Checks: c.safetyChecks()})
	})
}

// approveAction puts one action in a question.
func (g gate) approveAction(ctx context.Context, c *computerCall, s step) error {
	if g.policy.Actions == nil && g.policy.Unasked {
		return nil
	}
	return g.stage(ctx, c, StageApproval, s.action.Kind(), func() (Reason, error) {
		return ask(ctx, g.policy.Actions, ReasonActionDeclined,
			approve.Request{CallID: c.id, Call: c.view(), Action: s.action, Shown: s.shown})
	})
}

// ask puts q to a. Only an Allow without an error is a yes; no is the reason of a plain no.
func ask(ctx context.Context, a approve.Approver, no Reason, q approve.Request) (Reason, error) {
	if a == nil {
		return no, fmt.Errorf("%w: there is nobody to ask", approve.ErrDenied)
	}
	answer, err := approve.Ask(ctx, a, q)
	switch {
	case err != nil:
		return ReasonPolicyFailed, fmt.Errorf("%w: %w", approve.ErrDenied, err)
	case answer != approve.Allow:
		return no, approve.ErrDenied
	}
	return "", nil
}

// stage runs one stage of a call between two looks at ctx and reports it. f returns its error and the reason it
// would have. A cancellation wins over whatever the stage came to; one that is there already is not reported,
// because nothing was begun.
func (g gate) stage(ctx context.Context, c *computerCall, stage Stage, member driver.Kind, f func() (Reason, error)) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	start := time.Now()
	reason, err := f()
	d := Diagnostic{Stage: stage, Outcome: OutcomeCompleted, Member: member, CallID: c.id, Duration: time.Since(start)}
	if err != nil {
		d.Outcome = stage.failure()
		err = fail(reason, "computer call %q: %s: %w", c.id, describe(stage, member), err)
	}
	if stopped := cancelled(ctx); stopped != nil {
		d.Outcome, err = OutcomeCancelled, stopped
	}
	g.report(ctx, d)
	return err
}

func describe(stage Stage, member driver.Kind) string {
	switch {
	case member == "":
		return "approval of the safety checks"
	case stage == StageApproval:
		return "approval of " + string(member)
	}
	return string(member)
}
