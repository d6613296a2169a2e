package remote

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/deskagent/deskagent/internal/run"
)

// StartOptions are the choices of Start. Nil means the zero value.
type StartOptions struct {
	// Stderr receives what the child writes to standard error; nil discards it. The last of it is in errors anyway.
	Stderr io.Writer
}

// Start starts a child process that serves on its standard streams, such as "deskagent serve" or what leads to one, and
// connects to it. Close ends the child, by closing its standard input, and waits for its end; it is interrupted and
// killed if it does not go. When the child ends by itself, the error of a call is [driver.ErrDisplayLost] and has the
// child's last words.
func Start(ctx context.Context, argv []string, opts *StartOptions) (_ *Driver, err error) {
	if len(argv) == 0 {
		return nil, fmt.Errorf("connecting to a desktop: no command")
	}
	if opts == nil {
		opts = &StartOptions{}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("connecting to a desktop through %s: %w", run.Quote(argv), err)
		}
	}()
	// The child is to outlive the context, which is that of the beginning alone.
	process, conn, err := run.Connect(context.WithoutCancel(ctx), argv, &run.Options{Output: opts.Stderr})
	if err != nil {
		return nil, err
	}
	d, err := open(ctx, newWire(conn.Out, conn.In), func() error { return lastWords(process) })
	if err != nil {
		process.Stop()
		return nil, err
	}
	d.process = process
	return d, nil
}

// lastWords waits a moment for the end of a child whose output has ended, to tell why.
func lastWords(p *run.Process) error {
	select {
	case <-p.Done():
	case <-time.After(grace / 2):
		return nil
	}
	if err := p.Err(); err != nil {
		return err
	}
	return fmt.Errorf("process %d has ended", p.PID())
}
