package main

import (
	"fmt"
	"io"
	"os"

	"github.com/deskagent/deskagent/runner"
)

// follow passes on to the model what is typed on the terminal while it works. Nothing is read in the background: the
// terminal keeps the lines until the turn is there that they can be put into, and until then a question may come, whose
// answer is nobody's instruction.
type follow struct {
	person *person
	out    io.Writer
}

const followHelp = `While the model works, a line that you type on the terminal is passed on to it, after the next turn. So it
is where standard input is the terminal: with </dev/null nothing is read.`

func (f *follow) turn(turn *runner.Turn) error {
	lines, err := f.person.typed()
	if err != nil {
		return err
	}
	for _, line := range lines {
		if turn.Final {
			fmt.Fprintf(f.out, "  not passed on, as the model is done: %q\n", line)
			continue
		}
		if err := turn.AppendUserText(line); err != nil {
			return err
		}
		fmt.Fprintf(f.out, "  passed on to the model: %q\n", line)
	}
	return nil
}

// atTerminal reports whether standard input is a terminal. The null device is a character device, too.
func (c *command) atTerminal() bool {
	f, ok := c.in.(*os.File)
	if !ok {
		return false
	}
	in, err := f.Stat()
	if err != nil || in.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(in, null)
}
