package runner

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/openai/openai-go/v3/responses"
)

// A Turn is one response, checked and shown before its calls are carried out. What it holds are copies. Its methods may
// be called from several goroutines while the loop is in the turn, and are errors afterwards.
type Turn struct {
	Response *responses.Response
	Step     int // requests so far, this one included
	// Final says that the response asks for nothing more. Otherwise going on carries out its calls.
	Final bool
	// ToolsExecuted says that calls of this response have run early.
	ToolsExecuted bool
	// AttemptedCallIDs and CompletedCallIDs are those of the run so far; see [Error].
	AttemptedCallIDs, CompletedCallIDs []string

	run      *run
	response json.RawMessage
	items    []*item
	calls    []*call
	record   Diagnostic // of the request

	mu      sync.Mutex // guards what follows
	current bool
	outputs map[string]entry // supplied, by call id
	texts   []string         // of the user
}

func (t *Turn) raws() []json.RawMessage {
	list := make([]json.RawMessage, len(t.items))
	for i, it := range t.items {
		list[i] = it.raw
	}
	return list
}

// show yields the turn. Its methods work until yield returns.
func (t *Turn) show(yield func(*Turn, error) bool) bool {
	t.ToolsExecuted = len(t.run.outputs) > 0
	t.AttemptedCallIDs = slices.Clone(t.run.receipts.attempted)
	t.CompletedCallIDs = slices.Clone(t.run.receipts.completed)
	t.setCurrent(true)
	defer t.setCurrent(false)
	return yield(t, nil)
}

func (t *Turn) setCurrent(current bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = current
}

// SupplyOutputs gives the outputs of calls that then are not carried out. They may only be for functions registered
// with [Function.AllowOutputOverride] that have not run early. Each entry holds a call id and an output and nothing
// else. The list takes the place of the one supplied before; one that is refused leaves that in force.
func (t *Turn) SupplyOutputs(outputs []responses.ResponseInputItemFunctionCallOutputParam) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.current {
		return refuse("supplying outputs: the turn is over")
	}
	supplied := map[string]entry{}
	for i, output := range outputs {
		raw, err := json.Marshal(output)
		if err != nil {
			return refuse("supplying outputs: outputs[%d] cannot be encoded", i)
		}
		o := decodeObject(raw)
		if !suppliedOutput.closed(o) {
			return refuse("supplying outputs: outputs[%d] is not a call id and an output alone", i)
		}
		id := textOf(o["call_id"])
		if _, twice := supplied[id]; twice || !t.open(id) {
			return refuse("supplying outputs: outputs[%d] is not for a call that is open to it, or comes twice", i)
		}
		supplied[id] = newEntry(raw, o)
	}
	t.outputs = supplied
	return nil
}

var suppliedOutput = fields{"type": oneOf("function_call_output"), "call_id": text, "output": functionOutput}

// open reports whether an output may be supplied for a call of this turn.
func (t *Turn) open(callID string) bool {
	return slices.ContainsFunc(t.calls, func(c *call) bool {
		return c.id == callID && c.kind == functionCall && !c.done && c.tool.function.AllowOutputOverride
	})
}

// supplied is the output that was supplied for a call. A nil turn has none.
func (t *Turn) supplied(callID string) (entry, bool) {
	if t == nil {
		return entry{}, false
	}
	output, ok := t.outputs[callID]
	return output, ok
}

// AppendUserText says something to the model, after the outputs of this turn, which may not be final. Several texts keep
// their order.
func (t *Turn) AppendUserText(text string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.current:
		return refuse("appending a text: the turn is over")
	case t.Final:
		return refuse("appending a text: no request follows the final turn")
	case strings.TrimFunc(text, blank) == "":
		return refuse("appending a text: it is blank")
	}
	t.texts = append(t.texts, text)
	return nil
}
