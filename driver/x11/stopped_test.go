//go:build unix

package x11_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestServerStopped stops the server in the middle of an action, so that it does not answer: a call whose context
// is done comes back, and so does Close.
func TestServerStopped(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		t.Parallel() // It is all waiting.
		server := xvfb.ForTest(t, 640, 480)
		d, err := x11.Open(t.Context(), &x11.Options{Sink: sink, Display: server.Display()})
		if err != nil && sink == x11.SinkRobotgo && !cgo {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer syscall.Kill(server.PID(), syscall.SIGCONT)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := d.Move(ctx, driver.Move{X: 1, Y: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline exceeded", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("came back after %v", took)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if d, err := x11.Open(ctx, &x11.Options{Display: server.Display()}); d != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v from Open, want the deadline exceeded", d, err)
		}
		if err := d.Close(); err == nil || !strings.Contains(err.Error(), "has not answered") {
			t.Errorf("got %v from Close, want to be told", err)
		}
		if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("got %v from Close when the server answers again", err)
		}
	})
}
