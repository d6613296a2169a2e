package scaling_test

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/image/draw"

	"github.com/deskagent/deskagent/scaling"
)

// desktop is a picture of a real desktop: a browser, a terminal, a dialog, and a background like a photograph.
func desktop(t testing.TB) *image.RGBA {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "testdata", "desktop.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoded, err := png.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	picture := image.NewRGBA(decoded.Bounds())
	draw.Copy(picture, image.Point{}, decoded, decoded.Bounds(), draw.Src, nil)
	return picture
}

// part is the weight of a source pixel in a pixel of a picture.
type part struct {
	at     int
	weight float64
}

// parts is the rule of Draw for one direction in floating point: what picture pixel i of size is made of.
func parts(i, source, size int) (p []part) {
	if size > source {
		at := (float64(i)+0.5)*float64(source)/float64(size) - 0.5
		at = min(max(at, 0), float64(source-1))
		from := int(at)
		return []part{{from, 1 - (at - float64(from))}, {min(from+1, source-1), at - float64(from)}}
	}
	cell := float64(source) / float64(size)
	lo, hi := float64(i)*cell, float64(i+1)*cell
	for s := int(lo); s < source && float64(s) < hi; s++ {
		p = append(p, part{s, (min(hi, float64(s+1)) - max(lo, float64(s))) / cell})
	}
	return p
}

// check compares pixels of a picture with the rule. The picture must be the mean rounded to the nearest, so it may be
// off by half of one of 255 steps, and by what the reference loses itself.
func check(t *testing.T, m scaling.Mapping, got *image.RGBA, src scaling.Source, every int) {
	t.Helper()
	const tolerance = 0.5 + 1e-6
	for i := 0; i < m.Size().X*m.Size().Y; i += every {
		x, y := i%m.Size().X, i/m.Size().X
		var want [3]float64
		for _, row := range parts(y, m.Crop().Dy(), m.Size().Y) {
			for _, column := range parts(x, m.Crop().Dx(), m.Size().X) {
				at := m.Crop().Min.Add(image.Pt(column.at, row.at)).Sub(src.Bounds.Min)
				for c := range want {
					want[c] += float64(src.Pix[at.Y*src.Stride+4*at.X+c]) * row.weight * column.weight
				}
			}
		}
		if src.Order == scaling.BGRX {
			want[0], want[2] = want[2], want[0]
		}
		pixel := got.Pix[got.PixOffset(x, y):][:4]
		for c, w := range want {
			if math.Abs(float64(pixel[c])-w) > tolerance {
				t.Fatalf("%v, order %d: got %v at (%d,%d), want %.7v", m, src.Order, pixel, x, y, want)
			}
		}
		if pixel[3] != 0xFF {
			t.Fatalf("%v: got alpha %d at (%d,%d), want it opaque", m, pixel[3], x, y)
		}
	}
}

// noise is a source of random bytes, the padding included.
func noise(random *rand.Rand, bounds image.Rectangle, padding int, order scaling.Order) scaling.Source {
	s := scaling.Source{Stride: 4*bounds.Dx() + padding, Bounds: bounds, Order: order}
	s.Pix = make([]byte, s.Stride*bounds.Dy())
	for i := range s.Pix {
		s.Pix[i] = byte(random.Uint32())
	}
	return s
}

func drawn(t testing.TB, m scaling.Mapping, src scaling.Source) *image.RGBA {
	t.Helper()
	dst := image.NewRGBA(image.Rectangle{Max: m.Size()})
	if err := m.Draw(dst, src); err != nil {
		t.Fatal(err)
	}
	return dst
}

func TestDrawIsTheExactMean(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, tt := range []struct{ crop, size image.Point }{
		{image.Pt(40, 30), image.Pt(40, 30)}, {image.Pt(41, 3), image.Pt(41, 3)}, // copies, of an odd width too
		{image.Pt(48, 36), image.Pt(32, 24)}, {image.Pt(48, 36), image.Pt(24, 18)}, {image.Pt(64, 36), image.Pt(36, 20)},
		{image.Pt(40, 30), image.Pt(30, 30)}, {image.Pt(40, 30), image.Pt(40, 20)}, // one direction alone
		{image.Pt(40, 30), image.Pt(20, 60)}, {image.Pt(40, 30), image.Pt(50, 10)}, // one up, one down
		{image.Pt(32, 32), image.Pt(2, 2)}, {image.Pt(32, 32), image.Pt(2, 1)}, // 256, the most that is packed, and above
		{image.Pt(37, 23), image.Pt(31, 19)}, {image.Pt(31, 19), image.Pt(37, 23)}, {image.Pt(7, 5), image.Pt(700, 3)},
		{image.Pt(40, 30), image.Pt(24, 18)}, {image.Pt(48, 36), image.Pt(24, 18)}, {image.Pt(48, 30), image.Pt(24, 18)}, // tables anew
		{image.Pt(1, 1), image.Pt(5, 9)}, {image.Pt(97, 89), image.Pt(1, 1)}, {image.Pt(97, 2), image.Pt(13, 3)},
	} {
		for _, order := range []scaling.Order{scaling.RGBA, scaling.BGRX} {
			src := noise(random, image.Rect(-3, 5, 107, 105), 12, order)
			m := mustNew(t, image.Rectangle{Max: tt.crop}.Add(image.Pt(-2, 9)), tt.size)
			check(t, m, drawn(t, m, src), src, 1)
		}
	}
}

// TestDrawOfTheLargestSides looks for overflow: sides of X screens end at 32767 pixels.
func TestDrawOfTheLargestSides(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, size := range []image.Point{{X: 32749, Y: 1}, {X: 7, Y: 2}, {X: 1, Y: 5}} {
		for _, crop := range []image.Rectangle{image.Rect(0, 0, 32767, 3), image.Rect(0, 0, 3, 32767)} {
			if crop.Dx() == 3 {
				size = image.Pt(size.Y, size.X)
			}
			src := noise(random, crop, 0, scaling.BGRX)
			m := mustNew(t, crop, size)
			check(t, m, drawn(t, m, src), src, 1+size.X*size.Y/1000)
			for i := range src.Pix {
				src.Pix[i] = 0xFF
			}
			for i, v := range drawn(t, m, src).Pix {
				if v != 0xFF {
					t.Fatalf("%v: got %d at byte %d of a white picture", m, v, i)
				}
			}
		}
	}
}

func TestDrawKeepsEvenAreas(t *testing.T) {
	src := image.NewRGBA(image.Rect(0, 0, 144, 96))
	for _, c := range []color.RGBA{{0, 0, 0, 255}, {255, 255, 255, 255}, {1, 127, 254, 255}} {
		draw.Draw(src, src.Rect, image.NewUniform(c), image.Point{}, draw.Src)
		for _, size := range []image.Point{{X: 144, Y: 96}, {X: 72, Y: 48}, {X: 9, Y: 6}, {X: 8, Y: 6}, {X: 97, Y: 53}, {X: 320, Y: 11}, {X: 333, Y: 211}} {
			got, err := mustNew(t, src.Rect, size).Picture(src)
			if err != nil {
				t.Fatal(err)
			}
			for i := range size.X * size.Y {
				if at := got.RGBAAt(i%size.X, i/size.X); at != c {
					t.Fatalf("%v as %v: got %v at pixel %d", c, size, at, i)
				}
			}
		}
	}
}

// TestDrawRoundsHalfUp has as many pixels of one value as of the next, in every number up to some.
func TestDrawRoundsHalfUp(t *testing.T) {
	for half := 1; half < 500; half++ {
		src := scaling.Source{Pix: make([]byte, 8*half), Stride: 8 * half, Bounds: image.Rect(0, 0, 2*half, 1)}
		for i := range src.Pix {
			src.Pix[i] = []byte{0, 99, 254, 0}[i%4] + byte(i/4%2)
		}
		got := drawn(t, mustNew(t, src.Bounds, image.Pt(1, 1)), src)
		if at, want := got.RGBAAt(0, 0), (color.RGBA{1, 100, 255, 255}); at != want {
			t.Fatalf("%d pixels: got %v, want %v", 2*half, at, want)
		}
	}
}

func TestDrawKeepsGradients(t *testing.T) {
	src := image.NewRGBA(image.Rect(0, 0, 256, 8))
	for i := range 256 * 8 {
		src.SetRGBA(i%256, i/256, color.RGBA{R: uint8(i % 256), G: uint8(255 - i%256), A: 255})
	}
	for _, width := range []int{255, 171, 128, 100, 64, 3, 257, 1000} {
		got, err := mustNew(t, src.Rect, image.Pt(width, 5)).Picture(src)
		if err != nil {
			t.Fatal(err)
		}
		for x := 1; x < width; x++ {
			a, b := got.RGBAAt(x-1, 2), got.RGBAAt(x, 2)
			if b.R < a.R || b.G > a.G || int(b.R)-int(a.R) > 256/width+1 {
				t.Fatalf("%d wide: got %v, then %v at %d", width, a, b, x)
			}
		}
	}
}

// TestDrawOfADesktop compares with x/image on a real picture. Another kernel gives another picture, but a similar one:
// on average over all colours they differ by less than the stated numbers of 255 steps, and nearest neighbour by at least
// twice as much.
func TestDrawOfADesktop(t *testing.T) {
	src := desktop(t).SubImage(image.Rect(500, 300, 1460, 840)).(*image.RGBA) // parts of all its windows
	for _, size := range []image.Point{{X: 640, Y: 360}, {X: 427, Y: 239}} {
		m := mustNew(t, src.Rect, size)
		got, err := m.Picture(src)
		if err != nil {
			t.Fatal(err)
		}
		from := func(s draw.Scaler) float64 {
			want := image.NewRGBA(got.Rect)
			s.Scale(want, want.Rect, src, src.Rect, draw.Src, nil)
			return difference(got, want)
		}
		bilinear, catmullRom, nearest := from(draw.BiLinear), from(draw.CatmullRom), from(draw.NearestNeighbor)
		t.Logf("%v: BiLinear %.2f, CatmullRom %.2f, NearestNeighbor %.2f", size, bilinear, catmullRom, nearest)
		if bilinear > 1.5 || catmullRom > 1 || nearest < 3 {
			t.Errorf("%v: got a mean difference of %.2f from BiLinear, want at most 1.5; of %.2f from CatmullRom, want at most 1; of %.2f from NearestNeighbor, want at least 3",
				size, bilinear, catmullRom, nearest)
		}
	}
}

// difference is the mean difference of the bytes of two pictures.
func difference(a, b *image.RGBA) float64 {
	sum := 0
	for i, v := range a.Pix {
		sum += max(int(v), int(b.Pix[i])) - min(int(v), int(b.Pix[i]))
	}
	return float64(sum) / float64(len(a.Pix)) * 4 / 3 // alpha does not differ
}

func TestPictureOfOtherImages(t *testing.T) {
	src := image.NewNRGBA(image.Rect(0, 0, 4, 2))
	for i := range 8 {
		src.SetNRGBA(i%4, i/4, color.NRGBA{R: 200, G: 100, B: 50, A: 128})
	}
	got, err := mustNew(t, image.Rect(2, 0, 4, 2), image.Pt(1, 1)).Picture(src)
	if want := (color.RGBA{100, 50, 25, 255}); err != nil || got.RGBAAt(0, 0) != want {
		t.Errorf("got %v, %v, want what is half transparent as on black, %v", got, err, want)
	}
}

// TestDrawWithSeveralGoroutines compares with one, rows of which the other tests check.
func TestDrawWithSeveralGoroutines(t *testing.T) {
	src := desktop(t)
	frame := scaling.Source{Pix: src.Pix, Stride: src.Stride, Bounds: src.Rect}
	m := mustNew(t, src.Rect, image.Pt(640, 361))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	want := drawn(t, m, frame)
	check(t, m, want, frame, 97)
	for n := 2; n < 6; n++ {
		runtime.GOMAXPROCS(n)
		if got := drawn(t, m, frame); !slices.Equal(got.Pix, want.Pix) {
			t.Errorf("%d goroutines: got another picture", n)
		}
	}
}

func TestDrawKeepsItsMemory(t *testing.T) {
	m := mustNew(t, image.Rect(0, 0, 1920, 1080), image.Pt(1280, 720))
	src := scaling.Source{Pix: make([]byte, 4*1920*1080), Stride: 4 * 1920, Bounds: m.Crop(), Order: scaling.BGRX}
	dst := image.NewRGBA(image.Rectangle{Max: m.Size()})
	const rounds, most = 10, 100 << 10 // a picture has 3600 KiB; tables may be made anew after a collection
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		if err := m.Draw(dst, src); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > most {
		t.Errorf("got %d bytes allocated for a picture, want at most %d", got, most)
	}
}

func TestDrawRefuses(t *testing.T) {
	m := mustNew(t, image.Rect(10, 10, 30, 30), image.Pt(10, 10))
	good := noise(rand.New(rand.NewPCG(9, 10)), image.Rect(0, 0, 40, 40), 0, scaling.RGBA)
	dst := image.NewRGBA(image.Rect(0, 0, 10, 10))
	for _, tt := range []struct {
		name   string
		change func(*scaling.Source) *image.RGBA
	}{
		{"pixels that do not cover the crop", func(s *scaling.Source) *image.RGBA { s.Bounds = s.Bounds.Add(image.Pt(11, 0)); return dst }},
		{"too few bytes", func(s *scaling.Source) *image.RGBA { s.Pix = s.Pix[1:]; return dst }},
		{"a stride shorter than a row", func(s *scaling.Source) *image.RGBA { s.Stride--; return dst }},
		{"no bounds", func(s *scaling.Source) *image.RGBA { s.Bounds = image.Rectangle{}; return dst }},
		{"an unknown order", func(s *scaling.Source) *image.RGBA { s.Order = 7; return dst }},
		{"a picture of another size", func(*scaling.Source) *image.RGBA { return image.NewRGBA(image.Rect(0, 0, 10, 11)) }},
		{"a picture that begins elsewhere", func(*scaling.Source) *image.RGBA { return image.NewRGBA(image.Rect(1, 1, 11, 11)) }},
	} {
		src := good
		if err := m.Draw(tt.change(&src), src); err == nil {
			t.Errorf("%s: got no error", tt.name)
		}
	}
	if err := (scaling.Mapping{}).Draw(&image.RGBA{}, good); err == nil {
		t.Error("the zero mapping: got no error")
	}
	if err := m.Draw(dst, good); err != nil {
		t.Error(err)
	}
}

func FuzzDraw(f *testing.F) {
	f.Add(uint64(1), 30, 20, 20, 15, false)
	f.Add(uint64(2), 17, 90, 40, 7, true)
	f.Fuzz(func(t *testing.T, seed uint64, sw, sh, pw, ph int, swapped bool) {
		if min(sw, sh, pw, ph) < 1 || max(sw, sh, pw, ph) > 200 {
			return
		}
		src := noise(rand.New(rand.NewPCG(seed, 0)), image.Rect(0, 0, sw, sh), int(seed%5), scaling.RGBA)
		if swapped {
			src.Order = scaling.BGRX
		}
		m := mustNew(t, src.Bounds, image.Pt(pw, ph))
		check(t, m, drawn(t, m, src), src, 1)
	})
}

// BenchmarkDraw draws a frame as a server has it, on as many goroutines as -cpu says; x/image has one.
func BenchmarkDraw(b *testing.B) {
	src := desktop(b)
	frame := scaling.Source{Pix: src.Pix, Stride: src.Stride, Bounds: src.Rect, Order: scaling.BGRX}
	for _, size := range []image.Point{{X: 1920, Y: 1080}, {X: 1440, Y: 810}, {X: 1280, Y: 720}, {X: 960, Y: 540}, {X: 1279, Y: 719}} {
		m := mustNew(b, src.Rect, size)
		dst := image.NewRGBA(image.Rectangle{Max: size})
		b.Run(fmt.Sprintf("%dx%d", size.X, size.Y), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Draw(dst, frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	dst := image.NewRGBA(image.Rect(0, 0, 1280, 720))
	for _, s := range []struct {
		name string
		draw.Scaler
	}{{"ApproxBiLinear", draw.ApproxBiLinear}, {"BiLinear", draw.BiLinear}, {"CatmullRom", draw.CatmullRom}} {
		b.Run("1280x720/"+s.name, func(b *testing.B) {
			for b.Loop() {
				s.Scale(dst, dst.Rect, src, src.Rect, draw.Src, nil)
			}
		})
	}
}
