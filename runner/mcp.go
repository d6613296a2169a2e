package runner

import (
	"slices"
)

// A server is the declaration of an MCP server, as far as it can be judged here.
type server struct {
	allowed func(tool string) bool
	// approval says whether a tool needs one.
	approval func(tool string) requirement
}

// A requirement is whether the calls of an MCP tool need an approval.
type requirement int

const (
	unknown requirement = iota // nothing can be said here
	always
	never
)

func newServer(tool object) *server {
	s := &server{allowed: func(string) bool { return true }, approval: approvals(tool["require_approval"])}
	names, limited := tool["allowed_tools"], true
	if o, ok := names.(object); ok {
		names, limited = o["tool_names"], !missing(at(o, "tool_names"))
	}
	if limited && !missing(at(tool, "allowed_tools")) && tool["allowed_tools"] != nil {
		listed, _ := names.([]any) // anything else allows nothing
		s.allowed = func(name string) bool { return slices.Contains(listed, any(name)) }
	}
	return s
}

// approvals reads a require_approval, of which absent, null and words stand for all tools.
func approvals(v any) func(string) requirement {
	switch v := v.(type) {
	case nil:
		return func(string) requirement { return always }
	case string:
		words := map[string]requirement{"always": always, "never": never}
		return func(string) requirement { return words[v] }
	case object:
		alwaysFilter, hasAlways := v["always"]
		neverFilter, hasNever := v["never"]
		return func(name string) requirement {
			inAlways, known := matches(alwaysFilter, hasAlways, name)
			inNever, knownToo := matches(neverFilter, hasNever, name)
			switch {
			case !known || !knownToo || inAlways && inNever:
				return unknown
			case inAlways, hasNever && !hasAlways && !inNever:
				return always
			case inNever, hasAlways && !hasNever && !inAlways:
				return never
			}
			return unknown
		}
	}
	return func(string) requirement { return unknown }
}

// matches reports whether a filter covers a tool, and whether that can be said here at all. A filter that is not
// there covers nothing, an empty one everything.
func matches(filter any, given bool, name string) (covered, known bool) {
	if !given {
		return false, true
	}
	o, ok := filter.(object)
	if !ok || !missing(at(o, "read_only")) {
		return false, false
	}
	if missing(at(o, "tool_names")) {
		return true, true
	}
	names, ok := o["tool_names"].([]any)
	return slices.Contains(names, any(name)), ok
}

// An approval is the yes that one MCP call may use.
type approval struct {
	server, tool, arguments string
	used                    bool
}

// mcpCall is what an MCP item is about.
func mcpCall(o object) approval {
	return approval{server: textOf(o["server_label"]), tool: textOf(o["name"]), arguments: textOf(o["arguments"])}
}

// checkPolicy checks an MCP call or request against the declaration of its server, as it is now. Approvals are
// matched elsewhere.
func (d *declaration) checkPolicy(it *item) error {
	name := textOf(it.fields["name"])
	s := d.servers[textOf(it.fields["server_label"])]
	required := s.approval(name)
	switch {
	case !s.allowed(name):
		return refuse("an MCP tool that its declaration does not allow")
	case it.kind == "mcp_approval_request" && required == never:
		return refuse("an MCP approval request where none is ever required")
	case it.kind == "mcp_call" && required == always && it.fields["approval_request_id"] == nil:
		return refuse("an MCP call without the approval that is always required")
	}
	return nil
}
