package runner

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/deskagent/deskagent/toolset"
)

// An item is one element of the output of a response.
type item struct {
	raw    json.RawMessage // as it was received
	fields object
	kind   string
	call   *call // nil if nothing is to be done here
}

// A call is an item that asks for something to be done here.
type call struct {
	item *item
	kind callKind
	id   string // call_id, or the id of an MCP approval request
	name string // wire name of a function or browser tool, name of an MCP tool
	tool *tool  // of functions and browser tools

	execution execution // of functions, once their arguments were decoded
	done      bool      // it was dispatched
}

type callKind int

const (
	functionCall callKind = iota
	browserCall
	computerCall
	approvalRequest
)

// newItem decodes an item; one that is no object has no kind.
func newItem(raw json.RawMessage) *item {
	o := decodeObject(raw)
	return &item{raw: raw, fields: o, kind: textOf(o["type"])}
}

// replay is the item as the API takes it back: it may not say who created it. Otherwise it stays byte for byte.
func (it *item) replay() json.RawMessage {
	if missing(at(it.fields, "created_by")) {
		return it.raw
	}
	var kept map[string]json.RawMessage
	if err := json.Unmarshal(it.raw, &kept); err != nil {
		panic("decoding again what was decoded: " + err.Error())
	}
	delete(kept, "created_by")
	return encode(kept)
}

// answers reports whether the item can end a run.
func (it *item) answers() bool {
	if it.kind == "message" {
		return it.fields["phase"] != "commentary"
	}
	return hostedShapes[it.kind].fields != nil && it.call == nil
}

// An inspector checks what comes from the model, item by item, and remembers what a run has met: ids and approvals.
type inspector struct {
	*Runner
	*declaration
	choice choice

	calls     map[string]bool // ids of calls and of MCP approval requests
	items     map[string]bool // ids of items, and of those that were referred to
	emptyID   bool            // an item of this response has the empty id
	approvals map[string]*approval
}

// A keep says what goes into the ledger of an inspection that failed.
type keep int

const (
	keepNothing keep = iota
	keepBefore       // what is there already
	keepAll          // the whole response
)

// A misfit is why an item was refused.
type misfit struct {
	keep
	*Error
}

func (in *inspector) newResponse() { in.emptyID = false }

// inspect checks one item of a response and enters it. The place is for the error.
func (in *inspector) inspect(it *item, place string) *misfit {
	if shape, ok := hostedShapes[it.kind]; ok {
		return in.inspectHosted(it, shape, place)
	}
	if it.kind == "computer_call" {
		if !in.computer || toolset.CheckCall(it.raw) != nil {
			return malformed(keepBefore, place, "a computer call that is malformed or not to be expected")
		}
		it.call = &call{item: it, kind: computerCall, id: textOf(it.fields["call_id"])}
	} else {
		shape, ok := modelItems[it.kind]
		switch {
		case !ok:
			return malformed(keepNothing, place, "not an item that a run can handle")
		case !shape.open(it.fields):
			return malformed(keepNothing, place, "malformed")
		}
	}
	if it.kind == "function_call" {
		t := in.tools[textOf(it.fields["name"])]
		if t == nil || !t.mayBeCalledBy(it.fields["caller"]) {
			return malformed(keepNothing, place, "a call of a function that is not registered, or not for this caller")
		}
		it.call = &call{item: it, id: textOf(it.fields["call_id"]), name: t.name, tool: t}
		if t.function == nil {
			it.call.kind = browserCall
		}
	}
	if problem := in.enter(it); problem != "" {
		return malformed(keepNothing, place, problem)
	}
	if !in.choice.admits(it) {
		return malformed(keepNothing, place, excluded)
	}
	return nil
}

const excluded = "a call that tool_choice excludes"

func malformed(k keep, place, problem string) *misfit {
	return &misfit{k, stop(ReasonInvalidResponse, "%s: %s", place, problem)}
}

func (t *tool) mayBeCalledBy(caller any) bool {
	if o, ok := caller.(object); ok && o["type"] == "program" {
		return t.programs
	}
	return t.direct
}

// inspectHosted checks an item of a hosted tool. The tool has done its work already, so that what cannot be matched
// with it is kept in the ledger.
func (in *inspector) inspectHosted(it *item, shape hostedShape, place string) *misfit {
	if problem := in.hostedProblem(it, shape); problem != "" {
		return malformed(keepAll, place, problem)
	}
	if it.kind == "mcp_approval_request" {
		it.call = &call{item: it, kind: approvalRequest, id: textOf(it.fields["id"]), name: textOf(it.fields["name"])}
	}
	if problem := in.enter(it); problem != "" {
		return malformed(keepAll, place, problem)
	}
	if it.kind == "mcp_call" && !in.useApproval(it) {
		return malformed(keepAll, place, "an MCP call that does not match an approval")
	}
	if !in.choice.admits(it) {
		return malformed(keepNothing, place, excluded)
	}
	if it.kind == "mcp_call" || it.call != nil {
		if err := in.checkPolicy(it); err != nil {
			return malformed(keepNothing, place, err.Error())
		}
	}
	return nil
}

// hostedProblem says what is wrong with an item of a hosted tool, "" for nothing.
func (in *inspector) hostedProblem(it *item, shape hostedShape) string {
	isMCP := shape.tool == "mcp_call"
	switch {
	case !in.hosted[shape.tool], isMCP && in.servers[textOf(it.fields["server_label"])] == nil:
		return "an item of a tool that is not declared"
	case !shape.done(at(it.fields, "status")), isMCP && it.fields["error"] != nil:
		return "an item of a tool that has not completed its work"
	case !shape.fields.open(it.fields):
		return "malformed"
	case it.kind == "code_interpreter_call" && !in.inContainer(textOf(it.fields["container_id"])):
		return "code in a container that is not declared"
	}
	return ""
}

// enter remembers the ids of an item and says which came before, "" for none.
func (in *inspector) enter(it *item) string {
	if it.call != nil {
		if in.calls[it.call.id] {
			return "a call id came before"
		}
		in.calls[it.call.id] = true
	}
	if missing(at(it.fields, "id")) {
		return ""
	}
	return in.enterID(textOf(it.fields["id"]))
}

func (in *inspector) enterID(id string) string {
	seen := in.items[id]
	if id == "" { // it may come once in every response
		seen, in.emptyID = in.emptyID, true
	} else {
		in.items[id] = true
	}
	if seen {
		return "an item id came before"
	}
	return ""
}

// useApproval takes the approval that an MCP call names; without one it is the policy that decides.
func (in *inspector) useApproval(it *item) bool {
	id := it.fields["approval_request_id"]
	if id == nil {
		return true
	}
	a := in.approvals[textOf(id)]
	if a == nil || *a != mcpCall(it.fields) {
		return false
	}
	a.used = true // no approval that is used equals one that is not
	return true
}

// same reports whether an item of the finished response is the one that was seen in the stream. A function call may
// have gained an id, and reasoning may have been encrypted anew.
func (it *item) same(final *item) bool {
	if it.kind != final.kind {
		return false
	}
	seen, now := maps.Clone(it.fields), maps.Clone(final.fields)
	delete(seen, "created_by")
	delete(now, "created_by")
	if it.kind == "function_call" && missing(at(seen, "id")) {
		delete(now, "id")
	}
	if it.kind == "reasoning" && nonempty(seen["encrypted_content"]) && nonempty(now["encrypted_content"]) {
		delete(seen, "encrypted_content")
		delete(now, "encrypted_content")
	}
	return bytes.Equal(encode(seen), encode(now)) // keys are sorted
}
