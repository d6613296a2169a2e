package main

import (
	"bufio"
	"context"
	"fmt"
	"image"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// openDriver opens a driver that ends with the test.
func openDriver(t *testing.T, display string) *x11.Driver {
	t.Helper()
	d, err := x11.Open(t.Context(), &x11.Options{Display: display})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// openGallery opens a gallery on a display of its own.
func openGallery(t *testing.T, screen image.Rectangle) (*gallery, *x11.Driver) {
	t.Helper()
	server := xvfb.ForTest(t, screen.Dx(), screen.Dy())
	g, err := newGallery(witness.ForTest(t, server.Display()), screen)
	if err != nil {
		t.Fatal(err)
	}
	return g, openDriver(t, server.Display())
}

// TestX6 is row X6 of the field cases: buttons of 12 pixels on a screen of 1920x1080 are missed.
func TestX6(t *testing.T) {
	screen := image.Rect(0, 0, 1920, 1080)
	g, d := openGallery(t, screen)
	for _, zoom := range []bool{false, true} {
		a := &agent{driver: d, screen: screen, size: image.Pt(1280, 720), zoom: zoom}
		shots, err := g.visit(t.Context(), a, randomTargets(screen, 12, 6))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shots {
			if !s.hit() {
				t.Errorf("zoom %v: missed %v", zoom, s)
			}
		}
	}
}

// TestX8 is row X8 of the field cases: what is zoomed at is cut out of a picture that was made smaller before.
func TestX8(t *testing.T) {
	screen := image.Rect(0, 0, 2560, 1600)
	g, d := openGallery(t, screen)
	for _, middle := range []image.Point{{X: 700, Y: 500}, {X: 1900, Y: 350}, {X: 2559, Y: 1599}, {}} {
		region := around(middle, screen)
		desk, err := toolset.New(d, &toolset.Options{View: scaling.View{Crop: region}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := call(t.Context(), desk, driver.Screenshot{})
		if err != nil {
			t.Fatal(err)
		}
		want := image.NewRGBA(image.Rectangle{Max: region.Size()})
		for y := range region.Dy() {
			copy(want.Pix[y*want.Stride:][:want.Stride], g.ground.Pix[g.ground.PixOffset(region.Min.X, region.Min.Y+y):])
		}
		if got.Rect != want.Rect || differ(got, want) >= 0 {
			t.Errorf("%v: got a picture of %v, want the very pixels of the region, %v", region, got.Rect, want.Rect)
		}
		picturePt := image.Pt(201, 99)
		reaction := g.react(image.Rectangle{}, image.Rectangle{})
		if _, err := call(t.Context(), desk, clickOn(picturePt)); err != nil {
			t.Fatal(err)
		}
		if r := <-reaction; r.err != nil || r.at != region.Min.Add(picturePt) {
			t.Errorf("%v: got a click at %v, %v, want it at %v", region, r.at, r.err, region.Min.Add(picturePt))
		}
	}
}

// TestX5 is row X5 of the field cases: clicks come to another place on a screen of high resolution, where programs scale.
func TestX5(t *testing.T) {
	const scale, side = 2, 12 // side is in the units of the toolkit, as are the places
	places := []image.Point{{X: 40, Y: 30}, {X: 1268, Y: 708}, {X: 633, Y: 351}, {X: 0, Y: 0}, {X: 1001, Y: 97}}
	screen := image.Rect(0, 0, 2560, 1440)
	server := xvfb.ForTest(t, screen.Dx(), screen.Dy(), "-dpi", "192")
	argv := []string{gtkPython(t), filepath.Join("testdata", "buttons.py"), fmt.Sprint(screen.Dx() / scale), fmt.Sprint(screen.Dy() / scale), fmt.Sprint(side)}
	for _, p := range places {
		argv = append(argv, fmt.Sprintf("%d,%d", p.X, p.Y))
	}
	program := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	program.Env = append(os.Environ(), "DISPLAY="+server.Display(), fmt.Sprint("GDK_SCALE=", scale), "NO_AT_BRIDGE=1")
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		program.Process.Kill()
		program.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("got %q, %v, want ready", lines.Text(), lines.Err())
	}

	size := scaling.Fit(screen.Size(), toolset.DefaultFit)
	a := &agent{driver: openDriver(t, server.Display()), screen: screen, size: size}
	if err := a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, place := range places {
		if err := a.shoot(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines.Scan()
		var x, y float64
		var got string
		if _, err := fmt.Sscan(lines.Text(), &x, &y, &got); err != nil {
			t.Fatalf("got %q, %v: %v", lines.Text(), lines.Err(), err)
		}
		// From the centre of the button, in pixels of the screen: half a pixel of the picture, and half of one that is clicked.
		off := func(got float64, place int) float64 { return math.Abs(scale*(got-float64(place)-side/2.0) + .5) }
		most := .5*float64(screen.Dx())/float64(size.X) + .5
		if want := fmt.Sprintf("button%d", i); got != want || off(x, place.X) > most || off(y, place.Y) > most {
			t.Errorf("got %q, want %s at its middle, within %.2f pixels of %v", lines.Text(), want, most, place)
		}
	}
}

// gtkPython finds a Python that has GTK. The system's comes first: the modules of its packages are for it.
func gtkPython(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), program, "-c", "import gi; gi.require_version('Gtk', '3.0')").Run() == nil {
			return program
		}
	}
	t.Skip("needs a python3 with GTK 3")
	return ""
}

// skewed is a driver that clicks beside.
type skewed struct{ driver.Driver }

func (s skewed) Click(ctx context.Context, c driver.Click) error {
	c.X += 5
	return s.Driver.Click(ctx, c)
}

// TestMissesFail makes sure that what is missed is seen.
func TestMissesFail(t *testing.T) {
	screen := image.Rect(0, 0, 640, 480)
	g, d := openGallery(t, screen)
	targets := []image.Rectangle{image.Rect(100, 100, 108, 108), image.Rect(300, 50, 316, 66)}
	shots, err := g.visit(t.Context(), &agent{driver: skewed{d}, screen: screen, size: screen.Size()}, targets)
	if err != nil {
		t.Fatal(err)
	}
	report := new(accuracyReport)
	if got, want := report.count(shots[:1], false), (targetRow{Size: 8, Shown: 1}); got != want || report.failure() != nil {
		t.Errorf("got %v, %v, want %v and no failure as this one may be missed", got, report.failure(), want)
	}
	if got, want := report.count(shots[1:], true), (targetRow{Size: 16, Shown: 1, Hit: 1}); got != want || report.failure() != nil {
		t.Errorf("got %v, %v, want %v", got, report.failure(), want)
	}
	report.count(shots, true)
	const want = "missed 1 targets that are larger than a pixel of the picture, first (100,100)-(108,108) by a click at (109,104)"
	if err := report.failure(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
