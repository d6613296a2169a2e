package runner_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

// A fakeBrowser is as much of a browser toolset as a runner can tell: it has one tab, declares a few members, and says
// what a real one would say about a call and in which order.
type fakeBrowser struct {
	members []string
	// do carries out a member, or reports the state when the member is "state". A nil text is no text.
	do func(ctx context.Context, member string, arguments map[string]any) (text any, err error)
	// ask puts a question: "confirm" or "url_policy". Nil: yes.
	ask    func(ctx context.Context, question, about string) (bool, error)
	closed bool
}

// browserMembers are the members in the order of declaration, and their arguments.
var browserMembers = []struct {
	name      string
	arguments []string
	asks      []string
}{
	{"navigate", []string{"tab_id", "url"}, []string{"url_policy", "confirm"}},
	{"read_page", []string{"filter", "tab_id"}, nil},
	{"get_page_text", []string{"tab_id"}, nil},
	{"click", []string{"tab_id", "target"}, []string{"confirm"}},
	{"screenshot", []string{"tab_id"}, nil},
	{"list_tabs", nil, nil},
}

func (b *fakeBrowser) Tools() (tools []responses.FunctionToolParam) {
	for _, m := range browserMembers {
		if slices.Contains(b.members, m.name) {
			tools = append(tools, responses.FunctionToolParam{Name: "browser_" + m.name, Strict: openai.Bool(true)})
		}
	}
	return tools
}

const browserState = `{"tabs":[{"id":"t1","title":"Start","url":"https://example.com","active":true}]}`

func (b *fakeBrowser) ExecuteCall(ctx context.Context, raw json.RawMessage, opts runner.BrowserOptions) (runner.BrowserResult, error) {
	var call struct {
		CallID    string `json:"call_id"`
		Name      string
		Arguments string
		Status    string
	}
	if err := json.Unmarshal(raw, &call); err != nil || call.Status != "completed" {
		return runner.BrowserResult{}, fmt.Errorf("call %s: %w", raw, errors.Join(err, errors.New("not completed")))
	}
	if b.closed {
		return runner.BrowserResult{}, errors.New("closed")
	}
	member := strings.TrimPrefix(call.Name, "browser_")
	record := func(stage runner.Stage, outcome runner.Outcome) {
		if ctx.Err() != nil {
			outcome = runner.OutcomeCancelled
		}
		if opts.OnDiagnostic != nil {
			opts.OnDiagnostic(runner.Diagnostic{API: runner.APIBrowser, Stage: stage, Reason: outcome, CallID: call.CallID, Member: member})
		}
	}
	if _, err := b.do(ctx, "state", nil); err != nil {
		return runner.BrowserResult{}, err
	}
	result, refusal, err := b.act(ctx, member, call.Arguments, opts.Skip, record)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return runner.BrowserResult{}, err
	}
	if _, err := b.do(ctx, "state", nil); err != nil {
		return runner.BrowserResult{}, err
	}
	return b.answer(call.CallID, result, refusal), nil
}

// act carries out a member. Its refusal is for the model, its error ends the run.
func (b *fakeBrowser) act(ctx context.Context, member, arguments string, skip bool, record func(runner.Stage, runner.Outcome)) (result any, refusal string, err error) {
	if skip {
		record(runner.StageArguments, runner.OutcomeInvalidInput)
		return nil, "<skipped>", nil
	}
	i := slices.IndexFunc(browserMembers, func(m struct {
		name      string
		arguments []string
		asks      []string
	}) bool {
		return m.name == member
	})
	var given map[string]any
	err = json.Unmarshal([]byte(arguments), &given)
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(given)), browserMembers[i].arguments) {
		record(runner.StageArguments, runner.OutcomeInvalidInput)
		return nil, "<bad arguments>", nil
	}
	if member == "list_tabs" {
		return json.RawMessage(browserState), "", nil
	}
	for _, question := range browserMembers[i].asks {
		about, no := member, "<declined>"
		if question == "url_policy" {
			about, no = given["url"].(string), "<address declined>"
		}
		yes, err := true, error(nil)
		if b.ask != nil {
			yes, err = b.ask(ctx, question, about)
		}
		if err != nil {
			no = "<failed>"
		}
		if err != nil || !yes {
			record(runner.StageApproval, runner.OutcomePolicyFailed)
			return nil, no, nil
		}
	}
	if browserMembers[i].asks != nil {
		record(runner.StageApproval, runner.OutcomeCompleted)
	}
	result, err = b.do(ctx, member, given)
	if err != nil || ctx.Err() != nil {
		record(runner.StageAction, runner.OutcomeDriverFailed)
		return nil, "<failed>", nil
	}
	if _, isText := result.(string); !isText && result != nil {
		record(runner.StageOutput, runner.OutcomeInvalidOutput)
		return nil, "", errors.New("not a text")
	}
	record(runner.StageAction, runner.OutcomeCompleted)
	return result, "", nil
}

func (b *fakeBrowser) answer(callID string, result any, refusal string) runner.BrowserResult {
	said := map[string]any{"ok": refusal == "", "state": json.RawMessage(browserState)}
	if refusal != "" {
		said["error"] = refusal
	}
	picture, isPicture := strings.CutPrefix(fmt.Sprint(result), "picture:")
	if result != nil && !isPicture {
		said["result"] = result
	}
	text, _ := json.Marshal(said)
	blocks := []any{map[string]any{"type": "input_text", "text": string(text)}}
	images := 0
	if isPicture {
		images = 1
		url := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(picture))
		blocks = append(blocks, map[string]any{"type": "input_image", "detail": "auto", "image_url": url})
	}
	output, _ := json.Marshal(map[string]any{"type": "function_call_output", "call_id": callID, "output": blocks})
	return runner.BrowserResult{Output: output, OK: refusal == "", Images: images}
}

// Close makes the browser refuse further calls.
func (b *fakeBrowser) Close() runner.Status {
	b.closed = true
	return runner.Closed
}
