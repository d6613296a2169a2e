package xvfb_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/internal/xvfb"
)

func TestSeveralDisplaysOfTheirSize(t *testing.T) {
	a, b := xvfb.ForTest(t, 640, 480), xvfb.ForTest(t, 1000, 700)
	if a.Display() == b.Display() {
		t.Fatalf("both are %s", a.Display())
	}
	for server, want := range map[*xvfb.Server][2]uint16{a: {640, 480}, b: {1000, 700}} {
		conn, err := xgb.NewConnDisplay(server.Display())
		if err != nil {
			t.Fatal(err)
		}
		screen := xproto.Setup(conn).DefaultScreen(conn)
		if got := [2]uint16{screen.WidthInPixels, screen.HeightInPixels}; got != want {
			t.Errorf("%s: got %v, want %v", server.Display(), got, want)
		}
		conn.Close()
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	ends := map[string]func(*xvfb.Server, context.CancelFunc){
		"close":   func(s *xvfb.Server, _ context.CancelFunc) { s.Close() },
		"kill":    func(s *xvfb.Server, _ context.CancelFunc) { s.Kill() },
		"context": func(s *xvfb.Server, cancel context.CancelFunc) { cancel(); <-s.Done(); s.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			xvfb.ForTest(t, 64, 64) // skips where there is no Xvfb
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s, err := xvfb.Start(ctx, &xvfb.Options{Width: 64, Height: 64})
			if err != nil {
				t.Fatal(err)
			}
			end(s, cancel)
			select {
			case <-s.Done():
			case <-time.After(5 * time.Second):
				t.Fatal("the server is still there")
			}
			socket := "/tmp/.X11-unix/X" + strings.TrimPrefix(s.Display(), ":")
			if _, err := os.Stat(socket); err == nil {
				// Another server may have the number by now, and then it answers.
				conn, err := net.Dial("unix", socket)
				if err != nil {
					t.Fatalf("%s is left", socket)
				}
				conn.Close()
			}
		})
	}
}

// TestL7 is row L7 of the field cases: a display that does not come up is an error that says why, not a wait for
// ever.
func TestL7(t *testing.T) {
	xvfb.ForTest(t, 64, 64)
	begin := time.Now()
	_, err := xvfb.Start(t.Context(), &xvfb.Options{Args: []string{"-nosuchoption"}})
	if err == nil || !strings.Contains(err.Error(), "nosuchoption") {
		t.Errorf("got %v, want the server's own words", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if _, err := xvfb.Start(t.Context(), &xvfb.Options{Width: -1, Height: 5}); err == nil {
		t.Error("got no error for a negative size")
	}
}
