//go:build unix

package capture

import (
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestServerStopped has the server hang: it counts as lost within a second, a context ends sooner, and afterwards
// pictures are those of then.
func TestServerStopped(t *testing.T) {
	for _, name := range []string{"shared", "direct"} {
		t.Run(name, func(t *testing.T) {
			server := start(t, 640, 480, 24)
			painter := newClient(t, server)
			painter.noise(t)
			grabber := grabbers(t, server, name)[name]
			grab(t, grabber, image.Rectangle{})

			stop(t, server)
			why := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
			begin := time.Now()
			if _, err := grabber.Grab(ctx, image.Rectangle{}); !errors.Is(err, why) {
				t.Errorf("got %v, want %v", err, why)
			}
			if took := time.Since(begin); took > 300*time.Millisecond {
				t.Errorf("a context that was done after 50ms was heeded after %v", took)
			}
			begin = time.Now()
			if _, err := grabber.Grab(t.Context(), image.Rectangle{}); !errors.Is(err, driver.ErrDisplayLost) {
				t.Errorf("got %v, want the display lost", err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("it was lost after %v, want at most a second", took)
			}

			if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			painter.noise(t)
			dump := xwd(t, server)
			for _, area := range []image.Rectangle{image.Rect(100, 100, 200, 200), {}} {
				dump.check(t, grab(t, grabber, area))
			}
			if _, err := grabber.Grab(ctx, image.Rectangle{}); !errors.Is(err, why) {
				t.Errorf("got %v with a context that is done, want %v", err, why)
			}
			dump.check(t, grab(t, grabber, image.Rectangle{}))
		})
	}
}

// stop stops a server, and waits until it has.
func stop(t *testing.T, server *xvfb.Server) {
	t.Helper()
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(server.PID(), syscall.SIGCONT) })
	await(t, "stopped", func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(server.PID()), "stat"))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}
