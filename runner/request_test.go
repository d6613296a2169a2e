package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

func TestR10Admission(t *testing.T) {
	b := newBench(t)
	for name, params := range map[string]string{
		"stream":            `"stream":true`,
		"background":        `"background":true`,
		"conversation":      `"conversation":"c"`,
		"previous response": `"previous_response_id":"r"`,
		"include":           `"include":"all"`,
		"input":             `"input":5`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.run(`{"model":"m",`+params+`}`, runner.Options{})
			wantConfig(t, err)
		})
	}
	for name, opts := range map[string]runner.Options{
		"eager without stream": {Eager: true},
		"negative steps":       {MaxSteps: -1},
		"negative concurrency": {MaxConcurrentCalls: -1},
		"negative repeats":     {RepeatLimit: -1},
		"negative timeout":     {Timeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.run("Go.", opts)
			wantConfig(t, err)
		})
	}
	_, err := b.runner(runner.Registration{}).Run(t.Context(), nil, request("Go."), runner.Options{})
	wantConfig(t, err)
	if b.requests() != 0 {
		t.Errorf("got %d requests, want none", b.requests())
	}

	// Parameters that are changed during the run, and a wish that is there already.
	b = newBench(t, streamed(fc("a")), streamed(said("m")))
	params := responses.ResponseNewParams{Model: "m", Include: []responses.ResponseIncludable{"reasoning.encrypted_content"},
		Metadata: map[string]string{"k": "v"}}
	_, err = b.runner(runner.Registration{}).Run(t.Context(), b.client(), params, runner.Options{Stream: true,
		OnEvent: func(context.Context, responses.ResponseStreamEventUnion) error {
			params.Model, params.Include[0], params.Metadata["k"] = "#", "#", "#"
			return nil
		}})
	wantOK(t, err)
	second := b.bodies[1]
	if got := string(toJSON(t, []any{second["model"], second["include"], second["metadata"]})); got != `["m",["reasoning.encrypted_content"],{"k":"v"}]` {
		t.Errorf("got %s in the second request, want what the first one said", got)
	}
}

func TestR11Tools(t *testing.T) {
	b := newBench(t)
	for _, tool := range []string{"function", "custom", "shell", "local_shell", "apply_patch", "namespace", "tool_search"} {
		_, err := b.run(`{"model":"m","input":"Go.","tools":[{"type":"`+tool+`","name":"x"}]}`, runner.Options{})
		if err == nil {
			t.Errorf("%s: got no error", tool)
		}
		wantConfig(t, err)
	}
	for _, label := range []string{`"server_label":""`, `"server_label":"a"},{"type":"mcp","server_label":"a"`} {
		_, err := b.run(`{"model":"m","input":"Go.","tools":[{"type":"mcp",`+label+`}]}`, runner.Options{})
		wantConfig(t, err)
	}
	if b.requests() != 0 {
		t.Errorf("got %d requests, want none", b.requests())
	}
}

func TestR12ToolChoice(t *testing.T) {
	const hosted = `,"tools":[{"type":"web_search"}]`
	tests := []struct {
		choice, tools string
		item          string // of the response; "" when no request is to be made
		ok            bool
	}{
		{`"required"`, "", "", false},
		{`"required"`, hosted, fc("a"), true},
		{`{"type":"function","name":"f"}`, "", "", false},
		{`{"type":"computer"}`, "", "", false},
		{`{"type":"computer_use"}`, hosted, "", false},
		{`{"type":"computer_use_preview"}`, hosted, "", false},
		{`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}`, hosted, "", false},
		{`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`, "", fc("a"), true},
		{`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"g"}]}`, "", fc("a"), false},
		{`"auto"`, "", fc("a"), true},
		{`"none"`, "", fc("a"), false},
		{`{"type":"web_search"}`, hosted, fc("a"), false},
	}
	for _, test := range tests {
		t.Run(test.choice+test.tools, func(t *testing.T) {
			b := newBench(t, answers(test.item), answers(said("m")))
			_, err := b.run(`{"model":"m","input":"Go.","tool_choice":`+test.choice+test.tools+`}`, runner.Options{})
			switch {
			case test.item == "":
				wantConfig(t, err)
				wantLines(t, "trace", b.trace)
			case test.ok:
				wantOK(t, err)
				for _, body := range b.bodies {
					if got := string(toJSON(t, body["tool_choice"])); got != string(toJSON(t, value(t, json.RawMessage(test.choice)))) {
						t.Errorf("got tool_choice %s, want it unchanged in every request", got)
					}
				}
			default:
				wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
				wantLines(t, "trace", b.trace, "request 1")
			}
		})
	}
}

func TestR13Replay(t *testing.T) {
	const sealed = `{"type":"reasoning","id":"r1","summary":[],"encrypted_content":"c2VhbGVk<&>","x_new":{"b":1.50,"a":[]}}`
	odd := `{"type":"function_call", "x_new": {"z":1e2,"a":"\u00e9<"},"id":"fc_a","call_id":"a","name":"f","arguments":"{ }","created_by":"b"}`
	b := newBench(t, answers(sealed, odd, fc("b")), answers(said("m")))
	_, err := b.run("Go.", runner.Options{})
	wantOK(t, err)
	wantLines(t, "input", b.input(2), "user Go.", "reasoning r1", "function_call a", "function_call b",
		"function_call_output a f done", "function_call_output b f done")
	if !strings.Contains(b.raw[1], sealed) {
		t.Errorf("got the request %s, want the reasoning byte for byte", b.raw[1])
	}
	if !strings.Contains(b.raw[1], `{"z":1e2,"a":"\u00e9<"}`) || strings.Contains(b.raw[1], "created_by") {
		t.Errorf("got the request %s, want the call's own field byte for byte, without created_by", b.raw[1])
	}
}

func TestR14StepLimit(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply reply
		opts  runner.Options
	}{
		{"plain", answers(fc("a")), runner.Options{MaxSteps: 1}},
		{"streamed", streamed(fc("a")), runner.Options{MaxSteps: 1, Stream: true}},
		{"eager", streamed(fc("a")), runner.Options{MaxSteps: 1, Stream: true, Eager: true}},
		{"an approval", answers(asks("r1")), runner.Options{MaxSteps: 1}},
		{"an approval, eager", streamed(asks("r1")), runner.Options{MaxSteps: 1, Stream: true, Eager: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.reply)
			test.opts.ApproveMCP = func(context.Context, responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
				b.note("asked")
				return true, nil
			}
			_, err := b.run(crm(""), test.opts)
			wantReason(t, err, runner.ReasonStepLimit, nil, nil)
			wantLines(t, "trace", b.trace, "request 1")
		})
	}

	// Requests that the client repeats count once.
	b := newBench(t, fails(500), answers(fc("a")), fails(500), answers(said("m")))
	_, err := b.run("Go.", runner.Options{MaxSteps: 2})
	wantOK(t, err)

	var many []reply
	for i := range runner.DefaultMaxSteps {
		many = append(many, answers(fc(fmt.Sprint("c", i))))
	}
	b = newBench(t, many...)
	if _, err = b.run("Go.", runner.Options{}); err == nil {
		t.Error("got no error after the default number of steps")
	}
}
