package capture

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"testing"

	"github.com/jezek/xgb/render"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// setMonitors replaces the monitors of a screen, the first of which is the primary one and belongs to the only output.
func setMonitors(t *testing.T, server *xvfb.Server, monitors ...Monitor) {
	t.Helper()
	output := "screen"
	for _, m := range monitors {
		geometry := fmt.Sprintf("%d/100x%d/100+%d+%d", m.Bounds.Dx(), m.Bounds.Dy(), m.Bounds.Min.X, m.Bounds.Min.Y)
		name := m.Name
		if m.Primary {
			name = "*" + name
		}
		command(t, "xrandr", "-display", server.Display(), "--setmonitor", name, geometry, output)
		output = "none"
	}
}

// Rows C1 and C8 of the field cases: pictures of one monitor and of all of the screen, at the coordinates of the root
// window, whichever monitor is the first and wherever it is. kbinani/screenshot counts from the first one.
func TestC1(t *testing.T) {
	for _, test := range []struct {
		name     string
		monitors []Monitor
	}{
		{"as it comes", nil},
		{"two with a gap", []Monitor{
			{"left", image.Rect(0, 0, 200, 150), true},
			{"right", image.Rect(250, 20, 600, 400), false},
		}},
		{"the primary right of and below the other", []Monitor{
			{"primary", image.Rect(320, 240, 640, 480), true},
			{"other", image.Rect(0, 0, 320, 240), false},
		}},
		{"nothing at the origin", []Monitor{
			{"only", image.Rect(101, 53, 401, 253), true},
		}},
		{"over each other", []Monitor{
			{"large", image.Rect(0, 0, 640, 480), false},
			{"small", image.Rect(100, 100, 200, 200), true},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := start(t, 640, 480, 24)
			newClient(t, server).noise(t)
			setMonitors(t, server, test.monitors...)
			dump := xwd(t, server)
			got, err := Monitors(connect(t, server))
			if err != nil {
				t.Fatal(err)
			}
			want := test.monitors
			if want == nil {
				want = []Monitor{{"screen", image.Rect(0, 0, 640, 480), false}}
			}
			byName := map[string]Monitor{}
			for _, m := range got {
				byName[m.Name] = m
			}
			for _, m := range want {
				if byName[m.Name] != m || len(got) != len(want) {
					t.Errorf("got %v, want %v", got, want)
				}
			}
			for name, grabber := range grabbers(t, server, "shared", "direct", "kbinani") {
				for _, m := range got {
					if raw := grab(t, grabber, m.Bounds); raw.Bounds != m.Bounds {
						t.Errorf("%s: got %v, want %v", name, raw.Bounds, m.Bounds)
					} else {
						dump.check(t, raw)
					}
				}
				dump.check(t, grab(t, grabber, image.Rectangle{}))
			}
		})
	}
}

func TestNoRANDR(t *testing.T) {
	_, err := Monitors(connect(t, start(t, 320, 240, 24, "-extension", "RANDR")))
	wantError(t, err, "RANDR")
}

// setCursor gives the root window a cursor and moves the pointer. Pixels are ARGB, multiplied by alpha.
func setCursor(t *testing.T, c client, width, height int, hot, at image.Point, pixels []uint32) {
	t.Helper()
	if err := render.Init(c.X); err != nil {
		t.Fatal(err)
	}
	formats, err := render.QueryPictFormats(c.X).Reply()
	if err != nil {
		t.Fatal(err)
	}
	var argb render.Pictformat
	for _, f := range formats.Formats {
		if f.Depth == 32 && f.Direct.AlphaShift == 24 && f.Direct.RedShift == 16 {
			argb = f.Id
		}
	}
	var data []byte
	for _, p := range pixels {
		data = append(data, byte(p), byte(p>>8), byte(p>>16), byte(p>>24))
	}
	pixmap, _ := xproto.NewPixmapId(c.X)
	picture, _ := render.NewPictureId(c.X)
	cursor, _ := xproto.NewCursorId(c.X)
	gc, _ := xproto.NewGcontextId(c.X)
	xproto.CreatePixmap(c.X, 32, pixmap, c.Root(), uint16(width), uint16(height))
	xproto.CreateGC(c.X, gc, xproto.Drawable(pixmap), 0, nil)
	xproto.PutImage(c.X, xproto.ImageFormatZPixmap, xproto.Drawable(pixmap), gc, uint16(width), uint16(height), 0, 0, 0, 32, data)
	render.CreatePicture(c.X, picture, xproto.Drawable(pixmap), argb, 0, nil)
	render.CreateCursor(c.X, cursor, picture, uint16(hot.X), uint16(hot.Y))
	xproto.ChangeWindowAttributes(c.X, c.Screen.Root, xproto.CwCursor, []uint32{uint32(cursor)})
	xproto.WarpPointer(c.X, 0, c.Screen.Root, 0, 0, 0, 0, int16(at.X), int16(at.Y))
	if err := c.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestCursor has another client show a cursor of which each pixel is known, and draws it over white.
func TestCursor(t *testing.T) {
	server := start(t, 640, 480, 24)
	painter, conn := newClient(t, server), connect(t, server)
	const opaqueRed, halfRed, clear, tooBright = 0xffff0000, 0x80800000, 0, 0x40ffffff // the last is not multiplied
	white := color.RGBA{0xff, 0xff, 0xff, 0xff}
	shown := []color.RGBA{{0xff, 0, 0, 0xff}, {0xff, 0x7f, 0x7f, 0xff}, white, white}
	for _, at := range []image.Point{{X: 300, Y: 200}, {}, {X: 639, Y: 479}, {X: 639}} {
		hot := image.Pt(2, 0)
		setCursor(t, painter, 4, 1, hot, at, []uint32{opaqueRed, halfRed, clear, tooBright})
		cursor, err := Cursor(conn)
		if err != nil {
			t.Fatal(err)
		}
		place := image.Rect(0, 0, 4, 1).Add(at.Sub(hot))
		if cursor.Hot != at || cursor.Image.Rect != place {
			t.Errorf("got a pointer at %v with the image at %v, want %v and %v", cursor.Hot, cursor.Image.Rect, at, place)
		}
		for _, part := range []image.Rectangle{image.Rect(0, 0, 640, 480), image.Rect(300, 150, 640, 250), image.Rect(10, 10, 20, 20)} {
			dst := image.NewRGBA(part)
			draw.Draw(dst, part, image.White, image.Point{}, draw.Src)
			cursor.Draw(dst)
			for y := part.Min.Y; y < part.Max.Y; y++ {
				for x := part.Min.X; x < part.Max.X; x++ {
					want := white
					if image.Pt(x, y).In(place) {
						want = shown[x-place.Min.X]
					}
					if got := dst.RGBAAt(x, y); got != want {
						t.Fatalf("pointer at %v in a picture of %v: got %v at (%d,%d), want %v", at, part, got, x, y, want)
					}
				}
			}
		}
	}
}

func TestNoXFIXES(t *testing.T) {
	_, err := Cursor(connect(t, start(t, 320, 240, 24, "-extension", "XFIXES")))
	wantError(t, err, "XFIXES")
}

// TestC10 is row C10 of the field cases: pictures that show nothing are told, with the reason if there is one.
func TestC10(t *testing.T) {
	for _, depth := range []int{16, 24, 30} {
		t.Run(fmt.Sprintf("depth %d", depth), func(t *testing.T) {
			server := start(t, 640, 480, depth)
			shared := grabbers(t, server, "shared")["shared"] // and a picture in the first moments
			conn := connect(t, server)
			says := func(want string) {
				t.Helper()
				for _, area := range []image.Rectangle{{}, image.Rect(101, 99, 204, 222)} {
					if got, err := Blank(conn, grab(t, shared, area)); got != want || err != nil {
						t.Errorf("area %v: got %q, %v, want %q", area, got, err, want)
					}
				}
			}
			says("all black")
			painter := newClient(t, server)
			painter.fill(t, image.Rect(0, 0, 640, 480), 0xffffffff)
			says("all of one colour, #ffffff")
			painter.noise(t)
			says("")
			// Xvfb has no monitor to blank. A saver that is not to blank covers the screen with a window instead.
			command(t, "xset", "-display", server.Display(), "s", "noblank", "s", "activate")
			says("all black: the screen saver is on")
			command(t, "xset", "-display", server.Display(), "s", "reset")
			painter.noise(t)
			says("")
		})
	}
}

// TestBlankWithout checks that a server that cannot say why is not asked.
func TestBlankWithout(t *testing.T) {
	server := start(t, 320, 240, 24, "-extension", "MIT-SCREEN-SAVER")
	direct := grabbers(t, server, "direct")["direct"]
	if got, err := Blank(connect(t, server), grab(t, direct, image.Rectangle{})); got != "all black" || err != nil {
		t.Errorf("got %q, %v, want it all black", got, err)
	}
}

// TestScreenLost checks what is asked over the driver's connection when the server is gone.
func TestScreenLost(t *testing.T) {
	server := start(t, 320, 240, 24)
	conn, direct := connect(t, server), grabbers(t, server, "direct")["direct"]
	black := grab(t, direct, image.Rectangle{})
	server.Kill()
	_, monitors := Monitors(conn)
	_, cursor := Cursor(conn)
	_, blank := Blank(conn, black)
	for _, err := range []error{monitors, cursor, blank} {
		if !errors.Is(err, driver.ErrDisplayLost) {
			t.Errorf("got %v, want the display lost", err)
		}
	}
}
