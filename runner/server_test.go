package runner_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// A bench is a server on the loopback with a scripted answer to each request, functions f and g, and a trace of what
// happened.
type bench struct {
	*testing.T
	server  *httptest.Server
	replies []reply

	mu      sync.Mutex // guards what follows
	trace   []string
	bodies  []map[string]any
	raw     []string
	headers []http.Header
}

// A reply answers one request: with a status and a body, or with a stream.
type reply struct {
	status int
	body   string
	stream bool
	run    func() // before the answer
}

// newBench makes the server answer with replies, in order.
func newBench(t *testing.T, replies ...reply) *bench {
	b := &bench{T: t, replies: replies}
	b.server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.server.Close)
	return b
}

func (b *bench) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var v map[string]any
	if err = errors.Join(err, json.Unmarshal(body, &v)); err != nil {
		b.Errorf("request %s: %v", body, err)
	}
	b.mu.Lock()
	b.bodies, b.raw, b.headers = append(b.bodies, v), append(b.raw, string(body)), append(b.headers, r.Header.Clone())
	n := len(b.bodies)
	b.mu.Unlock()
	b.note(fmt.Sprintf("request %d", n))
	if n > len(b.replies) {
		b.Errorf("got request %d, want no more than %d", n, len(b.replies))
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	reply := b.replies[n-1]
	if reply.run != nil {
		reply.run()
	}
	w.Header().Set("Content-Type", "application/json")
	if reply.stream {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	w.Header().Set("Retry-After-Ms", "1")
	w.WriteHeader(reply.status)
	io.WriteString(w, reply.body)
}

func (b *bench) note(entry string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trace = append(b.trace, entry)
}

func (b *bench) client(opts ...option.RequestOption) *openai.Client {
	client := openai.NewClient(append([]option.RequestOption{option.WithBaseURL(b.server.URL), option.WithAPIKey("none")}, opts...)...)
	return &client
}

// requests is how many requests came.
func (b *bench) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.bodies)
}

// input is that of request n, from 1: one line for each item.
func (b *bench) input(n int) (lines []string) {
	b.Helper()
	if n > b.requests() {
		b.Fatalf("got %d requests, want %d", b.requests(), n)
	}
	items, _ := b.bodies[n-1]["input"].([]any)
	for _, v := range items {
		o := v.(map[string]any)
		line := fmt.Sprint(firstOf(o["type"], o["role"]))
		for _, name := range []string{"call_id", "approval_request_id", "approve", "id", "content"} {
			if text, ok := o[name]; ok {
				line += fmt.Sprint(" ", text)
				break
			}
		}
		if output, ok := o["output"].(string); ok {
			line += " " + output
		}
		lines = append(lines, line)
	}
	return lines
}

// function is a function that notes its calls and returns its name.
func (b *bench) function(name string) runner.Function {
	return runner.Function{Tool: responses.FunctionToolParam{Name: name}, Execute: func(context.Context, map[string]any) (runner.Output, error) {
		b.note(name)
		return output(name + " done"), nil
	}}
}

func (b *bench) runner(r runner.Registration) *runner.Runner {
	b.Helper()
	if r.Functions == nil {
		r.Functions = []runner.Function{b.function("f"), b.function("g")}
	}
	run, err := runner.New(r)
	if err != nil {
		b.Fatal(err)
	}
	return run
}

// run makes a run with f and g.
func (b *bench) run(params string, opts runner.Options) (*responses.Response, error) {
	b.Helper()
	return b.runner(runner.Registration{}).Run(b.Context(), b.client(), request(params), opts)
}

// computer is a desktop that notes its calls.
func (b *bench) computer() *toolset.Toolset {
	b.Helper()
	tools, err := toolset.New(&desktop{bench: b}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return tools
}

// browser is a browser whose member of the given name fails.
func (b *bench) browser(failing string, members ...string) *fakeBrowser {
	return &fakeBrowser{members: members, do: func(_ context.Context, member string, _ map[string]any) (any, error) {
		if member == "state" {
			return nil, nil
		}
		b.note(member)
		if member == failing {
			return nil, errRaised
		}
		return member + " done", nil
	}}
}

// A desktop is a driver that only notes what it is told.
type desktop struct {
	bench   *bench
	inside  func(kind driver.Kind) error // runs in every method
	clicked func(image.Point)            // gets each click
	painted uint8                        // the colour of the screen
	size    image.Point                  // of the screen; zero for 8x6
}

func (d *desktop) do(a driver.Action) error {
	d.bench.note(string(a.Kind()))
	if d.inside != nil {
		return d.inside(a.Kind())
	}
	return nil
}

func (d *desktop) Click(_ context.Context, a driver.Click) error {
	if d.clicked != nil {
		d.clicked(image.Pt(a.X, a.Y))
	}
	return d.do(a)
}

func (d *desktop) DoubleClick(_ context.Context, a driver.DoubleClick) error { return d.do(a) }
func (d *desktop) Drag(_ context.Context, a driver.Drag) error               { return d.do(a) }
func (d *desktop) Keypress(_ context.Context, a driver.Keypress) error       { return d.do(a) }
func (d *desktop) Move(_ context.Context, a driver.Move) error               { return d.do(a) }
func (d *desktop) Scroll(_ context.Context, a driver.Scroll) error           { return d.do(a) }
func (d *desktop) Type(_ context.Context, a driver.Type) error               { return d.do(a) }
func (d *desktop) Wait(_ context.Context, a driver.Wait) error               { return d.do(a) }

func (d *desktop) Screenshot(context.Context) (*driver.Frame, error) {
	if err := d.do(driver.Screenshot{}); err != nil {
		return nil, err
	}
	picture := image.NewRGBA(image.Rectangle{Max: cmp.Or(d.size, image.Pt(8, 6))})
	for i := range picture.Pix {
		picture.Pix[i] = d.painted
	}
	return &driver.Frame{Image: picture}, nil
}

// allowed lets computer actions run unasked.
var allowed = toolset.Policy{Unasked: true}

func output(text string) runner.Output { return runner.Output{OfString: openai.String(text)} }

// request makes parameters of their JSON; a text that is none is the input.
func request(params string) responses.ResponseNewParams {
	if !strings.HasPrefix(params, "{") {
		params = fmt.Sprintf(`{"model":"m","input":%q}`, params)
	}
	return param.Override[responses.ResponseNewParams](json.RawMessage(params))
}

// answers replies with a completed response of these items; they are numbered so that responses differ.
func answers(items ...string) reply {
	return reply{status: http.StatusOK, body: completed(items...)}
}

func completed(items ...string) string {
	return fmt.Sprintf(`{"id":"resp","status":"completed","output":[%s],"usage":{"input_tokens":10,"output_tokens":2,"total_tokens":12}}`,
		strings.Join(items, ","))
}

// fails replies with a status.
func fails(status int) reply {
	return reply{status: status, body: `{"error":{"message":"secret-text","type":"t","code":"server_error"}}`}
}

// streams replies with a stream of events.
func streams(events ...string) reply {
	var body strings.Builder
	for _, e := range events {
		fmt.Fprintf(&body, "data: %s\n\n", e)
	}
	return reply{status: http.StatusOK, body: body.String(), stream: true}
}

// streamed is the stream of a response with these items.
func streamed(items ...string) reply {
	events := []string{`{"type":"response.created","response":{"id":"resp"}}`}
	for i, item := range items {
		events = append(events, itemDone(i, item))
	}
	return streams(append(events, terminal(items...))...)
}

func itemDone(index int, item string) string {
	return fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, index, item)
}

func terminal(items ...string) string {
	return fmt.Sprintf(`{"type":"response.completed","response":%s}`, completed(items...))
}

// fc is a completed call of f, fcOf of another function, with arguments.
func fc(callID string) string { return fcOf(callID, "f", "{}") }

func fcOf(callID, name, arguments string) string {
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%[1]q,"name":%q,"arguments":%q,"status":"completed"}`,
		callID, name, arguments)
}

// cc is a completed computer call.
func cc(callID, actions string) string {
	return fmt.Sprintf(`{"type":"computer_call","id":"cu_%s","call_id":%[1]q,"status":"completed","actions":[%s]}`, callID, actions)
}

const (
	clickAction      = `{"type":"click","x":1,"y":2,"button":"left"}`
	screenshotAction = `{"type":"screenshot"}`
)

// page is a browser call.
func page(callID, member string) string {
	arguments := `{"tab_id":null}`
	if member == "read_page" {
		arguments = `{"tab_id":null,"filter":"all"}`
	}
	return fcOf(callID, "browser_"+member, arguments)
}

// said is a completed message.
func said(id string) string {
	return fmt.Sprintf(`{"type":"message","id":%q,"role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}`, id)
}

// asks is an approval request of an MCP server, called one that it made a call.
func asks(id string) string {
	return fmt.Sprintf(`{"type":"mcp_approval_request","id":%q,"server_label":"crm","name":"lookup","arguments":"{\"q\":1}"}`, id)
}

func called(id, approval string) string {
	return fmt.Sprintf(`{"type":"mcp_call","id":%q,"server_label":"crm","name":"lookup","arguments":"{\"q\":1}","output":"found"%s}`, id, approval)
}

// crm are parameters with the MCP server crm.
func crm(policy string) string {
	return fmt.Sprintf(`{"model":"m","input":"Go.","tools":[{"type":"mcp","server_label":"crm","server_url":"https://mcp.example.com/sse"%s}]}`, policy)
}

// wantReason checks why a run ended, and the ids of its error.
func wantReason(t *testing.T, err error, reason runner.Reason, attempted, completed []string) {
	t.Helper()
	e, ok := errors.AsType[*runner.Error](err)
	if !ok || e.Reason != reason || !slices.Equal(e.AttemptedCallIDs, attempted) || !slices.Equal(e.CompletedCallIDs, completed) {
		t.Fatalf("got %#v, want reason %s, attempted %q, completed %q", err, reason, attempted, completed)
	}
}

// wantConfig checks that a run was refused.
func wantConfig(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*runner.ConfigError](err); !ok {
		t.Errorf("got %T %v, want a *ConfigError", err, err)
	}
}

func wantOK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
