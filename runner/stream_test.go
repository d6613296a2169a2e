package runner_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

func TestR25Streaming(t *testing.T) {
	b := newBench(t, streamed(fc("a")), streamed(said("m")))
	var types []string
	_, err := b.run("Go.", runner.Options{Stream: true, OnEvent: func(_ context.Context, e responses.ResponseStreamEventUnion) error {
		b.note(strings.TrimPrefix(e.Type, "response."))
		types = append(types, e.Type)
		return nil
	}})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "created", "output_item.done", "completed", "f",
		"request 2", "created", "output_item.done", "completed")
	if b.bodies[0]["stream"] != true {
		t.Errorf("got the body %v, want one that asks for a stream", b.bodies[0])
	}

	tests := []struct {
		name   string
		reply  reply
		reason runner.Reason
		record bool // of a failed request
	}{
		{"cut", streams(`{"type":"response.created","response":{}}`, itemDone(0, fc("a"))), runner.ReasonInvalidResponse, false},
		{"incomplete", streams(itemDone(0, fc("a")), `{"type":"response.incomplete","response":{"status":"incomplete","output":[]}}`), runner.ReasonInvalidResponse, false},
		{"failed", streams(`{"type":"response.failed","response":{"status":"failed"}}`), runner.ReasonInvalidResponse, false},
		{"empty", streams(), runner.ReasonFailed, true},
		{"an error event", streams(itemDone(0, fc("a")), `{"type":"error","message":"secret-text"}`), runner.ReasonFailed, true},
		{"an error field", streams(`{"error":{"message":"secret-text"}}`), runner.ReasonFailed, true},
		{"a status", fails(400), runner.ReasonFailed, true},
		{"no JSON", streams(`{"type"`), runner.ReasonFailed, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.reply)
			var records []runner.Diagnostic
			_, err := b.run("Go.", runner.Options{Stream: true, OnDiagnostic: func(d runner.Diagnostic) { records = append(records, d) }})
			wantReason(t, err, test.reason, nil, nil)
			if got := len(records) == 1 && records[0].Reason == runner.OutcomeAPIFailed; got != test.record || len(records) > 1 {
				t.Errorf("got the records %v, want one of a failed request: %t", records, test.record)
			}
		})
	}

	// A finished response without its items has those that were streamed, in the order of their indices.
	b = newBench(t, streams(itemDone(1, fcOf("b", "g", "{}")), itemDone(0, fc("a")),
		`{"type":"response.completed","response":{"id":"resp","status":"completed"}}`), streamed(said("m")))
	_, err = b.run("Go.", runner.Options{Stream: true})
	wantOK(t, err)
	wantLines(t, "trace", b.trace, "request 1", "f", "g", "request 2")

	b = newBench(t, streamed(fc("a")))
	_, err = b.run("Go.", runner.Options{Stream: true, OnEvent: func(context.Context, responses.ResponseStreamEventUnion) error { return errRaised }})
	wantReason(t, err, runner.ReasonFailed, nil, nil)
}

// The stream is closed before its turn is shown, even if the server would go on.
func TestR25StreamIsClosed(t *testing.T) {
	closed := make(chan struct{})
	b := newBench(t)
	b.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamed(said("m")).body)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			close(closed)
		case <-time.After(5 * time.Second):
		}
	})
	for _, err := range b.runner(runner.Registration{}).Iterate(t.Context(), b.client(), request("Go."), runner.Options{Stream: true}) {
		wantOK(t, err)
		select {
		case <-closed:
		case <-time.After(3 * time.Second):
			t.Error("the stream is open while the turn is shown")
		}
	}
}

var eager = runner.Options{Stream: true, Eager: true}

// noting are options whose events are in the trace.
func (b *bench) noting(opts runner.Options) runner.Options {
	opts.OnEvent = func(_ context.Context, e responses.ResponseStreamEventUnion) error {
		b.note(strings.TrimPrefix(e.Type, "response."))
		return nil
	}
	return opts
}

func TestR26Eager(t *testing.T) {
	b := newBench(t, streamed(fc("a"), fcOf("b", "g", "{}")), streamed(said("m")))
	_, err := b.run("Go.", b.noting(eager))
	wantOK(t, err)
	wantLines(t, "trace", b.trace[:7], "request 1", "created", "output_item.done", "f", "output_item.done", "g", "completed")

	first, second := fc("a"), fcOf("b", "g", "{}")
	b = newBench(t, streams(itemDone(1, second), itemDone(0, first), terminal(first, second)), streamed(said("m")))
	_, err = b.run("Go.", b.noting(eager))
	wantOK(t, err)
	wantLines(t, "out of order", b.trace[:6], "request 1", "output_item.done", "output_item.done", "completed", "f", "g")

	b = newBench(t, streamed(asks("r1"), fc("a")), streamed(said("m")))
	opts := b.noting(eager)
	opts.ApproveMCP = b.approver("yes")
	_, err = b.run(crm(""), opts)
	wantOK(t, err)
	wantLines(t, "with a hosted tool", b.trace[:7], "request 1", "created", "output_item.done", "output_item.done", "completed", "asked r1", "f")

	sealed := func(text string) string {
		return `{"type":"reasoning","id":"r","summary":[],"encrypted_content":"` + text + `"}`
	}
	noID := strings.Replace(fc("a"), `"id":"fc_a",`, "", 1)
	for name, test := range map[string]struct {
		seen, final []string
		ok          bool
	}{
		"the same":              {[]string{first}, []string{first}, true},
		"other key order":       {[]string{first}, []string{`{"status":"completed",` + strings.Replace(first[1:], `,"status":"completed"`, "", 1)}, true},
		"another author":        {[]string{first}, []string{strings.Replace(first, `"status"`, `"created_by":"x","status"`, 1)}, true},
		"an id gained":          {[]string{noID}, []string{first}, true},
		"an id lost":            {[]string{first}, []string{noID}, false},
		"reasoning sealed anew": {[]string{first, sealed("x")}, []string{first, sealed("y")}, true},
		"reasoning opened":      {[]string{first, sealed("x")}, []string{first, strings.Replace(sealed(""), `,"encrypted_content":""`, "", 1)}, false},
		"an item removed":       {[]string{first, second}, []string{first}, false},
		"an item added":         {[]string{first}, []string{first, second}, false},
		"other arguments":       {[]string{first}, []string{fcOf("a", "f", `{"x":1}`)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			for i, item := range test.seen {
				events = append(events, itemDone(i, item))
			}
			b := newBench(t, streams(append(events, terminal(test.final...))...), streamed(said("m")))
			_, err := b.run("Go.", eager)
			if test.ok {
				wantOK(t, err)
				wantLines(t, "trace", b.trace, "request 1", "f", "request 2")
				return
			}
			ran := []string{"a", "b"}[:strings.Count(strings.Join(test.seen, ""), "function_call")]
			wantReason(t, err, runner.ReasonInvalidResponse, ran, ran)
		})
	}
	for name, events := range map[string][]string{
		"an index twice":     {itemDone(0, first), itemDone(0, second)},
		"a negative index":   {itemDone(0, first), itemDone(-1, second)},
		"no index":           {itemDone(0, first), `{"type":"response.output_item.done","item":` + second + `}`},
		"an item that fails": {itemDone(0, first), itemDone(1, fcOf("b", "h", "{}"))},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, streams(events...))
			_, err := b.run("Go.", eager)
			wantReason(t, err, runner.ReasonInvalidResponse, []string{"a"}, []string{"a"})
		})
	}
}

func TestR27EarlyPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		early *runner.Early
		want  []string
	}{
		"nothing said": {nil, []string{"f", "g", "click", "screenshot", "completed"}},
		"empty":        {&runner.Early{}, []string{"completed", "f", "g", "click", "screenshot"}},
		"only f":       {&runner.Early{Functions: []string{"f"}}, []string{"f", "completed", "g", "click", "screenshot"}},
		"only g":       {&runner.Early{Functions: []string{"g"}}, []string{"completed", "f", "g", "click", "screenshot"}},
		"no computer":  {&runner.Early{Functions: []string{"f", "g"}}, []string{"f", "g", "completed", "click", "screenshot"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, streamed(fc("a"), fcOf("b", "g", "{}"), cc("k", clickAction)), streamed(said("m")))
			opts := b.noting(eager)
			opts.Computer = allowed
			_, err := b.runner(runner.Registration{Computer: b.computer(), Early: test.early}).Run(t.Context(), b.client(), request("Go."), opts)
			wantOK(t, err)
			got := slices.DeleteFunc(b.trace[2:slices.Index(b.trace, "request 2")], func(s string) bool { return s == "output_item.done" })
			wantLines(t, "trace", got, test.want...)
		})
	}
}

func TestR28BeforeEarlyCall(t *testing.T) {
	items := []string{fc("a"), fcOf("b", "g", "{}"), fc("c")}
	ask := func(b *bench, decisions map[string]runner.EarlyDecision) runner.Options {
		opts := b.noting(eager)
		opts.BeforeEarlyCall = func(_ context.Context, c runner.EarlyCall) (runner.EarlyDecision, error) {
			b.note("asked " + c.CallID)
			scribble(c.Item)
			return decisions[c.CallID], nil
		}
		return opts
	}
	b := newBench(t, streamed(items...), streamed(said("m")))
	_, err := b.run("Go.", ask(b, map[string]runner.EarlyDecision{"a": runner.ExecuteEarly, "b": runner.DeferCall}))
	wantOK(t, err)
	wantLines(t, "trace", b.trace[2:11], "output_item.done", "asked a", "f", "output_item.done", "asked b", "output_item.done", "completed", "g", "f")

	b = newBench(t, streamed(items...))
	_, err = b.run("Go.", ask(b, map[string]runner.EarlyDecision{"a": "true"}))
	wantReason(t, err, runner.ReasonFailed, nil, nil)

	// It is not asked about what the policy defers.
	b = newBench(t, streamed(items...), streamed(said("m")))
	_, err = b.runner(runner.Registration{Early: &runner.Early{}}).Run(t.Context(), b.client(), request("Go."), ask(b, nil))
	wantOK(t, err)
	if slices.ContainsFunc(b.trace, func(s string) bool { return strings.HasPrefix(s, "asked") }) {
		t.Errorf("got %q, want nobody asked", b.trace)
	}
}

func TestR29IndependentFunctions(t *testing.T) {
	items := []string{fc("a"), fc("b"), fc("c"), fcOf("d", "g", "{}")}
	b := newBench(t, streamed(items...), streamed(said("m")))
	arrived := make(chan string, 4)
	ended := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{}), "c": make(chan struct{})}
	f, g := b.function("f"), b.function("g")
	f.Independent = true
	f.Execute = func(ctx context.Context, _ map[string]any) (runner.Output, error) {
		id := runner.CallID(ctx)
		arrived <- id
		<-ended[id]
		b.note("end " + id)
		return output(id), nil
	}
	r := b.runner(runner.Registration{Functions: []runner.Function{f, g}})
	result := make(chan error)
	go func() {
		_, err := r.Run(t.Context(), b.client(), request("Go."), eager)
		result <- err
	}()
	two := []string{<-arrived, <-arrived}
	slices.Sort(two)
	wantLines(t, "running", two, "a", "b")
	close(ended["b"])
	select {
	case id := <-arrived:
		t.Errorf("%s began while a was running", id)
	case <-time.After(20 * time.Millisecond):
	}
	close(ended["a"])
	if third := <-arrived; third != "c" {
		t.Errorf("got %s, want c once both have ended", third)
	}
	if slices.Contains(b.trace, "g") {
		t.Error("g did not wait for c")
	}
	close(ended["c"])
	wantOK(t, <-result)
	wantLines(t, "input", b.input(2)[5:], "function_call_output a a", "function_call_output b b", "function_call_output c c", "function_call_output d g done")
	wantLines(t, "trace", b.trace, "request 1", "end b", "end a", "end c", "g", "request 2")

	// The first error in the order of the calls counts, and only when all have ended.
	b = newBench(t, streamed(items...))
	f.Execute = func(ctx context.Context, _ map[string]any) (runner.Output, error) {
		if runner.CallID(ctx) == "a" {
			return runner.Output{}, errRaised
		}
		time.Sleep(5 * time.Millisecond)
		return output("x"), nil
	}
	_, err := b.runner(runner.Registration{Functions: []runner.Function{f, g}}).Run(t.Context(), b.client(), request("Go."), eager)
	wantReason(t, err, runner.ReasonFailed, []string{"a", "b"}, []string{"b"})
}
