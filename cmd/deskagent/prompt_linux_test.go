package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/internal/witness"
)

// TestPrompt answers the questions of run on a terminal of its own.
func TestPrompt(t *testing.T) {
	tests := []struct {
		name, answers string
		code, clicks  int
	}{
		{"yes to both", "yy", exitDone, 1},
		{"no", "n", exitDeclined, 0},
		{"yes to the click, no to the picture", "yn", exitDeclined, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server, window := guest(t)
			api := serveAPI(t.Cleanup, []string{clickCall, doneMessage})
			cmd := deskagent(t, server.Display(), api.URL, "run", "click")
			var output, talk bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &talk
			// Its controlling terminal; the standard streams stay what they are.
			terminal, far, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer terminal.Close()
			cmd.Stdin = far
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			far.Close()
			var shown strings.Builder
			buf := make([]byte, 4096)
			for _, answer := range test.answers {
				for !strings.HasSuffix(shown.String(), "everything: ") {
					n, err := terminal.Read(buf)
					shown.Write(buf[:n])
					if err != nil {
						t.Fatalf("%v after %q\n%s", err, shown.String(), talk.String())
					}
				}
				fmt.Fprintf(&shown, "%c\n", answer)
				fmt.Fprintf(terminal, "%c\n", answer)
			}
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != test.code {
				t.Errorf("got exit code %d, want %d:\n%s", got, test.code, talk.String())
			}
			if test.code == exitDone && output.String() != "Done.\n" {
				t.Errorf("got %q on standard output", output.String())
			}
			if want := "click the left button at (10,20)"; !strings.Contains(shown.String(), want) {
				t.Errorf("got %q, want %q shown", shown.String(), want)
			}
			events, err := window.Events()
			if err != nil {
				t.Fatal(err)
			}
			clicks := 0
			for _, e := range events {
				if e.Kind == witness.ButtonDown {
					clicks++
				}
			}
			if clicks != test.clicks {
				t.Errorf("got %d clicks, want %d", clicks, test.clicks)
			}
		})
	}
}

// TestServePrompt answers the questions of serve on a terminal of its own, whose client is a program.
func TestServePrompt(t *testing.T) {
	server, window := guest(t)
	terminal, far, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	serve := deskagent(t, server.Display(), "", "serve")
	serve.ExtraFiles = []*os.File{far}
	serve.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	s := connect(t, serve)
	far.Close()
	for _, test := range []struct {
		answer string
		want   error
		clicks int
	}{{"n", remote.ErrDeclined, 0}, {"y", nil, 1}} {
		done := make(chan error, 1)
		go func() { done <- s.Click(t.Context(), driver.Click{X: 10, Y: 20, Button: driver.ButtonLeft}) }()
		var shown strings.Builder
		buf := make([]byte, 4096)
		for !strings.HasSuffix(shown.String(), "everything: ") {
			n, err := terminal.Read(buf)
			shown.Write(buf[:n])
			if err != nil {
				t.Fatalf("%v after %q", err, shown.String())
			}
		}
		fmt.Fprintln(terminal, test.answer)
		if err := <-done; !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.answer, err, test.want)
		}
		if want := "click the left button at (10,20)"; !strings.Contains(shown.String(), want) {
			t.Errorf("got %q, want %q shown", shown.String(), want)
		}
		events, err := window.Events()
		if err != nil {
			t.Fatal(err)
		}
		clicks := 0
		for _, e := range events {
			if e.Kind == witness.ButtonDown {
				clicks++
			}
		}
		if clicks != test.clicks {
			t.Errorf("%s: got %d clicks, want %d", test.answer, clicks, test.clicks)
		}
	}
}
