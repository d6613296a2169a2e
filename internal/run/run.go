// Package run starts and ends child processes. A child is interrupted, given a moment, then killed; whoever
// starts one waits for it; and a failure shows the command in a form that can be pasted into a shell, with the last
// of what it wrote.
//
// On Linux a child also dies with this process, even when that is killed, unless it is to outlive it, and stands in a process group of its
// own, so that a Ctrl-C on the terminal reaches this process alone and it decides what ends when.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Options says how a child runs. Nil means the zero Options.
type Options struct {
	// Env is the whole environment; nil is that of this process.
	Env []string
	// Files are open in the child from descriptor 3 on.
	Files []*os.File
	// Input is standard input; nil is the end of it.
	Input io.Reader
	// Output receives standard output and standard error; nil discards them. The last of them is in errors anyway.
	Output io.Writer
	// Result receives standard output apart from Output, for a child whose output is data and no talk.
	Result io.Writer
	// Outlives lets the child live on when this process dies.
	Outlives bool
	// Grace is the time between the interrupt and the kill; zero means two seconds.
	Grace time.Duration
}

// Error is a child that could not be started or did not end well.
type Error struct {
	Argv   []string
	Output string // the last of what it wrote, at most 4 KiB
	Err    error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("running %s: %v", Quote(e.Argv), e.Err)
	if e.Output != "" {
		s += fmt.Sprintf(", its last words: %q", e.Output)
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// A Process is a running child. Its methods may be called from several goroutines.
type Process struct {
	argv  []string
	grace time.Duration
	cmd   *exec.Cmd
	done  chan struct{}

	// Set before done is closed.
	err error
}

// Start starts argv. When ctx ends the child is stopped.
func Start(ctx context.Context, argv []string, opts *Options) (*Process, error) {
	if opts == nil {
		opts = &Options{}
	}
	p := &Process{argv: argv, grace: opts.Grace, done: make(chan struct{})}
	if p.grace == 0 {
		p.grace = 2 * time.Second
	}
	last := &tail{next: opts.Output}
	p.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	p.cmd.Env, p.cmd.ExtraFiles = opts.Env, opts.Files
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = opts.Input, last, last
	if opts.Result != nil {
		p.cmd.Stdout = opts.Result
	}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = p.grace
	setAttributes(p.cmd, opts.Outlives)

	started := make(chan error)
	go func() {
		// The signal at the parent's death is tied to the thread that started the child, so that thread stays
		// until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if err := p.cmd.Wait(); err != nil {
			p.err = &Error{Argv: argv, Output: last.String(), Err: err}
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, &Error{Argv: argv, Err: err}
	}
	return p, nil
}

// A Conn is a connection to a child: it writes to the child's standard input, and reads from its standard output, which ends
// with the child.
type Conn struct {
	In  *os.File // the child's input
	Out *os.File // the child's output
}

func (c *Conn) Read(p []byte) (int, error)  { return c.Out.Read(p) }
func (c *Conn) Write(p []byte) (int, error) { return c.In.Write(p) }

// Close closes both directions.
func (c *Conn) Close() error { return errors.Join(c.In.Close(), c.Out.Close()) }

// Connect starts argv as Start does, with a connection in place of the Input and the Result of the options.
func Connect(ctx context.Context, argv []string, opts *Options) (*Process, *Conn, error) {
	input, toChild, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fromChild, output, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, input.Close(), toChild.Close())
	}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.Input, o.Result = input, output
	p, err := Start(ctx, argv, &o)
	input.Close()
	output.Close()
	conn := &Conn{toChild, fromChild}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return p, conn, nil
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err waits for the end of the child and returns an *Error unless it exited with status 0.
func (p *Process) Err() error {
	<-p.done
	return p.err
}

// Stop interrupts the child, kills it when it has not ended after the grace time, and waits for its end. It is no
// error to stop a child that has ended.
func (p *Process) Stop() {
	p.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(p.grace):
		p.Kill()
	}
}

// Signal sends a signal.
func (p *Process) Signal(sig os.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.cmd.Process.Kill()
	}
}

// Kill kills the child and waits for its end.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// PID is the process id of the child.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Quote writes argv as a shell would read it.
func Quote(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = word
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("%+,-./:=@_", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// tail passes on what is written and keeps the last of it.
type tail struct {
	next io.Writer

	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > most {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-most:]...)
	}
	t.mu.Unlock()
	if t.next != nil {
		return t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
