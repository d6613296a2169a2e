package scaling_test

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"testing"

	"github.com/deskagent/deskagent/scaling"
)

func ExampleView() {
	view := scaling.View{Size: image.Pt(800, 600)}
	m, err := view.Mapping(image.Rect(0, 0, 1600, 1200))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.ToScreen(image.Pt(400, 300)))
	fmt.Println(m.ToScreen(image.Pt(800, 300)))
	// Output:
	// (800,600) <nil>
	// (0,0) point (800,300): outside the picture, valid are (0,0) to (799,599)
}

func mustNew(t testing.TB, crop image.Rectangle, size image.Point) scaling.Mapping {
	t.Helper()
	m, err := scaling.New(crop, size)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sides are sizes where rounding rules differ: primes, halves, thirds, one, and common screens.
var sides = []int{1, 2, 3, 4, 5, 7, 10, 13, 64, 97, 100, 127, 128, 240, 333, 800, 1023, 1280, 1366, 1600, 1920, 2560, 3840}

// TestEveryPixelMapsIntoItsCell is the property of the rounding rule, for every pair of sides and every pixel:
// the screen pixel overlaps the cell that the picture pixel was made from, and its centre is off the cell's
// centre by at most half a screen pixel.
func TestEveryPixelMapsIntoItsCell(t *testing.T) {
	const offset = 37
	for _, screen := range sides {
		for _, picture := range sides {
			m := mustNew(t, image.Rect(offset, 0, offset+screen, 1), image.Pt(picture, 1))
			last := -1
			for p := range picture {
				got, err := m.ToScreen(image.Pt(p, 0))
				if err != nil {
					t.Fatal(err)
				}
				s := got.X - offset
				// The cell is [p·screen/picture, (p+1)·screen/picture); pixel s is [s, s+1). All times 2·picture.
				lo, hi := 2*p*screen, 2*(p+1)*screen
				if pixelLo, pixelHi := 2*s*picture, 2*(s+1)*picture; pixelHi <= lo || pixelLo >= hi || s < 0 || s >= screen {
					t.Fatalf("%d of %d to %d: got %d, not in its cell", p, picture, screen, s)
				}
				if off := (2*s+1)*picture - (2*p+1)*screen; off > picture || off < -picture {
					t.Fatalf("%d of %d to %d: got %d, further than half a screen pixel from the centre", p, picture, screen, s)
				}
				if s < last {
					t.Fatalf("%d of %d to %d: got %d after %d", p, picture, screen, s, last)
				}
				last = s
				if picture <= screen { // nothing is merged on the way to the screen, so the way back is exact
					if back, err := m.ToPicture(got); err != nil || back.X != p {
						t.Fatalf("%d of %d to %d: got %d back, %v", p, picture, screen, back.X, err)
					}
				}
			}
			if picture >= screen {
				for s := range screen {
					p, err := m.ToPicture(image.Pt(s+offset, 0))
					if err != nil {
						t.Fatal(err)
					}
					if got, err := m.ToScreen(p); err != nil || got.X != s+offset {
						t.Fatalf("screen %d of %d by picture %d: got %v back, %v", s, screen, picture, got, err)
					}
				}
			}
		}
	}
}

// TestX1 is row X1 of the field cases: a 4K display in a 1280-wide picture, corners included.
func TestX1(t *testing.T) {
	m := mustNew(t, image.Rect(0, 0, 3840, 2160), image.Pt(1280, 720))
	for picturePt, want := range map[image.Point]image.Point{
		{}: {X: 1, Y: 1}, {X: 1279, Y: 719}: {X: 3838, Y: 2158}, {X: 1279}: {X: 3838, Y: 1}, {X: 640, Y: 360}: {X: 1921, Y: 1081},
	} {
		if got, err := m.ToScreen(picturePt); err != nil || got != want {
			t.Errorf("%v: got %v, %v, want %v", picturePt, got, err, want)
		}
	}
}

// TestX3 is row X3 of the field cases: bounds are those of the picture, and w-1 is the last valid column.
func TestX3(t *testing.T) {
	m := mustNew(t, image.Rect(0, 0, 1920, 1080), image.Pt(1280, 720))
	for _, p := range []image.Point{{X: 1280}, {Y: 720}, {X: -1}, {Y: -1}, {X: 1919, Y: 1079}, {X: 1 << 40}} {
		if got, err := m.ToScreen(p); !errors.Is(err, scaling.ErrOutside) {
			t.Errorf("%v: got %v, %v, want it refused", p, got, err)
		}
	}
	for _, p := range []image.Point{{}, {X: 1279}, {Y: 719}, {X: 1279, Y: 719}} {
		if got, err := m.ToScreen(p); err != nil {
			t.Errorf("%v: got %v, %v", p, got, err)
		}
	}
}

// TestX7 is row X7 of the field cases: scale first, then add the crop's offset.
func TestX7(t *testing.T) {
	m := mustNew(t, image.Rect(300, 200, 1100, 800), image.Pt(400, 300))
	if got, err := m.ToScreen(image.Pt(10, 20)); err != nil || got != image.Pt(320, 240) {
		t.Errorf("got %v, %v, want (320,240)", got, err)
	}
	if got, err := m.ToPicture(image.Pt(320, 240)); err != nil || got != image.Pt(10, 20) {
		t.Errorf("got %v, %v, want (10,20)", got, err)
	}
	for _, p := range []image.Point{{X: 299, Y: 200}, {X: 1100, Y: 200}, {X: 300, Y: 800}} {
		if got, err := m.ToPicture(p); !errors.Is(err, scaling.ErrOutside) {
			t.Errorf("%v: got %v, %v, want it refused", p, got, err)
		}
	}
}

func TestViewRefuses(t *testing.T) {
	screen := image.Rect(0, 0, 100, 100)
	for _, v := range []scaling.View{
		{Crop: image.Rect(50, 50, 101, 60)}, {Crop: image.Rect(-1, 0, 10, 10)}, {Crop: image.Rectangle{Min: image.Pt(5, 5), Max: image.Pt(5, 9)}},
		{Size: image.Pt(0, 10)}, {Size: image.Pt(-1, 10)}, {Size: image.Pt(10, 1<<21)},
		{Most: image.Pt(0, 10)}, {Most: image.Pt(10, -1)},
	} {
		if m, err := v.Mapping(screen); err == nil {
			t.Errorf("%+v: got %v, want an error", v, m)
		}
	}
	if m, err := (scaling.View{}).Mapping(image.Rectangle{}); err == nil {
		t.Errorf("empty screen: got %v, want an error", m)
	}
	if _, err := (scaling.Mapping{}).ToScreen(image.Point{}); !errors.Is(err, scaling.ErrOutside) {
		t.Errorf("the zero mapping: got %v, want it to have no points", err)
	}
}

func TestFit(t *testing.T) {
	most := image.Pt(1440, 900)
	for size, want := range map[image.Point]image.Point{
		{X: 1280, Y: 800}:  {X: 1280, Y: 800},
		{X: 1440, Y: 900}:  {X: 1440, Y: 900},
		{X: 1920, Y: 1080}: {X: 1440, Y: 810},
		{X: 2560, Y: 1600}: {X: 1440, Y: 900},
		{X: 1080, Y: 1920}: {X: 506, Y: 900},
		{X: 30000, Y: 1}:   {X: 1440, Y: 1},
	} {
		if got := scaling.Fit(size, most); got != want {
			t.Errorf("%v: got %v, want %v", size, got, want)
		}
	}
}

// TestMost checks that a view without a size fits its pictures, whatever the part shown.
func TestMost(t *testing.T) {
	for _, test := range []struct {
		view scaling.View
		want image.Point
	}{
		{scaling.View{Most: image.Pt(1440, 900)}, image.Pt(1440, 810)},
		{scaling.View{Most: image.Pt(1440, 900), Crop: image.Rect(10, 20, 310, 220)}, image.Pt(300, 200)},
		{scaling.View{Most: image.Pt(1440, 900), Size: image.Pt(1600, 1000)}, image.Pt(1600, 1000)},
	} {
		m, err := test.view.Mapping(image.Rect(0, 0, 1920, 1080))
		if err != nil || m.Size() != test.want {
			t.Errorf("%+v: got a picture of %v, %v, want %v", test.view, m.Size(), err, test.want)
		}
	}
}

func TestDistanceToScreen(t *testing.T) {
	m := mustNew(t, image.Rect(0, 0, 1920, 1080), image.Pt(1280, 720))
	for d, want := range map[int]int{0: 0, 1: 2, 2: 3, 3: 5, 100: 150, -100: -150, -1: -2, 1 << 50: 3 << 39, -1 << 50: -3 << 39} {
		if got := m.DistanceToScreen(image.Pt(0, d)); got != image.Pt(0, want) {
			t.Errorf("%d: got %v, want %d", d, got, want)
		}
	}
}

// TestPictureShowsWhatPointsMapTo puts single bright pixels on a screen and finds each again in the picture: the
// brightest picture pixel is the one that maps to it.
func TestPictureShowsWhatPointsMapTo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, crop := range []image.Rectangle{image.Rect(0, 0, 96, 64), image.Rect(13, 7, 96, 64)} {
		for _, size := range []image.Point{crop.Size(), {X: 64, Y: 48}, {X: 48, Y: 32}, {X: 30, Y: 20}, {X: 17, Y: 9}} {
			m := mustNew(t, crop, size)
			for range 20 {
				picturePt := image.Pt(random.IntN(size.X), random.IntN(size.Y))
				screenPt, err := m.ToScreen(picturePt)
				if err != nil {
					t.Fatal(err)
				}
				screen := image.NewRGBA(image.Rect(0, 0, 96, 64))
				screen.Set(screenPt.X, screenPt.Y, color.White)
				picture, err := m.Picture(screen)
				if err != nil {
					t.Fatal(err)
				}
				brightest, at := uint8(0), image.Point{}
				for y := range size.Y {
					for x := range size.X {
						if v := picture.RGBAAt(x, y).R; v > brightest {
							brightest, at = v, image.Pt(x, y)
						}
					}
				}
				if off := at.Sub(picturePt); off.X < -1 || off.X > 1 || off.Y < -1 || off.Y > 1 || (size == crop.Size() && at != picturePt) {
					t.Errorf("%v: %v was made from screen %v but shows at %v", m, picturePt, screenPt, at)
				}
			}
		}
	}
}

func TestPictureRefusesMissingPixels(t *testing.T) {
	m := mustNew(t, image.Rect(0, 0, 20, 20), image.Pt(10, 10))
	if got, err := m.Picture(image.NewRGBA(image.Rect(0, 0, 19, 20))); err == nil {
		t.Errorf("got %v, want an error", got.Bounds())
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(1920, 1080, 1280, 720, 0, 0, 5, 7)
	f.Fuzz(func(t *testing.T, sw, sh, pw, ph, ox, oy, x, y int) {
		if sw > 1<<20 || sh > 1<<20 || ox > 1<<40 || oy > 1<<40 || ox < -1<<40 || oy < -1<<40 {
			return
		}
		m, err := scaling.New(image.Rect(ox, oy, ox+sw, oy+sh), image.Pt(pw, ph))
		if err != nil {
			return
		}
		screenPt, err := m.ToScreen(image.Pt(x, y))
		if err != nil {
			return
		}
		if !screenPt.In(m.Crop()) {
			t.Fatalf("%v: (%d,%d) left the crop: %v", m, x, y, screenPt)
		}
		back, err := m.ToPicture(screenPt)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := m.ToScreen(back); err != nil || (pw <= m.Crop().Dx() && ph <= m.Crop().Dy() && again != screenPt) {
			t.Fatalf("%v: %v became %v, %v", m, screenPt, again, err)
		}
	})
}

func BenchmarkPicture(b *testing.B) {
	src := image.NewRGBA(image.Rect(0, 0, 1920, 1080))
	for _, size := range []image.Point{{X: 1920, Y: 1080}, {X: 1280, Y: 720}, {X: 640, Y: 360}} {
		m := mustNew(b, src.Bounds(), size)
		b.Run(fmt.Sprintf("%dx%d", size.X, size.Y), func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Picture(src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
