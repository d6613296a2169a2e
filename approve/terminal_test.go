package approve_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deskagent/deskagent/approve"
)

// line is a TTY without a terminal: a connection, on which nothing is kept that was typed too early.
type line struct{ net.Conn }

func (line) DiscardInput() error { return nil }

// open returns a Terminal and the person's end of its line.
func open(t *testing.T, timeout time.Duration) (*approve.Terminal, net.Conn) {
	t.Helper()
	tty, person := net.Pipe()
	terminal, err := approve.OpenTerminal(&approve.TerminalOptions{TTY: line{tty}, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		terminal.Close()
		person.Close()
	})
	return terminal, person
}

// TestA2NoAnswer is row A2 of the field cases, the approver that never answers: the time-out says no, and later
// questions are asked all the same.
func TestA2NoAnswer(t *testing.T) {
	for _, tt := range []struct{ timeout, want time.Duration }{{0, 5 * time.Minute}, {20 * time.Second, 20 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			terminal, person := open(t, tt.timeout)
			go bufio.NewReader(person).WriteTo(new(strings.Builder))
			for range 2 {
				start := time.Now()
				got, err := approve.Ask(t.Context(), terminal, click)
				if want := "asking on the terminal: no answer within " + tt.want.String(); got != approve.Deny || err == nil || err.Error() != want {
					t.Errorf("got %v, %v, want a no, %s", got, err, want)
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("got it after %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// TestNobodyReads cancels while not even the question has been read.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal, _ := open(t, 0)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		start := time.Now()
		got, err := approve.Ask(ctx, terminal, click)
		if got != approve.Deny || !errors.Is(err, stop) {
			t.Errorf("got %v, %v, want a no, %v", got, err, stop)
		}
		if got, most := time.Since(start), time.Second+200*time.Millisecond; got > most {
			t.Errorf("got it after %v, want at most %v", got, most)
		}
	})
}

// TestOneQuestionAtATime has a second caller give up while the first question is on the terminal.
func TestOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal, person := open(t, 0)
		go bufio.NewReader(person).WriteTo(new(strings.Builder))
		first := make(chan approve.Decision)
		go func() {
			d, _ := approve.Ask(t.Context(), terminal, click)
			first <- d
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := approve.Ask(ctx, terminal, click); got != approve.Deny || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second: got %v, %v, want a no, %v", got, err, context.DeadlineExceeded)
		}
		person.Write([]byte("y\n"))
		if got := <-first; got != approve.Allow {
			t.Errorf("the first: got %v, want a yes", got)
		}
	})
}

func TestTypedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal, person := open(t, 0)
		go bufio.NewReader(person).WriteTo(new(strings.Builder))
		go person.Write([]byte("n\ny\n"))
		if got, err := approve.Ask(t.Context(), terminal, click); got != approve.Deny || err != nil {
			t.Errorf("got %v, %v, want the first line taken and nothing else", got, err)
		}
	})
}

func TestCloseIsANo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal, person := open(t, 0)
		go bufio.NewReader(person).WriteTo(new(strings.Builder))
		time.AfterFunc(time.Second, func() { terminal.Close() })
		if got, err := approve.Ask(t.Context(), terminal, click); got != approve.Deny || err == nil {
			t.Errorf("got %v, %v, want a no with an error", got, err)
		}
	})
}

func TestTerminalRefuses(t *testing.T) {
	if got, err := approve.OpenTerminal(&approve.TerminalOptions{Timeout: -1}); err == nil {
		t.Errorf("negative time-out: got %v, want an error", got)
	}
	terminal, _ := open(t, 0)
	both := checks
	both.Action = click.Action
	withTool := tool
	withTool.CallID = click.CallID
	withTool.Action = click.Action
	for _, r := range []approve.Request{{CallID: "call_1"}, both, withTool} {
		got, err := approve.Ask(t.Context(), terminal, r)
		if want := `asking about call "call_1": want an action, safety checks or a tool, one of them`; got != approve.Deny || err == nil || err.Error() != want {
			t.Errorf("got %v, %v, want a no, %s", got, err, want)
		}
	}
}
