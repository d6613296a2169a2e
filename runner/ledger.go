package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
)

// A Ledger keeps a record of a run, so that after a crash it is known what may have happened and what has not, and so
// that a run that was interrupted between two turns can go on.
//
// A record never allows a call to be repeated. One whose phase is pending says which calls were attempted: compare that
// with the desktop and with the MCP servers as they are now, and begin a new run.
type Ledger struct {
	// RunID names the run. It may not be empty.
	RunID string
	// Save commits a record before it returns, and refuses one whose revision is not higher than that of the last.
	// It gets a copy of its own. An error ends the run. Only one process may own a ledger at a time; that is for
	// the caller to see to.
	Save func(context.Context, Checkpoint) error
	// ResumeFrom is a record of phase boundary to go on from; nil for a new run. The input of the parameters must
	// then hold a new message of the user; it is put after the history of the record. Approvals of MCP calls that
	// were not used are asked for again.
	ResumeFrom *Checkpoint
}

// Phase is what the run is in the middle of.
type Phase string

// The phases.
const (
	PhaseBoundary Phase = "boundary" // nothing: every call has its output in the history
	PhasePending  Phase = "pending"  // a turn, or a request with hosted tools, which may act on their own
	PhaseFinal    Phase = "final"    // the run has its answer
)

// checkpointVersion is that of the record's format.
const checkpointVersion = 1

// A Checkpoint is the whole record of a run at one moment, in the API's own JSON where it holds items. All of it is
// private data of the application: credentials are taken out of the tools, out of nothing else.
type Checkpoint struct {
	Version          int    `json:"version"`
	RunID            string `json:"run_id"`
	Revision         int    `json:"revision"` // one more with every save
	Phase            Phase  `json:"phase"`
	MaxSteps         int    `json:"max_steps"`
	ConsumedRequests int    `json:"consumed_requests"`
	// Tools are all tools of the run. Credentials of MCP servers and containers are left out, and the address of a
	// server is a digest that does not depend on them.
	Tools []json.RawMessage `json:"tools"`
	// OutputOverrideNames are the functions whose outputs may be supplied, sorted.
	OutputOverrideNames []string `json:"output_override_names"`
	// History is the input of the next request, but for what PendingItems and ReturnedOutputs hold.
	History          []json.RawMessage `json:"history"`
	AttemptedCallIDs []string          `json:"attempted_call_ids"`
	ReturnedCallIDs  []string          `json:"returned_call_ids"`
	// PendingItems are the items of the current response, ReturnedOutputs the outputs of its calls so far.
	PendingItems    []json.RawMessage `json:"pending_items"`
	ReturnedOutputs []json.RawMessage `json:"returned_outputs"`
	// FinalResponse is null, or the response that ended the run.
	FinalResponse json.RawMessage `json:"final_response"`
}

// Uncertain are the calls that were attempted and have not returned: each of them may have had its effect.
func (c *Checkpoint) Uncertain() []string {
	return slices.DeleteFunc(slices.Clone(c.AttemptedCallIDs), func(id string) bool { return slices.Contains(c.ReturnedCallIDs, id) })
}

// UnmarshalJSON accepts exactly the fields of a record.
func (c *Checkpoint) UnmarshalJSON(raw []byte) error {
	type plain Checkpoint
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return refuse("record: not an object")
	}
	for _, name := range checkpointFields {
		if given[name] == nil {
			return refuse("record: %s is missing", name)
		}
		delete(given, name)
	}
	if len(given) > 0 {
		return refuse("record: unknown fields")
	}
	if err := json.Unmarshal(raw, (*plain)(c)); err != nil {
		return refuse("record: malformed")
	}
	return nil
}

var checkpointFields = []string{"version", "run_id", "revision", "phase", "max_steps", "consumed_requests", "tools",
	"output_override_names", "history", "attempted_call_ids", "returned_call_ids", "pending_items", "returned_outputs",
	"final_response"}

// clone returns a deep copy without nil lists.
func (c Checkpoint) clone() Checkpoint {
	for _, list := range []*[]json.RawMessage{&c.Tools, &c.History, &c.PendingItems, &c.ReturnedOutputs} {
		copied := make([]json.RawMessage, len(*list))
		for i, raw := range *list {
			copied[i] = bytes.Clone(raw)
		}
		*list = copied
	}
	for _, list := range []*[]string{&c.OutputOverrideNames, &c.AttemptedCallIDs, &c.ReturnedCallIDs} {
		*list = append([]string{}, *list...)
	}
	c.FinalResponse = bytes.Clone(c.FinalResponse)
	return c
}

// check refuses a ledger that cannot be used with o.
func (l *Ledger) check(o *Options) error {
	switch {
	case l.RunID == "":
		return refuse("ledger: no run id")
	case l.Save == nil:
		return refuse("ledger: nothing to save with")
	case len(o.RequestOptions) > 0:
		return refuse("ledger: request options could repeat a request or change what is recorded; use Headers and Timeout")
	case l.ResumeFrom == nil:
		return nil
	}
	c := l.ResumeFrom
	switch {
	case c.Version != checkpointVersion:
		return refuse("record: of another version")
	case c.Revision < 1:
		return refuse("record: it was never saved")
	case c.Phase != PhaseBoundary || len(c.PendingItems) > 0 || len(c.ReturnedOutputs) > 0 ||
		len(c.FinalResponse) > 0 && string(c.FinalResponse) != "null":
		return refuse("record: not at a boundary between two turns, so that it is not known what has happened")
	case c.RunID != l.RunID:
		return refuse("record: of another run")
	case c.MaxSteps < 1 || c.MaxSteps != o.MaxSteps:
		return refuse("record: of a run with another step limit")
	case c.ConsumedRequests < 0 || c.ConsumedRequests > c.MaxSteps:
		return refuse("record: %d requests of at most %d", c.ConsumedRequests, c.MaxSteps)
	case !slices.Equal(c.AttemptedCallIDs, c.ReturnedCallIDs):
		return refuse("record: a call was attempted that has not returned")
	}
	return nil
}

// fits refuses a record that was made with other tools, or whose receipts are not in its history.
func (c *Checkpoint) fits(tools []json.RawMessage, overrides []string) error {
	if !slices.Equal(c.OutputOverrideNames, overrides) {
		return refuse("record: of a run with other functions open to supplied outputs")
	}
	if !slices.EqualFunc(c.Tools, tools, sameJSON) {
		return refuse("record: of a run with other tools")
	}
	answered := map[string]bool{}
	for _, raw := range c.History {
		o := decodeObject(raw)
		switch textOf(o["type"]) {
		case "function_call_output", "computer_call_output":
			answered[textOf(o["call_id"])] = true
		case "mcp_approval_response":
			answered[textOf(o["approval_request_id"])] = true
		}
	}
	for _, id := range c.AttemptedCallIDs {
		if !answered[id] {
			return refuse("record: a call that has returned, once, is not answered in the history")
		}
		delete(answered, id)
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	v, err := decode(a)
	w, err2 := decode(b)
	return err == nil && err2 == nil && bytes.Equal(encode(v), encode(w))
}

// freshInput reports whether items hold a new message of the user that says something.
func freshInput(items []json.RawMessage) bool {
	return slices.ContainsFunc(items, func(raw json.RawMessage) bool {
		o := decodeObject(raw)
		if o["role"] != "user" || !oneOf("message")(o["type"]) && !missing(at(o, "type")) {
			return false
		}
		blocks, ok := o["content"].([]any)
		if !ok {
			return nonblank(o["content"])
		}
		return slices.ContainsFunc(blocks, func(v any) bool {
			b, _ := v.(object)
			return b["type"] != "input_text" || nonblank(b["text"])
		})
	})
}
