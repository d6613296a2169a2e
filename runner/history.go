package runner

import (
	"encoding/json"

	"github.com/deskagent/deskagent/toolset"
)

// An entry is one item of the history, which is what the next request is made of.
type entry struct {
	raw    json.RawMessage
	callID string // of calls and their outputs
	name   string // of function calls
	kind   entryKind
	images int
	checks bool // pending safety checks of a call, acknowledged ones of an output
	size   int  // see measure; 0 until it was measured
}

type entryKind int

const (
	otherEntry entryKind = iota
	callEntry            // of a function or the browser
	computerEntry
	outputEntry // of either
)

// newEntry describes an item. The fields are those of raw, decoded.
func newEntry(raw json.RawMessage, o object) entry {
	e := entry{raw: raw, callID: textOf(o["call_id"])}
	switch textOf(o["type"]) {
	case "function_call":
		e.kind, e.name = callEntry, textOf(o["name"])
	case "computer_call":
		checks, _ := o["pending_safety_checks"].([]any)
		e.kind, e.checks = computerEntry, len(checks) > 0
	case "function_call_output":
		e.kind, e.images = outputEntry, images(o["output"])
	case "computer_call_output":
		checks, _ := o["acknowledged_safety_checks"].([]any)
		e.kind, e.images, e.checks = outputEntry, 1, len(checks) > 0
	case "message", "":
		e.images = images(o["content"])
	}
	return e
}

func userMessage(text string) entry {
	return entry{raw: encode(object{"role": "user", "content": text})}
}

func (e entry) hasCall() bool { return e.kind == callEntry || e.kind == computerEntry }

func raws(entries []entry) []json.RawMessage {
	list := make([]json.RawMessage, len(entries))
	for i, e := range entries {
		list[i] = e.raw
	}
	return list
}

// An importer reads the history that a run begins with. Ids and MCP items are checked in any case; everything else only
// where the history has to be taken apart or kept, that is, strictly.
type importer struct {
	*inspector
	strict     bool
	references bool // item_reference is allowed although strict

	defined map[string]bool   // ids of items, without those of references
	open    map[string]*item  // calls without an output so far; filled when strict
	grants  map[string]*grant // by the id of the MCP approval request
	order   []*grant          // those that were answered with yes
}

// A grant is an MCP approval request of an earlier run.
type grant struct {
	request *item
	answer  int // its index in the history; -1 while there is none
}

// What an input may hold that no response does, or in another form.
var (
	messageParts = either(inputBlocks,
		both(fields{"type": oneOf("output_text")}.open, outputText.open),
		fields{"type": oneOf("refusal"), "refusal": text}.open)
	screenshot = both(fields{"type": oneOf("computer_screenshot"), "image_url": maybe(nonblank),
		"file_id": maybe(nonblank)}.open, has("image_url", "file_id"))
	mcpAnswer = fields{"approval_request_id": text, "approve": boolean}

	inputItems = map[string]fields{
		"message": {"type": optional(oneOf("message")), "role": oneOf("user", "system", "developer", "assistant"),
			"content": either(text, listOf(messageParts))},
		"reasoning":            {"id": text, "summary": summaries, "content": maybe(reasons), "encrypted_content": maybe(text)},
		"compaction":           {"encrypted_content": text},
		"function_call":        modelItems["function_call"],
		"function_call_output": {"call_id": text, "output": functionOutput},
		"computer_call_output": {"call_id": text, "output": screenshot,
			"acknowledged_safety_checks": maybe(listOf(fields{"id": text}.open))},
	}
)

// read checks the items and describes them. It returns as well the grants that no call has used so far, in order.
func (im *importer) read(items []json.RawMessage) (history []entry, unused []*grant, err error) {
	im.defined, im.open, im.grants = map[string]bool{}, map[string]*item{}, map[string]*grant{}
	for i, raw := range items {
		it := newItem(raw)
		if it.fields == nil {
			return nil, nil, refuse("input[%d]: not an object", i)
		}
		if it.kind == "" && missing(at(it.fields, "role")) {
			it.kind = "item_reference"
		}
		problem := im.add(it, i)
		if problem == "" && im.strict {
			problem = im.checkStrictly(it)
		}
		if problem != "" {
			return nil, nil, refuse("input[%d]: %s", i, problem)
		}
		history = append(history, newEntry(raw, it.fields))
	}
	if len(im.open) > 0 {
		return nil, nil, refuse("input: a call without an output")
	}
	for _, g := range im.grants {
		if g.answer < 0 {
			return nil, nil, refuse("input: an MCP approval request without an answer")
		}
	}
	for _, g := range im.order {
		if !im.approvals[textOf(g.request.fields["id"])].used {
			unused = append(unused, g)
		}
	}
	return history, unused, nil
}

// add enters the ids of an item, and its MCP side, and says what is wrong with them.
func (im *importer) add(it *item, index int) (problem string) {
	if id := textOf(it.fields["id"]); id != "" {
		im.items[id] = true
		if im.defined[id] && it.kind != "item_reference" {
			return "an item id came before"
		}
		im.defined[id] = im.defined[id] || it.kind != "item_reference"
	}
	switch it.kind {
	case "function_call", "computer_call":
		return im.addCall(textOf(it.fields["call_id"]))
	case "function_call_output", "computer_call_output":
		im.calls[textOf(it.fields["call_id"])] = true
	case "mcp_approval_request", "mcp_call", "mcp_list_tools":
		return im.addMCP(it)
	case "mcp_approval_response":
		return im.addAnswer(it, index)
	}
	return ""
}

func (im *importer) addCall(id string) string {
	if im.calls[id] {
		return "a call id came before"
	}
	im.calls[id] = true
	return ""
}

func (im *importer) addMCP(it *item) string {
	if problem := im.hostedProblem(it, hostedShapes[it.kind]); problem != "" {
		return problem
	}
	switch it.kind {
	case "mcp_approval_request":
		id := textOf(it.fields["id"])
		im.grants[id] = &grant{request: it, answer: -1}
		return im.addCall(id)
	case "mcp_call":
		if !im.useApproval(it) {
			return "an MCP call that does not match an approval"
		}
	}
	return ""
}

func (im *importer) addAnswer(it *item, index int) string {
	if !mcpAnswer.open(it.fields) {
		return "malformed"
	}
	id := textOf(it.fields["approval_request_id"])
	g := im.grants[id]
	if g == nil || g.answer >= 0 {
		return "an answer that no MCP approval request is waiting for"
	}
	g.answer = index
	if it.fields["approve"] == true {
		a := mcpCall(g.request.fields)
		im.approvals[id] = &a
		im.order = append(im.order, g)
	}
	return ""
}

// checkStrictly says what is wrong with the content of an item, and with calls and outputs that are no pairs.
func (im *importer) checkStrictly(it *item) string {
	kind := it.kind
	if kind == "" {
		kind = "message"
	}
	if shape, ok := inputItems[kind]; ok && !shape.open(it.fields) {
		return "malformed"
	}
	callID := textOf(it.fields["call_id"])
	switch kind {
	case "function_call":
		t := im.tools[textOf(it.fields["name"])]
		if t == nil {
			return "a call of a function that is not registered"
		}
		if t.function != nil && decodeObject([]byte(textOf(it.fields["arguments"]))) == nil {
			return "a call whose arguments are not an object"
		}
		im.open[callID] = it
	case "computer_call":
		if !im.computer || toolset.CheckCall(it.raw) != nil {
			return "a computer call that is malformed or not to be expected"
		}
		im.open[callID] = it
	case "function_call_output", "computer_call_output":
		opened := im.open[callID]
		if opened == nil || opened.kind+"_output" != kind {
			return "an output without its call"
		}
		delete(im.open, callID)
	case "item_reference":
		if !im.references {
			return "a reference to an item that is not here"
		}
	case "message", "reasoning", "compaction", "mcp_approval_response":
	default:
		if shape, ok := hostedShapes[kind]; ok {
			return im.hostedProblem(it, shape)
		}
		return "not an item that can be kept"
	}
	return ""
}
