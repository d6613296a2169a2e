package main

import (
	"bufio"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/trace"
)

const viewHelp = `Makes one page of HTML of a trace that "deskagent run --trace" has recorded: each step with the
picture that the model saw and its actions drawn on it, what was said, asked and answered, and how
long it took. The page holds everything itself and loads nothing. In a browser the arrow keys go
from step to step; without scripts it is a list.

The trace may still be growing. The page can be read by you alone, as the trace can.`

const viewExample = `  deskagent run --trace trace "Open the editor and write a haiku"
  deskagent view trace -o trace.html`

func newView(c *command) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "view DIR -o FILE.html",
		Short:   "Make a page of a recorded run",
		Long:    viewHelp,
		Example: viewExample,
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			if output == "" {
				return usagef("no file to write: give -o FILE.html, or -o - for standard output")
			}
			return c.view(args[0], output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file for the page, - for standard output")
	return cmd
}

func (c *command) view(dir, output string) (err error) {
	t, err := trace.Open(dir)
	if err != nil {
		return err
	}
	if output == "-" {
		return t.WritePage(c.out)
	}
	file, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	buffered := bufio.NewWriter(file)
	if err := t.WritePage(buffered); err != nil {
		return err
	}
	return buffered.Flush()
}
