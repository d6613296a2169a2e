package runner_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// options are those of the run, with callbacks where the script has answers.
func (st *stage) options(observed bool) (o runner.Options, err error) {
	s := st.s.Options
	steps, err := cmp.Or(s.MaxSteps, "0").Int64()
	if err != nil {
		return o, err
	}
	if s.MaxSteps == "0" {
		steps = -1 // no steps at all; a zero stands for the default here
	}
	o = runner.Options{MaxSteps: int(steps), MaxConcurrentCalls: s.MaxConcurrentCalls, Stream: s.Stream, Eager: s.Eager,
		Headers: s.Headers, Computer: toolset.Policy{Unasked: true}}
	for range s.RequestOptions {
		o.RequestOptions = append(o.RequestOptions, option.WithMaxRetries(1))
	}
	if observed {
		o.OnDiagnostic = st.observe
	}
	if s.Stream {
		o.OnEvent = st.onEvent
	}
	if s.ApproveMCP != nil {
		o.ApproveMCP = func(_ context.Context, r responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
			st.note("mcp_requests_shown", value(st.t, json.RawMessage(r.RawJSON())))
			st.trace("approve_mcp:%s", r.ID)
			return st.yes(st.enter("approve_mcp", s.ApproveMCP, inOrder(s.ApproveMCP)))
		}
	}
	if s.ApproveSafetyChecks != nil {
		o.Computer.SafetyChecks = st.approver(func(q approve.Request) string { return "approve_safety_checks:" + q.CallID }, s.ApproveSafetyChecks)
	}
	if s.BeforeAction != nil {
		o.Computer.Actions = st.approver(func(q approve.Request) string { return "before_action:" + string(q.Action.Kind()) }, s.BeforeAction)
	}
	if s.BeforeEarlyCall != nil {
		o.BeforeEarlyCall = st.beforeEarlyCall
	}
	if s.Ledger != nil {
		o.Ledger = &runner.Ledger{RunID: s.Ledger.RunID, Save: st.save}
		if s.Ledger.ResumeFrom != nil {
			o.Ledger.ResumeFrom = &runner.Checkpoint{}
			if err := json.Unmarshal(st.realTools(s.Ledger.ResumeFrom), o.Ledger.ResumeFrom); err != nil {
				return o, err
			}
		}
	}
	if b := s.ContextBudget; b != nil {
		budget := &runner.ContextBudget{KeepRecentScreenshots: b.KeepRecentScreenshots}
		size, err := cmp.Or(b.MaxInputBytes, "0").Int64()
		images, err2 := b.MaxInputImages.Int64()
		if err := errors.Join(err, err2); err != nil {
			return o, err
		}
		budget.MaxInputBytes, budget.MaxInputImages = int(size), int(images)
		if b.Compact != nil {
			budget.Compact = st.compact
		}
		o.ContextBudget = budget
	}
	return o, nil
}

// realTools puts the browser's declarations where a record only has their marks.
func (st *stage) realTools(record json.RawMessage) json.RawMessage {
	if st.world.browser == nil {
		return record
	}
	v := value(st.t, record).(map[string]any)
	for i, tool := range v["tools"].([]any) {
		if name := tool.(map[string]any)["$browser_tool"]; name != nil {
			for _, real := range st.world.browser.Tools() {
				if real.Name == name {
					v["tools"].([]any)[i] = value(st.t, real)
				}
			}
		}
	}
	return toJSON(st.t, v)
}

func (st *stage) approver(entry func(approve.Request) string, rules []rule) approve.Approver {
	return approve.Func(func(_ context.Context, q approve.Request) (approve.Decision, error) {
		token := entry(q)
		st.trace("%s", token)
		at, _, _ := strings.Cut(token, ":")
		yes, err := st.yes(st.enter(at, rules, inOrder(rules)))
		return approve.Decision(yes), err
	})
}

func (st *stage) observe(d runner.Diagnostic) {
	shown := map[string]any{"api": string(d.API), "stage": string(d.Stage), "reason": string(d.Reason), "call_id": nil,
		"member": nil, "usage": nil}
	if d.CallID != "" || d.Stage != runner.StageRequest {
		shown["call_id"] = d.CallID
	}
	if d.Member != "" {
		shown["member"] = d.Member
	}
	if d.Usage != nil {
		shown["usage"] = value(st.t, d.Usage)
	}
	if d.Duration < 0 {
		st.t.Errorf("got a stage of %v", d.Duration)
	}
	st.note("diagnostics", shown)
	st.trace("diagnostic:%s:%s:%s:%s", d.API, d.Stage, d.Reason, cmp.Or(d.Member, "-"))
	runner.AddUsage(&st.usage, d)
	if d.Usage != nil {
		*d.Usage = toolset.Usage{}
	}
	r := st.enter("observer", st.s.Options.Observer, byNth)
	if st.leave(r) != nil {
		panic(errRaised)
	}
}

func (st *stage) onEvent(_ context.Context, e responses.ResponseStreamEventUnion) error {
	shown := value(st.t, json.RawMessage(e.RawJSON())).(map[string]any)
	token := fmt.Sprint("event:", shown["type"])
	if index, ok := shown["output_index"]; ok {
		token += fmt.Sprint(":", index)
	}
	st.trace("%s", token)
	if st.s.ScribbleParams {
		scribble(st.params)
	}
	ofType := st.count("event " + e.Type)
	r := st.enter("on_event", st.s.Options.OnEvent, func(r rule, nth int) bool {
		if r.Type != "" {
			return r.Type == e.Type && max(r.Nth, 1) == ofType
		}
		return byNth(r, nth)
	})
	if r.Scribble {
		e.Item.Name, e.Item.CallID = "#", "#"
		for i := range e.Response.Output {
			e.Response.Output[i] = responses.ResponseOutputItemUnion{}
		}
	}
	return st.leave(r)
}

func (st *stage) beforeEarlyCall(_ context.Context, c runner.EarlyCall) (runner.EarlyDecision, error) {
	st.note("early_calls_shown", value(st.t, json.RawMessage(c.Item)))
	st.trace("before_early_call:%s", c.CallID)
	rules := st.s.Options.BeforeEarlyCall
	r := st.enter("before_early_call", rules, inOrder(rules))
	if r.Scribble {
		scribble(c.Item)
	}
	err := st.leave(r)
	decision := runner.ExecuteEarly
	if r.returned {
		text, _ := value(st.t, r.Return).(string)
		decision = runner.EarlyDecision(text)
	}
	return decision, err
}

func (st *stage) compact(_ context.Context, s runner.Snapshot) (runner.Compaction, error) {
	st.note("compactions", map[string]any{"history_items": float64(len(s.History)), "eligible": value(st.t, s.Eligible),
		"input_bytes": float64(s.Bytes), "input_images": float64(s.Images)})
	st.trace("compact")
	rules := st.s.Options.ContextBudget.Compact
	r := st.enter("compact", rules, inOrder(rules))
	c := runner.Compaction{Drop: slices.Clone(s.Eligible)}
	if r.returned {
		var answer struct {
			Drop    any
			Summary string
		}
		if err := json.Unmarshal(r.Return, &answer); err != nil {
			st.t.Fatal(err)
		}
		if answer.Drop != "all" {
			c.Drop = nil
			for _, id := range answer.Drop.([]any) {
				c.Drop = append(c.Drop, id.(string))
			}
		}
		c.Summary = answer.Summary
	}
	if r.Scribble {
		for i := range s.History {
			scribble(s.History[i])
		}
		for i := range s.Eligible {
			s.Eligible[i] = "#"
		}
	}
	return c, st.leave(r)
}

func (st *stage) save(_ context.Context, c runner.Checkpoint) error {
	st.note("checkpoints", value(st.t, c))
	st.trace("save:%d:%s", c.Revision, c.Phase)
	r := st.enter("save", st.s.Options.Ledger.Save, byNth)
	if r.Scribble {
		for _, list := range [][]json.RawMessage{c.Tools, c.History, c.PendingItems, c.ReturnedOutputs} {
			for i := range list {
				scribble(list[i])
				list[i] = nil
			}
		}
		for _, list := range [][]string{c.AttemptedCallIDs, c.ReturnedCallIDs, c.OutputOverrideNames} {
			for i := range list {
				list[i] = "#"
			}
		}
	}
	return st.leave(r)
}
