//go:build unix

package settle

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestHung checks that a server that does not answer keeps nobody.
func TestHung(t *testing.T) {
	long(t)
	server := xvfb.ForTest(t, 640, 480)
	w, err := Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(server.PID(), syscall.SIGSTOP)
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	start := time.Now()
	if _, err := w.Wait(t.Context(), Timing{Deadline: time.Millisecond}); !errors.Is(err, driver.ErrDisplayLost) {
		t.Errorf("got %v, want %v", err, driver.ErrDisplayLost)
	}
	w.Mark()()
	if took := time.Since(start); took > 2*patience+tooLate {
		t.Errorf("a mark and a wait took %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := w.Wait(ctx, Timing{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
	closed := make(chan error)
	go func() { closed <- w.Close() }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), "has not answered") {
			t.Errorf("got %v from Close, want that the server has not answered", err)
		}
	case <-time.After(tooLate):
		t.Error("Close does not return")
	}
}
