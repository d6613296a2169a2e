package toolset_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/toolset"
)

// vectorsPath finds the conformance vectors: $DESKAGENT_VECTORS, or the project's own copy. Relative paths start at
// the project's root.
func vectorsPath() string {
	path := cmp.Or(os.Getenv("DESKAGENT_VECTORS"), filepath.Join("testdata", "conformance", "computer_toolset.json"))
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("..", path)
}

// inexpressible lists what a dynamically typed caller can do and a Go caller cannot. Only cases tagged
// dynamic_value may be skipped for one of these reasons.
var inexpressible = []struct {
	reason string
	in     func(script) bool
}{
	{"an approve.Decision is a yes or a no; another value does not compile", func(s script) bool {
		return slices.ContainsFunc(slices.Concat(s.ApproveSafetyChecks, s.BeforeAction), func(r rule) bool {
			return r.Return != nil && !slices.Contains([]string{"true", "false", "null"}, string(r.Return))
		})
	}},
	{"a toolset.Picture is a struct whose sources are strings; a list or a number does not compile", func(s script) bool {
		return slices.ContainsFunc(s.Driver, func(r rule) bool {
			if r.Return == nil {
				return false
			}
			_, err := decodePicture(r.Return)
			return err != nil
		})
	}},
	{"RunOptions.MaxSteps is a whole number; a fraction or a string does not compile", func(s script) bool {
		_, err := s.maxSteps()
		return err != nil
	}},
}

type vector struct {
	Name, Kind string
	Tags       []string
	Input      script
	Expected   map[string]any
}

// A script is the input of a case, or one operation of a lifecycle.
type script struct {
	Op                  string
	Call, Params        json.RawMessage
	CallJSON            string          `json:"call_json"`
	MaxSteps            json.RawMessage `json:"max_steps"`
	ApproveSafetyChecks []rule          `json:"approve_safety_checks"`
	BeforeAction        []rule          `json:"before_action"`
	Driver, Observer    []rule
	Responses           []rule
	RequestHeaders      map[string]string `json:"request_headers"`
	Cancel              string
	Operations          []script
	Inside              []insideOperation
}

type rule struct {
	Method           string
	Nth              int
	Return, Response json.RawMessage
	Raise            bool
	Cancel, Scribble bool
}

type insideOperation struct {
	At  string
	Nth int
	script
}

func (s script) maxSteps() (param.Opt[int64], error) {
	switch {
	case s.MaxSteps == nil:
		return param.Opt[int64]{}, nil
	case string(s.MaxSteps) == "null":
		return param.Null[int64](), nil
	}
	n, err := strconv.ParseInt(string(s.MaxSteps), 10, 64)
	return param.NewOpt(n), err
}

func (s script) cancels() bool {
	return s.Cancel != "" || slices.ContainsFunc(
		slices.Concat(s.ApproveSafetyChecks, s.BeforeAction, s.Driver, s.Observer, s.Responses), func(r rule) bool { return r.Cancel })
}

func decodePicture(raw json.RawMessage) (p toolset.Picture, err error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return p, err
	}
	source := func(name string) param.Opt[string] {
		switch {
		case o[name] == nil:
			return param.Opt[string]{}
		case string(o[name]) == "null":
			return param.Null[string]()
		}
		var text string
		err = errors.Join(err, json.Unmarshal(o[name], &text))
		return param.NewOpt(text)
	}
	p.Type = source("type").Value
	p.ImageURL, p.FileID = source("image_url"), source("file_id")
	return p, err
}

// Each source of failure has its own error, which must come back to the caller.
var (
	errDriver   = errors.New("raised by the driver")
	errPolicy   = errors.New("raised by the approver")
	errRequest  = errors.New("raised by the transport")
	errObserver = errors.New("raised by the observer")
	errStopped  = errors.New("cancelled by the script")
)

type contextKey struct{}

// A stage plays one operation of a script on a toolset and writes down what happens. It is the driver, the
// approvers, the observer and the transport.
type stage struct {
	t       *testing.T
	s       script
	tools   *toolset.Toolset
	cancel  context.CancelCauseFunc
	counts  map[string]int
	picture toolset.Picture // presented for the frame captured last

	driverCalls, approvals, diagnostics, requests, inside []any
	methods, order                                        []string
	headers                                               []http.Header
}

func (st *stage) count(what string) int {
	st.counts[what]++
	return st.counts[what]
}

// enter does what every callback does: it checks the context it was given and plays operations from the inside.
func (st *stage) enter(ctx context.Context, at string) {
	if ctx.Value(contextKey{}) != st {
		st.t.Errorf("%s: got a context that is not that of the operation", at)
	}
	n := st.count("enter " + at)
	for _, op := range st.s.Inside {
		if op.At != at || max(op.Nth, 1) != n {
			continue
		}
		inner := &stage{t: st.t, s: op.script, tools: st.tools, counts: map[string]int{}}
		result := inner.play(true)
		st.order = append(st.order, fmt.Sprintf("inside:%s:%s", op.Op, firstOf(result["status"], result["error_class"], result["outcome"])))
		shown := map[string]any{"at": op.At, "op": op.Op}
		for _, name := range []string{"status", "outcome", "error_class"} {
			if result[name] != nil {
				shown[name] = result[name]
			}
		}
		st.inside = append(st.inside, shown)
	}
}

// firstOf returns the first value that is there.
func firstOf(values ...any) any {
	return values[slices.IndexFunc(values, func(v any) bool { return v != nil })]
}

// leave cancels the operation if the rule says so.
func (st *stage) leave(ctx context.Context, r rule) {
	if !r.Cancel {
		return
	}
	st.cancel(errStopped)
	if context.Cause(ctx) != errStopped {
		st.t.Errorf("got the cause %v in the context, want %v", context.Cause(ctx), errStopped)
	}
}

func (st *stage) act(ctx context.Context, a driver.Action) (rule, error) {
	method := string(a.Kind())
	st.methods = append(st.methods, method)
	shown := map[string]any{"method": method}
	if a.Kind() != driver.KindScreenshot {
		shown["action"] = value(st.t, a)
	}
	st.driverCalls = append(st.driverCalls, shown)
	st.order = append(st.order, "driver:"+method)
	st.enter(ctx, "driver:"+method)
	n := st.count(method)
	i := slices.IndexFunc(st.s.Driver, func(r rule) bool { return r.Method == method && max(r.Nth, 1) == n })
	if i < 0 {
		return rule{}, nil
	}
	r := st.s.Driver[i]
	if r.Scribble {
		scribble(a)
	}
	st.leave(ctx, r)
	if r.Raise {
		return r, errDriver
	}
	return r, nil
}

func (st *stage) approve(ctx context.Context, ask string, rules []rule, q approve.Request) (approve.Decision, error) {
	shown := map[string]any{"ask": ask, "call": value(st.t, q.Call)}
	entry := "approve_safety_checks"
	at := entry
	if ask == "action" {
		shown["action"] = value(st.t, q.Action)
		entry, at = "before_action:"+string(q.Action.Kind()), "before_action"
		if q.Shown != nil || q.Checks != nil {
			st.t.Errorf("got Shown %v and Checks %v with an action, want neither", q.Shown, q.Checks)
		}
	} else {
		st.checkChecks(q)
	}
	st.approvals = append(st.approvals, shown)
	st.order = append(st.order, entry)
	st.enter(ctx, at)
	n := st.count(ask)
	if n > len(rules) {
		return approve.Allow, nil
	}
	r := rules[n-1]
	if r.Scribble {
		scribbleBytes(q.Call)
		for i := range q.Checks {
			q.Checks[i] = approve.SafetyCheck{ID: "#"}
		}
		if q.Action != nil {
			scribble(q.Action)
		}
	}
	st.leave(ctx, r)
	if r.Raise {
		return approve.Allow, errPolicy // an error outweighs the answer beside it
	}
	var answer approve.Decision // null leaves it alone: no answer
	if r.Return != nil {
		if err := json.Unmarshal(r.Return, &answer); err != nil {
			st.t.Fatalf("answer %s: %v", r.Return, err)
		}
	}
	return answer, nil
}

// checkChecks compares the typed checks of a question with those in its JSON.
func (st *stage) checkChecks(q approve.Request) {
	var call struct {
		Checks []approve.SafetyCheck `json:"pending_safety_checks"`
	}
	if err := json.Unmarshal(q.Call, &call); err != nil || !slices.Equal(q.Checks, call.Checks) || q.Action != nil {
		st.t.Errorf("got checks %v and action %v, want the checks of %s alone", q.Checks, q.Action, q.Call)
	}
}

func (st *stage) observe(d toolset.Diagnostic) {
	var member any
	show := "-"
	if d.Member != "" {
		member, show = string(d.Member), string(d.Member)
	}
	st.diagnostics = append(st.diagnostics,
		map[string]any{"stage": string(d.Stage), "reason": string(d.Outcome), "member": member, "call_id": d.CallID})
	st.order = append(st.order, fmt.Sprintf("diagnostic:%s:%s:%s", d.Stage, d.Outcome, show))
	if d.Duration < 0 {
		st.t.Errorf("got a stage of %v", d.Duration)
	}
	n := st.count("observer")
	for _, r := range st.s.Observer {
		if max(r.Nth, 1) == n {
			if r.Cancel {
				st.cancel(errStopped)
			}
			if r.Raise {
				panic(errObserver)
			}
		}
	}
}

func (st *stage) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	st.requests = append(st.requests, value(st.t, json.RawMessage(body)))
	st.headers = append(st.headers, r.Header.Clone())
	n := len(st.requests)
	st.order = append(st.order, fmt.Sprintf("request:%d", n))
	st.enter(r.Context(), "request")
	if n > len(st.s.Responses) {
		st.t.Errorf("got request %d, want no more than %d", n, len(st.s.Responses))
		return nil, errRequest
	}
	answer := st.s.Responses[n-1]
	st.leave(r.Context(), answer)
	if answer.Raise {
		return nil, errRequest
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader(answer.Response)), ContentLength: int64(len(answer.Response)),
	}, nil
}

// play runs the operation and returns what is to be compared.
func (st *stage) play(observed bool) map[string]any {
	if st.s.Op == "close" {
		return map[string]any{"op": "close", "status": string(st.tools.Close())}
	}
	ctx := context.WithValue(st.t.Context(), contextKey{}, st)
	if observed || st.s.cancels() {
		ctx, st.cancel = context.WithCancelCause(ctx)
		defer st.cancel(nil)
	}
	if st.s.Cancel == "before_start" {
		st.cancel(errStopped)
	}
	policy := toolset.Policy{Unasked: true}
	if st.s.ApproveSafetyChecks != nil {
		policy.SafetyChecks = approve.Func(func(ctx context.Context, q approve.Request) (approve.Decision, error) {
			return st.approve(ctx, "safety_checks", st.s.ApproveSafetyChecks, q)
		})
	}
	if st.s.BeforeAction != nil {
		policy.Actions = approve.Func(func(ctx context.Context, q approve.Request) (approve.Decision, error) {
			return st.approve(ctx, "action", st.s.BeforeAction, q)
		})
	}
	var onDiagnostic func(toolset.Diagnostic)
	if observed {
		onDiagnostic = st.observe
	}

	result := map[string]any{"op": st.s.Op, "outcome": "ok"}
	var err error
	if st.s.Op == "execute" {
		call := st.s.Call
		if st.s.CallJSON != "" {
			call = json.RawMessage(st.s.CallJSON)
		}
		given := bytes.Clone(call)
		var output json.RawMessage
		output, err = st.tools.Execute(ctx, given, &toolset.ExecuteOptions{Policy: policy, OnDiagnostic: onDiagnostic})
		if !bytes.Equal(given, call) {
			st.t.Errorf("the caller's call became %s", given)
		}
		if err == nil {
			result["observation"] = value(st.t, output)
		}
	} else {
		steps, stepsErr := st.s.maxSteps()
		if stepsErr != nil {
			st.t.Fatal(stepsErr)
		}
		var requestOptions []option.RequestOption
		for name, text := range st.s.RequestHeaders {
			requestOptions = append(requestOptions, option.WithHeader(name, text))
		}
		client := openai.NewClient(option.WithBaseURL("http://api.example/v1/"), option.WithAPIKey("none"),
			option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: st}))
		given := bytes.Clone(st.s.Params)
		var response *responses.Response
		response, err = st.tools.Run(ctx, &client, param.Override[responses.ResponseNewParams](json.RawMessage(given)),
			&toolset.RunOptions{Policy: policy, MaxSteps: steps, RequestOptions: requestOptions, OnDiagnostic: onDiagnostic})
		if !bytes.Equal(given, st.s.Params) {
			st.t.Errorf("the caller's parameters became %s", given)
		}
		if err == nil {
			result["response_id"] = response.ID
		} else if response != nil {
			st.t.Errorf("got response %q with the error %v", response.ID, err)
		}
		result["request_count"] = len(st.requests)
		result["requests"] = st.requests
	}
	if err != nil {
		result["outcome"] = "error"
		result["error_class"] = st.class(err)
	}
	result["driver_calls"], result["driver_methods"] = st.driverCalls, st.methods
	result["approvals"], result["diagnostics"] = st.approvals, st.diagnostics
	result["order"], result["inside"] = st.order, st.inside
	return result
}

// class returns the reason of err and checks that the original error can be found in it.
func (st *stage) class(err error) string {
	var e *toolset.Error
	if !errors.As(err, &e) {
		st.t.Fatalf("got %v, want a *toolset.Error", err)
	}
	originals := map[toolset.Reason][]error{
		toolset.ReasonPolicyFailed: {errPolicy, approve.ErrDenied}, toolset.ReasonDriverFailed: {errDriver},
		toolset.ReasonRequestFailed: {errRequest}, toolset.ReasonCancelled: {errStopped, context.Canceled},
		toolset.ReasonActionDeclined: {approve.ErrDenied}, toolset.ReasonSafetyNotApproved: {approve.ErrDenied},
		toolset.ReasonBusy: {toolset.ErrBusy}, toolset.ReasonClosed: {toolset.ErrClosed},
	}
	for _, original := range originals[e.Reason] {
		if !errors.Is(err, original) {
			st.t.Errorf("%s: got %v, want %v in its chain", e.Reason, err, original)
		}
	}
	return string(e.Reason)
}

// theatre is the one driver that all operations of a case share; it passes on to the current stage.
type theatre struct{ *stage }

func (t *theatre) do(ctx context.Context, a driver.Action) error { _, err := t.act(ctx, a); return err }

func (t *theatre) Click(ctx context.Context, a driver.Click) error             { return t.do(ctx, a) }
func (t *theatre) DoubleClick(ctx context.Context, a driver.DoubleClick) error { return t.do(ctx, a) }
func (t *theatre) Drag(ctx context.Context, a driver.Drag) error               { return t.do(ctx, a) }
func (t *theatre) Keypress(ctx context.Context, a driver.Keypress) error       { return t.do(ctx, a) }
func (t *theatre) Move(ctx context.Context, a driver.Move) error               { return t.do(ctx, a) }
func (t *theatre) Scroll(ctx context.Context, a driver.Scroll) error           { return t.do(ctx, a) }
func (t *theatre) Type(ctx context.Context, a driver.Type) error               { return t.do(ctx, a) }
func (t *theatre) Wait(ctx context.Context, a driver.Wait) error               { return t.do(ctx, a) }

func (t *theatre) Screenshot(ctx context.Context) (*driver.Frame, error) {
	r, err := t.act(ctx, driver.Screenshot{})
	if err != nil {
		return nil, err
	}
	switch {
	case r.Return == nil:
		name := fmt.Sprintf("capture %d", t.counts["screenshot"])
		url := "data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(name))
		t.picture = toolset.Picture{Type: toolset.PictureType, ImageURL: param.NewOpt(url)}
	case string(r.Return) == "null":
		return nil, nil
	default:
		if t.picture, err = decodePicture(r.Return); err != nil {
			t.t.Fatal(err)
		}
	}
	return &driver.Frame{Image: image.NewRGBA(image.Rect(0, 0, 4, 3))}, nil
}

func TestConformance(t *testing.T) {
	data, err := os.ReadFile(vectorsPath())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Format int
		Cases  []vector
	}
	if err := json.Unmarshal(data, &file); err != nil || file.Format != 1 {
		t.Fatalf("got vectors of format %d, %v, want 1", file.Format, err)
	}
	passed, failed, skipped := 0, 0, 0
	for _, v := range file.Cases {
		t.Run(v.Name, func(t *testing.T) {
			defer func() {
				switch {
				case t.Skipped():
					skipped++
				case t.Failed():
					failed++
				default:
					passed++
				}
			}()
			if slices.Contains(v.Tags, "dynamic_value") {
				for _, limit := range inexpressible {
					if limit.in(v.Input) {
						t.Skip(limit.reason)
					}
				}
			}
			v.test(t, true)
			if !slices.ContainsFunc(v.Input.Observer, func(r rule) bool { return r.Cancel }) {
				v.test(t, false)
			}
		})
	}
	fmt.Printf("conformance: %d passed, %d failed, %d skipped\n", passed, failed, skipped)
}

// test plays the case, with or without an observer, which must make no other difference.
func (v vector) test(t *testing.T, observed bool) {
	stages := &theatre{}
	tools, err := toolset.New(stages, &toolset.Options{
		Present: func(context.Context, *image.RGBA) (toolset.Picture, error) { return stages.picture, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	operations := v.Input.Operations
	if v.Kind != "lifecycle" {
		v.Input.Op = v.Kind
		operations = []script{v.Input}
	}
	var results []map[string]any
	for _, s := range operations {
		stages.stage = &stage{t: t, s: s, tools: tools, counts: map[string]int{}}
		results = append(results, stages.play(observed))
	}
	if v.Kind == "lifecycle" {
		want, _ := v.Expected["operations"].([]any)
		if len(want) != len(results) || len(v.Expected) != 1 {
			t.Fatalf("got %d operations, want %v", len(results), v.Expected)
		}
		for i := range want {
			compare(t, fmt.Sprintf("operation %d: ", i), results[i], want[i].(map[string]any), observed)
		}
		return
	}
	if want, ok := v.Expected["request_headers"]; ok {
		compareHeaders(t, stages.headers, want.([]any))
	}
	compare(t, "", results[0], v.Expected, observed)
}

// compare checks every field of want.
func compare(t *testing.T, where string, got, want map[string]any, observed bool) {
	for name, w := range want {
		switch name {
		case "error_detail": // for orientation only
			continue
		case "request_headers": // compared apart
			continue
		case "diagnostics":
			if !observed {
				continue
			}
		case "order":
			if !observed {
				w = slices.DeleteFunc(slices.Clone(w.([]any)), func(entry any) bool {
					return strings.HasPrefix(entry.(string), "diagnostic:")
				})
			}
		}
		g, known := got[name]
		if !known {
			t.Errorf("%sgot nothing for %s, want %v", where, name, w)
			continue
		}
		if g = value(t, g); g == nil {
			g = []any{} // a list to which nothing was added
		}
		if !reflect.DeepEqual(g, w) {
			t.Errorf("%s%s (observed: %v):\n got %s\nwant %s", where, name, observed, toJSON(t, g), toJSON(t, w))
		}
	}
	if _, ok := want["error_class"]; !ok && got["error_class"] != nil {
		t.Errorf("%sgot an error of class %v, want none", where, got["error_class"])
	}
}

func compareHeaders(t *testing.T, got []http.Header, want []any) {
	if len(got) != len(want) {
		t.Fatalf("got headers of %d requests, want %d", len(got), len(want))
	}
	seen := map[string]bool{}
	for i, w := range want {
		for name, text := range w.(map[string]any) {
			g := got[i].Get(name)
			if text == "<fresh>" {
				if g == "" || seen[name+g] {
					t.Errorf("request %d, %s: got %q, want a new key", i+1, name, g)
				}
			} else if g != text {
				t.Errorf("request %d, %s: got %q, want %q", i+1, name, g, text)
			}
			seen[name+g] = true
		}
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

func scribbleBytes(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

// scribble overwrites whatever an action refers to.
func scribble(a driver.Action) {
	for i := range driver.HeldKeys(a) {
		driver.HeldKeys(a)[i] = "#"
	}
	switch a := a.(type) {
	case driver.Drag:
		for i := range a.Path {
			a.Path[i] = image.Pt(-9, -9)
		}
		for _, e := range a.PathExtra {
			scribbleExtra(e)
		}
		scribbleExtra(a.Extra)
	case driver.Keypress:
		for i := range a.Keys {
			a.Keys[i] = "#"
		}
		scribbleExtra(a.Extra)
	case driver.Click:
		scribbleExtra(a.Extra)
	}
}

func scribbleExtra(e driver.Extra) {
	for name, raw := range e {
		scribbleBytes(raw)
		delete(e, name)
	}
}
