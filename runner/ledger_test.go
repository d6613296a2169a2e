package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/option"

	"github.com/deskagent/deskagent/runner"
)

// kept makes a run with a ledger and returns its records.
func (b *bench) kept(params string, opts runner.Options) (records []runner.Checkpoint, err error) {
	b.Helper()
	opts.Ledger = ledger(&records)
	_, err = b.run(params, opts)
	return records, err
}

// twoCalls are two calls, then an answer.
func twoCalls(t *testing.T) *bench {
	return newBench(t, answers(fc("a"), fcOf("b", "g", "{}")), answers(said("m")))
}

func TestR37Record(t *testing.T) {
	b := twoCalls(t)
	var fields []string
	_, err := b.run("Go.", runner.Options{Ledger: &runner.Ledger{RunID: "run", Save: func(_ context.Context, c runner.Checkpoint) error {
		fields = fields[:0]
		for name, v := range value(t, c).(map[string]any) {
			fields = append(fields, name)
			if v == nil && name != "final_response" {
				t.Errorf("revision %d: got null for %s", c.Revision, name)
			}
		}
		for _, list := range [][]json.RawMessage{c.Tools, c.History, c.PendingItems, c.ReturnedOutputs} {
			for i := range list {
				if contains(string(list[i]), "#") {
					t.Errorf("revision %d: got %s, want it untouched by what was done to the one before", c.Revision, list[i])
				}
				scribble(list[i])
			}
		}
		for i := range c.AttemptedCallIDs {
			c.AttemptedCallIDs[i] = "#"
		}
		return nil
	}}})
	wantOK(t, err)
	slices.Sort(fields)
	wantLines(t, "fields", fields, "attempted_call_ids", "consumed_requests", "final_response", "history", "max_steps",
		"output_override_names", "pending_items", "phase", "returned_call_ids", "returned_outputs", "revision", "run_id", "tools", "version")

	b = newBench(t)
	for name, l := range map[string]*runner.Ledger{"no id": {Save: func(context.Context, runner.Checkpoint) error { return nil }}, "no save": {RunID: "run"}} {
		if _, err := b.run("Go.", runner.Options{Ledger: l}); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	for name, input := range map[string]string{"a reference": `{"type":"item_reference","id":"x"}`, "a trigger": `{"type":"compaction_trigger"}`, "unpaired": fc("x")} {
		t.Run(name, func(t *testing.T) {
			records, err := b.kept(`{"model":"m","input":[{"role":"user","content":"Go."},`+input+`]}`, runner.Options{})
			wantConfig(t, err)
			if len(records) > 0 {
				t.Errorf("got %d records, want none", len(records))
			}
		})
	}
	b = twoCalls(t)
	_, err = b.run("Go.", runner.Options{Ledger: &runner.Ledger{RunID: "run", Save: func(context.Context, runner.Checkpoint) error { return errRaised }}})
	wantReason(t, err, runner.ReasonFailed, nil, nil)
	wantLines(t, "trace", b.trace)
}

func TestR38SavePoints(t *testing.T) {
	b := twoCalls(t)
	records, err := b.kept("Go.", runner.Options{})
	wantOK(t, err)
	var phases, consumed, attempted strings.Builder
	for i, c := range records {
		if c.Revision != i+1 {
			t.Errorf("got revision %d as number %d", c.Revision, i+1)
		}
		phases.WriteString(string(c.Phase[:1]))
		fmt.Fprint(&consumed, c.ConsumedRequests)
		fmt.Fprint(&attempted, len(c.AttemptedCallIDs), len(c.ReturnedCallIDs), ",")
	}
	wantLines(t, "records", []string{phases.String(), consumed.String(), attempted.String()},
		"bpppppbbf", "111111122", "0 0,0 0,1 0,1 1,2 1,2 2,2 2,2 2,2 2,")
}

// An effect comes after the save that says it is attempted, and before the one that has its output.
func TestR38EffectsBetweenSaves(t *testing.T) {
	b := newBench(t, answers(fc("a")), answers(said("m")))
	_, err := b.run("Go.", runner.Options{Ledger: &runner.Ledger{RunID: "run", Save: func(_ context.Context, c runner.Checkpoint) error {
		b.note(fmt.Sprintf("save %d: %d of %d", c.Revision, len(c.ReturnedCallIDs), len(c.AttemptedCallIDs)))
		return nil
	}}})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "save 1: 0 of 0", "request 1", "save 2: 0 of 0", "save 3: 0 of 1", "f", "save 4: 1 of 1",
		"save 5: 1 of 1", "save 6: 1 of 1", "request 2", "save 7: 1 of 1")
}

const secretTools = `"tools":[{"type":"mcp","server_label":"crm","server_url":"https://user:secret-1@mcp.example.com/sse?token=secret-2#secret-3",
	"authorization":"secret-4","headers":{"x-key":"secret-5"}},{"type":"code_interpreter","container":{"type":"auto","network_policy":
	{"type":"allowlist","domain_secrets":[{"domain":"a.example","name":"KEY","value":"secret-6"}]}}}]`

func TestR39Redaction(t *testing.T) {
	b := newBench(t, reply{status: 200, body: strings.Replace(completed(said("m")), `"status"`, secretTools+`,"status"`, 1)})
	records, err := b.kept(`{"model":"m","input":"Go.",`+secretTools+`}`, runner.Options{})
	wantOK(t, err)
	for _, c := range records {
		if text := string(toJSON(t, c)); contains(text, "secret-") || !contains(text, "KEY") {
			t.Errorf("got the record %s, want it without secrets and with their names", text)
		}
	}
	for _, secret := range []string{"secret-1", "secret-2", "secret-3", "secret-4", "secret-5", "secret-6"} {
		if !contains(b.raw[0], secret) {
			t.Errorf("got the request %s, want the real %s in it", b.raw[0], secret)
		}
	}

	digest := func(address string) string {
		b := newBench(t, answers(said("m")))
		records, err := b.kept(`{"model":"m","input":"Go.","tools":[{"type":"mcp","server_label":"crm","server_url":"`+address+`"}]}`, runner.Options{})
		wantOK(t, err)
		return fmt.Sprint(value(t, records[0].Tools[2]).(map[string]any)["server_url"])
	}
	const plain = "https://mcp.example.com/sse?a=1&token=x"
	for _, address := range []string{"https://mcp.example.com/sse?a=1&token=y", "HTTPS://user:pw@MCP.Example.com:443/a/../sse?a=1&token=z#top",
		"https://mcp.example.com/./sse?a=1&token=1&token=2"} {
		if got, want := digest(address), digest(plain); got != want {
			t.Errorf("%s: got %s, want that of %s, %s", address, got, plain, want)
		}
	}
	if got, want := digest("https://mcp.example.com/é?q=é 'x'"), digest("https://mcp.example.com/%C3%A9?q=%C3%A9%20%27x%27"); got != want {
		t.Errorf("got %s, want %s: what browsers escape makes no difference", got, want)
	}
	for _, address := range []string{"https://mcp.example.com/sse/?a=1&token=x", "https://mcp.example.com/other?a=1&token=x",
		"http://mcp.example.com/sse?a=1&token=x", "https://mcp.example.com:444/sse?a=1&token=x", "https://mcp.example.com/sse?a=2&token=x",
		"https://mcp.example.com/sse?a=1&tokens=x"} {
		if digest(address) == digest(plain) {
			t.Errorf("%s: got the digest of %s, want another", address, plain)
		}
	}
}

// resume goes on from a record, and returns the records of the new run.
func (b *bench) resume(from runner.Checkpoint, params string, opts runner.Options) (records []runner.Checkpoint, err error) {
	b.Helper()
	opts.Ledger = ledger(&records)
	opts.Ledger.ResumeFrom = &from
	_, err = b.run(params, opts)
	return records, err
}

func TestR40Resume(t *testing.T) {
	records, err := twoCalls(t).kept("Go.", runner.Options{})
	wantOK(t, err)
	boundary := records[6]

	b := newBench(t, answers(said("m2")))
	resumed, err := b.resume(boundary, "More.", runner.Options{})
	wantOK(t, err)
	if first := resumed[0]; first.Revision != 8 || first.ConsumedRequests != 2 || first.Phase != runner.PhaseBoundary {
		t.Errorf("got revision %d, %d requests, phase %s, want 8, 2, boundary", first.Revision, first.ConsumedRequests, first.Phase)
	}
	wantLines(t, "input", b.input(1), "user Go.", "function_call a", "function_call b", "function_call_output a f done",
		"function_call_output b g done", "user More.")

	// The save before a request without hosted tools is a boundary too; that request counts.
	b = newBench(t, answers(said("m2")))
	resumed, err = b.resume(records[7], "More.", runner.Options{})
	wantOK(t, err)
	if first := resumed[0]; first.Revision != 9 || first.ConsumedRequests != 3 {
		t.Errorf("got revision %d, %d requests, want 9, 3", first.Revision, first.ConsumedRequests)
	}

	edit := func(change func(*runner.Checkpoint)) runner.Checkpoint {
		c := boundary
		change(&c)
		return c
	}
	answered := slices.Clone(boundary.History)
	b = newBench(t)
	for name, test := range map[string]struct {
		from   runner.Checkpoint
		params string
		opts   runner.Options
	}{
		"the inspected turn":   {records[1], "More.", runner.Options{}},
		"a call that began":    {records[2], "More.", runner.Options{}},
		"a call that returned": {records[5], "More.", runner.Options{}},
		"final":                {records[8], "More.", runner.Options{}},
		"no input":             {boundary, `{"model":"m"}`, runner.Options{}},
		"blank input":          {boundary, " ", runner.Options{}},
		"no user message":      {boundary, `{"model":"m","input":[{"role":"developer","content":"x"}]}`, runner.Options{}},
		"another limit":        {boundary, "More.", runner.Options{MaxSteps: 5}},
		"other tools":          {boundary, `{"model":"m","input":"More.","tools":[{"type":"web_search"}]}`, runner.Options{}},
		"another version":      {edit(func(c *runner.Checkpoint) { c.Version = 2 }), "More.", runner.Options{}},
		"never saved":          {edit(func(c *runner.Checkpoint) { c.Revision = 0 }), "More.", runner.Options{}},
		"another run":          {edit(func(c *runner.Checkpoint) { c.RunID = "x" }), "More.", runner.Options{}},
		"other override names": {edit(func(c *runner.Checkpoint) { c.OutputOverrideNames = []string{"f"} }), "More.", runner.Options{}},
		"receipts that differ": {edit(func(c *runner.Checkpoint) { c.ReturnedCallIDs = []string{"a"} }), "More.", runner.Options{}},
		"receipts twice": {edit(func(c *runner.Checkpoint) {
			c.AttemptedCallIDs, c.ReturnedCallIDs = []string{"a", "a"}, []string{"a", "a"}
		}), "More.", runner.Options{}},
		"a receipt of nothing":  {edit(func(c *runner.Checkpoint) { c.AttemptedCallIDs, c.ReturnedCallIDs = []string{"z"}, []string{"z"} }), "More.", runner.Options{}},
		"too many requests":     {edit(func(c *runner.Checkpoint) { c.ConsumedRequests = 21 }), "More.", runner.Options{}},
		"a call without output": {edit(func(c *runner.Checkpoint) { c.History = answered[:4] }), "More.", runner.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			records, err := b.resume(test.from, test.params, test.opts)
			wantConfig(t, err)
			if len(records) > 0 {
				t.Errorf("got %d records, want none", len(records))
			}
		})
	}
	wantLines(t, "trace", b.trace)

	raw := value(t, boundary).(map[string]any)
	raw["note"] = "x"
	var c runner.Checkpoint
	if err := json.Unmarshal(toJSON(t, raw), &c); err == nil {
		t.Error("a record with another field: got no error")
	}
	delete(raw, "note")
	delete(raw, "phase")
	if err := json.Unmarshal(toJSON(t, raw), &c); err == nil {
		t.Error("a record without a field: got no error")
	}
	if err := json.Unmarshal(toJSON(t, boundary), &c); err != nil || string(toJSON(t, c)) != string(toJSON(t, boundary)) {
		t.Errorf("got %s, %v, want the same record", toJSON(t, c), err)
	}

	used, err := newBench(t, answers(fc("a")), fails(400)).kept("Go.", runner.Options{MaxSteps: 2})
	wantReason(t, err, runner.ReasonFailed, []string{"a"}, []string{"a"})
	_, err = b.resume(used[len(used)-1], "More.", runner.Options{})
	wantReason(t, err, runner.ReasonStepLimit, []string{"a"}, []string{"a"})
}

func TestR40ResumeAsksAgain(t *testing.T) {
	b := newBench(t, answers(asks("r1")), fails(400))
	records, err := b.kept(crm(""), runner.Options{ApproveMCP: b.approver("yes")})
	wantReason(t, err, runner.ReasonFailed, []string{"r1"}, []string{"r1"})
	boundary := records[len(records)-2]
	b = newBench(t, answers(said("m")))
	_, err = b.resume(boundary, strings.Replace(crm(""), "Go.", "More.", 1), runner.Options{ApproveMCP: b.approver("no")})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "asked r1", "request 1")
	wantLines(t, "input", b.input(1), "user Go.", "mcp_approval_request r1", "mcp_approval_response r1", "user More.")
}

// A crash at each save leaves a record from which nothing is ever done twice: either it cannot be resumed, or no call
// that was attempted comes again.
func TestR41Interruption(t *testing.T) {
	crash := errors.New("crash")
	for at := 1; at <= 9; at++ {
		b := twoCalls(t)
		var last runner.Checkpoint
		_, err := b.run("Go.", runner.Options{Ledger: &runner.Ledger{RunID: "run", Save: func(_ context.Context, c runner.Checkpoint) error {
			last = c
			if c.Revision == at {
				return crash
			}
			return nil
		}}})
		if err == nil {
			t.Fatalf("save %d: got no error", at)
		}
		ran := slices.DeleteFunc(slices.Clone(b.trace), func(s string) bool { return contains(s, "request") })
		if len(ran) > len(last.AttemptedCallIDs) {
			t.Errorf("save %d: %q have run, but only %q are recorded as attempted", at, ran, last.AttemptedCallIDs)
		}
		if got := last.Uncertain(); len(got) != len(last.AttemptedCallIDs)-len(last.ReturnedCallIDs) {
			t.Errorf("save %d: got %q as uncertain, want those of %q that are not in %q", at, got, last.AttemptedCallIDs, last.ReturnedCallIDs)
		}
		again := newBench(t, answers(said("m2")))
		_, err = again.resume(last, "More.", runner.Options{})
		if resumable := at == 1 || at == 7 || at == 8; resumable != (err == nil) {
			t.Errorf("save %d: resuming: got %v, want that it works: %t", at, err, resumable)
		}
		if slices.ContainsFunc(again.trace, func(s string) bool { return !contains(s, "request") }) {
			t.Errorf("save %d: got %q after resuming, want no call repeated", at, again.trace)
		}
	}

	// Leaving at a turn leaves the record pending.
	b := twoCalls(t)
	var records []runner.Checkpoint
	for _, err := range b.runner(runner.Registration{}).Iterate(t.Context(), b.client(), request("Go."), runner.Options{Ledger: ledger(&records)}) {
		wantOK(t, err)
		break
	}
	if last := records[len(records)-1]; last.Phase != runner.PhasePending || len(last.PendingItems) != 2 {
		t.Errorf("got phase %s with %d items, want pending with 2", last.Phase, len(last.PendingItems))
	}
}

func TestR42Transport(t *testing.T) {
	b := newBench(t, fails(500))
	_, err := b.kept("Go.", runner.Options{Headers: map[string]string{"X-Mine": "yes"}})
	wantReason(t, err, runner.ReasonFailed, nil, nil)
	wantLines(t, "trace", b.trace, "request 1")
	if got := b.headers[0].Get("X-Mine"); got != "yes" {
		t.Errorf("got the header %q, want yes", got)
	}
	_, err = b.kept("Go.", runner.Options{RequestOptions: []option.RequestOption{option.WithMaxRetries(1)}})
	wantConfig(t, err)
}
