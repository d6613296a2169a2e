package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// start starts a display of a depth.
func start(t testing.TB, width, height, depth int, args ...string) *xvfb.Server {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("memory is shared on Linux only")
	}
	return xvfb.ForTest(t, width, height, append(args, "-screen", "0", fmt.Sprintf("%dx%dx%d", width, height, depth))...)
}

// connect is another client of a display.
func connect(t testing.TB, server *xvfb.Server) *display.Conn {
	t.Helper()
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A client paints.
type client struct {
	*display.Conn
	gc xproto.Gcontext
}

func newClient(t testing.TB, server *xvfb.Server) client {
	t.Helper()
	conn := connect(t, server)
	gc, err := xproto.NewGcontextId(conn.X)
	if err != nil {
		t.Fatal(err)
	}
	xproto.CreateGC(conn.X, gc, conn.Root(), xproto.GcSubwindowMode, []uint32{xproto.SubwindowModeIncludeInferiors})
	return client{conn, gc}
}

// noise paints every bit of every pixel of the root window at random, bits without a meaning included.
func (c client) noise(t testing.TB) {
	t.Helper()
	screen, err := c.Bounds()
	if err != nil {
		t.Fatal(err)
	}
	layout, err := layoutOf(c.Setup, c.Screen)
	if err != nil {
		t.Fatal(err)
	}
	rows := 200_000 / layout.stride(screen.Dx()) // as a request may not be longer than 256 KiB
	for y := 0; y < screen.Dy(); y += rows {
		height := min(rows, screen.Dy()-y)
		data := noise(height * layout.stride(screen.Dx()))
		xproto.PutImage(c.X, xproto.ImageFormatZPixmap, c.Root(), c.gc, uint16(screen.Dx()), uint16(height), 0, int16(y), 0, c.Screen.RootDepth, data)
	}
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
}

// noise is random bytes, others in each call.
func noise(n int) []byte {
	p := make([]byte, n)
	random.Read(p)
	return p
}

var random = rand.NewChaCha8([32]byte{1})

// fill paints an area in one colour.
func (c client) fill(t testing.TB, area image.Rectangle, pixel uint32) {
	t.Helper()
	xproto.ChangeGC(c.X, c.gc, xproto.GcForeground, []uint32{pixel})
	xproto.PolyFillRectangle(c.X, c.Root(), c.gc, []xproto.Rectangle{
		{X: int16(area.Min.X), Y: int16(area.Min.Y), Width: uint16(area.Dx()), Height: uint16(area.Dy())}})
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
}

// A dump is a picture by xwd.
type dump struct {
	size  image.Point
	depth int
	pixel func(x, y int) uint32
	masks [3]uint32 // of red, green, blue
}

// xwd takes a picture with the program of that name. Its format is XWDFile.h's: a head of big-endian numbers, the
// colour map in entries of 12 bytes, then the rows.
func xwd(t testing.TB, server *xvfb.Server) dump {
	t.Helper()
	out := command(t, "xwd", "-silent", "-root", "-display", server.Display())
	head := func(i int) int { return int(binary.BigEndian.Uint32(out[4*i:])) }
	if version, leastFirst := head(1), head(7); version != 7 || leastFirst != 0 {
		t.Fatalf("xwd wrote version %d in byte order %d, want 7 in 0", version, leastFirst)
	}
	data := out[head(0)+12*head(19):]
	size, stride := head(11)/8, head(12)
	return dump{
		size: image.Pt(head(4), head(5)), depth: head(3),
		masks: [3]uint32{uint32(head(14)), uint32(head(15)), uint32(head(16))},
		pixel: func(x, y int) uint32 {
			var p [4]byte
			copy(p[:size], data[y*stride+x*size:])
			return binary.LittleEndian.Uint32(p[:])
		},
	}
}

// at is the pixel's red, green and blue as RGBA should have them.
func (d dump) at(x, y int) (want [4]byte) {
	p := d.pixel(x, y)
	for i, mask := range d.masks {
		value, width := (p&mask)>>bits.TrailingZeros32(mask), bits.OnesCount32(mask)
		for ; width < 8; width *= 2 { // repeats the bits
			value = value<<width | value
		}
		want[i] = byte(value >> (width - 8))
	}
	want[3] = 0xff
	return want
}

// check compares a picture with what xwd shows at its place.
func (d dump) check(t *testing.T, raw *Raw) {
	t.Helper()
	if screen := (image.Rectangle{Max: d.size}); raw.Screen != screen {
		t.Fatalf("got a picture of a screen of %v, want %v", raw.Screen, screen)
	}
	img := image.NewRGBA(raw.Bounds)
	raw.RGBA(img)
	for y := raw.Bounds.Min.Y; y < raw.Bounds.Max.Y; y++ {
		for x := raw.Bounds.Min.X; x < raw.Bounds.Max.X; x++ {
			if got, want := [4]byte(img.Pix[img.PixOffset(x, y):]), d.at(x, y); got != want {
				t.Fatalf("picture of %v: got %v at (%d,%d), want %v", raw.Bounds, got, x, y, want)
			}
		}
	}
}

// command runs a program and returns what it wrote to standard output.
func command(t testing.TB, argv ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath(argv[0]); err != nil {
		t.Skip("needs " + argv[0])
	}
	var words strings.Builder
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, words.String())
	}
	return out
}

// grabbers opens those named on a display; kbinani/screenshot reads $DISPLAY.
func grabbers(t testing.TB, server *xvfb.Server, names ...string) map[string]Grabber {
	t.Helper()
	open := map[string]func() (Grabber, error){
		"shared": func() (Grabber, error) { return NewShared(context.Background(), server.Display()) },
		"direct": func() (Grabber, error) { return NewDirect(context.Background(), server.Display()) },
		"kbinani": func() (Grabber, error) {
			t.Setenv("DISPLAY", server.Display())
			t.Setenv("XDG_SESSION_TYPE", "x11")
			return NewKbinani(connect(t, server))
		},
	}
	opened := map[string]Grabber{}
	for _, name := range names {
		grabber, err := open[name]()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { grabber.Close() })
		opened[name] = grabber
	}
	return opened
}

func grab(t testing.TB, from Grabber, area image.Rectangle) *Raw {
	t.Helper()
	raw, err := from.Grab(context.Background(), area)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

var quiet = slog.New(slog.DiscardHandler)

// wantError checks an error about something that is not supported.
func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), words) {
		t.Errorf("got %v, want it not supported, with %q", err, words)
	}
}
