package runner_test

import (
	"context"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

// approver answers approval requests with these words, "yes", "no" or "error", in order.
func (b *bench) approver(words ...string) func(context.Context, responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
	return func(_ context.Context, r responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
		b.note("asked " + r.ID)
		word := words[0]
		words = words[1:]
		r.ID, r.Arguments = "#", "#"
		if word == "error" {
			return true, errRaised
		}
		return word == "yes", nil
	}
}

func TestR21MCPApproval(t *testing.T) {
	for word, line := range map[string]string{"yes": "mcp_approval_response r1 true", "no": "mcp_approval_response r1 false"} {
		b := newBench(t, answers(asks("r1")), answers(said("m")))
		_, err := b.run(crm(""), runner.Options{ApproveMCP: b.approver(word)})
		wantOK(t, err)
		got := b.bodies[1]["input"].([]any)
		want := map[string]any{"type": "mcp_approval_response", "approval_request_id": "r1", "approve": word == "yes"}
		if last := got[len(got)-1]; len(got) != 3 || string(toJSON(t, last)) != string(toJSON(t, want)) {
			t.Errorf("got the input %v, want %s once, at the end", got, line)
		}
		if args := got[1].(map[string]any)["arguments"]; args != `{"q":1}` {
			t.Errorf("got the arguments %v, want those that came", args)
		}
	}
	for name, ask := range map[string]func(*bench) runner.Options{
		"nobody to ask": func(*bench) runner.Options { return runner.Options{} },
		"an error":      func(b *bench) runner.Options { return runner.Options{ApproveMCP: b.approver("error")} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, answers(asks("r1")))
			_, err := b.run(crm(""), ask(b))
			wantReason(t, err, runner.ReasonApproval, []string{"r1"}, nil)
		})
	}
}

func TestR22Policies(t *testing.T) {
	const (
		listed   = `{"tool_names":["lookup"]}`
		unlisted = `{"tool_names":["other"]}`
	)
	tests := []struct {
		policy    string
		call, ask bool // whether a call without an approval, and a request, may come
	}{
		{``, false, true},
		{`null`, false, true},
		{`"always"`, false, true},
		{`"never"`, true, false},
		{`"sometimes"`, true, true},
		{`{"always":` + listed + `}`, false, true},
		{`{"always":` + unlisted + `}`, true, false},
		{`{"never":` + listed + `}`, true, false},
		{`{"never":` + unlisted + `}`, false, true},
		{`{"always":` + listed + `,"never":` + unlisted + `}`, false, true},
		{`{"always":` + unlisted + `,"never":` + listed + `}`, true, false},
		{`{"always":` + listed + `,"never":` + listed + `}`, true, true},
		{`{"always":` + unlisted + `,"never":` + unlisted + `}`, true, true},
		{`{"always":{}}`, false, true},
		{`{"never":{}}`, true, false},
		{`{"never":{"tool_names":[]}}`, false, true},
		{`{"always":{"read_only":true}}`, true, true},
		{`{"always":{"tool_names":null}}`, true, true},
		{`{"always":null}`, true, true},
		{`{}`, true, true},
	}
	for _, test := range tests {
		policy := ""
		if test.policy != "" {
			policy = `,"require_approval":` + test.policy
		}
		for item, want := range map[string]bool{called("c1", ""): test.call, asks("r1"): test.ask} {
			b := newBench(t, answers(item, said("m1")), answers(said("m2")))
			_, err := b.run(crm(policy), runner.Options{ApproveMCP: b.approver("yes")})
			if got := err == nil; got != want {
				t.Errorf("%s, %s: got %v, want %t", test.policy, item, err, want)
			}
		}
	}
	for allowed, want := range map[string]bool{`["lookup"]`: true, `["other"]`: false, `[]`: false, `null`: true,
		`{"tool_names":["lookup"]}`: true, `{"tool_names":null}`: false, `{"read_only":true}`: true} {
		b := newBench(t, answers(called("c1", ""), said("m")))
		_, err := b.run(crm(`,"require_approval":"never","allowed_tools":`+allowed), runner.Options{})
		if got := err == nil; got != want {
			t.Errorf("allowed_tools %s: got %v, want %t", allowed, err, want)
		}
	}

	const approved = `,"approval_request_id":"r1"`
	for name, test := range map[string]struct {
		items []string
		ok    bool
	}{
		"what was approved":       {[]string{called("c1", approved), said("m")}, true},
		"other arguments":         {[]string{called("c1", approved+`,"arguments":"{\"q\":2}"`), said("m")}, false},
		"another spacing":         {[]string{called("c1", approved+`,"arguments":"{\"q\": 1}"`), said("m")}, false},
		"twice":                   {[]string{called("c1", approved), called("c2", approved), said("m")}, false},
		"a request that was none": {[]string{called("c1", `,"approval_request_id":"r2"`), said("m")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, answers(asks("r1")), answers(append([]string{fc("a")}, test.items...)...), answers(said("m2")))
			_, err := b.run(crm(""), runner.Options{ApproveMCP: b.approver("yes")})
			if test.ok {
				wantOK(t, err)
			} else {
				wantReason(t, err, runner.ReasonInvalidResponse, []string{"r1"}, []string{"r1"})
			}
		})
	}
}

// imported is an input with an MCP approval request, its answer, and perhaps more.
func imported(id, more string) string {
	return asks(id) + `,{"type":"mcp_approval_response","approval_request_id":"` + id + `","approve":true,"reason":"fine"}` + more
}

func crmInput(input string) string {
	return `{"model":"m","input":[` + input + `],"tools":[{"type":"mcp","server_label":"crm","server_url":"https://mcp.example.com/sse"}]}`
}

func TestR23ImportedApprovals(t *testing.T) {
	input := crmInput(imported("r1", ","+called("c1", `,"approval_request_id":"r1"`)) + "," + imported("r2", ""))
	b := newBench(t, answers(said("m")))
	_, err := b.run(input, runner.Options{ApproveMCP: b.approver("no")})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "asked r2", "request 1")
	sent := b.bodies[0]["input"].([]any)
	if got := string(toJSON(t, sent[len(sent)-1])); got != `{"approval_request_id":"r2","approve":false,"reason":"fine","type":"mcp_approval_response"}` {
		t.Errorf("got the answer %s, want the new one in the place of the old one", got)
	}

	b = newBench(t)
	_, err = b.run(input, runner.Options{})
	wantReason(t, err, runner.ReasonApproval, nil, nil)
	for name, params := range map[string]string{
		"an answer to nothing": crmInput(`{"type":"mcp_approval_response","approval_request_id":"r1","approve":true}`),
		"two answers":          crmInput(imported("r1", `,{"type":"mcp_approval_response","approval_request_id":"r1","approve":false}`)),
		"no answer":            crmInput(asks("r1")),
		"another server":       `{"model":"m","input":[` + imported("r1", "") + `]}`,
		"another call":         crmInput(imported("r1", ","+called("c1", `,"approval_request_id":"r2"`))),
		"never by now": `{"model":"m","input":[` + imported("r1", "") +
			`],"tools":[{"type":"mcp","server_label":"crm","require_approval":"never"}]}`,
		"out of the choice": `{"model":"m","tool_choice":"none","input":[` + imported("r1", "") + `],"tools":[{"type":"mcp","server_label":"crm"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.run(params, runner.Options{ApproveMCP: b.approver("yes")})
			wantConfig(t, err)
		})
	}
	wantLines(t, "trace", b.trace)
}

func TestR24FailedBrowserCall(t *testing.T) {
	items := []string{page("p", "read_page"), fc("a"), page("q", "read_page")}
	b := newBench(t, answers(items...), answers(said("m")))
	r := b.runner(runner.Registration{Browser: b.browser("read_page", "read_page")})
	_, err := r.Run(t.Context(), b.client(), request("Go."), runner.Options{})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "read_page", "f", "request 2")
	skipped := b.bodies[1]["input"].([]any)[6].(map[string]any)
	if text := string(toJSON(t, skipped)); skipped["call_id"] != "q" || !contains(text, "skipped") {
		t.Errorf("got %s as the third output, want that of the skipped call", text)
	}

	// With a ledger the failure is recorded, and the run ends.
	b = newBench(t, answers(items...))
	var last runner.Checkpoint
	_, err = b.runner(runner.Registration{Browser: b.browser("read_page", "read_page")}).Run(t.Context(), b.client(), request("Go."),
		runner.Options{Ledger: &runner.Ledger{RunID: "run", Save: func(_ context.Context, c runner.Checkpoint) error { last = c; return nil }}})
	wantReason(t, err, runner.ReasonReconcile, []string{"p"}, []string{"p"})
	if last.Phase != runner.PhasePending || len(last.ReturnedOutputs) != 1 {
		t.Errorf("got phase %s with %d outputs, want pending with the output of the failed call", last.Phase, len(last.ReturnedOutputs))
	}
}
