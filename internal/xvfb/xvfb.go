// Package xvfb starts private virtual X displays and ends them, whatever happens: with Close, with the context,
// and with this process.
package xvfb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/deskagent/deskagent/internal/run"
)

// ErrMissing is wrapped by the error of a machine without Xvfb.
var ErrMissing = errors.New("Xvfb is not installed")

// Options describes a display. Nil means the zero Options.
type Options struct {
	// Width, Height in pixels; zero means 1280x800.
	Width, Height int
	// Depth in bits per pixel of the root window; zero means 24.
	Depth int
	// Args are further arguments of Xvfb.
	Args []string
}

// startTime bounds how long a display may take to come up (row L7 of the field cases).
const startTime = 20 * time.Second

// A Server is a running display.
type Server struct {
	display string
	process *run.Process
}

// Start starts a display on a free number and returns when it accepts connections. It listens on no network and
// ends when ctx does.
func Start(ctx context.Context, opts *Options) (*Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	width, height, depth := opts.Width, opts.Height, opts.Depth
	if width == 0 && height == 0 {
		width, height = 1280, 800
	}
	if depth == 0 {
		depth = 24
	}
	if width < 1 || height < 1 || width > 32767 || height > 32767 {
		return nil, fmt.Errorf("starting a virtual display of %dx%d: want from 1x1 to 32767x32767", width, height)
	}
	program, err := exec.LookPath("Xvfb")
	if err != nil {
		return nil, fmt.Errorf("starting a virtual display: %w", ErrMissing)
	}
	ready, number, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting a virtual display: %w", err)
	}
	defer ready.Close()
	argv := append([]string{program, "-displayfd", "3", // the server picks a free number, writes it and a newline when ready
		"-screen", "0", fmt.Sprintf("%dx%dx%d", width, height, depth),
		"-nolisten", "tcp", "-noreset"}, // without -noreset it forgets everything when its last client goes
		opts.Args...)
	process, err := run.Start(ctx, argv, &run.Options{Files: []*os.File{number}})
	number.Close()
	if err != nil {
		return nil, fmt.Errorf("starting a virtual display: %w", err)
	}
	ready.SetReadDeadline(time.Now().Add(startTime))
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil {
		process.Stop()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		} else if childErr := process.Err(); childErr != nil {
			err = childErr
		}
		return nil, fmt.Errorf("starting a virtual display: %w", err)
	}
	return &Server{display: ":" + strings.TrimSpace(line), process: process}, nil
}

// Display is the name of the display, such as ":3".
func (s *Server) Display() string { return s.display }

// PID is the process id of the server.
func (s *Server) PID() int { return s.process.PID() }

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Err waits for the end of the server and says how it ended.
func (s *Server) Err() error { return s.process.Err() }

// Close ends the display and waits for its end. It may be called again.
func (s *Server) Close() error {
	s.process.Stop()
	s.removeSocket()
	return nil
}

// Kill kills the server, as a crash would, and waits for its end.
func (s *Server) Kill() {
	s.process.Kill()
	s.removeSocket()
}

// removeSocket removes the socket that a killed server leaves, unless another server has the number by now. There
// is no lock file: with -displayfd the server writes none.
func (s *Server) removeSocket() {
	socket := filepath.Join("/tmp", ".X11-unix", "X"+strings.TrimPrefix(s.display, ":"))
	if conn, err := net.Dial("unix", socket); err == nil {
		conn.Close()
		return
	}
	os.Remove(socket)
}

// TB is the part of testing.TB that ForTest needs; package testing has no place in the program itself.
type TB interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
	Cleanup(func())
}

// ForTest starts a display for a test and ends it after the test. The test is skipped where Xvfb is missing.
func ForTest(t TB, width, height int, args ...string) *Server {
	t.Helper()
	return StartForTest(t, &Options{Width: width, Height: height, Args: args})
}

// StartForTest is ForTest with all there is to choose.
func StartForTest(t TB, opts *Options) *Server {
	t.Helper()
	s, err := Start(context.Background(), opts)
	if errors.Is(err, ErrMissing) {
		t.Skip("needs Xvfb")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
