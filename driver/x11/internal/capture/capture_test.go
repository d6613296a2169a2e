package capture

import (
	"errors"
	"fmt"
	"image"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestPixels compares with xwd, on noise that another client has painted.
func TestPixels(t *testing.T) {
	for _, test := range []struct {
		depth    int
		format   Format
		grabbers []string
	}{
		{16, RGB565, []string{"shared", "direct"}},
		{24, BGRX8888, []string{"shared", "direct", "kbinani"}},
		{30, XRGB2101010, []string{"shared", "direct"}},
	} {
		t.Run(fmt.Sprintf("depth %d", test.depth), func(t *testing.T) {
			server := start(t, 333, 241, test.depth) // rows that fill no words
			newClient(t, server).noise(t)
			dump := xwd(t, server)
			if dump.depth != test.depth {
				t.Fatalf("the screen is of depth %d, want %d", dump.depth, test.depth)
			}
			for name, grabber := range grabbers(t, server, test.grabbers...) {
				t.Run(name, func(t *testing.T) {
					for _, area := range areas(image.Rect(0, 0, 333, 241)) {
						raw := grab(t, grabber, area)
						if raw.Format != test.format {
							t.Fatalf("got %v, want %v", raw.Format, test.format)
						}
						if want := area; !area.Empty() && raw.Bounds != want || area.Empty() && raw.Bounds != raw.Screen {
							t.Fatalf("got a picture of %v, want %v", raw.Bounds, want)
						}
						dump.check(t, raw)
						if raw.Uniform() && raw.Bounds.Size() != image.Pt(1, 1) {
							t.Errorf("noise in %v counts as uniform", raw.Bounds)
						}
					}
				})
			}
		})
	}
}

// areas are all of the screen, each offset and width within some words, and the corners.
func areas(screen image.Rectangle) []image.Rectangle {
	list := []image.Rectangle{{}, screen, image.Rect(17, 23, 300, 200)}
	for x := range 5 {
		for _, width := range []int{1, 2, 3, 4, 7, 9} {
			list = append(list, image.Rect(x, x+1, x+width, x+3))
		}
	}
	for _, corner := range []image.Point{{}, {X: screen.Max.X - 1}, {Y: screen.Max.Y - 1}, screen.Max.Sub(image.Pt(1, 1))} {
		list = append(list, image.Rectangle{Min: corner, Max: corner.Add(image.Pt(1, 1))})
	}
	return list
}

func TestOutside(t *testing.T) {
	server := start(t, 640, 480, 24)
	for name, grabber := range grabbers(t, server, "shared", "direct", "kbinani") {
		for _, area := range []image.Rectangle{
			image.Rect(-1, 0, 10, 10), image.Rect(0, 0, 641, 480), image.Rect(0, 470, 10, 481), image.Rect(1000, 1000, 1001, 1001),
			image.Rect(65536, 0, 65546, 10), image.Rect(0, 0, 20_000, 20_000), image.Rect(0, 0, 1<<40, 1<<40),
		} {
			_, err := grabber.Grab(t.Context(), area)
			if !errors.Is(err, driver.ErrOutOfBounds) || !strings.Contains(fmt.Sprint(err), area.String()) || !strings.Contains(fmt.Sprint(err), "(640,480)") {
				t.Errorf("%s: %v: got %v, want an error that names it and the screen", name, area, err)
			}
		}
		if raw := grab(t, grabber, image.Rectangle{}); raw.Bounds != image.Rect(0, 0, 640, 480) {
			t.Errorf("%s: got %v after errors, want all of the screen", name, raw.Bounds)
		}
		if shared, ok := grabber.(*Shared); ok && len(shared.segment.Data) != 4*640*480 {
			t.Errorf("got %d bytes of shared memory after errors, want those of the screen", len(shared.segment.Data))
		}
	}
}

func TestRefusesDepths(t *testing.T) {
	for _, depth := range []int{8, 15} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			server := start(t, 320, 240, depth)
			_, err := Open(t.Context(), server.Display(), quiet)
			if want := fmt.Sprintf("screen of depth %d: not supported, want depth 24, 16 or 30", depth); !errors.Is(err, driver.ErrUnsupported) || fmt.Sprint(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// TestC11 is row C11 of the field cases: without shared memory, pictures come over the connection.
func TestC11(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		host string
		want string
		says string
	}{
		{name: "shared", want: "*capture.Shared"},
		{name: "no MIT-SHM", args: []string{"-extension", "MIT-SHM"}, want: "*capture.Direct", says: "has no MIT-SHM"},
		{name: "TCP", args: []string{"-listen", "tcp"}, host: "127.0.0.1", want: "*capture.Direct", says: "sending a file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := start(t, 320, 240, 24, test.args...)
			newClient(t, server).noise(t)
			observer := connect(t, server)
			before := clients(t, observer)
			var said strings.Builder
			grabber, err := Open(t.Context(), test.host+server.Display(), slog.New(slog.NewTextHandler(&said, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer grabber.Close()
			if !strings.Contains(said.String(), test.says) || (said.Len() == 0) != (test.says == "") {
				t.Errorf("the log says %q, want %q", &said, test.says)
			}
			// What was tried and given up is let go of.
			await(t, "one more client", func() bool { return clients(t, observer) == before+1 })
			if got := fmt.Sprintf("%T", grabber); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			xwd(t, server).check(t, grab(t, grabber, image.Rectangle{}))
		})
	}
}

func TestNoDisplay(t *testing.T) {
	for _, name := range []string{"", ":", "nonsense", ":12345", ":12345.1", "127.0.0.1:9999"} {
		if _, err := Open(t.Context(), name, quiet); !errors.Is(err, driver.ErrNoDisplay) || strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%q: got %v, want no display, in one line", name, err)
		}
	}
}

// TestResize has the screen become smaller and larger, also beyond what the memory was made for.
func TestResize(t *testing.T) {
	server := start(t, 1000, 700, 24)
	painter := newClient(t, server)
	resize(t, server, 400, 300)
	opened := grabbers(t, server, "shared", "direct") // while it is small
	for _, size := range []image.Point{{X: 400, Y: 300}, {X: 801, Y: 601}, {X: 333, Y: 222}, {X: 1000, Y: 700}} {
		resize(t, server, size.X, size.Y)
		painter.noise(t)
		dump := xwd(t, server)
		for name, grabber := range opened {
			raw := grab(t, grabber, image.Rectangle{})
			if got, want := raw.Bounds, (image.Rectangle{Max: size}); got != want {
				t.Fatalf("%s: got a picture of %v, want %v", name, got, want)
			}
			dump.check(t, raw)
		}
	}
	for name, grabber := range opened { // an area that is in the old size, and one that is only in the new one
		resize(t, server, 300, 200)
		if _, err := grabber.Grab(t.Context(), image.Rect(0, 0, 301, 200)); !errors.Is(err, driver.ErrOutOfBounds) {
			t.Errorf("%s: got %v, want the area outside", name, err)
		}
		resize(t, server, 1000, 700)
		dump := xwd(t, server)
		dump.check(t, grab(t, grabber, image.Rect(900, 600, 1000, 700)))
	}
}

// TestResizeMeanwhile takes pictures while the size changes all the time.
func TestResizeMeanwhile(t *testing.T) {
	server := start(t, 640, 480, 24)
	resize(t, server, 640, 480) // or skip, which is for this goroutine to do
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			resize(t, server, 640-i%2*300, 480-i%2*200)
		}
	}()
	opened := grabbers(t, server, "shared", "direct")
	seen := map[image.Point]int{}
	for {
		for name, grabber := range opened {
			raw, err := grabber.Grab(t.Context(), image.Rectangle{})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if raw.Bounds != raw.Screen {
				t.Fatalf("%s: got %v of %v, want all of it", name, raw.Bounds, raw.Screen)
			}
			seen[raw.Bounds.Size()]++
		}
		select {
		case <-done:
			if len(seen) < 2 {
				t.Errorf("got the sizes %v, want two", seen)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// resize makes the screen smaller or larger. Its only output is in the way, and is switched off.
func resize(t *testing.T, server *xvfb.Server, width, height int) {
	t.Helper()
	if _, err := exec.LookPath("xrandr"); err != nil {
		t.Skip("needs xrandr")
	}
	argv := []string{"-display", server.Display(), "--output", "screen", "--off", "--fb", fmt.Sprintf("%dx%d", width, height)}
	if out, err := exec.Command("xrandr", argv...).CombinedOutput(); err != nil {
		t.Errorf("xrandr %q: %v: %s", argv, err, out)
	}
}

// TestKbinaniRefuses checks that it is an error, and no picture of something else, where kbinani/screenshot would
// look elsewhere.
func TestKbinaniRefuses(t *testing.T) {
	server := start(t, 640, 480, 24)
	conn := connect(t, server)
	for _, test := range []struct{ display, session string }{
		{":12345", ""},
		{"", ""},
		{conn.Name, "wayland"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			t.Setenv("DISPLAY", test.display)
			t.Setenv("XDG_SESSION_TYPE", test.session)
			if _, err := NewKbinani(conn); !errors.Is(err, driver.ErrUnsupported) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
	t.Run("no monitor", func(t *testing.T) {
		kbinani := grabbers(t, server, "kbinani")["kbinani"]
		resize(t, server, 640, 480) // switches it off
		if _, err := kbinani.Grab(t.Context(), image.Rectangle{}); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("got %v, want it refused", err)
		}
	})
	server = start(t, 320, 240, 30)
	t.Setenv("DISPLAY", server.Display())
	t.Setenv("XDG_SESSION_TYPE", "x11")
	if _, err := NewKbinani(connect(t, server)); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("depth 30: got %v, want it refused", err)
	}
}
