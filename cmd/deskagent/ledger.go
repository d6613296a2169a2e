package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/runner/ledger"
	"github.com/deskagent/deskagent/trace"
)

const ledgerHelp = `--ledger keeps a record of the run in a folder, from before each effect, so that "deskagent resume"
can go on after a crash and never does anything twice. It holds all that the model saw and said.`

// modelFile in the folder of a ledger says which model the run is with.
const modelFile = "model"

// saving wraps the way in which records are saved. Tests have the process end there.
var saving = func(save func(context.Context, runner.Checkpoint) error) func(context.Context, runner.Checkpoint) error {
	return save
}

// openLedger opens a folder for the time of a session.
func (s *session) openLedger(path string) (*ledger.Dir, *runner.Checkpoint, error) {
	dir, err := ledger.Open(path)
	if err != nil {
		return nil, nil, err
	}
	s.onClose(dir.Close)
	s.ledger = path
	latest, err := dir.Latest()
	return dir, latest, err
}

// begin keeps the record of a new run in the folder.
func (s *session) begin(path, model string) error {
	dir, latest, err := s.openLedger(path)
	if err != nil {
		return err
	}
	if latest != nil {
		return hintError{fmt.Errorf("the ledger %s holds a run", path), "\"deskagent resume\" goes on with it; a new run needs a new folder"}
	}
	if err := os.WriteFile(filepath.Join(path, modelFile), []byte(model+"\n"), 0o600); err != nil {
		return err
	}
	s.runner.Ledger = &runner.Ledger{RunID: rand.Text(), Save: s.saves(dir)}
	return nil
}

// sandboxFile in the folder of a ledger says which sandbox the run is in, and what came of the tests of its limits.
const sandboxFile = "sandbox.json"

// keepBox takes down the sandbox of a run. That it cannot is said, and no reason to end.
func keepBox(folder string, box trace.Sandbox, log *slog.Logger) {
	data, err := json.MarshalIndent(box, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, sandboxFile), append(data, '\n'), 0o600)
	}
	if err != nil {
		log.Warn("the sandbox is not on record", "err", err)
	}
}

// saves saves in a folder, and notes why it could not, which the runner does not say.
func (s *session) saves(dir *ledger.Dir) func(context.Context, runner.Checkpoint) error {
	return saving(func(ctx context.Context, c runner.Checkpoint) error {
		err := dir.Save(ctx, c)
		if err != nil {
			s.causes.note(err)
		}
		return err
	})
}

const ledgerCommandHelp = `Shows the record of a run: how far it came, what was said and done, and which calls were begun and may
or may not have happened when it ended.`

const ledgerExample = `  deskagent run --ledger run1 "Tidy the files on the desktop into folders"
  deskagent ledger show run1
  deskagent ledger show --json run1 | jq .phase`

func newLedger(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ledger",
		Short:   "Show the record of a run",
		Long:    ledgerCommandHelp,
		Example: ledgerExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	show := &cobra.Command{
		Use:     "show DIR",
		Short:   "Show the record of a run",
		Long:    ledgerCommandHelp,
		Example: ledgerExample,
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			record, err := readLedger(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.out).Encode(record)
			}
			showRecord(c.out, record)
			return nil
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "write the whole record as one JSON object")
	cmd.AddCommand(show)
	return cmd
}

func readLedger(path string) (*runner.Checkpoint, error) {
	record, err := ledger.Read(path)
	if err == nil && record == nil {
		err = fmt.Errorf("the ledger %s holds no record", path)
	}
	return record, err
}

// phases say what a run was in the middle of, for people.
var phases = map[runner.Phase]string{
	runner.PhaseBoundary: "between two turns: \"deskagent resume\" can go on",
	runner.PhasePending:  "in the middle of a turn",
	runner.PhaseFinal:    "done: the run has its answer",
}

// showRecord writes a record for people. Text from outside is quoted.
func showRecord(w io.Writer, c *runner.Checkpoint) {
	fmt.Fprintf(w, "run %q, revision %d, %d of at most %d requests\n", c.RunID, c.Revision, c.ConsumedRequests, c.MaxSteps)
	fmt.Fprintf(w, "%s\n\n", phases[c.Phase])
	for _, raw := range slices.Concat(c.History, c.PendingItems, c.ReturnedOutputs) {
		for _, line := range describeItem(raw) {
			fmt.Fprintln(w, line)
		}
	}
	if doubts := uncertain(c); len(doubts) > 0 {
		fmt.Fprintln(w, "\nThis may or may not have happened:")
		for _, line := range doubts {
			fmt.Fprintln(w, "  "+line)
		}
	}
}

// uncertain says what may have happened of which nobody knows, a line for each call.
func uncertain(c *runner.Checkpoint) (lines []string) {
	for _, id := range c.Uncertain() {
		for _, raw := range c.PendingItems {
			if read := readItem(raw); read.CallID == id || read.ID == id {
				lines = append(lines, strings.Join(strings.Fields(strings.Join(describeItem(raw), " ")), " "))
			}
		}
	}
	if c.Phase == runner.PhasePending && len(c.PendingItems) == 0 {
		lines = append(lines, "a request was on its way, during which hosted tools may act")
	}
	return lines
}

// An item is what is read of an element of the history.
type item struct {
	Type, Role, ID, Name, Status string
	CallID                       string `json:"call_id"`
	Action                       json.RawMessage
	Actions                      []json.RawMessage
	Content                      json.RawMessage
}

func readItem(raw json.RawMessage) (read item) {
	if json.Unmarshal(raw, &read) != nil { // such as one with a field of another type
		return item{Type: "unknown item"}
	}
	return read
}

// describeItem says what an element of the history is: one line, and more for the actions of a call.
func describeItem(raw json.RawMessage) []string {
	read := readItem(raw)
	switch {
	case read.Type == "computer_call":
		lines := []string{fmt.Sprintf("computer call %q:", read.CallID)}
		actions := read.Actions
		if read.Action != nil {
			actions = append(actions, read.Action)
		}
		for _, raw := range actions {
			a, err := driver.DecodeAction(raw)
			if err != nil {
				lines = append(lines, fmt.Sprintf("  %q", raw))
				continue
			}
			for _, line := range approve.Describe(approve.Request{Shown: a}) {
				lines = append(lines, "  "+line)
			}
		}
		return lines
	case read.Type == "computer_call_output":
		return []string{fmt.Sprintf("the picture after call %q", read.CallID)}
	case read.Role != "":
		return []string{fmt.Sprintf("%s: %q", read.Role, textOf(read.Content))}
	}
	line := fmt.Sprintf("%q", read.Type)
	for _, word := range []string{read.Name, read.CallID, read.ID} {
		if word != "" {
			line += fmt.Sprintf(" %q", word)
		}
	}
	return []string{line}
}

// textOf is the text of the content of a message.
func textOf(content json.RawMessage) string {
	var whole string
	if json.Unmarshal(content, &whole) == nil {
		return whole
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(content, &parts) // what is no list has no text
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}
