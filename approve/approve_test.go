package approve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
)

var (
	click  = approve.Request{CallID: "call_1", Action: driver.Click{X: 1, Y: 2, Button: driver.ButtonLeft}}
	checks = approve.Request{CallID: "call_1", Checks: []approve.SafetyCheck{
		{ID: "sc_1", Code: "malicious_instructions", Message: "The page asks for a password."},
		{ID: "sc_2", Code: "irrelevant_domain"},
	}}
	tool = approve.Request{CallID: "mcpr_1", Tool: &approve.ToolCall{Server: "mail", Name: "send", Arguments: `{"to":"me"}`}}
)

func answer(d approve.Decision, err error) approve.Approver {
	return approve.Func(func(context.Context, approve.Request) (approve.Decision, error) { return d, err })
}

func ExampleAsk() {
	var nobody approve.Approver
	fmt.Println(approve.Ask(context.Background(), nobody, approve.Request{Action: driver.Wait{}}))
	fmt.Println(approve.Ask(context.Background(), approve.AllowActions, approve.Request{Action: driver.Wait{}}))
	// Output:
	// false <nil>
	// true <nil>
}

// TestA1 is row A1 of the field cases: with nobody to ask, the answer is no. TestA1NoTerminal has the other half.
func TestA1(t *testing.T) {
	var noTerminal *approve.Terminal
	for name, a := range map[string]approve.Approver{
		"nil": nil, "nil function": approve.Func(nil), "nil terminal": noTerminal, "DenyAll": approve.DenyAll,
		"nobody after the codes": approve.AllowChecks(nil, nil, slog.New(slog.DiscardHandler)),
	} {
		for _, r := range []approve.Request{click, checks, {}} {
			if got, err := approve.Ask(t.Context(), a, r); got != approve.Deny {
				t.Errorf("%s: got %v, %v, want a no", name, got, err)
			}
		}
	}
}

// TestA2 is row A2 of the field cases: only an exact yes approves. TestA2NoAnswer has the approver that never
// answers.
func TestA2(t *testing.T) {
	fault := errors.New("fault")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		a       approve.Approver
		want    approve.Decision
		wantErr string
	}{
		{name: "yes", a: answer(approve.Allow, nil), want: approve.Allow},
		{name: "no", a: answer(approve.Deny, nil)},
		{name: "yes with an error", a: answer(approve.Allow, fault), wantErr: "fault"},
		{name: "yes after the end", ctx: cancelled, a: answer(approve.Allow, nil), wantErr: "context canceled"},
		{name: "panic", a: approve.Func(func(context.Context, approve.Request) (approve.Decision, error) { panic("boom") }),
			wantErr: `asking about call "call_1": the approver panicked: boom`},
		{name: "panic behind the codes", a: approve.AllowChecks(approve.Func(func(context.Context, approve.Request) (approve.Decision, error) { panic("boom") }), nil, nil),
			wantErr: `asking about call "call_1": the approver panicked: boom`},
	} {
		if tt.ctx == nil {
			tt.ctx = t.Context()
		}
		got, err := approve.Ask(tt.ctx, tt.a, click)
		if got != tt.want || (err != nil) != (tt.wantErr != "") || err != nil && err.Error() != tt.wantErr {
			t.Errorf("%s: got %v, %v, want %v, %s", tt.name, got, err, tt.want, tt.wantErr)
		}
	}
}

func TestAskGivesACopy(t *testing.T) {
	request := func() approve.Request {
		return approve.Request{
			Call:   []byte(`{"call_id":"call_1"}`),
			Checks: []approve.SafetyCheck{{ID: "sc_1"}},
			Action: driver.Click{Keys: []string{"CTRL"}},
			Shown:  driver.Drag{Path: []image.Point{{X: 1}}},
			Tool:   &approve.ToolCall{Name: "send"},
		}
	}
	r := request()
	approve.Ask(t.Context(), approve.Func(func(_ context.Context, r approve.Request) (approve.Decision, error) {
		r.Call[0], r.Checks[0].ID = 'x', "x"
		r.Action.(driver.Click).Keys[0] = "x"
		r.Shown.(driver.Drag).Path[0].X = 9
		r.Tool.Name = "x"
		return approve.Allow, nil
	}), r)
	if want := request(); !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, want it unchanged: %+v", r, want)
	}
}

// TestA4 is row A4 of the field cases: no policy acknowledges safety checks by itself, whatever it allows otherwise.
// TestTerminalRemembersKinds has the terminal's.
func TestA4(t *testing.T) {
	for name, a := range map[string]approve.Approver{
		"AllowActions":      approve.AllowActions,
		"no codes":          approve.AllowChecks(approve.AllowActions, nil, nil),
		"one code of two":   approve.AllowChecks(approve.AllowActions, []string{"irrelevant_domain"}, nil),
		"codes in capitals": approve.AllowChecks(approve.AllowActions, []string{"IRRELEVANT_DOMAIN", "MALICIOUS_INSTRUCTIONS"}, nil),
	} {
		if got, err := approve.Ask(t.Context(), a, checks); got != approve.Deny || err != nil {
			t.Errorf("%s, checks: got %v, %v, want a no", name, got, err)
		}
		if got, err := approve.Ask(t.Context(), a, click); got != approve.Allow || err != nil {
			t.Errorf("%s, click: got %v, %v, want a yes", name, got, err)
		}
	}
	unnamed := approve.Request{Checks: []approve.SafetyCheck{{ID: "sc_1"}}}
	if got, err := approve.Ask(t.Context(), approve.AllowChecks(nil, []string{""}, nil), unnamed); got != approve.Deny || err != nil {
		t.Errorf("check without a code: got %v, %v, want a no", got, err)
	}
	codes := []string{"malicious_instructions", "irrelevant_domain"}
	for name, a := range map[string]approve.Approver{"actions": approve.AllowActions, "checks": approve.AllowChecks(approve.AllowActions, codes, nil)} {
		for _, r := range []approve.Request{tool, {Action: click.Action, Tool: tool.Tool}, {Checks: checks.Checks, Tool: tool.Tool}} {
			if got, err := approve.Ask(t.Context(), a, r); got != approve.Deny || err != nil {
				t.Errorf("%s allowed, %+v: got %v, %v, want a no", name, r, got, err)
			}
		}
	}
	both := checks
	both.Action = click.Action
	for _, a := range []approve.Approver{approve.AllowActions, approve.AllowChecks(approve.AllowActions, []string{"malicious_instructions", "irrelevant_domain"}, nil)} {
		if got, err := approve.Ask(t.Context(), a, both); got != approve.Deny || err != nil {
			t.Errorf("checks and an action in one: got %v, %v, want a no", got, err)
		}
	}
}

// TestA5 is row A5 of the field cases: safety checks are acknowledged without a person by explicit choice only, code
// by code, and each one is logged as a warning.
func TestA5(t *testing.T) {
	var log bytes.Buffer
	codes := []string{"malicious_instructions", "irrelevant_domain"}
	a := approve.AllowChecks(approve.DenyAll, codes, slog.New(slog.NewTextHandler(&log, nil)))
	codes[0], codes[1] = "x", "y" // the choice was made when it was made

	if got, err := approve.Ask(t.Context(), a, checks); got != approve.Allow || err != nil {
		t.Errorf("got %v, %v, want a yes", got, err)
	}
	for _, want := range []string{
		`level=WARN msg="safety check acknowledged without asking" call=call_1 check=sc_1 code=malicious_instructions message="The page asks for a password."`,
		`level=WARN msg="safety check acknowledged without asking" call=call_1 check=sc_2 code=irrelevant_domain message=""`,
	} {
		if got := log.String(); !strings.Contains(got, want) {
			t.Errorf("got log %q, want %q in it", got, want)
		}
	}

	log.Reset()
	other := approve.Request{Checks: append([]approve.SafetyCheck{{ID: "sc_3", Code: "sensitive_domain"}}, checks.Checks...)}
	if got, err := approve.Ask(t.Context(), a, other); got != approve.Deny || err != nil || log.Len() > 0 {
		t.Errorf("a code not chosen: got %v, %v, log %q, want it asked and denied", got, err, log.String())
	}

	var defaultLog bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&defaultLog, nil)))
	defer slog.SetDefault(old)
	approve.Ask(t.Context(), approve.AllowChecks(nil, []string{"malicious_instructions", "irrelevant_domain"}, nil), checks)
	if got := strings.Count(defaultLog.String(), "acknowledged without asking"); got != 2 {
		t.Errorf("without a logger: got %d warnings in the default log, want 2", got)
	}
}
