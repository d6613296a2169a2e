package runner

import (
	"encoding/json"
	"slices"
)

// A declaration is what the tool list of a run says. It does not change during the run.
type declaration struct {
	declared   []json.RawMessage // all tools, as they are sent
	hosted     map[string]bool   // item types of hosted tools that are declared
	containers []any             // those of the code interpreters
	servers    map[string]*server
	computer   bool
	local      bool // there is a tool, and none is hosted
	images     bool // image_generation is declared
}

// hostedItems are the item types that come from the hosted tools which a run may declare.
var hostedItems = map[string]string{
	"web_search":                    "web_search_call",
	"web_search_2025_08_26":         "web_search_call",
	"web_search_preview":            "web_search_call",
	"web_search_preview_2025_03_11": "web_search_call",
	"file_search":                   "file_search_call",
	"code_interpreter":              "code_interpreter_call",
	"image_generation":              "image_generation_call",
	"mcp":                           "mcp_call",
}

func isComputer(toolType string) bool {
	return toolType == "computer" || toolType == "computer_use" || toolType == "computer_use_preview"
}

// declare reads the tools of the parameters, nil for none, and puts those of the runner around them.
func (r *Runner) declare(raw json.RawMessage) (*declaration, error) {
	d := &declaration{declared: append([]json.RawMessage{}, r.declarations...), hosted: map[string]bool{}, servers: map[string]*server{}}
	if raw != nil && string(raw) != "null" {
		var tools []json.RawMessage
		if err := json.Unmarshal(raw, &tools); err != nil {
			return nil, refuse("tools: not a list")
		}
		for i, raw := range tools {
			if err := d.add(decodeObject(raw)); err != nil {
				return nil, refuse("tools[%d]: %v", i, err)
			}
			d.declared = append(d.declared, raw)
		}
	}
	switch {
	case d.computer && r.desktop == nil:
		return nil, refuse("tools: a computer tool, but there is no computer")
	case !d.computer && r.desktop != nil:
		d.declared = append(d.declared, json.RawMessage(`{"type":"computer"}`))
		d.computer = true
	}
	d.local = len(d.declared) > 0 && len(d.hosted) == 0
	return d, nil
}

func (d *declaration) add(tool object) error {
	toolType := textOf(tool["type"])
	if toolType == "computer" || toolType == "computer_use_preview" {
		if d.computer {
			return refuse("a second computer tool")
		}
		d.computer = true
		return nil
	}
	item, ok := hostedItems[toolType]
	if !ok {
		return refuse("only hosted tools and the computer may be given; functions are registered")
	}
	d.hosted[item] = true
	switch toolType {
	case "code_interpreter":
		d.containers = append(d.containers, tool["container"])
	case "image_generation":
		d.images = true
	case "mcp":
		label := textOf(tool["server_label"])
		if label == "" || d.servers[label] != nil {
			return refuse("an MCP server needs a label of its own")
		}
		d.servers[label] = newServer(tool)
	}
	return nil
}

// inContainer reports whether code may have run in a container.
func (d *declaration) inContainer(id string) bool {
	return slices.ContainsFunc(d.containers, func(declared any) bool {
		o, _ := declared.(object)
		return declared == any(id) || o["type"] == "auto"
	})
}

// A choice is what tool_choice lets the model call. The zero choice excludes everything.
type choice struct {
	free      bool
	functions map[string]bool
	computer  bool
	hosted    map[string]bool // item types
	servers   []object        // MCP tools
}

// readChoice reads a tool_choice, nil for none. One that can only ever select local tools would keep the model from
// ever finishing, and is refused.
func readChoice(raw json.RawMessage, d *declaration) (choice, error) {
	if raw == nil {
		return choice{free: true}, nil
	}
	v, err := decode(raw)
	if err != nil {
		return choice{}, refuse("tool_choice: not JSON")
	}
	selected, isObject := v.(object)
	switch {
	case v == "none":
		return choice{}, nil
	case v == "required" && d.local:
		return choice{}, refuse("tool_choice: a call is required, so that a run with local tools alone could never end")
	case !isObject:
		return choice{free: true}, nil
	case selected["type"] == "allowed_tools":
		tools, _ := selected["tools"].([]any)
		c := newChoice(tools)
		if selected["mode"] == "required" && len(tools) > 0 && c.local() {
			return choice{}, refuse("tool_choice: a call of a local tool is required, so that the run could never end")
		}
		return c, nil
	}
	c := newChoice([]any{v})
	if len(c.functions) > 0 || c.computer {
		return choice{}, refuse("tool_choice: a call of a local tool is forced, so that the run could never end")
	}
	return c, nil
}

func newChoice(tools []any) choice {
	c := choice{functions: map[string]bool{}, hosted: map[string]bool{}}
	for _, v := range tools {
		tool, _ := v.(object)
		switch toolType := textOf(tool["type"]); {
		case toolType == "function":
			c.functions[textOf(tool["name"])] = true
		case isComputer(toolType):
			c.computer = true
		case toolType == "mcp":
			c.servers = append(c.servers, tool)
		default:
			c.hosted[hostedItems[toolType]] = true
		}
	}
	return c
}

func (c choice) local() bool { return len(c.hosted) == 0 && len(c.servers) == 0 }

// admits reports whether an item of a response is within the choice.
func (c choice) admits(it *item) bool {
	switch {
	case c.free || it.kind == "mcp_list_tools":
		return true
	case it.kind == "function_call":
		return c.functions[textOf(it.fields["name"])]
	case it.kind == "computer_call":
		return c.computer
	case it.kind == "mcp_call" || it.kind == "mcp_approval_request":
		return slices.ContainsFunc(c.servers, func(tool object) bool {
			return tool["server_label"] == it.fields["server_label"] && (tool["name"] == nil || tool["name"] == it.fields["name"])
		})
	case hostedShapes[it.kind].fields != nil:
		return c.hosted[it.kind]
	}
	return true // messages, reasoning and compaction are no calls
}
