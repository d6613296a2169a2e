package remote_test

import (
	"context"
	"errors"
	"fmt"
	"image"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/drivertest"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// pipe is a pipe that is closed when the test ends.
func pipe(t testing.TB) (in, out *os.File) {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		out.Close()
	})
	return in, out
}

// served is a driver that is served, and its client.
type served struct {
	*remote.Driver
	server        *remote.Server
	toServer      *os.File
	toClient      *os.File
	stop          context.CancelFunc
	serveReturned <-chan error
}

// serve serves a driver over two pipes. When the test ends the client is closed, and the server has to end by itself.
func serve(t testing.TB, d driver.Driver, opts remote.ServerOptions) *served {
	t.Helper()
	if opts.Approve == nil {
		opts.Approve = remote.Allow
	}
	server, err := remote.NewServer(d, &opts)
	if err != nil {
		t.Fatal(err)
	}
	serverIn, toServer := pipe(t)
	clientIn, toClient := pipe(t)
	ctx, stop := context.WithCancel(context.Background())
	returned := make(chan error, 1)
	go func() { returned <- server.Serve(ctx, serverIn, toClient) }()
	client, err := remote.New(t.Context(), clientIn, toServer)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Driver: client, server: server, toServer: toServer, toClient: toClient, stop: stop, serveReturned: returned}
	t.Cleanup(func() {
		defer stop()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		s.ends(t)
	})
	return s
}

// ends waits for the end of the server.
func (s *served) ends(t testing.TB) (err error) {
	t.Helper()
	select {
	case err, ok := <-s.serveReturned:
		if ok {
			s.serveReturned = closed
		}
		return err
	case <-time.After(5 * time.Second):
		t.Error("the server goes on")
		return nil
	}
}

var closed = func() <-chan error {
	c := make(chan error)
	close(c)
	return c
}()

func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Rig {
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		return drivertest.Rig{Driver: serve(t, f, remote.ServerOptions{}), Screen: f.Screen, Events: f.Events, Held: f.Held, Pointer: f.Pointer}
	})
}

// TestContractX11 is the same on a real server, with a window on it that looks on.
func TestContractX11(t *testing.T) {
	d, server, window := desktop(t, 640, 480, x11.Options{})
	_ = server
	drivertest.Run(t, func(t *testing.T) drivertest.Rig {
		return drivertest.Rig{
			Driver: serve(t, d, remote.ServerOptions{}), Screen: image.Rect(0, 0, 640, 480),
			Events: func() []string {
				events, err := window.Events()
				if err != nil {
					t.Fatal(err)
				}
				var lines []string
				for _, e := range events {
					if e.Kind != witness.Motion {
						lines = append(lines, e.String())
					}
				}
				return lines
			},
			Held: func() []string {
				held, err := window.Held()
				if err != nil {
					t.Fatal(err)
				}
				return held
			},
			Pointer: func() image.Point {
				p, err := window.Pointer()
				if err != nil {
					t.Fatal(err)
				}
				return p
			},
		}
	})
}

// desktop is a virtual display with a window over all of it, and a driver.
func desktop(t testing.TB, width, height int, opts x11.Options) (*x11.Driver, *xvfb.Server, *witness.Window) {
	t.Helper()
	server := xvfb.ForTest(t, width, height)
	window := witness.ForTest(t, server.Display())
	opts.Display, opts.Sink = server.Display(), x11.SinkXTEST
	d, err := x11.Open(t.Context(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, server, window
}

// painted is a picture of noise, which no encoding can guess.
func painted(r image.Rectangle) *image.RGBA {
	p := image.NewRGBA(r)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range p.Pix {
		p.Pix[i] = byte(random.Uint32())
		if i%4 == 3 {
			p.Pix[i] = 0xff
		}
	}
	return p
}

// TestSentinels checks that each of package driver's errors is the same on the other side, and its words.
func TestSentinels(t *testing.T) {
	for _, sentinel := range []error{
		driver.ErrNoDisplay, driver.ErrDisplayLost, driver.ErrOutOfBounds, driver.ErrUnknownKey, driver.ErrUnknownButton, driver.ErrUnsupported,
		driver.ErrInvalidAction, driver.ErrHeld, driver.ErrInterference, driver.ErrStale,
	} {
		t.Run(sentinel.Error(), func(t *testing.T) {
			why := fmt.Errorf("button 3: %w, alas", sentinel)
			f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480), Hook: func(context.Context, driver.Action) error { return why }}
			err := serve(t, f, remote.ServerOptions{}).Move(t.Context(), driver.Move{})
			if !errors.Is(err, sentinel) || err.Error() != "move: "+why.Error() {
				t.Errorf("got %v, want %v", err, why)
			}
		})
	}
}

func TestPicture(t *testing.T) {
	want := painted(image.Rect(0, 0, 320, 200))
	f := &drivertest.Fake{Screen: want.Rect, Picture: func() *image.RGBA { return want }}
	d := serve(t, f, remote.ServerOptions{})
	for range 3 {
		frame, err := d.View(t.Context(), func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, s.Screen.Size(), nil })
		if err != nil {
			t.Fatal(err)
		}
		if frame.Image != nil || !strings.HasPrefix(frame.DataURL, "data:image/png;base64,") {
			t.Errorf("got pixels %v and the URL %.40q, want the latter alone", frame.Image != nil, frame.DataURL)
		}
		got, err := frame.Pixels()
		if err != nil || got.Rect != want.Rect || !slices.Equal(got.Pix, want.Pix) {
			t.Errorf("got another picture, %v", err)
		}
	}
}
