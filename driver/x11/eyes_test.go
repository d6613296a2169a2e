package x11_test

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/xvfb"
	"github.com/deskagent/deskagent/scaling"
)

var (
	ground  = color.RGBA{0x20, 0x40, 0x60, 0xff}
	orange  = color.RGBA{0xf0, 0xa0, 0x10, 0xff}
	magenta = color.RGBA{0xff, 0x00, 0xfe, 0xff}
)

// A painter is another X client, with windows that no manager touches.
type painter struct {
	t    *testing.T
	name string // of the display
	x    *xgb.Conn
	root xproto.Window
	gc   xproto.Gcontext
}

func newPainter(t *testing.T, display string) *painter {
	t.Helper()
	x, err := xgb.NewConnDisplay(display)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	p := &painter{t: t, name: display, x: x, root: xproto.Setup(x).DefaultScreen(x).Root}
	if p.gc, err = xproto.NewGcontextId(x); err != nil {
		t.Fatal(err)
	}
	xproto.CreateGC(x, p.gc, xproto.Drawable(p.root), 0, nil)
	return p
}

func pixel(c color.RGBA) uint32 { return uint32(c.R)<<16 | uint32(c.G)<<8 | uint32(c.B) }

// window shows a window of one colour that has a class.
func (p *painter) window(class string, r image.Rectangle, c color.RGBA) xproto.Window {
	p.t.Helper()
	id, err := xproto.NewWindowId(p.x)
	if err != nil {
		p.t.Fatal(err)
	}
	xproto.CreateWindow(p.x, 0, id, p.root, int16(r.Min.X), int16(r.Min.Y), uint16(r.Dx()), uint16(r.Dy()), 0, xproto.WindowClassInputOutput, 0,
		xproto.CwBackPixel|xproto.CwOverrideRedirect|xproto.CwEventMask, []uint32{pixel(c), 1, xproto.EventMaskButtonPress})
	class += "\x00" + class + "\x00"
	xproto.ChangeProperty(p.x, xproto.PropModeReplace, id, xproto.AtomWmClass, xproto.AtomString, 8, uint32(len(class)), []byte(class))
	if err := xproto.MapWindowChecked(p.x, id).Check(); err != nil {
		p.t.Fatal(err)
	}
	return id
}

// fill paints a part of a window, and is on the screen when it returns.
func (p *painter) fill(id xproto.Window, r image.Rectangle, c color.RGBA) error {
	xproto.ChangeGC(p.x, p.gc, xproto.GcForeground, []uint32{pixel(c)})
	return xproto.PolyFillRectangleChecked(p.x, xproto.Drawable(id), p.gc,
		[]xproto.Rectangle{{X: int16(r.Min.X), Y: int16(r.Min.Y), Width: uint16(r.Dx()), Height: uint16(r.Dy())}}).Check()
}

// onPress calls f in a goroutine of its own for each press of a button.
func (p *painter) onPress(f func()) {
	go func() {
		for {
			event, err := p.x.WaitForEvent()
			if event == nil && err == nil {
				return
			}
			if _, ok := event.(xproto.ButtonPressEvent); ok {
				f()
			}
		}
	}()
}

// newScreen is a display, a painter with a window over all of it, and a driver.
func newScreen(t *testing.T, opts x11.Options, args ...string) (*x11.Driver, *painter, xproto.Window) {
	t.Helper()
	opts.Display = xvfb.ForTest(t, 640, 480, args...).Display()
	p := newPainter(t, opts.Display)
	all := p.window("ground", image.Rect(0, 0, 640, 480), ground)
	if opts.Sink == "" {
		opts.Sink = x11.SinkXTEST
	}
	return open(t, opts), p, all
}

func screenshot(t *testing.T, d *x11.Driver) *driver.Frame {
	t.Helper()
	frame, err := d.Screenshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func click(t *testing.T, d *x11.Driver, x, y int) {
	t.Helper()
	if err := d.Click(t.Context(), driver.Click{X: x, Y: y, Button: driver.ButtonLeft}); err != nil {
		t.Fatal(err)
	}
}

// TestC2 is row C2 of the field cases: a picture after an action shows what it came to, although that takes a while.
// It is the same where the server does not tell what changes.
func TestC2(t *testing.T) {
	for _, args := range [][]string{nil, {"-extension", "DAMAGE"}} {
		for _, test := range []struct {
			name  string
			after time.Duration
			wait  bool // as the model would after a picture without an effect
		}{
			{"at once", 0, false},
			{"soon", 80 * time.Millisecond, false},
			{"late", 700 * time.Millisecond, true},
		} {
			t.Run(strings.Join(append(args, test.name), " "), func(t *testing.T) {
				d, p, all := newScreen(t, x11.Options{WaitTime: 5 * time.Second}, args...)
				area := image.Rect(50, 60, 250, 160)
				p.onPress(func() { time.Sleep(test.after); p.fill(all, area, orange) })
				click(t, d, 100, 100)
				if test.wait {
					if err := d.Wait(t.Context(), driver.Wait{}); err != nil {
						t.Fatal(err)
					}
				}
				frame := screenshot(t, d)
				if got := frame.Image.RGBAAt(100, 100); got != orange {
					t.Errorf("got %v in the picture, want %v", got, orange)
				}
				if s := frame.Settling; s.State != driver.Settled || s.Changed != area || s.Elapsed < test.after {
					t.Errorf("got %+v, want it settled, with %v changed", s, area)
				}
			})
		}
	}
}

// TestUnchanged takes the picture of an action that has no effect, and the next one at once.
func TestUnchanged(t *testing.T) {
	d, _, _ := newScreen(t, x11.Options{SettleGrace: 300 * time.Millisecond})
	click(t, d, 100, 100)
	start := time.Now()
	if s := screenshot(t, d).Settling; s.State != driver.Unchanged || !s.Changed.Empty() {
		t.Errorf("got %+v, want nothing changed", s)
	}
	if took := time.Since(start); took < 250*time.Millisecond {
		t.Errorf("it took %v, want the grace of 300ms", took)
	}
	start = time.Now()
	for range 5 {
		screenshot(t, d)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("five more took %v, want them taken at once", took)
	}
}

// TestStillChanging takes a picture of a screen that never rests.
func TestStillChanging(t *testing.T) {
	d, p, all := newScreen(t, x11.Options{SettleDeadline: 300 * time.Millisecond})
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for c := ground; ; c.R++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				p.fill(all, image.Rect(0, 0, 640, 480), c)
			}
		}
	}()
	click(t, d, 100, 100)
	if s := screenshot(t, d).Settling; s.State != driver.Changing || s.Elapsed < 300*time.Millisecond {
		t.Errorf("got %+v, want it still changing after 300ms", s)
	}
	close(stop)
	<-ended
	if s := screenshot(t, d).Settling; s.State == driver.Changing {
		t.Errorf("after that: got %+v, want it looked at again", s)
	}
}

// TestWaitEndsEarly waits for a change that comes, and for one that does not.
func TestWaitEndsEarly(t *testing.T) {
	d, p, all := newScreen(t, x11.Options{WaitTime: 2 * time.Second})
	screenshot(t, d)
	for _, comes := range []bool{true, false} {
		if comes {
			time.AfterFunc(200*time.Millisecond, func() { p.fill(all, image.Rect(0, 0, 100, 100), orange) })
		}
		start := time.Now()
		if err := d.Wait(t.Context(), driver.Wait{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); comes && took < 200*time.Millisecond || !comes && took < 1900*time.Millisecond {
			t.Errorf("it comes: %v; waited %v", comes, took)
		}
		want := map[bool]driver.SettleState{true: driver.Settled, false: driver.Unchanged}[comes]
		if s := screenshot(t, d).Settling; s.State != want {
			t.Errorf("it comes: %v; got %+v, want it %s", comes, s, want)
		}
	}
}

// noise paints something other at every pixel.
func (p *painter) noise(id xproto.Window, size image.Point) {
	p.t.Helper()
	const rows = 16 // at a time, as requests are limited
	for y := 0; y < size.Y; y += rows {
		data := make([]byte, 4*size.X*min(rows, size.Y-y))
		for i := range data {
			data[i] = byte((i + y*1021) * 2654435761 >> 13)
		}
		if err := xproto.PutImageChecked(p.x, xproto.ImageFormatZPixmap, xproto.Drawable(id), p.gc, uint16(size.X), uint16(len(data)/4/size.X), 0, int16(y), 0, 24, data).Check(); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestView compares pictures of parts and of other sizes with those made of a picture of the whole screen. It is row X8
// of the field cases too: a part at native resolution has the pixels of the screen.
func TestView(t *testing.T) {
	d, p, all := newScreen(t, x11.Options{})
	p.noise(all, image.Pt(640, 480))
	whole := screenshot(t, d)
	if whole.Area != image.Rect(0, 0, 640, 480) || whole.Image.Rect != whole.Area || whole.Scene.Screen != whole.Area || whole.ID != 1 {
		t.Errorf("got frame %d of %v with pixels of %v in %+v", whole.ID, whole.Area, whole.Image.Rect, whole.Scene)
	}
	for i, view := range []scaling.View{
		{}, {Size: image.Pt(320, 240)}, {Size: image.Pt(427, 320)}, {Crop: image.Rect(11, 13, 402, 333)},
		{Crop: image.Rect(101, 50, 301, 151), Size: image.Pt(100, 77)}, {Crop: image.Rect(600, 440, 640, 480), Size: image.Pt(80, 80)},
	} {
		m, err := view.Mapping(whole.Area)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := d.View(t.Context(), func(s driver.Scene) (image.Rectangle, image.Point, error) {
			if s.Screen != whole.Area {
				t.Errorf("got the screen %v, want %v", s.Screen, whole.Area)
			}
			return m.Crop(), m.Size(), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.Picture(whole.Image)
		if err != nil {
			t.Fatal(err)
		}
		if frame.ID != uint64(i+2) || frame.Area != m.Crop() || frame.Image.Rect != want.Rect || !bytes.Equal(frame.Image.Pix, want.Pix) {
			t.Errorf("%v: got frame %d of %v with pixels of %v; want %d, and the pixels alike", m, frame.ID, frame.Area, frame.Image.Rect, i+2)
		}
	}
	for _, area := range []image.Rectangle{image.Rect(0, 0, 641, 480), image.Rect(-1, 0, 10, 10), {}} {
		frame, err := d.View(t.Context(), func(driver.Scene) (image.Rectangle, image.Point, error) { return area, image.Pt(10, 10), nil })
		if err == nil {
			t.Errorf("%v: got a picture of %v, want an error", area, frame.Area)
		}
	}
	unwanted := errors.New("unwanted")
	if _, err := d.View(t.Context(), func(driver.Scene) (image.Rectangle, image.Point, error) {
		return image.Rectangle{}, image.Point{}, unwanted
	}); !errors.Is(err, unwanted) {
		t.Errorf("got %v, want %v", err, unwanted)
	}
}

// TestMask checks that what is masked is black, whatever lies over it, and in smaller pictures too.
func TestMask(t *testing.T) {
	d, p, _ := newScreen(t, x11.Options{Masks: []x11.Mask{{Area: image.Rect(600, 400, 700, 500)}, {Window: "VAULT"}}})
	newPainter(t, p.name).window("keevault", image.Rect(100, 100, 200, 200), magenta)
	p.window("other", image.Rect(180, 180, 300, 300), orange)
	frame := screenshot(t, d)
	for at, want := range map[image.Point]color.RGBA{
		{X: 99, Y: 150}: ground, {X: 100, Y: 150}: {A: 255}, {X: 199, Y: 199}: {A: 255}, {X: 200, Y: 200}: orange,
		{X: 600, Y: 400}: {A: 255}, {X: 639, Y: 479}: {A: 255}, {X: 599, Y: 400}: ground,
	} {
		if got := frame.Image.RGBAAt(at.X, at.Y); got != want {
			t.Errorf("got %v at %v, want %v", got, at, want)
		}
	}
	small, err := d.View(t.Context(), func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, image.Pt(64, 48), nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := small.Image.RGBAAt(15, 15); got != (color.RGBA{A: 255}) {
		t.Errorf("got %v in a small picture, want black", got)
	}
}

// TestMaskMoves has a masked window be moved, shown and hidden all the time. Nothing of it may ever be seen.
func TestMaskMoves(t *testing.T) {
	d, p, _ := newScreen(t, x11.Options{Masks: []x11.Mask{{Window: "vault"}}, SettleDeadline: time.Millisecond})
	p = newPainter(t, p.name) // another program than that of the ground
	var windows []xproto.Window
	for range 3 {
		windows = append(windows, p.window("vault", image.Rect(0, 0, 60, 60), magenta))
	}
	var moves atomic.Int64
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(i%7) * time.Millisecond):
			}
			id := windows[i%3]
			if xproto.ConfigureWindowChecked(p.x, id, xproto.ConfigWindowX|xproto.ConfigWindowY, []uint32{i * 37 % 580, i * 53 % 420}).Check() != nil {
				return
			}
			if moves.Add(1); i%5 == 0 {
				xproto.UnmapWindow(p.x, id)
				xproto.MapWindow(p.x, id)
			}
		}
	}()
	taken := 0
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		frame, err := d.Screenshot(t.Context())
		if err != nil {
			continue // It was moved too often, and nothing was shown.
		}
		taken++
		for i := 0; i < len(frame.Image.Pix); i += 4 {
			if c := (color.RGBA{frame.Image.Pix[i], frame.Image.Pix[i+1], frame.Image.Pix[i+2], 255}); c == magenta {
				t.Fatalf("picture %d shows a window that is masked, at pixel %d", taken, i/4)
			}
		}
	}
	close(stop)
	<-ended
	if taken == 0 || moves.Load() < 50 {
		t.Errorf("took %d pictures during %d moves, want some", taken, moves.Load())
	}
}

// TestC8 is rows C1 and C8 of the field cases: with two monitors, one of them to the left of and above the first, with a
// gap in between, pictures show all of the screen or the one that was chosen, and the coordinates are the same.
func TestC8(t *testing.T) {
	program, err := exec.LookPath("xrandr")
	if err != nil {
		t.Skip("needs xrandr")
	}
	server := xvfb.ForTest(t, 640, 480)
	for _, monitor := range [][]string{{"second", "300/80x200/60+340+280", "screen"}, {"first", "200/60x180/50+0+20", "none"}} {
		args := append([]string{"-display", server.Display(), "--setmonitor"}, monitor...)
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("xrandr %q: %v: %s", args, err, out)
		}
	}
	p := newPainter(t, server.Display())
	p.noise(p.window("ground", image.Rect(0, 0, 640, 480), ground), image.Pt(640, 480))
	var whole *driver.Frame
	for _, test := range []struct {
		monitor string
		want    image.Rectangle
	}{{"", image.Rect(0, 0, 640, 480)}, {"first", image.Rect(0, 20, 200, 200)}, {"second", image.Rect(340, 280, 640, 480)}} {
		d := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST, Monitor: test.monitor})
		frame := screenshot(t, d)
		if whole == nil {
			whole = frame
		}
		bounds, err := d.Bounds(t.Context())
		if frame.Image.Rect != test.want || frame.Scene.Screen != test.want || bounds != test.want || err != nil {
			t.Errorf("%q: got a picture of %v, the scene %v, bounds %v, %v; want %v", test.monitor, frame.Image.Rect, frame.Scene.Screen, bounds, err, test.want)
		}
		part := whole.Image.SubImage(test.want).(*image.RGBA)
		for y := test.want.Min.Y; y < test.want.Max.Y; y++ {
			for x := test.want.Min.X; x < test.want.Max.X; x++ {
				if frame.Image.RGBAAt(x, y) != part.RGBAAt(x, y) {
					t.Fatalf("%q: got %v at (%d,%d), want %v", test.monitor, frame.Image.RGBAAt(x, y), x, y, part.RGBAAt(x, y))
				}
			}
		}
	}
	d := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST, Monitor: "third"})
	if _, err := d.Screenshot(t.Context()); err == nil || !strings.Contains(err.Error(), `"third"`) || !strings.Contains(err.Error(), `"first"`) {
		t.Errorf("got %v, want an error that names the monitors there are", err)
	}
}

// TestPointer looks for the pointer in pictures.
func TestPointer(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		d, p, all := newScreen(t, x11.Options{Pointer: wanted})
		setCrosshair(t, p, all)
		if err := d.Move(t.Context(), driver.Move{X: 320, Y: 240}); err != nil {
			t.Fatal(err)
		}
		got := screenshot(t, d).Image.RGBAAt(320, 240)
		if (got != ground) != wanted {
			t.Errorf("wanted: %v; got %v where the pointer is, and the ground is %v", wanted, got, ground)
		}
	}
}

// setCrosshair gives a window a pointer that is drawn over the pixel it points to.
func setCrosshair(t *testing.T, p *painter, window xproto.Window) {
	t.Helper()
	font, err := xproto.NewFontId(p.x)
	if err != nil {
		t.Fatal(err)
	}
	cursor, err := xproto.NewCursorId(p.x)
	if err != nil {
		t.Fatal(err)
	}
	const name, dotbox = "cursor", 40
	xproto.OpenFont(p.x, font, uint16(len(name)), name)
	xproto.CreateGlyphCursor(p.x, cursor, font, font, dotbox, dotbox, 0xffff, 0, 0, 0xffff, 0, 0)
	if err := xproto.ChangeWindowAttributesChecked(p.x, window, xproto.CwCursor, []uint32{uint32(cursor)}).Check(); err != nil {
		t.Fatal(err)
	}
}

// TestHolds checks when a picture's geometry holds.
func TestHolds(t *testing.T) {
	d, p, _ := newScreen(t, x11.Options{})
	window := p.window("mine", image.Rect(100, 100, 300, 200), orange)
	if err := xproto.SetInputFocusChecked(p.x, xproto.InputFocusParent, window, xproto.TimeCurrentTime).Check(); err != nil {
		t.Fatal(err)
	}
	scene := screenshot(t, d).Scene
	if scene.Window.Bounds != image.Rect(100, 100, 300, 200) || scene.Window.ID != uint32(window) {
		t.Fatalf("got the window %+v", scene.Window)
	}
	unseen := scene
	unseen.Window = driver.Window{}
	other := scene
	other.Screen.Max.X--
	holds := func(name string, s driver.Scene, want bool) {
		t.Helper()
		if err := d.Holds(t.Context(), s); (err == nil) != want || err != nil && !errors.Is(err, driver.ErrStale) {
			t.Errorf("%s: got %v, want it to hold: %v", name, err, want)
		}
	}
	holds("at once", scene, true)
	holds("another screen", other, false)
	move := func(x uint32) {
		t.Helper()
		if err := xproto.ConfigureWindowChecked(p.x, window, xproto.ConfigWindowX, []uint32{x}).Check(); err != nil {
			t.Fatal(err)
		}
	}
	move(101)
	holds("the window moved", scene, false)
	holds("a window that does not matter", unseen, true)
	move(100)
	holds("the window moved back", scene, true)
	if err := xproto.DestroyWindowChecked(p.x, window).Check(); err != nil {
		t.Fatal(err)
	}
	holds("the window gone", scene, false)
	holds("a window that does not matter", unseen, true)
}

// TestC10 is row C10 of the field cases: a black screen is said to be black, and a screen that comes up a moment later
// is waited for.
func TestC10(t *testing.T) {
	server := xvfb.ForTest(t, 320, 200)
	var log bytes.Buffer
	d := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 2 {
		if got := screenshot(t, d).Blank; !strings.Contains(got, "all black") {
			t.Errorf("got %q, want it to be all black", got)
		}
	}
	if got := strings.Count(log.String(), "all black"); got != 1 {
		t.Errorf("got %d warnings, want one:\n%s", got, &log)
	}
	p := newPainter(t, server.Display())
	late := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST})
	time.AfterFunc(150*time.Millisecond, func() { p.window("ground", image.Rect(0, 0, 160, 200), ground) })
	frame := screenshot(t, late)
	if got := frame.Image.RGBAAt(10, 10); got != ground || frame.Blank != "" {
		t.Errorf("got %v and %q, want %v", got, frame.Blank, ground)
	}
}

// TestC13 is row C13 of the field cases: pictures of thousands of steps leave nothing on the disk.
func TestC13(t *testing.T) {
	long(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Chdir(dir)
	d, p, all := newScreen(t, x11.Options{})
	small := func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, image.Pt(160, 120), nil }
	for i := range 5000 {
		if err := p.fill(all, image.Rect(0, 0, 50, 50), color.RGBA{uint8(i), uint8(i >> 8), 0, 255}); err != nil {
			t.Fatal(err)
		}
		frame, err := d.View(t.Context(), small)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := frame.Image.RGBAAt(1, 1), (color.RGBA{uint8(i), uint8(i >> 8), 0, 255}); got != want {
			t.Fatalf("picture %d: got %v, want %v", i, got, want)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want nothing left", left, err)
	}
}

// TestDepths checks the colours of screens of other depths, in pictures of other sizes too.
func TestDepths(t *testing.T) {
	for _, depth := range []int{16, 30} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			server := xvfb.StartForTest(t, &xvfb.Options{Width: 640, Height: 480, Depth: depth})
			p := newPainter(t, server.Display())
			// Red of all its bits, whichever depth: the visual says where they are.
			red := xproto.Setup(p.x).DefaultScreen(p.x).AllowedDepths[0].Visuals[0].RedMask
			xproto.ChangeWindowAttributes(p.x, p.root, xproto.CwBackPixel, []uint32{red})
			if err := xproto.ClearAreaChecked(p.x, false, p.root, 0, 0, 0, 0).Check(); err != nil {
				t.Fatal(err)
			}
			d := open(t, x11.Options{Display: server.Display(), Sink: x11.SinkXTEST})
			for _, size := range []image.Point{{X: 640, Y: 480}, {X: 320, Y: 200}} {
				frame, err := d.View(t.Context(), func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, size, nil })
				if err != nil {
					t.Fatal(err)
				}
				if got, want := frame.Image.RGBAAt(17, 33), (color.RGBA{R: 255, A: 255}); got != want {
					t.Errorf("%v: got %v, want %v", size, got, want)
				}
			}
		})
	}
}
