package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/responses"
	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/runner"
)

const resumeHelp = `Goes on with a run that was begun with "deskagent run --ledger DIR", after what came to its end: the
machine, the process, or the run, at a bound. TEXT is said to the model.

The record says how far the run came, which tools it has and how many requests are left. What it does
not say are the addresses of MCP servers: --mcp gives them again. Other flags are those of "deskagent run".

When the run was in the middle of a turn, it is not known whether its last call has happened, and
nothing is done: look at the desktop, and at "deskagent ledger show DIR". --looked goes on then; TEXT
tells the model what you have seen. The call is not repeated; the model is told about it.`

const resumeExample = `  deskagent resume run1
  deskagent resume --approve allow run1 "Go on, but leave the folder Work alone"
  deskagent resume --looked run1 "The dialogue was closed. Go on."`

func newResume(c *command) *cobra.Command {
	r := &runTask{command: c}
	var looked bool
	cmd := &cobra.Command{
		Use:     "resume DIR [TEXT]",
		Short:   "Go on with a run that was interrupted",
		Long:    resumeHelp,
		Example: resumeExample,
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := "Go on."
			if len(args) == 2 {
				text = args[1]
			}
			switch {
			case looked && len(args) < 2:
				return usagef("--looked: say in TEXT what you have seen")
			case strings.TrimSpace(text) == "":
				return usagef("the text is empty")
			}
			return r.resume(cmd.Context(), args[0], text, looked, cmd.Flags().Changed("model"))
		},
	}
	runFlags(cmd, r)
	mcpFlag(cmd, &r.hosted)
	cmd.Flags().BoolVar(&looked, "looked", false, "you have looked at what the last call did")
	return cmd
}

func (r *runTask) resume(ctx context.Context, path, text string, looked, modelGiven bool) (err error) {
	if _, err := readLedger(path); err != nil { // opening would make a folder
		return err
	}
	s := &session{}
	defer func() { err = errors.Join(err, s.close()) }()
	dir, record, err := s.openLedger(path)
	if err != nil {
		return err
	}
	if record, err = resumable(record, path, looked); err != nil {
		return err
	}
	if !modelGiven {
		name, err := os.ReadFile(filepath.Join(path, modelFile))
		if err != nil {
			return fmt.Errorf("the model of the run: %w", err)
		}
		r.model = strings.TrimSpace(string(name))
	}
	r.maxSteps = record.MaxSteps
	tools, err := r.hosted.again(record.Tools)
	if err != nil {
		return err
	}
	if err := r.prepare(s, text); err != nil {
		return err
	}
	s.params.Tools = tools
	s.runner.Ledger = &runner.Ledger{RunID: record.RunID, Save: s.saves(dir), ResumeFrom: record}
	return r.play(ctx, s)
}

// resumable is a record to go on from, or why there is none.
func resumable(record *runner.Checkpoint, path string, looked bool) (*runner.Checkpoint, error) {
	switch {
	case record.Phase == runner.PhaseFinal:
		return nil, hintError{errors.New("the run has its answer"), fmt.Sprintf("\"deskagent ledger show %s\" shows it", path)}
	case record.ConsumedRequests >= record.MaxSteps:
		return nil, fmt.Errorf("the run has made all of its %d requests", record.MaxSteps)
	case record.Phase == runner.PhaseBoundary:
		return record, nil
	case !looked:
		doubts := "what was asked for has not been begun, or is done"
		if lines := uncertain(record); len(lines) > 0 {
			doubts = "this may or may not have happened: " + strings.Join(lines, "; ")
		}
		return nil, hintError{
			fmt.Errorf("the run was stopped in the middle of a turn: %s", doubts),
			fmt.Sprintf("look at the desktop, and at \"deskagent ledger show %s\"; --looked goes on then", path),
		}
	}
	return lookedAt(record), nil
}

// lookedAt is a record of the moment before the turn in which the run was stopped. What was asked for in that turn is
// never carried out; a message tells the model about it.
func lookedAt(record *runner.Checkpoint) *runner.Checkpoint {
	before := *record
	isPending := func(id string) bool {
		return slices.ContainsFunc(record.PendingItems, func(raw json.RawMessage) bool {
			read := readItem(raw)
			return read.CallID == id || read.ID == id
		})
	}
	before.Phase = runner.PhaseBoundary
	before.AttemptedCallIDs = slices.DeleteFunc(slices.Clone(record.AttemptedCallIDs), isPending)
	before.ReturnedCallIDs = slices.DeleteFunc(slices.Clone(record.ReturnedCallIDs), isPending)
	before.PendingItems, before.ReturnedOutputs = nil, nil
	var said strings.Builder
	said.WriteString("The program that carries out your calls was stopped in the middle of a turn.")
	for _, raw := range record.PendingItems {
		if read := readItem(raw); read.Type == "computer_call" || read.Type == "mcp_approval_request" {
			fmt.Fprintf(&said, " You had asked for this: %s", raw)
		}
	}
	said.WriteString(" Whether it happened, in whole or in part, is not known. It will not be repeated by itself. Look at a new" +
		" screenshot before you do anything.")
	message, err := json.Marshal(map[string]string{"role": "user", "content": said.String()})
	if err != nil {
		panic("encoding strings: " + err.Error())
	}
	before.History = append(slices.Clip(record.History), message)
	return &before
}

// again are the hosted tools of a record, with the addresses of its MCP servers, which it does not hold.
func (h *hosted) again(recorded []json.RawMessage) ([]responses.ToolUnionParam, error) {
	addresses := map[string]string{}
	for _, server := range h.servers {
		label, address, err := parseServer(server)
		if err != nil {
			return nil, err
		}
		addresses[label] = address
	}
	var tools []responses.ToolUnionParam
	for _, raw := range recorded {
		var tool map[string]any
		if err := json.Unmarshal(raw, &tool); err != nil {
			return nil, fmt.Errorf("the record holds what is no tool: %w", err)
		}
		switch tool["type"] {
		case "computer":
			continue // the runner declares it
		case "mcp":
			label, _ := tool["server_label"].(string)
			address, ok := addresses[label]
			if !ok {
				return nil, usagef("the run has an MCP server %q, the address of which is not in the record: give it with --mcp %s=URL", label, label)
			}
			tool["server_url"] = address
			delete(addresses, label)
		}
		tools = append(tools, declare(tool))
	}
	for label := range addresses {
		return nil, usagef("--mcp %s=URL: the run has no such server", label)
	}
	return tools, nil
}
