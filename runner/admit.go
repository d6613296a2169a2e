package runner

import (
	"encoding/json"
	"hash/maphash"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

const encryptedReasoning = "reasoning.encrypted_content"

// admit reads what a run is to do, once, and refuses what it cannot. Nothing has been saved, asked or sent when it
// returns.
func (r *Runner) admit(client *openai.Client, params responses.ResponseNewParams, opts Options) (*run, error) {
	if client == nil {
		return nil, refuse("no client")
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, refuse("the parameters cannot be encoded")
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &body); err != nil || body == nil {
		return nil, refuse("the parameters are not an object")
	}
	if err := checkMode(body); err != nil {
		return nil, err
	}
	if opts.ContextBudget != nil {
		if err := opts.ContextBudget.admit(body); err != nil {
			return nil, err
		}
	}
	d, err := r.declare(body["tools"])
	if err != nil {
		return nil, err
	}
	if d.images && string(body["store"]) == "false" {
		return nil, refuse("image generation needs stored responses, and store is false")
	}
	choice, err := readChoice(body["tool_choice"], d)
	if err != nil {
		return nil, err
	}
	if body["include"], err = including(body["include"]); err != nil {
		return nil, err
	}
	body["tools"] = encode(d.declared)
	input, err := readInput(body["input"])
	if err != nil {
		return nil, err
	}
	run := &run{
		opts:    opts,
		repeats: repeats{seed: maphash.MakeSeed()},
		inspector: &inspector{Runner: r, declaration: d, choice: choice,
			calls: map[string]bool{}, items: map[string]bool{}, approvals: map[string]*approval{}},
	}
	run.requests = newSender(client, body, opts, len(d.servers) > 0)
	if err := run.takeHistory(input); err != nil {
		return nil, err
	}
	return run, nil
}

// checkMode refuses ways of making a request in which the history is not all in the request, or the response not all
// in its answer.
func checkMode(body map[string]json.RawMessage) error {
	for _, name := range []string{"stream", "background"} {
		if v := decoded(body[name]); v != nil && v != false {
			return refuse("%s: not supported as a parameter", name)
		}
	}
	for _, name := range []string{"conversation", "previous_response_id"} {
		if decoded(body[name]) != nil {
			return refuse("%s: not supported, the history is sent with every request", name)
		}
	}
	return nil
}

// including asks for the reasoning in a form that can be sent back.
func including(raw json.RawMessage) (json.RawMessage, error) {
	wishes, isList := decoded(raw).([]any)
	if !isList && decoded(raw) != nil {
		return nil, refuse("include: not a list")
	}
	if !slices.Contains(wishes, any(encryptedReasoning)) {
		wishes = append(wishes, encryptedReasoning)
	}
	return encode(wishes), nil
}

func readInput(raw json.RawMessage) (items []json.RawMessage, err error) {
	switch {
	case raw == nil || string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		return []json.RawMessage{encode(object{"role": "user", "content": raw})}, nil
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, refuse("input: neither a text nor a list")
	}
	return items, nil
}

// takeHistory reads the input, and the record to resume from before it.
func (r *run) takeHistory(input []json.RawMessage) (err error) {
	ledger, budget := r.opts.Ledger, r.opts.ContextBudget
	if budget != nil && len(input) > 0 && ledger == nil {
		if last := input[len(input)-1]; newItem(last).kind == "compaction_trigger" {
			r.trigger, input = &entry{raw: last}, input[:len(input)-1]
		}
	}
	if ledger != nil {
		if r.recordedTools, err = redacted(r.declared); err != nil {
			return err
		}
		if from := ledger.ResumeFrom; from != nil {
			if err := from.fits(r.recordedTools, r.overrides); err != nil {
				return err
			}
			if !freshInput(input) {
				return refuse("input: a run that is resumed needs a new message of the user")
			}
			c := from.clone()
			input = slices.Concat(c.History, input)
			r.step, r.revision = c.ConsumedRequests, c.Revision
			r.receipts = receipts{attempted: c.AttemptedCallIDs, completed: c.ReturnedCallIDs}
		}
	}
	im := &importer{inspector: r.inspector, strict: ledger != nil || budget != nil, references: ledger == nil}
	if r.history, r.unused, err = im.read(input); err != nil {
		return err
	}
	if r.step >= r.opts.MaxSteps {
		r.unused = nil // there is no request left that could use them
	}
	for _, g := range r.unused {
		if !r.choice.admits(g.request) {
			return refuse("input: an MCP approval that tool_choice excludes")
		}
		if err := r.checkPolicy(g.request); err != nil {
			return refuse("input: %v", err)
		}
	}
	return nil
}
