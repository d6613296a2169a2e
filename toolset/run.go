package toolset

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// DefaultMaxSteps is how many requests a run may make when nothing else is said.
const DefaultMaxSteps = 20

// RunOptions are the choices of one run.
type RunOptions struct {
	Policy Policy
	// MaxSteps bounds the requests; retries of one request by the client count once. The last permitted response
	// starts no action. Omitted: [DefaultMaxSteps]; null and values below 1 are errors.
	MaxSteps param.Opt[int64]
	// RequestOptions go with every request. An Idempotency-Key in them, or in the client, is used for the first
	// request; each later one gets a new key of its own.
	RequestOptions []option.RequestOption
	// OnResponse gets each response, as it was received, before it is checked and before any of its actions.
	// Steps count from 1.
	OnResponse func(step int, response json.RawMessage)
	// OnDiagnostic takes the place of that of [Options].
	OnDiagnostic func(Diagnostic)
}

// Run lets the model work: it sends params, carries out the calls of the response, sends their outputs with the
// whole history, and so on until a response has no call but a finished message, which it returns. A nil opts
// declines everything, so that Run ends at the first call.
//
// params must leave the tools to Run or name the computer tool alone, may not stream, run in the background, or
// continue a stored conversation. They are read once, at the start. A tool_choice that forces the computer tool
// is honoured by the first request and becomes auto afterwards. A response is checked whole before any of its
// actions; a failed request is never a reason to repeat one.
//
// ctx reaches the driver, the approvers and the requests; when it is done, Run stops before the next step and
// returns an error that wraps its cause.
func (t *Toolset) Run(ctx context.Context, client *openai.Client, params responses.ResponseNewParams, opts *RunOptions) (*responses.Response, error) {
	if err := t.begin(); err != nil {
		return nil, err
	}
	defer t.end()
	if opts == nil {
		opts = &RunOptions{}
	}
	limit, talk, err := startRun(client, params, opts)
	if err != nil {
		return nil, fail(ReasonBadRequest, "starting a run: %w", err)
	}
	for step := int64(1); ; step++ {
		response, err := t.step(ctx, talk, step, step == limit, opts)
		if response != nil || err != nil {
			return response, err
		}
	}
}

func startRun(client *openai.Client, params responses.ResponseNewParams, opts *RunOptions) (limit int64, c *conversation, err error) {
	limit = opts.MaxSteps.Or(DefaultMaxSteps)
	if limit < 1 || param.IsNull(opts.MaxSteps) {
		return 0, nil, fmt.Errorf("at most %v steps, want 1 or more", opts.MaxSteps)
	}
	if client == nil {
		return 0, nil, errors.New("no client")
	}
	body, err := json.Marshal(params)
	if err != nil {
		return 0, nil, err
	}
	c, err = newConversation(body)
	if err != nil {
		return 0, nil, err
	}
	c.client = client
	return limit, c, nil
}

// step makes one request and carries out the calls of the response. It returns the response that ends the run,
// nil when the run goes on.
func (t *Toolset) step(ctx context.Context, c *conversation, n int64, last bool, opts *RunOptions) (*responses.Response, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	t.seen = t.latest
	response, err := c.send(ctx, n, opts.RequestOptions)
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, fail(ReasonRequestFailed, "request %d: %w", n, err)
	}
	if opts.OnResponse != nil {
		t.observe("responses", func() { opts.OnResponse(int(n), json.RawMessage(response.RawJSON())) })
		if err := cancelled(ctx); err != nil {
			return nil, err
		}
	}
	turn, err := readTurn(json.RawMessage(response.RawJSON()), c.known)
	switch {
	case err != nil:
		return nil, err
	case len(turn.calls) == 0 && !turn.final:
		return nil, fail(ReasonNoFinalMessage, "response %d has no call and no finished message", n)
	case len(turn.calls) == 0:
		return response, nil
	case last:
		return nil, fail(ReasonMaxSteps, "response %d, the last one permitted, asks for more actions", n)
	}
	outputs, err := t.perform(ctx, turn.calls, t.gate(opts.Policy, opts.OnDiagnostic))
	if err != nil {
		return nil, err
	}
	c.input = slices.Concat(c.input, turn.items, outputs)
	return nil, nil
}

// A conversation is what is sent: the parameters and the history, which only grows.
type conversation struct {
	client *openai.Client
	body   object // all but the input
	input  []json.RawMessage
	known  *identities
}

const encryptedReasoning = "reasoning.encrypted_content"

func newConversation(params json.RawMessage) (*conversation, error) {
	body, err := parseObject(params)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"stream", "background"} {
		if raw := body[name]; raw != nil && !isNull(raw) && string(raw) != "false" {
			return nil, fmt.Errorf("%s: %s is not supported", name, quote(raw))
		}
	}
	for _, name := range []string{"conversation", "previous_response_id"} {
		if raw := body[name]; raw != nil && !isNull(raw) {
			return nil, fmt.Errorf("%s: %s is not supported, the history is sent with every request", name, quote(raw))
		}
	}
	c := &conversation{body: body}
	if err := c.addTool(); err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	if err := c.addInclude(); err != nil {
		return nil, fmt.Errorf("include: %w", err)
	}
	if err := c.takeInput(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *conversation) addTool() error {
	raw, ok := c.body["tools"]
	if !ok {
		c.body["tools"] = json.RawMessage(`[{"type":"computer"}]`)
		return nil
	}
	tools, err := parseList(raw)
	if err != nil {
		return err
	}
	if len(tools) != 1 {
		return fmt.Errorf("%d of them, want the computer tool alone", len(tools))
	}
	return fields{{"type", oneOf("computer", "computer_use_preview")}}.check(tools[0])
}

// addInclude asks for the reasoning in a form that can be sent back, because nothing is stored.
func (c *conversation) addInclude() error {
	var wishes []json.RawMessage
	if raw := c.body["include"]; raw != nil && !isNull(raw) {
		var err error
		if wishes, err = parseList(raw); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(wishes, func(raw json.RawMessage) bool { return parseText(raw) == encryptedReasoning }) {
		wishes = append(wishes, marshal(encryptedReasoning))
	}
	c.body["include"] = marshal(wishes)
	return nil
}

func (c *conversation) takeInput() (err error) {
	raw, ok := c.body["input"]
	switch {
	case !ok:
	case text(raw) == nil:
		c.input = []json.RawMessage{marshal(object{"role": marshal("user"), "content": raw})}
	default:
		if c.input, err = parseList(raw); err != nil {
			return fmt.Errorf("input: %w", err)
		}
	}
	c.known, err = newIdentities(c.input)
	return err
}

// send makes one request. Nothing in it depends on what the caller may have changed since the start.
func (c *conversation) send(ctx context.Context, step int64, options []option.RequestOption) (*responses.Response, error) {
	body := maps.Clone(c.body)
	body["input"] = marshal(append([]json.RawMessage{}, c.input...)) // an empty history is [], not null
	if step > 1 {
		if choice := body["tool_choice"]; choice != nil {
			body["tool_choice"] = released(choice)
		}
		options = append(slices.Clip(options), option.WithMiddleware(FreshKey()))
	}
	return c.client.Responses.New(ctx, param.Override[responses.ResponseNewParams](marshal(body)), options...)
}

// released is a tool_choice that no longer forces a call: once is what was asked for, and for ever would mean
// that the model could never finish.
func released(choice json.RawMessage) json.RawMessage {
	auto := json.RawMessage(`"auto"`)
	if parseText(choice) == "required" {
		return auto
	}
	o, err := parseObject(choice)
	if err != nil {
		return choice
	}
	switch parseText(o["type"]) {
	case "computer", "computer_use", "computer_use_preview":
		return auto
	case "allowed_tools":
		if parseText(o["mode"]) == "required" {
			o["mode"] = auto
			return marshal(o)
		}
	}
	return choice
}

// FreshKey replaces an Idempotency-Key by one that is new for this request and the same in all its retries. The
// caller's own key belongs to the first request: sent again with another body, it would be answered with the
// first response or refused.
func FreshKey() option.Middleware {
	key := "deskagent-" + rand.Text()
	return func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if r.Header.Get("Idempotency-Key") != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		return next(r)
	}
}
