package runner

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/toolset"
)

// dispatch carries out one call, between two saves. t is the turn that was shown, nil for an early call.
func (r *run) dispatch(ctx context.Context, c *call, t *Turn) error {
	if err := r.attempt(ctx, c); err != nil {
		return err
	}
	output, err := r.carryOut(ctx, c, t)
	if err != nil {
		return err
	}
	r.take(c, output)
	if err := r.save(ctx, PhasePending, nil); err != nil {
		return err
	}
	if c.kind == browserCall && r.skipBrowser && r.opts.Ledger != nil {
		return stop(ReasonReconcile, "a browser call failed, and may have acted before: look at the browser first")
	}
	return nil
}

// attempt notes that a call is about to be carried out.
func (r *run) attempt(ctx context.Context, c *call) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	c.done = true
	r.receipts.attempted = append(r.receipts.attempted, c.id)
	if err := r.save(ctx, PhasePending, nil); err != nil {
		return err
	}
	return cancelled(ctx)
}

// take notes that a call was carried out.
func (r *run) take(c *call, output entry) {
	r.receipts.completed = append(r.receipts.completed, c.id)
	r.outputs = append(r.outputs, output)
}

func (r *run) carryOut(ctx context.Context, c *call, t *Turn) (entry, error) {
	switch c.kind {
	case browserCall:
		return r.browse(ctx, c)
	case computerCall:
		return r.operate(ctx, c)
	case approvalRequest:
		return r.approve(ctx, c)
	}
	if supplied, ok := t.supplied(c.id); ok {
		return supplied, nil
	}
	return r.execute(ctx, c)
}

// execute calls a function. It is safe to call from several goroutines.
func (r *run) execute(ctx context.Context, c *call) (entry, error) {
	record := Diagnostic{API: APIResponses, Stage: StageAction, CallID: c.id, Member: c.name}
	var output Output
	err := r.stage(ctx, record, func() (Outcome, error) {
		err := guard(func() (err error) { output, err = c.execution(context.WithValue(ctx, callIDKey{}, c.id)); return err })
		if err != nil {
			return "", stop(ReasonFailed, "a function failed")
		}
		return OutcomeCompleted, nil
	})
	if err != nil {
		return entry{}, err
	}
	raw, v, ok := encodeOutput(output)
	if !ok {
		record.Stage, record.Reason = StageOutput, OutcomeInvalidOutput
		r.report(record)
		return entry{}, stop(ReasonFailed, "a function returned what is no output")
	}
	return entry{raw: functionCallOutput(c.id, raw), callID: c.id, kind: outputEntry, images: images(v)}, nil
}

// browse carries out a browser call.
func (r *run) browse(ctx context.Context, c *call) (entry, error) {
	raw := c.item.raw
	if c.item.fields["status"] == nil { // the browser insists on it
		o := maps.Clone(c.item.fields)
		o["status"] = "completed"
		raw = encode(o)
	}
	opts := BrowserOptions{Skip: r.skipBrowser}
	if r.opts.OnDiagnostic != nil {
		opts.OnDiagnostic = r.report
	}
	var result BrowserResult
	err := guard(func() (err error) { result, err = r.browser.ExecuteCall(ctx, raw, opts); return err })
	if err != nil {
		return entry{}, orCancelled(ctx, stop(ReasonFailed, "a browser call could not be carried out"))
	}
	r.skipBrowser = r.skipBrowser || !result.OK
	return entry{raw: result.Output, callID: c.id, kind: outputEntry, images: result.Images}, nil
}

// operate carries out a computer call.
func (r *run) operate(ctx context.Context, c *call) (entry, error) {
	checks, _ := c.item.fields["pending_safety_checks"].([]any)
	opts := &toolset.ExecuteOptions{Policy: r.opts.Computer, SameTurn: r.sameTurn}
	opts.OnDiagnostic = func(d toolset.Diagnostic) {
		r.report(Diagnostic{API: APIComputer, Stage: Stage(d.Stage), Reason: Outcome(d.Outcome), CallID: d.CallID,
			Member: string(d.Member), Duration: d.Duration})
	}
	output, err := r.desktop.Execute(ctx, c.item.raw, opts)
	if err != nil {
		return entry{}, orCancelled(ctx, computerFailed(err))
	}
	r.sameTurn = true
	// The output is known: decoding it would take longer than all the rest.
	return entry{raw: output, callID: c.id, kind: outputEntry, images: 1, checks: len(checks) > 0}, nil
}

func computerFailed(err error) error {
	if e, ok := errors.AsType[*toolset.Error](err); ok {
		switch e.Reason {
		case toolset.ReasonSafetyNotApproved, toolset.ReasonActionDeclined, toolset.ReasonPolicyFailed:
			return stop(ReasonApproval, "a computer call was not approved")
		}
	}
	return stop(ReasonFailed, "a computer call failed")
}

// approve answers an MCP approval request.
func (r *run) approve(ctx context.Context, c *call) (entry, error) {
	yes, err := r.askMCP(ctx, c.item)
	if err != nil {
		return entry{}, err
	}
	answer := object{"type": "mcp_approval_response", "approval_request_id": c.id, "approve": yes}
	return entry{raw: encode(answer)}, nil
}

// askMCP puts an MCP approval request to whoever decides, and notes a yes.
func (r *run) askMCP(ctx context.Context, request *item) (yes bool, err error) {
	id := textOf(request.fields["id"])
	record := Diagnostic{API: APIResponses, Stage: StageApproval, CallID: id, Member: textOf(request.fields["name"])}
	err = r.stage(ctx, record, func() (Outcome, error) {
		if r.opts.ApproveMCP == nil {
			return "", stop(ReasonApproval, "an MCP approval request, and nobody to ask")
		}
		err := guard(func() (err error) {
			var shown responses.ResponseOutputItemMcpApprovalRequest
			if err := json.Unmarshal(request.raw, &shown); err != nil {
				return err
			}
			yes, err = r.opts.ApproveMCP(ctx, shown)
			return err
		})
		switch {
		case err != nil || ctx.Err() != nil:
			return "", stop(ReasonApproval, "asking about an MCP approval request")
		case !yes:
			return OutcomeRefused, nil
		}
		return OutcomeCompleted, nil
	})
	delete(r.approvals, id)
	if err == nil && yes {
		a := mcpCall(request.fields)
		r.approvals[id] = &a
	}
	return yes, err
}

// askAgain asks about approvals from before this run that no call has used: they were given in another situation. The
// new answer takes the place of the old one.
func (r *run) askAgain(ctx context.Context) error {
	for _, g := range r.unused {
		if err := cancelled(ctx); err != nil {
			return err
		}
		yes, err := r.askMCP(ctx, g.request)
		if err != nil {
			return err
		}
		answer := decodeObject(r.history[g.answer].raw)
		answer["approve"] = yes
		r.history[g.answer].raw = encode(answer)
	}
	return nil
}
