package approve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// TerminalOptions are the choices of [OpenTerminal].
type TerminalOptions struct {
	// TTY is the terminal to ask on, which the Terminal then owns; nil means the process's controlling terminal,
	// whatever the standard streams are.
	TTY TTY
	// Timeout is how long one question waits for its answer before it is a no; zero means 5 minutes.
	Timeout time.Duration
}

// A TTY is a terminal to ask on. Reads and writes keep to the deadline, and end with an error when it is set to a
// time in the past while they wait, as those of [net.Conn] do.
type TTY interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
	// DiscardInput forgets what was typed and has not been read.
	DiscardInput() error
}

// A Typist is a TTY that can tell what was typed without waiting for more.
type Typist interface {
	TTY
	// Typed returns what was typed and has not been read, as far as the terminal gives it out: in line mode, whole
	// lines. It returns nothing to a process in the background, which would be stopped if it read.
	Typed() ([]byte, error)
}

// A Terminal is an Approver that asks the person at a terminal. It shows what [Describe] says and takes a line with
// one letter, in either case, for the answer:
//
//	y  yes
//	n  no
//	a  yes, and yes to every action of this kind as long as the Terminal is open
//	q  no, and no to everything as long as the Terminal is open
//
// For safety checks and tools there is no a, and an earlier a does not cover them. Lines that are none of these are asked
// about again; after three of them the answer is a no, with an error. So it is after the end of input, a fault of the
// terminal and the time-out. What was typed before the question was shown is no answer: [Terminal.Typed] has it.
//
// The terminal stays in the mode it is in, so line editing works and there is nothing to restore.
//
// A Terminal may be used by several goroutines; it asks one question at a time.
type Terminal struct {
	tty     TTY
	timeout time.Duration

	turn    chan struct{} // full while someone asks; guards what follows
	always  map[driver.Kind]bool
	refused bool // q was the answer to a question
	typed   []string
}

// OpenTerminal returns a Terminal for opts, nil for the defaults. It is an error when there is no terminal, and
// wraps [driver.ErrUnsupported] on systems where the controlling terminal cannot be read with a time limit: those
// are all but Linux.
func OpenTerminal(opts *TerminalOptions) (*Terminal, error) {
	var o TerminalOptions
	if opts != nil {
		o = *opts
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("opening the terminal to ask on: time-out %v is negative", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	if o.TTY == nil {
		tty, err := openTTY("/dev/tty")
		if err != nil {
			return nil, fmt.Errorf("opening the terminal to ask on: %w", err)
		}
		o.TTY = tty
	}
	return &Terminal{tty: o.TTY, timeout: o.Timeout, turn: make(chan struct{}, 1), always: map[driver.Kind]bool{}}, nil
}

// Close closes the terminal. A question that is being asked is answered with no and an error.
func (t *Terminal) Close() error { return t.tty.Close() }

// Typed returns the lines that were typed while no question was open, and that it has not returned before, without
// waiting for any: what a person says unasked. Blank lines are left out, and lines of a single letter, which were meant
// for a question that was not there yet. So is a line that was not finished when a question was shown. Where the TTY is
// no [Typist], and while a question is open, there are none.
func (t *Terminal) Typed() ([]string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	default:
		return nil, nil
	}
	err := t.collect()
	typed := t.typed
	t.typed = nil
	if err != nil {
		err = fmt.Errorf("reading what was typed on the terminal: %w", err)
	}
	return typed, err
}

// collect takes in the lines that were typed so far.
func (t *Terminal) collect() error {
	tty, ok := t.tty.(Typist)
	if !ok {
		return nil
	}
	typed, err := tty.Typed()
	for line := range strings.FieldsFuncSeq(string(typed), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if line = strings.TrimSpace(line); len(line) > 1 {
			t.typed = append(t.typed, line)
		}
	}
	return err
}

// Approve asks about r, unless an earlier a or q has answered it.
func (t *Terminal) Approve(ctx context.Context, r Request) (Decision, error) {
	if r.subjects() != 1 {
		return Deny, fmt.Errorf("asking about call %q: want an action, safety checks or a tool, one of them", r.CallID)
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return Deny, context.Cause(ctx)
	}
	if err := context.Cause(ctx); err != nil {
		return Deny, err
	}
	if t.refused {
		return Deny, nil
	}
	if r.Action != nil && t.always[r.Action.Kind()] {
		return Allow, nil
	}
	answer, err := t.ask(ctx, r)
	if err != nil {
		return Deny, fmt.Errorf("asking on the terminal: %w", err)
	}
	switch answer {
	case "y":
		return Allow, nil
	case "a":
		t.always[r.Action.Kind()] = true
		return Allow, nil
	case "q":
		t.refused = true
	}
	return Deny, nil
}

// ask puts one question and returns the letter of the answer, one of those that it offers.
func (t *Terminal) ask(ctx context.Context, r Request) (answer string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("no answer within %v", t.timeout))
	defer cancel()
	if err := t.collect(); err != nil { // before it is discarded
		return "", err
	}
	if err := t.tty.SetDeadline(time.Time{}); err != nil {
		return "", err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		t.tty.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
		if cause := context.Cause(ctx); cause != nil {
			answer, err = "", cause // and not the read error it led to
		}
		if err != nil {
			// Whatever is printed next begins on a line of its own, if the terminal takes it.
			t.tty.SetDeadline(time.Now().Add(20 * time.Millisecond))
			io.WriteString(t.tty, "\n")
		}
	}()

	question, letters := offer(r)
	words := "\nThe model wants to " + strings.Join(Describe(r), "\n") + "\n"
	const tries = 3
	for range tries {
		if _, err := io.WriteString(t.tty, words); err != nil {
			return "", err
		}
		// Discarding comes before the last line of the question and not after it: an answer that is
		// typed as soon as that line is there counts.
		if err := t.tty.DiscardInput(); err != nil {
			return "", err
		}
		if _, err := io.WriteString(t.tty, question); err != nil {
			return "", err
		}
		line, err := readLine(t.tty)
		if err != nil {
			return "", err
		}
		answer := strings.ToLower(strings.TrimSpace(line))
		if len(answer) == 1 && strings.Contains(letters, answer) {
			return answer, nil
		}
		words = "Please answer with one letter and Enter.\n"
	}
	return "", fmt.Errorf("no clear answer in %d tries", tries)
}

// offer returns the last line of the question about r and the letters that answer it.
func offer(r Request) (question, letters string) {
	if r.Tool != nil {
		return "Allow it? y = yes, n = no, q = no to everything: ", "ynq"
	}
	if len(r.Checks) > 0 {
		return "Go on? y = yes, n = no, q = no to everything: ", "ynq"
	}
	return fmt.Sprintf("Allow it? y = yes, n = no, a = yes to every %s from now on, q = no to everything: ", r.Action.Kind()), "ynaq"
}

// readLine reads one line. What came with it after its end is dropped: it cannot be the answer to a later question.
func readLine(r io.Reader) (string, error) {
	const most = 4096 // as much as a Linux terminal takes for a line
	var line []byte
	buf := make([]byte, most)
	for len(line) < most {
		n, err := r.Read(buf)
		line = append(line, buf[:n]...)
		if end := bytes.IndexAny(line, "\r\n"); end >= 0 {
			return string(line[:end]), nil
		}
		if errors.Is(err, io.EOF) {
			return "", errors.New("end of input")
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("a line of more than %d bytes", most)
}
