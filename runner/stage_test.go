package runner_test

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// A script is the input of a case, or one operation of a sequence.
type script struct {
	Op, Target       string
	Registration     registration
	Params           json.RawMessage
	Options          options
	Responses        []rule
	ClientMaxRetries int `json:"client_max_retries"`
	Turns            []turnScript
	AfterEnd         []action `json:"after_end"`
	Operations       []script
	Inside           []insideOperation
	Cancel           string
	TraceEnds        bool `json:"trace_ends"`
	ScribbleParams   bool `json:"scribble_params"`
}

type registration struct {
	Functions []struct {
		Tool                json.RawMessage
		AllowOutputOverride bool `json:"allow_output_override"`
		Independent, Typed  bool
		NoExecute           bool `json:"no_execute"`
		Answers             []rule
	}
	Computer *struct{ Driver []rule }
	Browser  *struct {
		Members   []string
		Driver    []rule
		Confirm   []rule
		URLPolicy []rule `json:"url_policy"`
	}
	Early *struct {
		Functions []string
		Computer  bool
	}
	ScribbleAfter bool `json:"scribble_after"`
}

type options struct {
	MaxSteps            json.Number `json:"max_steps"`
	MaxConcurrentCalls  int         `json:"max_concurrent_calls"`
	Stream, Eager       bool
	OnEvent             []rule `json:"on_event"`
	ApproveMCP          []rule `json:"approve_mcp"`
	ApproveSafetyChecks []rule `json:"approve_safety_checks"`
	BeforeAction        []rule `json:"before_action"`
	BeforeEarlyCall     []rule `json:"before_early_call"`
	Observer            []rule
	Headers             map[string]string
	RequestOptions      map[string]any `json:"request_options"`
	Ledger              *struct {
		RunID      string `json:"run_id"`
		Save       []rule
		ResumeFrom json.RawMessage `json:"resume_from"`
	}
	ContextBudget *struct {
		MaxInputBytes         json.Number `json:"max_input_bytes"`
		MaxInputImages        json.Number `json:"max_input_images"`
		KeepRecentScreenshots int         `json:"keep_recent_screenshots"`
		Compact               []rule
	} `json:"context_budget"`
}

type rule struct {
	Method, Type       string
	Nth                int
	Return             json.RawMessage
	Raise, RaiseSafe   bool
	Cancel, Scribble   bool
	Linger             bool
	WaitFor            string `json:"wait_for"`
	Response           json.RawMessage
	Events             []json.RawMessage
	Status             int
	ConnectionLost     bool `json:"connection_lost"`
	isEvents, returned bool
}

func (r *rule) UnmarshalJSON(raw []byte) error {
	type plain rule
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return err
	}
	r.isEvents, r.returned = given["events"] != nil, given["return"] != nil
	return json.Unmarshal(raw, (*plain)(r))
}

type insideOperation struct {
	At  string
	Nth int
	script
}

type turnScript struct {
	Step int
	Do   []action
}

type action struct {
	OnTurn         int             `json:"on_turn"`
	SupplyOutputs  json.RawMessage `json:"supply_outputs"`
	AppendUserText json.RawMessage `json:"append_user_text"`
	Scribble       bool
	Cancel, Close  bool
	Break          bool
	script
}

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
	cancel context.CancelFunc
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
		st.cancel()
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

// build makes the runner of the case.
func (w *world) build(r registration) (err error) {
	var reg runner.Registration
	if r.Computer != nil {
		if w.desktop, err = toolset.New((*computer)(w), &toolset.Options{Present: w.present}); err != nil {
			return err
		}
		reg.Computer = w.desktop
	}
	if r.Browser != nil {
		w.browser = &fakeBrowser{members: r.Browser.Members,
			do: func(ctx context.Context, member string, arguments map[string]any) (any, error) {
				return w.browse(ctx, member, arguments)
			},
			ask: func(ctx context.Context, question, about string) (bool, error) {
				w.trace("%s:%s", question, about)
				rules := r.Browser.Confirm
				if question == "url_policy" {
					rules = r.Browser.URLPolicy
				}
				return w.yes(w.enter(question, rules, inOrder(rules)))
			},
		}
		reg.Browser = w.browser
	}
	for _, f := range r.Functions {
		tool := param.Override[responses.FunctionToolParam](json.RawMessage(bytes.Clone(f.Tool)))
		function := runner.Function{Tool: tool}
		name := fmt.Sprint(value(w.t, f.Tool).(map[string]any)["name"])
		execute := func(ctx context.Context, arguments map[string]any) (runner.Output, error) {
			return w.call(runner.CallID(ctx), name, f.Answers, arguments)
		}
		if f.Typed {
			if err := json.Unmarshal(f.Tool, &tool); err != nil {
				return err
			}
			if function, err = runner.Typed(tool, execute); err != nil {
				return err
			}
		} else if !f.NoExecute {
			function.Execute = execute
		}
		function.AllowOutputOverride, function.Independent = f.AllowOutputOverride, f.Independent
		reg.Functions = append(reg.Functions, function)
	}
	if r.Early != nil {
		reg.Early = &runner.Early{Functions: r.Early.Functions, Computer: r.Early.Computer}
	}
	if w.runner, err = runner.New(reg); err != nil {
		return err
	}
	if r.ScribbleAfter {
		for i := range reg.Functions {
			reg.Functions[i] = runner.Function{}
		}
		if reg.Early != nil && len(reg.Early.Functions) > 0 {
			reg.Early.Functions[0] = "#"
		}
	}
	return nil
}

// call is what every function does.
func (st *stage) call(id, name string, answers []rule, arguments map[string]any) (runner.Output, error) {
	n := st.count("call " + name)
	if st.s.TraceEnds { // calls may overlap, and begin in any order
		n = st.place(id, name)
	}
	st.note("function_calls", map[string]any{"name": name, "arguments": value(st.t, arguments)})
	st.trace("call:%s:%d", name, n)
	var r rule
	if n <= len(answers) {
		r = answers[n-1]
	}
	st.enter("call:"+name, nil, nil)
	if r.Scribble {
		for key := range arguments {
			if inner, ok := arguments[key].(map[string]any); ok {
				clear(inner)
			}
			arguments[key] = "#"
		}
	}
	if err := st.leave(r); err != nil {
		return runner.Output{}, err
	}
	if st.s.TraceEnds {
		st.trace("end:%s:%d", name, n)
	}
	if r.returned {
		return param.Override[runner.Output](r.Return), nil
	}
	return runner.Output{OfString: openai.String(fmt.Sprintf("%s result %d", name, n))}, nil
}

// place is the place of a call among those of its function in the order in which they arrive.
func (st *stage) place(id, name string) (n int) {
	for _, r := range st.s.Responses {
		for _, raw := range r.Events {
			var e struct {
				Type string
				Item struct {
					CallID string `json:"call_id"`
					Name   string
				}
			}
			if err := json.Unmarshal(raw, &e); err != nil {
				st.t.Fatal(err)
			}
			if e.Type != "response.output_item.done" || e.Item.Name != name {
				continue
			}
			if n++; e.Item.CallID == id {
				return n
			}
		}
	}
	st.t.Errorf("got a call %q of %s that never came", id, name)
	return 0
}

func (st *stage) browse(_ context.Context, member string, arguments map[string]any) (any, error) {
	st.trace("browser:%s", member)
	if member != "state" {
		st.note("browser_calls", map[string]any{"member": member, "arguments": value(st.t, arguments)})
	}
	var rules []rule
	for _, r := range st.world.s.Registration.Browser.Driver {
		if r.Method == member {
			rules = append(rules, r)
		}
	}
	r := st.enter("browser:"+member, rules, byNth)
	if err := st.leave(r); err != nil {
		return nil, err
	}
	switch {
	case r.returned:
		return value(st.t, r.Return), nil
	case member == "screenshot":
		return fmt.Sprintf("picture:page %d", st.counts["enter browser:screenshot"]), nil
	}
	return fmt.Sprintf("%s text %d", member, st.counts["enter browser:"+member]), nil
}

// computer is the driver.
type computer world

func (c *computer) do(a driver.Action) error {
	st := c.stage
	method := string(a.Kind())
	shown := map[string]any{"method": method}
	if a.Kind() != driver.KindScreenshot {
		shown["action"] = value(st.t, a)
	}
	st.note("driver_calls", shown)
	st.trace("driver:%s", method)
	var rules []rule
	for _, r := range c.s.Registration.Computer.Driver {
		if r.Method == method {
			rules = append(rules, r)
		}
	}
	r := st.enter("driver:"+method, rules, byNth)
	if r.returned {
		st.counts["return"] = 1
		st.shown["return"] = []any{value(st.t, r.Return)}
	}
	return st.leave(r)
}

func (c *computer) Click(_ context.Context, a driver.Click) error             { return c.do(a) }
func (c *computer) DoubleClick(_ context.Context, a driver.DoubleClick) error { return c.do(a) }
func (c *computer) Drag(_ context.Context, a driver.Drag) error               { return c.do(a) }
func (c *computer) Keypress(_ context.Context, a driver.Keypress) error       { return c.do(a) }
func (c *computer) Move(_ context.Context, a driver.Move) error               { return c.do(a) }
func (c *computer) Scroll(_ context.Context, a driver.Scroll) error           { return c.do(a) }
func (c *computer) Type(_ context.Context, a driver.Type) error               { return c.do(a) }
func (c *computer) Wait(_ context.Context, a driver.Wait) error               { return c.do(a) }

func (c *computer) Screenshot(context.Context) (*driver.Frame, error) {
	if err := c.do(driver.Screenshot{}); err != nil {
		return nil, err
	}
	return &driver.Frame{Image: image.NewRGBA(image.Rect(0, 0, 4, 3))}, nil
}

// present is the picture of the screenshot taken last.
func (w *world) present(context.Context, *image.RGBA) (toolset.Picture, error) {
	p := toolset.Picture{Type: toolset.PictureType}
	if scripted := w.shown["return"]; scripted != nil {
		delete(w.shown, "return")
		o, _ := scripted[0].(map[string]any)
		for name, source := range map[string]*param.Opt[string]{"image_url": &p.ImageURL, "file_id": &p.FileID} {
			if text, ok := o[name].(string); ok {
				*source = param.NewOpt(text)
			}
		}
		return p, nil
	}
	name := fmt.Sprintf("capture %d", w.counts["enter driver:screenshot"])
	p.ImageURL = param.NewOpt("data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(name)))
	return p, nil
}

// options are those of the run, with callbacks where the script has answers.
func (st *stage) options(observed bool) (o runner.Options, err error) {
	s := st.s.Options
	steps, err := cmp.Or(s.MaxSteps, "0").Int64()
	if err != nil {
		return o, err
	}
	if s.MaxSteps == "0" {
		steps = -1 // no steps at all; a zero stands for the default here
	}
	o = runner.Options{MaxSteps: int(steps), MaxConcurrentCalls: s.MaxConcurrentCalls, Stream: s.Stream, Eager: s.Eager,
		Headers: s.Headers, Computer: toolset.Policy{Unasked: true}}
	for range s.RequestOptions {
		o.RequestOptions = append(o.RequestOptions, option.WithMaxRetries(1))
	}
	if observed {
		o.OnDiagnostic = st.observe
	}
	if s.Stream {
		o.OnEvent = st.onEvent
	}
	if s.ApproveMCP != nil {
		o.ApproveMCP = func(_ context.Context, r responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
			st.note("mcp_requests_shown", value(st.t, json.RawMessage(r.RawJSON())))
			st.trace("approve_mcp:%s", r.ID)
			return st.yes(st.enter("approve_mcp", s.ApproveMCP, inOrder(s.ApproveMCP)))
		}
	}
	if s.ApproveSafetyChecks != nil {
		o.Computer.SafetyChecks = st.approver(func(q approve.Request) string { return "approve_safety_checks:" + q.CallID }, s.ApproveSafetyChecks)
	}
	if s.BeforeAction != nil {
		o.Computer.Actions = st.approver(func(q approve.Request) string { return "before_action:" + string(q.Action.Kind()) }, s.BeforeAction)
	}
	if s.BeforeEarlyCall != nil {
		o.BeforeEarlyCall = st.beforeEarlyCall
	}
	if s.Ledger != nil {
		o.Ledger = &runner.Ledger{RunID: s.Ledger.RunID, Save: st.save}
		if s.Ledger.ResumeFrom != nil {
			o.Ledger.ResumeFrom = &runner.Checkpoint{}
			if err := json.Unmarshal(st.realTools(s.Ledger.ResumeFrom), o.Ledger.ResumeFrom); err != nil {
				return o, err
			}
		}
	}
	if b := s.ContextBudget; b != nil {
		budget := &runner.ContextBudget{KeepRecentScreenshots: b.KeepRecentScreenshots}
		size, err := cmp.Or(b.MaxInputBytes, "0").Int64()
		images, err2 := b.MaxInputImages.Int64()
		if err := errors.Join(err, err2); err != nil {
			return o, err
		}
		budget.MaxInputBytes, budget.MaxInputImages = int(size), int(images)
		if b.Compact != nil {
			budget.Compact = st.compact
		}
		o.ContextBudget = budget
	}
	return o, nil
}

// realTools puts the browser's declarations where a record only has their marks.
func (st *stage) realTools(record json.RawMessage) json.RawMessage {
	if st.world.browser == nil {
		return record
	}
	v := value(st.t, record).(map[string]any)
	for i, tool := range v["tools"].([]any) {
		if name := tool.(map[string]any)["$browser_tool"]; name != nil {
			for _, real := range st.world.browser.Tools() {
				if real.Name == name {
					v["tools"].([]any)[i] = value(st.t, real)
				}
			}
		}
	}
	return toJSON(st.t, v)
}

func (st *stage) approver(entry func(approve.Request) string, rules []rule) approve.Approver {
	return approve.Func(func(_ context.Context, q approve.Request) (approve.Decision, error) {
		token := entry(q)
		st.trace("%s", token)
		at, _, _ := strings.Cut(token, ":")
		yes, err := st.yes(st.enter(at, rules, inOrder(rules)))
		return approve.Decision(yes), err
	})
}

func (st *stage) observe(d runner.Diagnostic) {
	shown := map[string]any{"api": string(d.API), "stage": string(d.Stage), "reason": string(d.Reason), "call_id": nil,
		"member": nil, "usage": nil}
	if d.CallID != "" || d.Stage != runner.StageRequest {
		shown["call_id"] = d.CallID
	}
	if d.Member != "" {
		shown["member"] = d.Member
	}
	if d.Usage != nil {
		shown["usage"] = value(st.t, d.Usage)
	}
	if d.Duration < 0 {
		st.t.Errorf("got a stage of %v", d.Duration)
	}
	st.note("diagnostics", shown)
	st.trace("diagnostic:%s:%s:%s:%s", d.API, d.Stage, d.Reason, cmp.Or(d.Member, "-"))
	runner.AddUsage(&st.usage, d)
	if d.Usage != nil {
		*d.Usage = toolset.Usage{}
	}
	r := st.enter("observer", st.s.Options.Observer, byNth)
	if st.leave(r) != nil {
		panic(errRaised)
	}
}

func (st *stage) onEvent(_ context.Context, e responses.ResponseStreamEventUnion) error {
	shown := value(st.t, json.RawMessage(e.RawJSON())).(map[string]any)
	token := fmt.Sprint("event:", shown["type"])
	if index, ok := shown["output_index"]; ok {
		token += fmt.Sprint(":", index)
	}
	st.trace("%s", token)
	if st.s.ScribbleParams {
		scribble(st.params)
	}
	ofType := st.count("event " + e.Type)
	r := st.enter("on_event", st.s.Options.OnEvent, func(r rule, nth int) bool {
		if r.Type != "" {
			return r.Type == e.Type && max(r.Nth, 1) == ofType
		}
		return byNth(r, nth)
	})
	if r.Scribble {
		e.Item.Name, e.Item.CallID = "#", "#"
		for i := range e.Response.Output {
			e.Response.Output[i] = responses.ResponseOutputItemUnion{}
		}
	}
	return st.leave(r)
}

func (st *stage) beforeEarlyCall(_ context.Context, c runner.EarlyCall) (runner.EarlyDecision, error) {
	st.note("early_calls_shown", value(st.t, json.RawMessage(c.Item)))
	st.trace("before_early_call:%s", c.CallID)
	rules := st.s.Options.BeforeEarlyCall
	r := st.enter("before_early_call", rules, inOrder(rules))
	if r.Scribble {
		scribble(c.Item)
	}
	err := st.leave(r)
	decision := runner.ExecuteEarly
	if r.returned {
		text, _ := value(st.t, r.Return).(string)
		decision = runner.EarlyDecision(text)
	}
	return decision, err
}

func (st *stage) compact(_ context.Context, s runner.Snapshot) (runner.Compaction, error) {
	st.note("compactions", map[string]any{"history_items": float64(len(s.History)), "eligible": value(st.t, s.Eligible),
		"input_bytes": float64(s.Bytes), "input_images": float64(s.Images)})
	st.trace("compact")
	rules := st.s.Options.ContextBudget.Compact
	r := st.enter("compact", rules, inOrder(rules))
	c := runner.Compaction{Drop: slices.Clone(s.Eligible)}
	if r.returned {
		var answer struct {
			Drop    any
			Summary string
		}
		if err := json.Unmarshal(r.Return, &answer); err != nil {
			st.t.Fatal(err)
		}
		if answer.Drop != "all" {
			c.Drop = nil
			for _, id := range answer.Drop.([]any) {
				c.Drop = append(c.Drop, id.(string))
			}
		}
		c.Summary = answer.Summary
	}
	if r.Scribble {
		for i := range s.History {
			scribble(s.History[i])
		}
		for i := range s.Eligible {
			s.Eligible[i] = "#"
		}
	}
	return c, st.leave(r)
}

func (st *stage) save(_ context.Context, c runner.Checkpoint) error {
	st.note("checkpoints", value(st.t, c))
	st.trace("save:%d:%s", c.Revision, c.Phase)
	r := st.enter("save", st.s.Options.Ledger.Save, byNth)
	if r.Scribble {
		for _, list := range [][]json.RawMessage{c.Tools, c.History, c.PendingItems, c.ReturnedOutputs} {
			for i := range list {
				scribble(list[i])
				list[i] = nil
			}
		}
		for _, list := range [][]string{c.AttemptedCallIDs, c.ReturnedCallIDs, c.OutputOverrideNames} {
			for i := range list {
				list[i] = "#"
			}
		}
	}
	return st.leave(r)
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
		st.cancel()
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
	ctx, st.cancel = context.WithCancel(ctx)
	defer st.cancel()
	if st.s.Cancel == "before_start" {
		st.cancel()
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
		st.cancel()
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
