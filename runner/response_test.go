package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

func TestR15Items(t *testing.T) {
	for name, item := range map[string]string{
		"null":                    `null`,
		"no type":                 `{"id":"x"}`,
		"an unknown type":         `{"type":"shell_call","id":"x"}`,
		"an output":               `{"type":"function_call_output","call_id":"x","output":""}`,
		"a message in progress":   strings.Replace(said("m"), `"completed"`, `"in_progress"`, 1),
		"a message of the user":   strings.Replace(said("m"), `"assistant"`, `"user"`, 1),
		"no annotations":          strings.Replace(said("m"), `,"annotations":[]`, ``, 1),
		"a bad annotation":        strings.Replace(said("m"), `"annotations":[]`, `"annotations":[{"type":"url_citation"}]`, 1),
		"an unknown phase":        strings.Replace(said("m"), `"content"`, `"phase":"draft","content"`, 1),
		"reasoning without list":  `{"type":"reasoning","id":"r"}`,
		"sealed by a number":      `{"type":"reasoning","id":"r","summary":[],"encrypted_content":5}`,
		"empty compaction":        `{"type":"compaction","id":"c"}`,
		"an unregistered name":    fcOf("b", "h", "{}"),
		"a number as call id":     `{"type":"function_call","call_id":5,"name":"g","arguments":"{}"}`,
		"an object as arguments":  `{"type":"function_call","call_id":"b","name":"g","arguments":{}}`,
		"a call in progress":      strings.Replace(fc("b"), "completed", "in_progress", 1),
		"null id":                 `{"type":"function_call","id":null,"call_id":"b","name":"g","arguments":"{}"}`,
		"async by text":           `{"type":"function_call","async":"yes","call_id":"b","name":"g","arguments":"{}"}`,
		"an unknown caller":       `{"type":"function_call","caller":{"type":"human"},"call_id":"b","name":"g","arguments":"{}"}`,
		"a program without an id": `{"type":"function_call","caller":{"type":"program"},"call_id":"b","name":"g","arguments":"{}"}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, answers(fc("a"), item))
			_, err := b.run("Go.", runner.Options{})
			wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
			wantLines(t, "trace", b.trace, "request 1")
		})
	}
	for name, body := range map[string]string{
		"incomplete": strings.Replace(completed(said("m")), "completed", "incomplete", 1),
		"no output":  `{"id":"resp","status":"completed"}`,
		"no list":    `{"id":"resp","status":"completed","output":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, reply{status: 200, body: body})
			_, err := b.run("Go.", runner.Options{})
			wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
		})
	}

	for callers, fits := range map[string]map[string]bool{
		`["direct"]`:       {"direct": true, "program": false},
		`["programmatic"]`: {"direct": false, "program": true},
	} {
		for caller, want := range fits {
			b := newBench(t, answers(`{"type":"function_call","caller":{"type":"`+caller+`","caller_id":"p"},"call_id":"a","name":"f","arguments":"{}"}`), answers(said("m")))
			f := b.function("f")
			f.Tool = responses.FunctionToolParam{Name: "f", AllowedCallers: strings.Split(strings.Trim(callers, `[]"`), ",")}
			_, err := b.runner(runner.Registration{Functions: []runner.Function{f}}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
			if got := err == nil; got != want {
				t.Errorf("allowed %s, called by %s: got %v, want %t", callers, caller, err, want)
			}
		}
	}
}

func TestR16Identity(t *testing.T) {
	b := newBench(t, answers(fc("a")), answers(strings.Replace(fc("a"), "fc_a", "other", 1)))
	_, err := b.run("Go.", runner.Options{})
	wantReason(t, err, runner.ReasonInvalidResponse, []string{"a"}, []string{"a"})
	wantLines(t, "trace", b.trace, "request 1", "f", "request 2")

	b = newBench(t)
	_, err = b.run(`{"model":"m","input":[`+said("m")+`,`+said("m")+`]}`, runner.Options{})
	wantConfig(t, err)
	_, err = b.run(`{"model":"m","input":[`+fc("a")+`,`+strings.Replace(fc("a"), "fc_a", "other", 1)+`]}`, runner.Options{})
	wantConfig(t, err)

	for name, test := range map[string]struct {
		input string
		reply reply
	}{
		"a call id of the input":     {fc("a") + `,{"type":"function_call_output","call_id":"a","output":""}`, answers(strings.Replace(fc("a"), "fc_a", "other", 1))},
		"an item id of the input":    {said("m"), answers(said("m"))},
		"an id that was referred to": {`{"type":"item_reference","id":"m"}`, answers(said("m"))},
		"an item id twice":           {``, answers(said("m"), said("m"))},
		"an empty id twice":          {``, answers(said(""), said(""))},
		"a call id twice":            {``, answers(fc("a"), strings.Replace(fc("a"), "fc_a", "other", 1))},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.reply)
			_, err := b.run(`{"model":"m","input":[`+test.input+`]}`, runner.Options{})
			wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
		})
	}
	// An empty id may come once in each response.
	b = newBench(t, answers(said(""), fc("a")), answers(said("")))
	_, err = b.run("Go.", runner.Options{})
	wantOK(t, err)
}

func TestR17HostedOutputs(t *testing.T) {
	const tools = `"tools":[{"type":"web_search"},{"type":"file_search","vector_store_ids":["v"]},{"type":"code_interpreter","container":"c1"},
		{"type":"image_generation"},{"type":"mcp","server_label":"crm","server_url":"https://mcp.example.com","require_approval":"never"}]`
	web := func(status, action string) string {
		return `{"type":"web_search_call","id":"w","status":"` + status + `","action":` + action + `}`
	}
	for name, test := range map[string]struct {
		item string
		ok   bool
	}{
		"a search":               {web("completed", `{"type":"search","query":"q","queries":["q"],"sources":[{"type":"url","url":"u"}]}`), true},
		"an open page":           {web("completed", `{"type":"open_page","url":null}`), true},
		"found in a page":        {web("completed", `{"type":"find_in_page","pattern":"p","url":"u"}`), true},
		"a failed search":        {web("failed", `{"type":"search"}`), false},
		"an unknown action":      {web("completed", `{"type":"dance"}`), false},
		"a query of numbers":     {web("completed", `{"type":"search","queries":[1]}`), false},
		"files":                  {`{"type":"file_search_call","id":"x","status":"completed","queries":["q"],"results":[{"score":0.5,"attributes":{"a":true,"b":1,"c":"d"}}]}`, true},
		"a score of text":        {`{"type":"file_search_call","id":"x","status":"completed","queries":[],"results":[{"score":"1"}]}`, false},
		"code":                   {`{"type":"code_interpreter_call","id":"x","status":"completed","container_id":"c1","code":"1","outputs":[{"type":"logs","logs":""}]}`, true},
		"in another container":   {`{"type":"code_interpreter_call","id":"x","status":"completed","container_id":"c2","code":null,"outputs":null}`, false},
		"an image":               {`{"type":"image_generation_call","id":"x","status":"completed","result":"aGk=","quality":"max"}`, true},
		"an unfinished image":    {`{"type":"image_generation_call","id":"x","status":"generating","result":null}`, false},
		"a list of tools":        {`{"type":"mcp_list_tools","id":"x","server_label":"crm","tools":[{"name":"n","input_schema":{}}]}`, true},
		"of another server":      {`{"type":"mcp_list_tools","id":"x","server_label":"hr","tools":[]}`, false},
		"an MCP call":            {called("x", ""), true},
		"that failed":            {called("x", `,"error":"boom"`), false},
		"with an object as text": {called("x", `,"approval_request_id":{}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, answers(fc("a"), test.item), answers(said("m")))
			_, err := b.run(`{"model":"m","input":"Go.",`+tools+`}`, runner.Options{})
			if !test.ok {
				wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
				wantLines(t, "trace", b.trace, "request 1")
				return
			}
			wantOK(t, err)
			if !strings.Contains(b.raw[1], test.item) {
				t.Errorf("got the request %s, want %s in it", b.raw[1], test.item)
			}
		})
	}
	b := newBench(t, answers(fc("a"), web("completed", `{"type":"search"}`)))
	_, err := b.run("Go.", runner.Options{}) // nobody declared it
	wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
}

func TestR18FinalTurn(t *testing.T) {
	commentary := strings.Replace(said("m"), `"content"`, `"phase":"commentary","content"`, 1)
	reasoning := `{"type":"reasoning","id":"r","summary":[]}`
	for name, items := range map[string][]string{"reasoning": {reasoning}, "commentary": {commentary}, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, answers(items...))
			_, err := b.run("Go.", runner.Options{})
			wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
		})
	}
	b := newBench(t, answers(reasoning, commentary, said("m2")))
	got, err := b.run("Go.", runner.Options{})
	wantOK(t, err)
	if len(got.Output) != 3 || got.Output[2].ID != "m2" {
		t.Errorf("got the response %s, want the one that came", got.RawJSON())
	}
}

func TestR19Order(t *testing.T) {
	b := newBench(t, answers(fc("a"), page("p", "read_page"), cc("k", clickAction), asks("r1"), fcOf("b", "g", "{}")), answers(said("m")))
	_, err := b.runner(runner.Registration{Computer: b.computer(), Browser: b.browser("", "read_page")}).Run(t.Context(), b.client(),
		request(crm("")), runner.Options{Computer: allowed, ApproveMCP: func(context.Context, responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
			b.note("asked")
			return true, nil
		}})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "f", "read_page", "click", "screenshot", "asked", "g", "request 2")
}

func TestR20FunctionOutputs(t *testing.T) {
	for raw, ok := range map[string]bool{
		`""`: true, `[]`: true,
		`[{"type":"input_text","text":""}]`:                                                            true,
		`[{"type":"input_image","image_url":"u","file_id":null,"detail":"original"}]`:                  true,
		`[{"type":"input_file","file_data":"d","filename":"n","detail":"low"}]`:                        true,
		`[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}}]`: true,
		`null`: false, `5`: false, `{}`: false, `[null]`: false, `[{"type":"input_text"}]`: false,
		`[{"type":"input_image"}]`: false, `[{"type":"input_image","image_url":" "}]`: false,
		`[{"type":"input_image","image_url":"u","detail":"huge"}]`:  false,
		`[{"type":"input_file","file_id":"f","detail":"original"}]`: false, `[{"type":"input_file","filename":"n"}]`: false,
		`[{"type":"input_text","text":"x","prompt_cache_breakpoint":{"mode":"auto"}}]`: false,
	} {
		t.Run(raw, func(t *testing.T) {
			b := newBench(t, answers(fc("a")), answers(said("m")))
			f := b.function("f")
			f.Execute = func(context.Context, map[string]any) (runner.Output, error) {
				return param.Override[runner.Output](json.RawMessage(raw)), nil
			}
			_, err := b.runner(runner.Registration{Functions: []runner.Function{f}}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
			if ok {
				wantOK(t, err)
			} else {
				wantReason(t, err, runner.ReasonFailed, []string{"a"}, nil)
			}
		})
	}

	b := newBench(t, answers(fc("a")))
	f := b.function("f")
	f.Execute = func(context.Context, map[string]any) (runner.Output, error) { return output("x"), errRaised }
	_, err := b.runner(runner.Registration{Functions: []runner.Function{f}}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
	wantReason(t, err, runner.ReasonFailed, []string{"a"}, nil)
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, errRaised.Error()) {
		t.Errorf("got %s, want nothing of what the function had to say", text)
	}
}
