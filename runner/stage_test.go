package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

var (
	errRaised  = errors.New("raised by the script: secret-text")
	errStopped = errors.New("cancelled by the script")
)

// A world is what the operations of a case share: one runner and what it acts on. It passes on to the current stage.
type world struct {
	runner  *runner.Runner
	desktop *toolset.Toolset
	browser *fakeBrowser
	*stage
}

// A stage plays one operation of a script and writes down what happens. It is the functions, the drivers, the callbacks
// and the transport.
type stage struct {
	t      *testing.T
	world  *world
	s      script
	cancel context.CancelCauseFunc
	params []byte // as the runner got them; to scribble on

	mu     sync.Mutex // guards what follows
	grown  *sync.Cond // the order has grown
	counts map[string]int
	order  []string
	shown  map[string][]any // what callbacks and drivers were shown, by the field of the expectations
	turns  []any
	seen   []*runner.Turn
	usage  toolset.Usage
	header []http.Header
}

func newStage(t *testing.T, w *world, s script) *stage {
	st := &stage{t: t, world: w, s: s, counts: map[string]int{}, shown: map[string][]any{}}
	st.grown = sync.NewCond(&st.mu)
	return st
}

func (st *stage) trace(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.order = append(st.order, fmt.Sprintf(format, args...))
	st.grown.Broadcast()
}

func (st *stage) note(what string, v any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shown[what] = append(st.shown[what], v)
}

func (st *stage) count(what string) int {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counts[what]++
	return st.counts[what]
}

// enter plays operations from the inside of a callback, and finds the rule for it.
func (st *stage) enter(at string, rules []rule, fits func(r rule, nth int) bool) rule {
	n := st.count("enter " + at)
	for _, op := range st.s.Inside {
		if op.At != at || max(op.Nth, 1) != n {
			continue
		}
		inner := newStage(st.t, st.world, op.script)
		result := inner.play(false, true)
		st.trace("inside:%s:%v", op.Op, firstOf(result["status"], result["error_class"], result["outcome"]))
		shown := map[string]any{"at": op.At}
		for name, v := range result {
			if slices.Contains([]string{"op", "target", "status", "outcome", "error_class"}, name) {
				shown[name] = v
			}
		}
		st.note("inside", shown)
	}
	for _, r := range rules {
		if fits(r, n) {
			return r
		}
	}
	return rule{}
}

// inOrder is for rules that are answers in the order of asking.
func inOrder(rules []rule) func(rule, int) bool {
	i := 0
	return func(_ rule, nth int) bool { i++; return i == nth }
}

func byNth(r rule, nth int) bool { return max(r.Nth, 1) == nth }

// firstOf returns the first value that is there.
func firstOf(values ...any) any {
	i := slices.IndexFunc(values, func(v any) bool { return v != nil })
	if i < 0 {
		return nil
	}
	return values[i]
}

// leave does what the rule says at the end of a callback.
func (st *stage) leave(r rule) error {
	if r.WaitFor != "" {
		st.await(r.WaitFor)
	}
	if r.Linger {
		time.Sleep(15 * time.Millisecond)
	}
	if r.Cancel {
		st.cancel(errStopped)
	}
	if r.Raise {
		return errRaised
	}
	return nil
}

// await waits until a token is in the trace.
func (st *stage) await(token string) {
	giveUp := time.AfterFunc(10*time.Second, func() {
		st.trace("gave up waiting for %s", token)
	})
	defer giveUp.Stop()
	st.mu.Lock()
	defer st.mu.Unlock()
	for !slices.Contains(st.order, token) && !slices.Contains(st.order, "gave up waiting for "+token) {
		st.grown.Wait()
	}
}

// yes is an answer of a callback that decides with yes or no.
func (st *stage) yes(r rule) (bool, error) {
	err := st.leave(r)
	answer := true
	if r.returned {
		answer = string(r.Return) == "true"
	}
	return answer, err
}

// RoundTrip answers request n with the n-th response.
func (st *stage) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != r.ContentLength {
		st.t.Errorf("got a length of %d for %d bytes", r.ContentLength, len(body))
	}
	st.note("requests", value(st.t, json.RawMessage(body)))
	st.header = append(st.header, r.Header.Clone())
	n := len(st.shown["requests"])
	st.trace("request:%d", n)
	st.enter("request", nil, nil)
	if n > len(st.s.Responses) {
		st.t.Errorf("got request %d, want no more than %d", n, len(st.s.Responses))
		return nil, errRaised
	}
	answer := st.s.Responses[n-1]
	if answer.Cancel {
		st.cancel(errStopped)
		return nil, r.Context().Err()
	}
	response := &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}}
	var text []byte
	switch {
	case answer.ConnectionLost:
		return nil, errRaised
	case answer.Status != 0:
		response.StatusCode = answer.Status
		response.Header.Set("Retry-After-Ms", "1")
		text = []byte(`{"error":{"message":"secret-text","type":"t","code":"some_code"}}`)
	case answer.isEvents:
		response.Header.Set("Content-Type", "text/event-stream")
		for _, e := range answer.Events {
			text = fmt.Appendf(text, "event: %s\ndata: %s\n\n", value(st.t, e).(map[string]any)["type"], e)
		}
	default:
		text = answer.Response
	}
	response.Body = io.NopCloser(bytes.NewReader(text))
	return response, nil
}

// play runs the operation and returns what is to be compared.
func (st *stage) play(iterate, observed bool) map[string]any {
	w := st.world
	if st.s.Op == "close" {
		result := map[string]any{"op": "close"}
		switch st.s.Target {
		case "computer":
			result["target"], result["status"] = "computer", string(w.desktop.Close())
		case "browser":
			result["target"], result["status"] = "browser", string(w.browser.Close())
		default:
			result["status"] = string(w.runner.Close())
		}
		if st.s.Target == "runner" {
			result["target"] = "runner"
		}
		return result
	}
	ctx := st.t.Context()
	ctx, st.cancel = context.WithCancelCause(ctx)
	defer st.cancel(nil)
	if st.s.Cancel == "before_start" {
		st.cancel(errStopped)
	}
	result := map[string]any{"op": firstOf(any(st.s.Op)), "outcome": "ok"}
	opts, err := st.options(observed)
	if err == nil {
		var response *responses.Response
		response, err = st.run(ctx, iterate || st.s.Op == "iterate", opts)
		if err == nil && response != nil {
			result["response_id"] = response.ID
		}
	}
	st.record(result, err)
	return result
}

func (st *stage) run(ctx context.Context, iterate bool, opts runner.Options) (*responses.Response, error) {
	client := openai.NewClient(option.WithBaseURL("http://api.example/v1/"), option.WithAPIKey("none"),
		option.WithMaxRetries(st.s.ClientMaxRetries), option.WithHTTPClient(&http.Client{Transport: st}))
	st.params = bytes.Clone(st.s.Params)
	if st.params == nil {
		st.params = []byte(`{"model":"m","input":"Go."}`)
	}
	params := param.Override[responses.ResponseNewParams](json.RawMessage(st.params))
	if !iterate {
		return st.world.runner.Run(ctx, &client, params, opts)
	}
	var last *responses.Response
	for t, err := range st.world.runner.Iterate(ctx, &client, params, opts) {
		if err != nil {
			return nil, err
		}
		if len(st.s.Turns) > 0 || st.s.Op == "iterate" {
			st.trace("turn:%d", t.Step)
		}
		turn := map[string]any{"step": float64(t.Step), "response_id": t.Response.ID, "final": t.Final,
			"tools_executed": t.ToolsExecuted, "attempted_call_ids": value(st.t, append([]string{}, t.AttemptedCallIDs...)),
			"completed_call_ids": value(st.t, append([]string{}, t.CompletedCallIDs...))}
		st.turns, st.seen = append(st.turns, turn), append(st.seen, t)
		if t.Final {
			last = t.Response
		}
		if !st.turn(turn, t) {
			return nil, nil
		}
	}
	for _, a := range st.s.AfterEnd {
		shown := map[string]any{}
		st.act(shown, st.seen[len(st.seen)-1], a)
		after := shown["actions"].([]any)[0].(map[string]any)
		after["after_end"] = true
		st.turns = append(st.turns, after)
	}
	return last, nil
}

// turn does what the script says about a turn, and reports whether to go on.
func (st *stage) turn(shown map[string]any, t *runner.Turn) bool {
	for _, s := range st.s.Turns {
		if s.Step != t.Step {
			continue
		}
		shown["actions"] = []any{}
		for _, a := range s.Do {
			if a.Break {
				return false
			}
			st.act(shown, t, a)
		}
	}
	return true
}

func (st *stage) act(shown map[string]any, t *runner.Turn, a action) {
	if a.OnTurn > 0 {
		t = st.seen[a.OnTurn-1]
	}
	var op, result string
	status := func(err error) string {
		if err != nil {
			return "refused"
		}
		return "ok"
	}
	switch {
	case a.SupplyOutputs != nil:
		op = "supply_outputs"
		var list []json.RawMessage
		if json.Unmarshal(a.SupplyOutputs, &list) != nil {
			list = []json.RawMessage{a.SupplyOutputs, a.SupplyOutputs} // no list: nothing that could be supplied
		}
		var outputs []responses.ResponseInputItemFunctionCallOutputParam
		for _, raw := range list {
			outputs = append(outputs, param.Override[responses.ResponseInputItemFunctionCallOutputParam](raw))
		}
		result = status(t.SupplyOutputs(outputs))
	case a.AppendUserText != nil:
		op = "append_user_text"
		text, _ := value(st.t, a.AppendUserText).(string) // what is no text is blank
		result = status(t.AppendUserText(text))
	case a.Scribble:
		t.Response.Output, t.Response.ID, t.Step = nil, "#", 99
		for i := range t.AttemptedCallIDs {
			t.AttemptedCallIDs[i] = "#"
		}
		t.CompletedCallIDs = append(t.CompletedCallIDs[:0], "#")
		op, result = "scribble", "ok"
	case a.Cancel:
		op, result = "cancel", "ok"
		st.cancel(errStopped)
	case a.Close:
		op, result = "close", string(st.world.runner.Close())
	case a.Op == "run":
		inner := newStage(st.t, st.world, a.script)
		op, result = "run", fmt.Sprint(inner.play(false, true)["error_class"])
	}
	actions, _ := shown["actions"].([]any)
	shown["actions"] = append(actions, map[string]any{"op": op, "result": result})
}

// record adds what was seen to the result.
func (st *stage) record(result map[string]any, err error) {
	if err != nil {
		result["outcome"] = "error"
		result["error_class"] = st.class(err)
		if e, ok := errors.AsType[*runner.Error](err); ok {
			result["attempted_call_ids"] = append([]string{}, e.AttemptedCallIDs...)
			result["completed_call_ids"] = append([]string{}, e.CompletedCallIDs...)
		}
	}
	for name, list := range st.shown {
		result[name] = list
	}
	result["request_count"] = len(st.shown["requests"])
	result["order"], result["turns"] = st.order, st.turns
	result["usage"] = map[string]any{"input_tokens": st.usage.InputTokens, "output_tokens": st.usage.OutputTokens,
		"total_tokens": st.usage.TotalTokens, "complete": !st.usage.Incomplete}
}

// class is the category of an error, which must not tell what others said.
func (st *stage) class(err error) string {
	if text := fmt.Sprintf("%+v %#v", err, err); strings.Contains(text, "secret-text") || strings.Contains(text, "by the script") {
		st.t.Errorf("got an error that tells private text: %s", text)
	}
	if errors.Is(err, errRaised) || errors.Is(err, errStopped) {
		st.t.Errorf("got the original error in %v, want it dropped", err)
	}
	switch e, isError := errors.AsType[*runner.Error](err); {
	case isError:
		if cancelled := e.Reason == runner.ReasonCancelled; cancelled != errors.Is(err, context.Canceled) {
			st.t.Errorf("got the reason %s for %v", e.Reason, err)
		}
		return string(e.Reason)
	case errors.Is(err, runner.ErrBusy):
		return "busy"
	case errors.Is(err, runner.ErrClosed):
		return "closed"
	}
	if _, ok := errors.AsType[*runner.ConfigError](err); !ok {
		st.t.Fatalf("got %T %v, want an error of the runner", err, err)
	}
	return "config"
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

func toJSON(t *testing.T, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// value is v as a plain JSON value.
func value(t *testing.T, v any) (plain any) {
	if err := json.Unmarshal(toJSON(t, v), &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}
