package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

func TestR1Registration(t *testing.T) {
	b := newBench(t)
	unnamed, idle := b.function(""), b.function("f")
	idle.Execute = nil
	tests := []struct {
		name string
		r    runner.Registration
	}{
		{"two functions of a name", runner.Registration{Functions: []runner.Function{b.function("f"), b.function("f")}}},
		{"a function named like a browser tool", runner.Registration{Browser: b.browser("", "click"),
			Functions: []runner.Function{b.function("browser_click")}}},
		{"no name", runner.Registration{Functions: []runner.Function{unnamed}}},
		{"nothing to execute", runner.Registration{Functions: []runner.Function{idle}}},
		{"an unknown early name", runner.Registration{Functions: []runner.Function{b.function("f")}, Early: &runner.Early{Functions: []string{"g"}}}},
		{"an early name twice", runner.Registration{Functions: []runner.Function{b.function("f")}, Early: &runner.Early{Functions: []string{"f", "f"}}}},
		{"no computer to be early", runner.Registration{Early: &runner.Early{Computer: true}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := runner.New(test.r)
			wantConfig(t, err)
			if got != nil {
				t.Error("got a runner with the error")
			}
		})
	}
	if _, err := runner.New(runner.Registration{Browser: b.browser("", "click"),
		Functions: []runner.Function{b.function("browser_note")}}); err != nil {
		t.Errorf("browser_note, with no such browser tool: got %v", err)
	}
	if b.requests() != 0 {
		t.Errorf("got %d requests, want none", b.requests())
	}
}

func TestR2ArgumentsAreObjects(t *testing.T) {
	b := newBench(t, answers(fc("a"), fcOf("b", "g", "[]")))
	_, err := b.run("Go.", runner.Options{})
	wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
	wantLines(t, "trace", b.trace, "request 1")
}

type forecast struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

const forecastTool = `{"name":"t","strict":true,"parameters":{"type":"object","properties":{"city":{"type":"string"},
	"days":{"type":"integer"}},"required":["city","days"],"additionalProperties":false}}`

func typedTool(t *testing.T, declaration string) (tool responses.FunctionToolParam) {
	t.Helper()
	if err := json.Unmarshal([]byte(declaration), &tool); err != nil {
		t.Fatal(err)
	}
	return tool
}

func TestR3TypedFunctions(t *testing.T) {
	tests := []struct {
		name, arguments string
		output          runner.Output
		reason          runner.Reason // "" when all is well
		calls           int
		attempted       []string
	}{
		{"fits", `{"city":"Oslo","days":3}`, output("sunny"), "", 1, nil},
		{"wrong type", `{"city":"Oslo","days":"3"}`, output("sunny"), runner.ReasonInvalidResponse, 0, nil},
		{"missing property", `{"city":"Oslo"}`, output("sunny"), runner.ReasonInvalidResponse, 0, nil},
		{"extra property", `{"city":"Oslo","days":3,"x":1}`, output("sunny"), runner.ReasonInvalidResponse, 0, nil},
		{"in another case", `{"City":"Oslo","days":3}`, output("sunny"), runner.ReasonInvalidResponse, 0, nil},
		{"no output", `{"city":"Oslo","days":3}`, runner.Output{}, runner.ReasonFailed, 1, []string{"a"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, answers(fcOf("a", "t", test.arguments)), answers(said("m")))
			var got []forecast
			typed, err := runner.Typed(typedTool(t, forecastTool), func(_ context.Context, f forecast) (runner.Output, error) {
				got = append(got, f)
				return test.output, nil
			})
			wantOK(t, err)
			_, err = b.runner(runner.Registration{Functions: []runner.Function{typed}}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
			if test.reason != "" {
				wantReason(t, err, test.reason, test.attempted, nil)
			} else {
				wantOK(t, err)
				if want := (forecast{"Oslo", 3}); got[0] != want {
					t.Errorf("got arguments %v, want %v", got[0], want)
				}
			}
			if len(got) != test.calls {
				t.Errorf("got %d calls, want %d", len(got), test.calls)
			}
			if declared := fmt.Sprint(b.bodies[0]["tools"]); declared != fmt.Sprint(value(t, []any{typed.Tool})) {
				t.Errorf("got the declaration %s, want the plain tool", declared)
			}
		})
	}
}

// What is not strict although it says so, or cannot be checked, is refused when the function is made.
func TestR3SchemasThatCannotBeKept(t *testing.T) {
	for _, declaration := range []string{
		`{"name":"t","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}`,
		`{"name":"t","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}}`,
		`{"name":"t","parameters":{"type":"object","unevaluatedProperties":false}}`,
		`{"name":"t","parameters":{"type":"text"}}`,
		`{"name":"t","parameters":{"$ref":"#/nowhere"}}`,
	} {
		_, err := runner.Typed(typedTool(t, declaration), func(context.Context, forecast) (runner.Output, error) { return output(""), nil })
		if err == nil {
			t.Errorf("%s: got no error", declaration)
		} else {
			wantConfig(t, err)
		}
	}
	if _, err := runner.Typed[forecast](typedTool(t, forecastTool), nil); err == nil {
		t.Error("nothing to execute: got no error")
	}
}

func TestR4BrowserTools(t *testing.T) {
	b := newBench(t, answers(page("a", "click")))
	_, err := b.runner(runner.Registration{Browser: b.browser("", "read_page")}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
	wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
	wantLines(t, "trace", b.trace, "request 1")
	tools := b.bodies[0]["tools"].([]any)
	if first := tools[0].(map[string]any)["name"]; first != "browser_read_page" {
		t.Errorf("got %v as the first tool, want that of the browser", first)
	}

	b = newBench(t, answers(page("a", "read_page")), answers(said("m")))
	_, err = b.runner(runner.Registration{Browser: b.browser("", "read_page")}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "read_page", "request 2")
}

func TestR5ComputerTool(t *testing.T) {
	b := newBench(t, answers(said("m")))
	both := runner.Registration{Computer: b.computer()}
	_, err := b.runner(both).Run(t.Context(), b.client(), request(`{"model":"m","input":"Go.","tools":[{"type":"web_search"}]}`), runner.Options{})
	wantOK(t, err)
	tools := b.bodies[0]["tools"].([]any)
	if last := tools[len(tools)-1].(map[string]any)["type"]; last != "computer" || len(tools) != 4 {
		t.Errorf("got %v, want f, g, web_search, computer", tools)
	}

	b = newBench(t)
	for name, r := range map[string]runner.Registration{"two": both, "without a toolset": {}} {
		params := `{"model":"m","input":"Go.","tools":[{"type":"computer"}]}`
		if name == "two" {
			params = `{"model":"m","input":"Go.","tools":[{"type":"computer"},{"type":"computer_use_preview"}]}`
		}
		_, err := b.runner(r).Run(t.Context(), b.client(), request(params), runner.Options{})
		wantConfig(t, err)
	}
	if b.requests() != 0 {
		t.Errorf("got %d requests, want none", b.requests())
	}
}

// Schemas are checked by their keywords; each case holds what fits and what does not.
func TestR3SchemaKeywords(t *testing.T) {
	tests := []struct{ schema, fits, fails string }{
		{`{"type":"integer"}`, `1e2`, `1.5`},
		{`{"type":["string","null"]}`, `null`, `1`},
		{`{"enum":["a",1.0]}`, `1`, `"b"`},
		{`{"const":{"a":[1]}}`, `{"a":[1]}`, `{"a":[2]}`},
		{`{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":2,"uniqueItems":true}`, `["a","b"]`, `["a","a"]`},
		{`{"maxItems":1}`, `[1]`, `[1,2]`},
		{`{"minLength":2,"maxLength":2}`, `"äö"`, `"äöü"`},
		{`{"minProperties":1}`, `{"a":1}`, `{}`},
		{`{"pattern":"^a+$"}`, `"aa"`, `"ab"`},
		{`{"minimum":0,"exclusiveMaximum":0.3}`, `0.1`, `0.3`},
		{`{"exclusiveMinimum":0}`, `0.1`, `0`},
		{`{"maximum":2}`, `2`, `2.1`},
		{`{"multipleOf":0.1}`, `0.3`, `0.35`},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `null`, `1`},
		{`{"oneOf":[{"minimum":1},{"minimum":2}]}`, `1`, `2`},
		{`{"allOf":[{"minimum":1},{"maximum":2}]}`, `1`, `3`},
		{`{"not":{"type":"string"}}`, `1`, `"a"`},
		{`{"properties":{"a":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, `{"a":"x","b":1}`, `{"a":"x","b":"y"}`},
		{`{"$ref":"#/$defs/tree"}`, `{"next":{"next":{}}}`, `{"next":{"next":1}}`},
	}
	for _, test := range tests {
		b := newBench(t, answers(fcOf("a", "t", `{"v":`+test.fits+`}`)), answers(fcOf("b", "t", `{"v":`+test.fails+`}`)))
		declaration := `{"name":"t","parameters":{"type":"object","properties":{"v":` + test.schema + `},"$defs":{"tree":` +
			`{"type":"object","properties":{"next":{"$ref":"#/$defs/tree"}},"additionalProperties":false}}}}`
		typed, err := runner.Typed(typedTool(t, declaration), func(context.Context, map[string]any) (runner.Output, error) { return output("ok"), nil })
		if err != nil {
			t.Errorf("%s: %v", test.schema, err)
			continue
		}
		_, err = b.runner(runner.Registration{Functions: []runner.Function{typed}}).Run(t.Context(), b.client(), request("Go."), runner.Options{})
		if got := b.requests(); got != 2 || err == nil {
			t.Errorf("%s: got %d requests and %v, want that %s fits and %s does not", test.schema, got, err, test.fits, test.fails)
		}
	}
}
