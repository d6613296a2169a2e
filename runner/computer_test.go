package runner_test

import (
	"context"
	"fmt"
	"image"
	"slices"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

func TestR6ComputerCallsAreChecked(t *testing.T) {
	call := func(fields string) string {
		return `{"type":"computer_call","id":"cu_k","call_id":"k","status":"completed"` + fields + `}`
	}
	action := func(action string) string { return call(`,"actions":[` + action + `]`) }
	tests := map[string]string{
		"no status":                `{"type":"computer_call","id":"cu_k","call_id":"k","actions":[{"type":"wait"}]}`,
		"in progress":              `{"type":"computer_call","id":"cu_k","call_id":"k","status":"in_progress","actions":[{"type":"wait"}]}`,
		"no id":                    `{"type":"computer_call","call_id":"k","status":"completed","actions":[{"type":"wait"}]}`,
		"a number as call id":      `{"type":"computer_call","id":"cu_k","call_id":5,"status":"completed","actions":[{"type":"wait"}]}`,
		"no action":                call(``),
		"both forms":               call(`,"action":{"type":"wait"},"actions":[{"type":"wait"}],"pending_safety_checks":[]`),
		"null action":              call(`,"action":null,"pending_safety_checks":[]`),
		"null actions":             call(`,"actions":null`),
		"empty actions":            call(`,"actions":[]`),
		"single without checks":    call(`,"action":{"type":"wait"}`),
		"null checks":              call(`,"actions":[{"type":"wait"}],"pending_safety_checks":null`),
		"a check without an id":    call(`,"actions":[{"type":"wait"}],"pending_safety_checks":[{"code":"c"}]`),
		"a check with a number":    call(`,"actions":[{"type":"wait"}],"pending_safety_checks":[{"id":"s","code":1}]`),
		"a fraction":               action(`{"type":"click","x":1.5,"y":2,"button":"left"}`),
		"an unknown button":        action(`{"type":"click","x":1,"y":2,"button":"side"}`),
		"no y":                     action(`{"type":"move","x":1}`),
		"no scroll distance":       action(`{"type":"scroll","x":1,"y":2,"scroll_x":0}`),
		"a path of texts":          action(`{"type":"drag","path":["a"]}`),
		"keys that are no list":    action(`{"type":"keypress","keys":"a"}`),
		"a key that is no text":    action(`{"type":"click","x":1,"y":2,"button":"left","keys":[1]}`),
		"a text that is none":      action(`{"type":"type","text":1}`),
		"an unknown action":        action(`{"type":"swipe"}`),
		"a call without a desktop": "",
	}
	for name, item := range tests {
		t.Run(name, func(t *testing.T) {
			r := runner.Registration{}
			if item == "" {
				item = cc("k", clickAction)
			}
			b := newBench(t, answers(fc("a"), item))
			if name != "a call without a desktop" {
				r.Computer = b.computer()
			}
			_, err := b.runner(r).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
			wantReason(t, err, runner.ReasonInvalidResponse, nil, nil)
			wantLines(t, "trace", b.trace, "request 1")
		})
	}
	// An empty path is fine here; the driver refuses it.
	b := newBench(t, answers(cc("k", `{"type":"drag","path":[]}`)), answers(said("m")))
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantOK(t, err)
}

func TestR7ComputerApprovals(t *testing.T) {
	for actions, want := range map[string]int{
		clickAction + "," + screenshotAction: 2,
		clickAction:                          2,
		screenshotAction:                     1,
	} {
		b := newBench(t, answers(cc("k", actions)), answers(said("m")))
		asked := 0
		policy := toolset.Policy{Actions: approve.Func(func(_ context.Context, r approve.Request) (approve.Decision, error) {
			asked++
			copy(r.Call, strings.Repeat("#", len(r.Call)))
			return approve.Allow, nil
		})}
		_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: policy})
		wantOK(t, err)
		if asked != want {
			t.Errorf("%s: asked %d times, want %d", actions, asked, want)
		}
		if _, ok := b.bodies[1]["input"].([]any)[2].(map[string]any)["acknowledged_safety_checks"]; ok {
			t.Errorf("%s: got acknowledged checks where there were none", actions)
		}
	}

	checks := `[{"id":"s1","code":"c","message":"m"},{"id":"s2","code":null}]`
	item := strings.TrimSuffix(cc("k", clickAction), "}") + `,"pending_safety_checks":` + checks + "}"
	tests := []struct {
		name   string
		policy toolset.Policy
		ok     bool
	}{
		{"approved", toolset.Policy{SafetyChecks: answer(approve.Allow, nil), Unasked: true}, true},
		{"nobody to ask", toolset.Policy{Unasked: true}, false},
		{"no", toolset.Policy{SafetyChecks: answer(approve.Deny, nil), Unasked: true}, false},
		{"an error", toolset.Policy{SafetyChecks: answer(approve.Allow, errRaised), Unasked: true}, false},
		{"the action is declined", toolset.Policy{SafetyChecks: answer(approve.Allow, nil), Actions: approve.DenyAll}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, answers(item), answers(said("m")))
			_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: test.policy})
			if !test.ok {
				wantReason(t, err, runner.ReasonApproval, []string{"k"}, nil)
				wantLines(t, "trace", b.trace, "request 1")
				return
			}
			wantOK(t, err)
			got := b.bodies[1]["input"].([]any)[2].(map[string]any)["acknowledged_safety_checks"]
			if string(toJSON(t, got)) != `[{"code":"c","id":"s1","message":"m"},{"code":null,"id":"s2"}]` {
				t.Errorf("got the acknowledged checks %v, want %s", got, checks)
			}
		})
	}
}

func answer(d approve.Decision, err error) approve.Approver {
	return approve.Func(func(context.Context, approve.Request) (approve.Decision, error) { return d, err })
}

func TestR8ComputerExecution(t *testing.T) {
	b := newBench(t, answers(cc("k", screenshotAction+","+clickAction+","+screenshotAction)), answers(said("m")))
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "click", "screenshot", "request 2")

	// What the driver has to say never gets to the model.
	b = newBench(t, answers(cc("k", clickAction)))
	tools, err := toolset.New(&desktop{bench: b, inside: func(driver.Kind) error { return errRaised }}, nil)
	wantOK(t, err)
	_, err = b.runner(runner.Registration{Computer: tools}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantReason(t, err, runner.ReasonFailed, []string{"k"}, nil)
	wantLines(t, "trace", b.trace, "request 1", "click")
}

func TestR9ComputerOnlyLoop(t *testing.T) {
	b := newBench(t, answers(cc("k", clickAction)), answers(fc("a")))
	_, err := b.computer().Run(t.Context(), b.client(), request(`{"model":"m","input":"Go.","tool_choice":"required"}`),
		&toolset.RunOptions{Policy: allowed})
	if err == nil {
		t.Error("a function call in a run with the computer alone: got no error")
	}
	wantLines(t, "choices", []string{fmt.Sprint(b.bodies[0]["tool_choice"]), fmt.Sprint(b.bodies[1]["tool_choice"])}, "required", "auto")
	wantLines(t, "trace", b.trace, "request 1", "click", "screenshot", "request 2")
}

// The second computer call of a response was made before its model saw the picture that the first one returned, and is
// mapped by the picture that it did see: here the screen doubles in size during the first.
func TestR8SecondCallOfAResponse(t *testing.T) {
	b := newBench(t, answers(cc("k", screenshotAction)), answers(cc("l", clickAction), cc("m", clickAction)),
		answers(cc("n", clickAction)), answers(said("m")))
	screen := &desktop{bench: b}
	var clicks []image.Point
	screen.clicked = func(p image.Point) {
		clicks = append(clicks, p)
		screen.size = image.Pt(16, 12)
	}
	tools, err := toolset.New(screen, &toolset.Options{View: scaling.View{Size: image.Pt(8, 6)}})
	wantOK(t, err)
	_, err = b.runner(runner.Registration{Computer: tools}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantOK(t, err)
	if want := []image.Point{{1, 2}, {1, 2}}; !slices.Equal(clicks[:2], want) || clicks[2] == want[0] {
		t.Errorf("got the clicks %v, want two at %v, and one that is scaled", clicks, want[0])
	}
	wantLines(t, "input", b.input(3)[3:], "computer_call l", "computer_call m", "computer_call_output l", "computer_call_output m")
}
