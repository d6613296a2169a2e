package capture

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"os/exec"
	"testing"

	"github.com/jezek/xgb/xinerama"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// painted is a display whose root window has been painted with paint, and a connection to it.
func painted(t *testing.T) *display.Conn {
	t.Helper()
	server := xvfb.ForTest(t, 640, 480)
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	gc, err := xproto.NewGcontextId(conn.X)
	if err != nil {
		t.Fatal(err)
	}
	xproto.CreateGC(conn.X, gc, conn.Root(), 0, nil)
	for _, p := range paint {
		xproto.ChangeGC(conn.X, gc, xproto.GcForeground, []uint32{p.pixel})
		xproto.PolyFillRectangle(conn.X, conn.Root(), gc, []xproto.Rectangle{
			{X: int16(p.area.Min.X), Y: int16(p.area.Min.Y), Width: uint16(p.area.Dx()), Height: uint16(p.area.Dy())}})
	}
	if err := conn.Sync(); err != nil {
		t.Fatal(err)
	}
	return conn
}

var paint = []struct {
	pixel uint32
	area  image.Rectangle
}{
	{0x102030, image.Rect(0, 0, 640, 480)},
	{0xff0000, image.Rect(0, 0, 100, 50)},
	{0x00ff00, image.Rect(540, 0, 640, 50)},
	{0x0000ff, image.Rect(0, 430, 100, 480)},
	{0x123456, image.Rect(639, 479, 640, 480)},
}

// check compares a picture with the paint, at the corners of each area.
func check(t *testing.T, img *image.RGBA) {
	t.Helper()
	if got, want := img.Rect, image.Rect(0, 0, 640, 480); got != want {
		t.Fatalf("got a picture of %v, want %v", got, want)
	}
	for i, p := range paint {
		want := color.RGBA{uint8(p.pixel >> 16), uint8(p.pixel >> 8), uint8(p.pixel), 0xff}
		for _, at := range []image.Point{p.area.Min, p.area.Max.Sub(image.Pt(1, 1))} {
			if i == 0 {
				at = image.Pt(320, 240) // the ground, which others lie on
			}
			if got := img.RGBAAt(at.X, at.Y); got != want {
				t.Errorf("got %v at %v, want %v", got, at, want)
			}
		}
	}
}

func TestDirect(t *testing.T) {
	direct, err := NewDirect(painted(t))
	if err != nil {
		t.Fatal(err)
	}
	img, err := direct.Grab()
	if err != nil {
		t.Fatal(err)
	}
	check(t, img)
	if !img.Opaque() {
		t.Error("the picture is not opaque")
	}
}

// TestC1 is row C1 of the field cases, for what kbinani/screenshot counts from: a first monitor that is not at the
// origin moves its pictures, and must not move ours.
func TestC1(t *testing.T) {
	conn := painted(t)
	t.Setenv("DISPLAY", conn.Name)
	t.Setenv("XDG_SESSION_TYPE", "x11")
	kbinani, err := NewKbinani(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []image.Point{{}, {X: 320, Y: 240}} {
		t.Run(origin.String(), func(t *testing.T) {
			if origin != (image.Point{}) {
				setMonitor(t, conn, origin)
			}
			monitors, err := xinerama.QueryScreens(conn.X).Reply()
			if err != nil {
				t.Fatal(err)
			}
			if got := image.Pt(int(monitors.ScreenInfo[0].XOrg), int(monitors.ScreenInfo[0].YOrg)); got != origin {
				t.Fatalf("the first monitor is at %v, want it at %v", got, origin)
			}
			for _, grabber := range []Grabber{Direct{conn}, kbinani} {
				img, err := grabber.Grab()
				if err != nil {
					t.Fatalf("%T: %v", grabber, err)
				}
				check(t, img)
			}
		})
	}
}

// setMonitor makes the lower right quarter of the screen its only monitor.
func setMonitor(t *testing.T, conn *display.Conn, origin image.Point) {
	t.Helper()
	program, err := exec.LookPath("xrandr")
	if err != nil {
		t.Skip("needs xrandr")
	}
	geometry := fmt.Sprintf("320/80x240/60+%d+%d", origin.X, origin.Y)
	if out, err := exec.Command(program, "-display", conn.Name, "--setmonitor", "M", geometry, "screen").CombinedOutput(); err != nil {
		t.Fatalf("xrandr: %v: %s", err, out)
	}
}

// TestKbinaniRefuses checks that it is an error, and no picture of something else, where kbinani/screenshot would
// look elsewhere.
func TestKbinaniRefuses(t *testing.T) {
	conn := painted(t)
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
}

func TestSwap(t *testing.T) {
	rgba := make([]byte, 8)
	swap(rgba, []byte{1, 2, 3, 0, 0xf4, 0xf5, 0xf6, 0xf7})
	if got, want := fmt.Sprint(rgba), fmt.Sprint([]byte{3, 2, 1, 0xff, 0xf6, 0xf5, 0xf4, 0xff}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkDirect(b *testing.B) {
	server := xvfb.ForTest(b, 1280, 800)
	conn, err := display.Open(server.Display())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	direct, err := NewDirect(conn)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := direct.Grab(); err != nil {
			b.Fatal(err)
		}
	}
}
