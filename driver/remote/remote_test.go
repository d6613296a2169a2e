package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	server               *remote.Server
	toServer, fromServer *os.File
	stop                 context.CancelFunc
	ended                chan struct{}
	err                  error // of Serve, set before ended
}

// serve serves a driver and allows everything.
func serve(t testing.TB, d driver.Driver) *served {
	t.Helper()
	return serveWith(t, d, &remote.ServerOptions{Approve: remote.Allow})
}

// serveWith serves a driver over two pipes. When the test ends the client is closed, and the server has to end by itself.
func serveWith(t testing.TB, d driver.Driver, opts *remote.ServerOptions) *served {
	t.Helper()
	s := offer(t, d, opts)
	client, err := remote.New(t.Context(), s.fromServer, s.toServer)
	if err != nil {
		t.Fatal(err)
	}
	s.Driver = client
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		<-s.ended
	})
	return s
}

// offer serves a driver to a client that is to come.
func offer(t testing.TB, d driver.Driver, opts *remote.ServerOptions) *served {
	t.Helper()
	server, err := remote.NewServer(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{server: server, ended: make(chan struct{})}
	var in, out *os.File
	in, s.toServer = pipe(t)
	s.fromServer, out = pipe(t)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	t.Cleanup(stop)
	go func() {
		defer close(s.ended)
		s.err = server.Serve(ctx, in, out)
	}()
	return s
}

// end waits for the end of the server, and returns what Serve did.
func (s *served) end(t testing.TB) error {
	t.Helper()
	select {
	case <-s.ended:
		return s.err
	case <-time.After(5 * time.Second):
		t.Fatal("the server goes on")
		return nil
	}
}

func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Rig {
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		return drivertest.Rig{Driver: serve(t, f), Screen: f.Screen, Events: f.Events, Held: f.Held, Pointer: f.Pointer}
	})
}

// TestContractX11 is the same on a real server, with a window on it that looks on.
func TestContractX11(t *testing.T) {
	d, _, window := desktop(t, 640, 480, x11.Options{})
	drivertest.Run(t, func(t *testing.T) drivertest.Rig {
		return drivertest.Rig{
			Driver: serve(t, d), Screen: image.Rect(0, 0, 640, 480),
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
			err := serve(t, f).Move(t.Context(), driver.Move{})
			if !errors.Is(err, sentinel) || err.Error() != "move: "+why.Error() {
				t.Errorf("got %v, want %v", err, why)
			}
		})
	}
}

func TestPicture(t *testing.T) {
	want := painted(image.Rect(0, 0, 320, 200))
	f := &drivertest.Fake{Screen: want.Rect, Picture: func() *image.RGBA { return want }}
	d := serve(t, f)
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

// TestScreenOffTheOrigin is about a monitor that is not in the top left corner.
func TestScreenOffTheOrigin(t *testing.T) {
	want := painted(image.Rect(100, 50, 164, 98))
	f := &drivertest.Fake{Screen: want.Rect, Picture: func() *image.RGBA { return want }}
	d := serve(t, f)
	frame, err := d.Screenshot(t.Context())
	if err != nil || frame.Area != want.Rect || frame.Image.Rect != want.Rect || frame.Image.RGBAAt(120, 60) != want.RGBAAt(120, 60) {
		t.Errorf("got %v of %v, want %v, %v", frame.Image.Rect, frame.Area, want.Rect, err)
	}
	if got, err := d.Bounds(t.Context()); err != nil || got != want.Rect {
		t.Errorf("bounds: got %v, %v, want %v", got, err, want.Rect)
	}
}

// TestWhatIsSent checks that fields nobody knows are left out, that the action is not changed by that, and that a text is
// never another one on the other side.
func TestWhatIsSent(t *testing.T) {
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
	d := serve(t, f)
	extra := driver.Extra{"note": json.RawMessage(`"x"`)}
	for _, a := range []driver.Action{
		driver.Click{Button: driver.ButtonLeft, Extra: extra}, driver.DoubleClick{Extra: extra},
		driver.Drag{Path: make([]image.Point, 2), Extra: extra, PathExtra: []driver.Extra{extra, nil}}, driver.Keypress{Keys: []string{"a"}, Extra: extra},
		driver.Move{Extra: extra}, driver.Scroll{Extra: extra}, driver.Type{Text: "<&> a\n\t\"", Extra: extra}, driver.Wait{Extra: extra},
	} {
		before := driver.Clone(a)
		if _, err := driver.Do(t.Context(), d, a); err != nil || !reflect.DeepEqual(a, before) {
			t.Errorf("%s: got %v, and %v", a.Kind(), err, a)
		}
	}
	if got := len(f.Actions()); got != 8 {
		t.Errorf("got %d actions, want 8", got)
	}
	if got := f.Actions()[6].(driver.Type).Text; got != "<&> a\n\t\"" {
		t.Errorf("typed %q", got)
	}
	if err := d.Type(t.Context(), driver.Type{Text: "a\xff"}); !errors.Is(err, driver.ErrInvalidAction) {
		t.Errorf("a text that is not UTF-8: got %v, want %v", err, driver.ErrInvalidAction)
	}
}

// TestScenes checks that what to show is chosen for the scene that there is, and in how many round trips.
func TestScenes(t *testing.T) {
	scene := func(w int) driver.Scene {
		return driver.Scene{Screen: image.Rect(0, 0, 100, 80), Window: driver.Window{ID: uint32(w), Bounds: image.Rect(w, 0, 2*w, 10), Visible: image.Rect(w, 0, 2*w, 9)}}
	}
	window := func(s driver.Scene) (image.Rectangle, image.Point, error) {
		if s.Window.ID == 0 {
			return image.Rectangle{}, image.Point{}, errNoWindow
		}
		return s.Window.Visible, image.Pt(5, 6), nil
	}
	v := &viewer{scenes: []driver.Scene{scene(10)}}
	d := serve(t, v)
	steps := []struct {
		name    string
		scenes  []driver.Scene // from now on, the last one for good
		want    driver.Scene
		err     error
		looks   int // of the server's driver
		chooses int
	}{
		{"the first", nil, scene(10), nil, 2, 1},
		{"the same scene", nil, scene(10), nil, 1, 1},
		{"another", []driver.Scene{scene(20)}, scene(20), nil, 2, 2},
		{"another in the meantime", []driver.Scene{scene(30), scene(10)}, scene(10), nil, 3, 3},
		{"none", []driver.Scene{scene(0)}, driver.Scene{}, errNoWindow, 1, 2},
		{"none any more", nil, driver.Scene{}, errNoWindow, 1, 2},
		{"one again", []driver.Scene{scene(20)}, scene(20), nil, 2, 2},
		{"one that is refused, before", []driver.Scene{scene(10)}, scene(10), nil, 2, 2},
	}
	for _, step := range steps {
		if step.scenes != nil {
			v.scenes = step.scenes
		}
		v.looks = 0
		chooses := 0
		frame, err := d.View(t.Context(), func(s driver.Scene) (image.Rectangle, image.Point, error) {
			chooses++
			if step.name == "one that is refused, before" && s == scene(20) {
				return image.Rectangle{}, image.Point{}, errNoWindow
			}
			return window(s)
		})
		if !errors.Is(err, step.err) || v.looks != step.looks || chooses != step.chooses {
			t.Fatalf("%s: got error %v, %d looks and %d choices, want %v, %d and %d", step.name, err, v.looks, chooses, step.err, step.looks, step.chooses)
		}
		if err != nil {
			continue
		}
		if frame.Scene != step.want || frame.Area != step.want.Window.Visible {
			t.Errorf("%s: got %v of %+v, want %+v", step.name, frame.Area, frame.Scene, step.want)
		}
		if p, err := frame.Pixels(); err != nil || p.Rect != image.Rect(0, 0, 5, 6) {
			t.Errorf("%s: got pixels %v, want 5x6, %v", step.name, p.Rect, err)
		}
	}

	v.scenes = nil
	for i := range 100 {
		v.scenes = append(v.scenes, scene(i+1))
	}
	if _, err := d.View(t.Context(), window); err == nil || !strings.Contains(err.Error(), "another each of") {
		t.Errorf("a scene that never stays: got %v", err)
	}
}

var errNoWindow = errors.New("no window is active")

// A viewer shows grey pictures of scenes, one after the other.
type viewer struct {
	drivertest.Fake
	scenes []driver.Scene
	looks  int
}

func (v *viewer) View(_ context.Context, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (*driver.Frame, error) {
	v.looks++
	now := v.scenes[0]
	if len(v.scenes) > 1 {
		v.scenes = v.scenes[1:]
	}
	area, size, err := choose(now)
	if err != nil {
		return nil, fmt.Errorf("taking a picture: %w", err)
	}
	return &driver.Frame{Image: image.NewRGBA(image.Rectangle{Max: size}), Area: area, Scene: now}, nil
}

// TestStandIns checks what a client gets of a driver that can do nothing but the nine actions.
func TestStandIns(t *testing.T) {
	want := painted(image.Rect(0, 0, 64, 48))
	bare := struct{ driver.Driver }{&drivertest.Fake{Screen: want.Rect, Picture: func() *image.RGBA { return want }}}
	d := serve(t, bare)
	if got, err := d.Bounds(t.Context()); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("bounds: got %v, %v, want %v", got, err, driver.ErrUnsupported)
	}
	part := image.Rect(8, 8, 24, 16)
	frame, err := d.View(t.Context(), func(s driver.Scene) (image.Rectangle, image.Point, error) {
		if s != (driver.Scene{Screen: want.Rect}) {
			t.Errorf("got the scene %+v, want a screen of %v", s, want.Rect)
		}
		return part, part.Size(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := frame.Pixels()
	if err != nil || frame.Area != part || got.Rect.Size() != part.Size() || got.RGBAAt(3, 2) != want.RGBAAt(11, 10) {
		t.Errorf("got %v of %v, want the part %v, %v", got.Rect, frame.Area, part, err)
	}
	if err := d.Holds(t.Context(), frame.Scene); err != nil {
		t.Errorf("holds: got %v", err)
	}
	_, err = d.View(t.Context(), func(driver.Scene) (image.Rectangle, image.Point, error) {
		return part, image.Pt(1<<20, 1<<20), nil
	})
	if !errors.Is(err, driver.ErrInvalidAction) {
		t.Errorf("a picture of 1048576x1048576: got %v, want %v", err, driver.ErrInvalidAction)
	}
}

// TestX11 checks that a picture of a real screen is the same through the wire, as is what is known about it.
func TestX11(t *testing.T) {
	local, _, window := desktop(t, 640, 480, x11.Options{Masks: []x11.Mask{{Area: image.Rect(0, 0, 20, 20)}}})
	if err := window.Show(painted(image.Rect(0, 0, 640, 480))); err != nil {
		t.Fatal(err)
	}
	d := serve(t, local)
	if err := d.Click(t.Context(), driver.Click{X: 5, Y: 6, Button: driver.ButtonLeft}); err != nil {
		t.Fatal(err)
	}
	choose := func(s driver.Scene) (image.Rectangle, image.Point, error) {
		return image.Rect(10, 10, 410, 310), image.Pt(200, 150), nil
	}
	got, err := d.View(t.Context(), choose)
	if err != nil {
		t.Fatal(err)
	}
	want, err := local.View(t.Context(), choose)
	if err != nil {
		t.Fatal(err)
	}
	pixels, err := got.Pixels()
	if err != nil || !slices.Equal(pixels.Pix, want.Image.Pix) {
		t.Errorf("got other pixels, %v", err)
	}
	if got.ID != want.ID-1 || got.Area != want.Area || got.Scene != want.Scene || got.Settling != want.Settling || got.Settling.State == "" {
		t.Errorf("got  %d %v %+v %+v\nwant %d-1 %v %+v %+v", got.ID, got.Area, got.Scene, got.Settling, want.ID, want.Area, want.Scene, want.Settling)
	}
	if err := d.Holds(t.Context(), got.Scene); err != nil {
		t.Errorf("holds: got %v", err)
	}
	other := got.Scene
	other.Screen.Max.X++
	if err := d.Holds(t.Context(), other); !errors.Is(err, driver.ErrStale) {
		t.Errorf("holds for another screen: got %v, want %v", err, driver.ErrStale)
	}
	if _, err := d.View(t.Context(), func(driver.Scene) (image.Rectangle, image.Point, error) {
		return image.Rect(0, 0, 641, 480), image.Pt(641, 480), nil
	}); !errors.Is(err, driver.ErrOutOfBounds) {
		t.Errorf("a part that is not there: got %v, want %v", err, driver.ErrOutOfBounds)
	}
}

func TestApprove(t *testing.T) {
	click := driver.Click{X: 1, Y: 2, Button: driver.ButtonBack, Keys: []string{"CTRL"}}
	all := func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, s.Screen.Size(), nil }
	why := errors.New("not today")
	for _, test := range []struct {
		name    string
		approve func(context.Context, driver.Action) error
		says    string
	}{
		{"nobody", nil, "nobody to ask"},
		{"no", func(context.Context, driver.Action) error { return why }, why.Error()},
		{"panic", func(context.Context, driver.Action) error { panic("who is there?") }, "panic: who is there?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
			v := &viewer{Fake: drivertest.Fake{Screen: f.Screen}, scenes: []driver.Scene{{Screen: f.Screen}}}
			d := serveWith(t, v, &remote.ServerOptions{Approve: test.approve})
			_, shot := d.Screenshot(t.Context())
			_, view := d.View(t.Context(), all)
			for name, err := range map[string]error{"click": d.Click(t.Context(), click), "screenshot": shot, "view": view} {
				if err == nil || !strings.Contains(err.Error(), test.says) || test.name != "panic" && !errors.Is(err, remote.ErrDeclined) {
					t.Errorf("%s: got %v, want it declined, as %q", name, err, test.says)
				}
			}
			if got := v.Actions(); len(got) > 0 {
				t.Errorf("got %v, want nothing done", got)
			}
		})
	}

	t.Run("the very value, once", func(t *testing.T) {
		var asked []driver.Action
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		d := serveWith(t, f, &remote.ServerOptions{Approve: func(_ context.Context, a driver.Action) error {
			asked = append(asked, driver.Clone(a))
			a.(driver.Click).Keys[0] = "SHIFT" // to no avail
			return nil
		}})
		if err := d.Click(t.Context(), click); err != nil {
			t.Fatal(err)
		}
		if want := []driver.Action{click}; !reflect.DeepEqual(asked, want) || !reflect.DeepEqual(f.Actions(), want) {
			t.Errorf("asked about %v and did %v, want %v", asked, f.Actions(), want)
		}
	})

	t.Run("one at a time", func(t *testing.T) {
		var asking atomic.Int32
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		d := serveWith(t, f, &remote.ServerOptions{Approve: func(context.Context, driver.Action) error {
			defer asking.Add(-1)
			if n := asking.Add(1); n > 1 {
				t.Errorf("%d questions at a time", n)
			}
			time.Sleep(10 * time.Millisecond)
			return nil
		}})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := d.Click(t.Context(), click); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := f.Overlap(); got != 1 {
			t.Errorf("%d actions at a time, want 1", got)
		}
	})

	t.Run("given up meanwhile", func(t *testing.T) {
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		ctx, cancel := context.WithCancelCause(t.Context())
		d := serveWith(t, f, &remote.ServerOptions{Approve: func(far context.Context, _ driver.Action) error {
			cancel(why)
			<-far.Done()
			return nil // A yes that comes too late.
		}})
		if err := d.Click(ctx, click); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
		if got := f.Actions(); len(got) > 0 {
			t.Errorf("got %v, want nothing done", got)
		}
	})
}

// dragging starts a drag that takes long, and waits until the button is down. The error of the drag comes over the
// channel.
func dragging(ctx context.Context, t *testing.T, d driver.Driver, held func() []string) <-chan error {
	t.Helper()
	path := make([]image.Point, 5000)
	for i := range path {
		path[i] = image.Pt(10+i%2*300, 10)
	}
	failed := make(chan error, 1)
	go func() { failed <- d.Drag(ctx, driver.Drag{Path: path, Keys: []string{"CTRL"}}) }()
	for len(held()) < 2 {
		select {
		case err := <-failed:
			t.Fatalf("the drag has ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	return failed
}

// within checks that a call fails in time, and has the error.
func within(t *testing.T, limit time.Duration, failed <-chan error, want error) {
	t.Helper()
	select {
	case err := <-failed:
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
	case <-time.After(limit):
		t.Fatalf("the call goes on after %v", limit)
	}
}

// TestEnds ends a connection in the middle of a drag, in every way, on a real screen: everything is let go of, the
// server returns, and the client's call fails at once.
func TestEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		end    func(s *served)
		client error // of the drag
		server error // of Serve
	}{
		{"the client closes", func(s *served) { s.Close() }, remote.ErrClosed, nil},
		{"what the client writes ends", func(s *served) { s.toServer.Close() }, driver.ErrDisplayLost, nil},
		{"both ends of the client are gone", func(s *served) { s.toServer.Close(); s.fromServer.Close() }, driver.ErrDisplayLost, nil},
		{"the client writes what is no message", func(s *served) { fmt.Fprintln(s.toServer, "?") }, driver.ErrDisplayLost, errAny},
		{"the server is told to stop", func(s *served) { s.stop() }, errAny, context.Canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, _, window := desktop(t, 640, 480, x11.Options{})
			s := serve(t, x)
			held := func() []string {
				held, err := window.Held()
				if err != nil {
					t.Error(err)
				}
				return held
			}
			failed := dragging(t.Context(), t, s, held)
			begin := time.Now()
			test.end(s)
			err := s.end(t)
			if took := time.Since(begin); took > time.Second {
				t.Errorf("the server returned after %v, want it at once", took)
			}
			if got := held(); len(got) > 0 {
				t.Errorf("%v down when the server has returned", got)
			}
			if (test.server == nil) != (err == nil) || test.server != nil && test.server != errAny && !errors.Is(err, test.server) {
				t.Errorf("serving: got %v, want %v", err, test.server)
			}
			if test.client == errAny {
				if err := <-failed; err == nil {
					t.Error("the drag: got no error")
				}
			} else {
				within(t, time.Second, failed, test.client)
			}
			begin = time.Now()
			if err := s.Move(t.Context(), driver.Move{X: 1, Y: 1}); err == nil || time.Since(begin) > time.Second {
				t.Errorf("another call: got %v after %v, want an error at once", err, time.Since(begin))
			}
		})
	}
}

var errAny = errors.New("some error")

// TestNobodyReads checks that a client which does not read its answers keeps nobody.
func TestNobodyReads(t *testing.T) {
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 1280, 800), Picture: func() *image.RGBA { return painted(image.Rect(0, 0, 1280, 800)) }}
	s := offer(t, f, &remote.ServerOptions{Approve: remote.Allow})
	fmt.Fprintln(s.toServer, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	fmt.Fprintln(s.toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(s.toServer, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"screenshot","arguments":{}}}`)
	for b, lines := make([]byte, 1), 0; lines < 1 || b[0] != '{'; { // up to where the picture begins
		if _, err := s.fromServer.Read(b); err != nil {
			t.Fatal(err)
		}
		if b[0] == '\n' {
			lines++
		}
	}
	begin := time.Now()
	s.stop()
	if err := s.end(t); !errors.Is(err, context.Canceled) || time.Since(begin) > 2*time.Second {
		t.Errorf("got %v after %v, want %v after a second", err, time.Since(begin), context.Canceled)
	}
}

// TestCancelWaits checks that a call that is given up ends when the driver has let go of everything, and not before.
func TestCancelWaits(t *testing.T) {
	var released atomic.Bool
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480), Hook: func(ctx context.Context, _ driver.Action) error {
		<-ctx.Done()
		time.Sleep(200 * time.Millisecond)
		released.Store(true)
		return ctx.Err()
	}}
	d := serve(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Move(ctx, driver.Move{}); !errors.Is(err, context.DeadlineExceeded) || !released.Load() {
		t.Errorf("got %v and released %v, want %v after the release", err, released.Load(), context.DeadlineExceeded)
	}
}

// TestCancelInTurn checks that a call that waits for its turn can be given up, without effect on the one before.
func TestCancelInTurn(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480), Hook: func(_ context.Context, a driver.Action) error {
		if a.Kind() == driver.KindWait {
			close(inside)
			<-release
		}
		return nil
	}}
	d := serve(t, f)
	first := make(chan error, 1)
	go func() { first <- d.Wait(t.Context(), driver.Wait{}) }()
	<-inside
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if err := d.Move(ctx, driver.Move{X: 1, Y: 1}); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if got, want := f.Actions(), []driver.Action{driver.Wait{}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestStuck checks that a call is not waited for when the server has been told and does not stop.
func TestStuck(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480), Hook: func(context.Context, driver.Action) error { <-release; return nil }}
	d := serve(t, f)
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
	defer cancel()
	begin := time.Now()
	err := d.Move(ctx, driver.Move{X: 1, Y: 1})
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "keys and buttons may be down") || time.Since(begin) > 3*time.Second {
		t.Errorf("got %v after %v, want it said that there was no answer", err, time.Since(begin))
	}
}

// TestOneClient checks that a second client is refused, whichever way it comes, and the first goes on.
func TestOneClient(t *testing.T) {
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
	s := serve(t, f)
	in, toServer := pipe(t)
	fromServer, out := pipe(t)
	refused := make(chan error, 1)
	go func() { refused <- s.server.Serve(t.Context(), in, out) }()
	if d, err := remote.New(t.Context(), fromServer, toServer); err == nil || !strings.Contains(err.Error(), remote.ErrBusy.Error()) {
		t.Errorf("got %v, %v, want an error that says %q", d, err, remote.ErrBusy)
	}
	if err := <-refused; !errors.Is(err, remote.ErrBusy) {
		t.Errorf("serving: got %v, want %v", err, remote.ErrBusy)
	}
	fmt.Fprintln(s.toServer, `{"jsonrpc":"2.0","id":"again","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if err := s.Move(t.Context(), driver.Move{X: 3, Y: 4}); err != nil {
		t.Error(err)
	}
	if got, want := f.Actions(), []driver.Action{driver.Move{X: 3, Y: 4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.end(t); err != nil {
		t.Error(err)
	}

	// The next one is welcome.
	in, toServer = pipe(t)
	fromServer, out = pipe(t)
	go func() { refused <- s.server.Serve(t.Context(), in, out) }()
	next, err := remote.New(t.Context(), fromServer, toServer)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(next.Move(t.Context(), driver.Move{X: 5, Y: 6}), next.Close(), <-refused); err != nil {
		t.Error(err)
	}
}

// TestNothingStays checks that no goroutine outlives a client and its server.
func TestNothingStays(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480)}
		s := offer(t, f, &remote.ServerOptions{Approve: remote.Allow})
		d, err := remote.New(t.Context(), s.fromServer, s.toServer)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		dragged := dragging(ctx, t, d, f.Held)
		cancel()
		within(t, time.Second, dragged, context.Canceled)
		if err := errors.Join(d.Close(), s.end(t)); err != nil {
			t.Error(err)
		}
	}
	for begin := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
