package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
)

// hosted are the tools that work at the API's end, beside the desktop.
type hosted struct {
	names   []string // of tools
	servers []string // LABEL=URL of MCP servers
	unasked []string // labels of servers whose tools are called without being asked about
}

const hostedHelp = `--tools adds tools that the API hosts: web_search, code_interpreter, image_generation, and
file_search=ID for a vector store. --mcp adds an MCP server, which the API calls. You are asked on the terminal before
each of its tools, whatever --approve allows; --allow-mcp names servers that are trusted.`

func hostedFlags(cmd *cobra.Command, h *hosted) {
	flags := cmd.Flags()
	flags.StringSliceVar(&h.names, "tools", nil, "hosted tools to add, with commas between them")
	mcpFlag(cmd, h)
	flags.StringSliceVar(&h.unasked, "allow-mcp", nil, "labels of MCP servers whose tools are allowed unasked")
}

func mcpFlag(cmd *cobra.Command, h *hosted) {
	cmd.Flags().StringArrayVar(&h.servers, "mcp", nil, "an MCP server, as LABEL=URL, repeatable")
}

// parseServer reads LABEL=URL. What is sent to a server may not go over a network in clear.
func parseServer(server string) (label, address string, err error) {
	label, address, _ = strings.Cut(server, "=")
	u, err := url.Parse(address)
	if label == "" || err != nil || u.Host == "" || u.Scheme != "https" {
		return "", "", usagef("--mcp %q: want LABEL=URL, such as mail=https://mcp.example.com", server)
	}
	return label, address, nil
}

// declarations are the tools in the API's form.
func (h *hosted) declarations() ([]responses.ToolUnionParam, error) {
	var tools []responses.ToolUnionParam
	for _, name := range h.names {
		declared, err := hostedTool(name)
		if err != nil {
			return nil, err
		}
		tools = append(tools, declared)
	}
	var labels []string
	for _, server := range h.servers {
		label, address, err := parseServer(server)
		if err != nil {
			return nil, err
		}
		if slices.Contains(labels, label) {
			return nil, usagef("--mcp %q: there is a server with this label already", server)
		}
		labels = append(labels, label)
		tools = append(tools, declare(map[string]any{
			"type": "mcp", "server_label": label, "server_url": address, "require_approval": h.approval(label),
		}))
	}
	for _, label := range h.unasked {
		if !slices.Contains(labels, label) {
			return nil, usagef("--allow-mcp %q: there is no --mcp %s=URL", label, label)
		}
	}
	return tools, nil
}

func (h *hosted) approval(label string) string {
	if slices.Contains(h.unasked, label) {
		return "never"
	}
	return "always"
}

func hostedTool(name string) (responses.ToolUnionParam, error) {
	kind, store, _ := strings.Cut(name, "=")
	tool := map[string]any{"type": kind}
	switch {
	case kind == "file_search" && store != "":
		tool["vector_store_ids"] = []string{store}
	case name == "web_search", name == "image_generation":
	case name == "code_interpreter":
		tool["container"] = map[string]string{"type": "auto"}
	default:
		return responses.ToolUnionParam{}, usagef("--tools %q: want web_search, code_interpreter, image_generation or file_search=ID", name)
	}
	return declare(tool), nil
}

func declare(tool any) responses.ToolUnionParam {
	raw, err := json.Marshal(tool)
	if err != nil {
		panic("encoding strings: " + err.Error())
	}
	return param.Override[responses.ToolUnionParam](json.RawMessage(raw))
}

// approveMCP puts the approval requests of MCP servers to a. A yes to actions is none to them.
func (s *session) approveMCP(a approve.Approver) {
	s.runner.ApproveMCP = func(ctx context.Context, r responses.ResponseOutputItemMcpApprovalRequest) (bool, error) {
		answer, err := approve.Ask(ctx, a, approve.Request{CallID: r.ID, Tool: &approve.ToolCall{
			Server: r.ServerLabel, Name: r.Name, Arguments: r.Arguments,
		}})
		if err != nil {
			err = fmt.Errorf("%w: asking about the tool %q of the MCP server %q: %w", approve.ErrDenied, r.Name, r.ServerLabel, err)
			s.causes.note(err)
		}
		return bool(answer), err
	}
}
