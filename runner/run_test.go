package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// records notes each record as one line.
func records(lines *[]string) func(runner.Diagnostic) {
	return func(d runner.Diagnostic) {
		*lines = append(*lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", d.API, d.Stage, d.Reason, d.Member)))
	}
}

func TestR43Diagnostics(t *testing.T) {
	b := newBench(t, answers(page("p", "read_page"), fc("a"), page("q", "read_page")), answers(said("m")))
	var got []string
	_, err := b.runner(runner.Registration{Browser: b.browser("read_page", "read_page")}).Run(t.Context(), b.client(), request("Go."),
		runner.Options{OnDiagnostic: records(&got)})
	wantOK(t, err)
	wantLines(t, "records", got, "responses request completed", "browser action driver_failed read_page", "responses action completed f",
		"browser arguments invalid_input read_page", "responses request completed")

	b = newBench(t, answers(cc("k", clickAction), asks("r1")), answers(said("m")))
	got = nil
	_, err = b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request(crm("")),
		runner.Options{OnDiagnostic: records(&got), ApproveMCP: b.approver("no"), Computer: toolset.Policy{Actions: approve.AllowActions}})
	wantOK(t, err)
	wantLines(t, "records", got, "responses request completed", "computer approval completed click", "computer action completed click",
		"computer approval completed screenshot", "computer action completed screenshot", "responses approval refused lookup", "responses request completed")

	for name, test := range map[string]struct {
		reply reply
		opts  runner.Options
		want  []string
	}{
		"a failed request":    {fails(400), runner.Options{}, []string{"responses request api_failed"}},
		"a malformed item":    {answers(fcOf("a", "h", "{}")), runner.Options{}, nil},
		"bad arguments":       {answers(fcOf("a", "f", "[]")), runner.Options{}, []string{"responses request completed", "responses arguments invalid_input f"}},
		"bad arguments early": {streamed(fcOf("a", "f", "[]")), eager, []string{"responses arguments invalid_input f", "responses request api_failed"}},
		"an MCP failure":      {answers(asks("r1")), runner.Options{}, []string{"responses request completed", "responses approval policy_failed lookup"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			test.opts.OnDiagnostic = records(&got)
			if _, err := newBench(t, test.reply).run(crm(""), test.opts); err == nil {
				t.Error("got no error")
			}
			wantLines(t, "records", got, test.want...)
		})
	}
}

func TestR44Cancellation(t *testing.T) {
	b := newBench(t, answers(fc("a"), fcOf("b", "g", "{}")))
	ctx, cancel := context.WithCancel(t.Context())
	f := b.function("f")
	f.Execute = func(got context.Context, _ map[string]any) (runner.Output, error) {
		cancel()
		if got.Err() == nil {
			t.Error("the function's context is not that of the run")
		}
		return output("x"), nil
	}
	_, err := b.runner(runner.Registration{Functions: []runner.Function{f, b.function("g")}}).Run(ctx, b.client(), request("Go."), runner.Options{})
	wantReason(t, err, runner.ReasonCancelled, []string{"a"}, []string{"a"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled in it", err)
	}
	wantLines(t, "trace", b.trace, "request 1")

	// A deadline while the request is on its way.
	b = newBench(t, reply{status: 200, run: func() { time.Sleep(50 * time.Millisecond) }})
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = b.runner(runner.Registration{}).Run(ctx, b.client(), request("Go."), runner.Options{})
	wantReason(t, err, runner.ReasonCancelled, nil, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded in it", err)
	}
}

func TestR45Lifecycle(t *testing.T) {
	b := newBench(t, answers(cc("k", clickAction)), answers(said("m")))
	var r *runner.Runner
	var inside error
	tools, err := toolset.New(&desktop{bench: b, inside: func(kind driver.Kind) error {
		if kind == driver.KindClick {
			_, inside = r.Run(t.Context(), b.client(), request("Go."), runner.Options{})
			if got := r.Close(); got != runner.Draining {
				t.Errorf("Close inside a driver method: got %s, want draining", got)
			}
		}
		return nil
	}}, nil)
	wantOK(t, err)
	r = b.runner(runner.Registration{Computer: tools})
	_, err = r.Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantOK(t, err)
	if !errors.Is(inside, runner.ErrBusy) {
		t.Errorf("a run inside a run: got %v, want ErrBusy", inside)
	}
	if _, err := r.Run(t.Context(), b.client(), request("Go."), runner.Options{}); !errors.Is(err, runner.ErrClosed) {
		t.Errorf("a run after Close: got %v, want ErrClosed", err)
	}
	if got := r.Close(); got != runner.Closed {
		t.Errorf("Close after the run: got %s, want closed", got)
	}

	b = newBench(t, answers(cc("k", clickAction)))
	tools = b.computer()
	tools.Close()
	_, err = b.runner(runner.Registration{Computer: tools}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantReason(t, err, runner.ReasonFailed, []string{"k"}, nil)
}

func TestR46ErrorsTellNothing(t *testing.T) {
	check := func(name string, err error) {
		t.Helper()
		e, ok := errors.AsType[*runner.Error](err)
		if !ok {
			t.Fatalf("%s: got %v, want an *Error", name, err)
		}
		if text := fmt.Sprintf("%v %+v %#v", err, err, err); contains(text, "secret-text") || contains(text, "raised") {
			t.Errorf("%s: got %s, want nothing that others said", name, text)
		}
		if e.Unwrap() != nil {
			t.Errorf("%s: got %v inside, want nothing", name, e.Unwrap())
		}
	}
	b := newBench(t, answers(cc("k", clickAction)))
	tools, err := toolset.New(&desktop{bench: b, inside: func(driver.Kind) error { return errRaised }}, nil)
	wantOK(t, err)
	_, err = b.runner(runner.Registration{Computer: tools}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	check("driver", err)

	_, err = newBench(t, fails(400)).run("Go.", runner.Options{})
	check("request", err)
	if e, _ := errors.AsType[*runner.Error](err); e.StatusCode != 400 || e.APICode != "server_error" {
		t.Errorf("got status %d and code %q, want 400 and server_error", e.StatusCode, e.APICode)
	}
	_, err = newBench(t, reply{status: 400, body: `{"error":{"message":"m","code":"secret-text of a page"}}`}).run("Go.", runner.Options{})
	check("a code that is none", err)
	_, err = newBench(t, answers(`{"type":"secret-text"}`)).run("Go.", runner.Options{})
	check("response", err)
}

func TestR47Retries(t *testing.T) {
	b := newBench(t, fails(500), answers(cc("k", clickAction)), fails(503), answers(said("m")))
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(option.WithHeader("Idempotency-Key", "mine")),
		request("Go."), runner.Options{Computer: allowed})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "request 2", "click", "screenshot", "request 3", "request 4")
	var keys []string
	for _, h := range b.headers {
		keys = append(keys, h.Get("Idempotency-Key"))
	}
	if keys[0] != "mine" || keys[1] != "mine" || keys[2] == "mine" || keys[2] == "" || keys[3] != keys[2] {
		t.Errorf("got the keys %q, want the caller's for the first request, a fresh one for the second", keys)
	}

	b = newBench(t, fails(500))
	_, err = b.run(crm(""), runner.Options{RequestOptions: []option.RequestOption{option.WithMaxRetries(3)}})
	wantReason(t, err, runner.ReasonFailed, nil, nil)
	wantLines(t, "trace with MCP", b.trace, "request 1")

	b = newBench(t, answers(fc("a")), answers(said("m")))
	_, err = b.run("Go.", runner.Options{})
	wantOK(t, err)
	if got := b.headers[1].Get("Idempotency-Key"); got != "" {
		t.Errorf("got the key %q, want none where the caller has none", got)
	}
}

// What the client's own options do to the parameters holds for every request, and for repeats of it.
func TestR47RequestOptions(t *testing.T) {
	b := newBench(t, fails(500), answers(fc("a")), fails(500), answers(said("m")))
	_, err := b.run("Go.", runner.Options{RequestOptions: []option.RequestOption{option.WithJSONSet("metadata.k", "v"), option.WithHeader("X-Mine", "yes")}})
	wantOK(t, err)
	for i, body := range b.bodies {
		if got := string(toJSON(t, body["metadata"])); got != `{"k":"v"}` || b.headers[i].Get("X-Mine") != "yes" {
			t.Errorf("request %d: got metadata %s and header %q, want those of the options", i+1, got, b.headers[i].Get("X-Mine"))
		}
	}
	wantLines(t, "repeated input", b.input(4), "user Go.", "function_call a", "function_call_output a f done")
}

// A request that is sent on to another place arrives there whole.
func TestR47Redirect(t *testing.T) {
	var got string
	mux := http.NewServeMux()
	mux.HandleFunc("/responses", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		http.Redirect(w, r, "/moved", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, completed(said("m")))
	})
	b := newBench(t)
	b.server.Config.Handler = mux
	_, err := b.run("Go.", runner.Options{})
	wantOK(t, err)
	if !contains(got, `"input":[{"content":"Go.","role":"user"}]`) {
		t.Errorf("got the body %q, want the whole request", got)
	}
}

func TestR48Store(t *testing.T) {
	for store, ok := range map[string]bool{"": true, `,"store":true`: true, `,"store":null`: true, `,"store":false`: false} {
		b := newBench(t, answers(said("m")))
		_, err := b.run(`{"model":"m","input":"Go.","tools":[{"type":"image_generation"}]`+store+`}`, runner.Options{})
		if !ok {
			wantConfig(t, err)
			wantLines(t, "trace", b.trace)
			continue
		}
		wantOK(t, err)
		if _, set := b.bodies[0]["store"]; set != (store != "") {
			t.Errorf("%s: got the body %v, want store as the caller has it", store, b.bodies[0])
		}
	}
}

func TestR49Usage(t *testing.T) {
	var total toolset.Usage
	count := func(d runner.Diagnostic) { runner.AddUsage(&total, d) }
	_, err := newBench(t, answers(fc("a")), answers(said("m"))).run("Go.", runner.Options{OnDiagnostic: count})
	wantOK(t, err)
	if want := (toolset.Usage{InputTokens: 20, OutputTokens: 4, TotalTokens: 24}); total != want {
		t.Errorf("got %+v, want %+v", total, want)
	}
	for _, usage := range []string{`null`, `{"input_tokens":1,"output_tokens":1}`, `{"input_tokens":-1,"output_tokens":1,"total_tokens":0}`,
		`{"input_tokens":1.5,"output_tokens":1,"total_tokens":2}`} {
		total = toolset.Usage{}
		body := `{"id":"r","status":"completed","output":[` + said("m2") + `],"usage":` + usage + `}`
		_, err := newBench(t, answers(fc("a")), reply{status: 200, body: body}).run("Go.", runner.Options{OnDiagnostic: count})
		wantOK(t, err)
		if want := (toolset.Usage{InputTokens: 10, OutputTokens: 2, TotalTokens: 12, Incomplete: true}); total != want {
			t.Errorf("%s: got %+v, want %+v", usage, total, want)
		}
	}
}

func TestR50Safety(t *testing.T) {
	b := newBench(t, answers(fc("a")), answers(said("m")))
	f := b.function("f")
	f.Execute = func(context.Context, map[string]any) (runner.Output, error) { panic("secret-text") }
	r := b.runner(runner.Registration{Functions: []runner.Function{f}})
	_, err := r.Run(t.Context(), b.client(), request("Go."), runner.Options{OnDiagnostic: func(runner.Diagnostic) { panic("secret-text") }})
	wantReason(t, err, runner.ReasonFailed, []string{"a"}, nil)
	_, err = r.Run(t.Context(), b.client(), request("Go."), runner.Options{})
	wantOK(t, err)

	// A panic in the caller's own loop frees the runner, too.
	b = newBench(t, answers(said("m")), answers(said("m")))
	r = b.runner(runner.Registration{})
	func() {
		defer func() { _ = recover() }()
		for range r.Iterate(t.Context(), b.client(), request("Go."), runner.Options{}) {
			panic("x")
		}
	}()
	_, err = r.Run(t.Context(), b.client(), request("Go."), runner.Options{})
	wantOK(t, err)

	panics := func(set func(*runner.Options)) error {
		b := newBench(t, streamed(fc("a"), asks("r1")))
		opts := eager
		set(&opts)
		_, err := b.run(crm(""), opts)
		return err
	}
	for name, set := range map[string]func(*runner.Options){
		"OnEvent": func(o *runner.Options) {
			o.OnEvent = func(context.Context, responses.ResponseStreamEventUnion) error { panic("x") }
		},
		"ApproveMCP": func(o *runner.Options) {
			o.ApproveMCP = func(context.Context, responses.ResponseOutputItemMcpApprovalRequest) (bool, error) { panic("x") }
		},
		"Save": func(o *runner.Options) {
			o.Ledger = &runner.Ledger{RunID: "run", Save: func(context.Context, runner.Checkpoint) error { panic("x") }}
		},
	} {
		if _, ok := errors.AsType[*runner.Error](panics(set)); !ok {
			t.Errorf("%s: got no *Error from its panic", name)
		}
	}

	// A run that is cancelled while an independent function runs waits for it.
	b = newBench(t, streamed(fc("a")))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f = b.function("f")
	f.Independent = true
	f.Execute = func(context.Context, map[string]any) (runner.Output, error) {
		cancel()
		time.Sleep(20 * time.Millisecond)
		return output("x"), nil
	}
	_, err = b.runner(runner.Registration{Functions: []runner.Function{f}}).Run(ctx, b.client(), request("Go."), eager)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if left := strings.Count(string(stacks), "deskagent/runner.("); left > 0 {
		t.Errorf("got %d frames of the runner after all runs have ended, want none: %s", left, stacks)
	}
}

// A greeting is answered, and nothing is done.
func TestL1Greeting(t *testing.T) {
	b := newBench(t, answers(said("m")))
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Hello"), runner.Options{Computer: allowed})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1")
}

// clicks are computer calls, each in a response of its own.
func clicks(n int, actions string) (replies []reply) {
	for i := range n {
		replies = append(replies, answers(cc(fmt.Sprint("k", i), actions)))
	}
	return replies
}

// An endless task ends by the step limit, and at once when it is cancelled.
func TestL2EndlessTask(t *testing.T) {
	b := newBench(t, clicks(5, clickAction)...)
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed, MaxSteps: 5})
	wantReason(t, err, runner.ReasonStepLimit, []string{"k0", "k1", "k2", "k3"}, []string{"k0", "k1", "k2", "k3"})

	var stopped time.Time
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	b = newBench(t, reply{status: 200, run: func() { stopped = time.Now(); cancel(); <-release }})
	_, err = b.runner(runner.Registration{}).Run(ctx, b.client(), request("Go."), runner.Options{})
	if took := time.Since(stopped); err == nil || took > 200*time.Millisecond {
		t.Errorf("got %v after %v, want the run to end within 200ms", err, took)
	}
	close(release)
}

// A model that does the same again and again without effect is told so, and then stopped.
func TestL2Repeats(t *testing.T) {
	const limit = runner.DefaultRepeatLimit
	b := newBench(t, clicks(limit+1, clickAction)...)
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."),
		runner.Options{Computer: allowed, RepeatLimit: limit})
	e, ok := errors.AsType[*runner.Error](err)
	if !ok || e.Reason != runner.ReasonNoEffect || len(e.CompletedCallIDs) != limit+1 {
		t.Fatalf("got %v, want no_effect after %d calls", err, limit+1)
	}
	last := b.input(limit + 1)
	if told := last[len(last)-1]; !contains(told, "user ") || !contains(told, "3 times") {
		t.Errorf("got %q as the last item, want that the model is told", told)
	}
	for _, line := range b.input(limit) {
		if contains(line, "times") {
			t.Errorf("got %q after %d calls, want nothing told yet", line, limit-1)
		}
	}

	for name, test := range map[string]struct {
		replies []reply
		paint   bool
	}{
		"a screen that changes": {clicks(6, clickAction), true},
		"other actions": {slices.Concat(clicks(2, clickAction), []reply{answers(cc("x", screenshotAction))},
			[]reply{answers(cc("y", clickAction)), answers(cc("z", clickAction))}), false},
		"a function in between": {slices.Concat(clicks(2, clickAction), []reply{answers(cc("x", clickAction), fc("a"))},
			[]reply{answers(cc("y", clickAction)), answers(cc("z", clickAction))}), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, append(test.replies, answers(said("m")))...)
			screen := &desktop{bench: b}
			screen.inside = func(driver.Kind) error {
				if test.paint {
					screen.painted++
				}
				return nil
			}
			tools, err := toolset.New(screen, nil)
			wantOK(t, err)
			_, err = b.runner(runner.Registration{Computer: tools}).Run(t.Context(), b.client(), request("Go."),
				runner.Options{Computer: allowed, RepeatLimit: limit})
			wantOK(t, err)
			for _, line := range b.input(len(b.replies)) {
				if contains(line, "times") {
					t.Errorf("got %q, want nothing told", line)
				}
			}
		})
	}
}

// A run that was stopped for its repetitions is at a boundary, and can go on with other instructions.
func TestL2RepeatsLeaveABoundary(t *testing.T) {
	const limit = 1
	b := newBench(t, clicks(limit+1, clickAction)...)
	var records []runner.Checkpoint
	r := b.runner(runner.Registration{Computer: b.computer()})
	_, err := r.Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed, RepeatLimit: limit, Ledger: ledger(&records)})
	wantReason(t, err, runner.ReasonNoEffect, []string{"k0", "k1"}, []string{"k0", "k1"})
	last := records[len(records)-1]
	if last.Phase != runner.PhaseBoundary || len(last.Uncertain()) > 0 {
		t.Errorf("got phase %s, uncertain %q, want a boundary", last.Phase, last.Uncertain())
	}
	b = newBench(t, answers(said("m")))
	_, err = b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Do something else."),
		runner.Options{Computer: allowed, Ledger: &runner.Ledger{RunID: "run", Save: ledger(&records).Save, ResumeFrom: &last}})
	wantOK(t, err)
}

// One call of the model may hold many actions: that is one request, and one picture.
func TestDollar1BatchesAreOneTurn(t *testing.T) {
	b := newBench(t, answers(cc("k", strings.Repeat(clickAction+",", 9)+clickAction)), answers(said("m")))
	_, err := b.runner(runner.Registration{Computer: b.computer()}).Run(t.Context(), b.client(), request("Go."), runner.Options{Computer: allowed})
	wantOK(t, err)
	want := append(append([]string{"request 1"}, slices.Repeat([]string{"click"}, 10)...), "screenshot", "request 2")
	wantLines(t, "trace", b.trace, want...)
}

// Each request says what it cost.
func TestDollar2UsageOfEachRequest(t *testing.T) {
	var costs []int64
	_, err := newBench(t, answers(fc("a")), answers(said("m"))).run("Go.", runner.Options{OnDiagnostic: func(d runner.Diagnostic) {
		if d.Stage == runner.StageRequest {
			costs = append(costs, d.Usage.InputTokens)
		}
	}})
	wantOK(t, err)
	if !slices.Equal(costs, []int64{10, 10}) {
		t.Errorf("got %v input tokens, want 10 for each of two requests", costs)
	}
}
