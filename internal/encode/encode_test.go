package encode_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/deskagent/deskagent/internal/encode"
	"github.com/deskagent/deskagent/scaling"
)

var readDesktop = sync.OnceValues(func() (image.Image, error) {
	file, err := os.Open(filepath.Join("..", "..", "testdata", "desktop.png"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return png.Decode(file)
})

// desktop is a picture of a real desktop: a browser, a terminal, a dialog, and a background like a photograph.
func desktop(t testing.TB, size image.Point) *image.RGBA {
	t.Helper()
	decoded, err := readDesktop()
	if err != nil {
		t.Fatal(err)
	}
	m, err := scaling.New(decoded.Bounds(), size)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := m.Picture(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

// painted is a picture with what rows of a desktop have: even runs, repeated rows and noise. Alpha is anything.
func painted(random *rand.Rand, w, h int) *image.RGBA {
	p := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		row := p.Pix[y*p.Stride:][:4*w]
		switch kind := random.IntN(4); {
		case kind == 0 && y > 0:
			copy(row, p.Pix[(y-1)*p.Stride:])
		case kind == 1:
			c := byte(random.Uint32())
			for i := range row {
				row[i] = c
			}
		default:
			for i := range row {
				row[i] = byte(random.Uint32())
			}
		}
	}
	return p
}

// colours returns the colours of a picture, three bytes a pixel, as the other decoders give them.
func colours(p *image.RGBA) (c []byte) {
	for y := range p.Rect.Dy() {
		for x := range p.Rect.Dx() {
			c = append(c, p.Pix[y*p.Stride+4*x:][:3]...)
		}
	}
	return c
}

// checkPNG decodes a file with image/png and compares it with the picture it was made of.
func checkPNG(t *testing.T, file []byte, want *image.RGBA) {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatalf("%v: %v", want.Rect, err)
	}
	got, ok := decoded.(*image.RGBA) // which image/png makes of truecolour of 8 bits without alpha alone
	if !ok || got.Rect.Size() != want.Rect.Size() || !got.Opaque() {
		t.Fatalf("got %T of %v, want an opaque image.RGBA of %v", decoded, decoded.Bounds(), want.Rect)
	}
	if !bytes.Equal(colours(got), colours(want)) {
		t.Fatalf("%v: got other pixels", want.Rect)
	}
}

func appendPNG(t testing.TB, dst []byte, p *image.RGBA) []byte {
	t.Helper()
	dst, err := encode.AppendPNG(dst, p)
	if err != nil {
		t.Fatal(err)
	}
	return dst
}

func TestPNGIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []image.Point{{1, 1}, {2, 1}, {3, 3}, {4, 2}, {5, 9}, {6, 1}, {7, 4}, {8, 8}, {1, 300}, {300, 1}, {129, 67}} {
		p := painted(random, size.X, size.Y)
		checkPNG(t, appendPNG(t, nil, p), p)
		if size.X > 2 && size.Y > 2 {
			part := p.SubImage(image.Rect(1, 1, size.X-1, size.Y)).(*image.RGBA)
			checkPNG(t, appendPNG(t, nil, part), part)
		}
	}
}

func TestPNGInStrips(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	p := desktop(t, image.Pt(960, 601)) // enough for three
	lengths := map[int]bool{}
	for n := 1; n < 4; n++ {
		runtime.GOMAXPROCS(n)
		file := appendPNG(t, []byte("before"), p)
		if !bytes.HasPrefix(file, []byte("before\x89PNG")) {
			t.Fatalf("got %q, want it after what was there", file[:10])
		}
		checkPNG(t, file[len("before"):], p)
		lengths[len(file)] = true
	}
	if len(lengths) != 3 {
		t.Errorf("got files of %v bytes, want another number of strips for each number of processors", lengths)
	}
}

// TestPNGByOthers has libpng, by way of GTK, decode a file, and pngcheck look at its parts.
func TestPNGByOthers(t *testing.T) {
	p := desktop(t, image.Pt(641, 361))
	file := filepath.Join(t.TempDir(), "picture.png")
	if err := os.WriteFile(file, appendPNG(t, nil, p), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("libpng", func(t *testing.T) {
		const python = "/usr/bin/python3" // the system's, which has GTK's bindings
		if err := exec.Command(python, "-c", "import gi; gi.require_version('GdkPixbuf', '2.0')").Run(); err != nil {
			t.Skipf("GTK's bindings for Python are not installed: %v", err)
		}
		got, err := exec.Command(python, "-c", `
import sys
from gi.repository import GdkPixbuf
p = GdkPixbuf.Pixbuf.new_from_file(sys.argv[1])
assert not p.get_has_alpha()
data, stride, row = p.get_pixels(), p.get_rowstride(), 3 * p.get_width()
for y in range(p.get_height()):
    sys.stdout.buffer.write(data[y*stride:y*stride+row])
`, file).Output()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, colours(p)) {
			t.Error("got other pixels")
		}
	})
	t.Run("pngcheck", func(t *testing.T) {
		if _, err := exec.LookPath("pngcheck"); err != nil {
			t.Skip(err)
		}
		got, err := exec.Command("pngcheck", "-v", file).CombinedOutput()
		if err != nil || !strings.Contains(string(got), "641 x 361 image, 24-bit RGB") || !strings.Contains(string(got), "No errors detected") {
			t.Errorf("got %s %v", got, err)
		}
	})
}

// TestPNGIsSmall holds the size of the file against image/png's own fastest.
func TestPNGIsSmall(t *testing.T) {
	p := desktop(t, image.Pt(1280, 720))
	var theirs bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&theirs, p); err != nil {
		t.Fatal(err)
	}
	if got, want := len(appendPNG(t, nil, p)), theirs.Len(); got > want {
		t.Errorf("got %d bytes, want no more than image/png's %d", got, want)
	}
}

func FuzzPNG(f *testing.F) {
	f.Add(uint64(1), 3, 4)
	f.Fuzz(func(t *testing.T, seed uint64, w, h int) {
		if min(w, h) < 1 || max(w, h) > 300 {
			return
		}
		p := painted(rand.New(rand.NewPCG(seed, 0)), w, h)
		checkPNG(t, appendPNG(t, nil, p), p)
	})
}

// TestJPEG states how far from the picture a JPEG is, on average over all colours, of 255 steps.
func TestJPEG(t *testing.T) {
	want := desktop(t, image.Pt(640, 360))
	for _, tt := range []struct {
		quality int
		most    float64
	}{{75, 3}, {85, 2.3}, {95, 1.4}} {
		file, err := encode.AppendJPEG(nil, want, tt.quality)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jpeg.Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		got := image.NewRGBA(want.Rect)
		draw.Draw(got, got.Rect, decoded, image.Point{}, draw.Src)
		sum, a, b := 0, colours(got), colours(want)
		for i, v := range a {
			sum += max(int(v), int(b[i])) - min(int(v), int(b[i]))
		}
		mean := float64(sum) / float64(len(a))
		t.Logf("quality %d: %d bytes, mean error %.2f", tt.quality, len(file), mean)
		if mean > tt.most {
			t.Errorf("quality %d: got a mean error of %.2f, want at most %v", tt.quality, mean, tt.most)
		}
	}
}

func mustNew(t testing.TB, opts *encode.Options) *encode.Encoder {
	t.Helper()
	e, err := encode.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func dataURL(t testing.TB, e *encode.Encoder, p *image.RGBA) string {
	t.Helper()
	url, err := e.DataURL(p)
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// file returns the file in a data URL of the given kind.
func file(t testing.TB, url, kind string) []byte {
	t.Helper()
	text, ok := strings.CutPrefix(url, "data:image/"+kind+";base64,")
	if !ok {
		t.Fatalf("got %.40q, want a data URL of image/%s", url, kind)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDataURL(t *testing.T) {
	p := desktop(t, image.Pt(320, 180))
	checkPNG(t, file(t, dataURL(t, mustNew(t, nil), p), "png"), p)
	byDefault := file(t, dataURL(t, mustNew(t, &encode.Options{Format: encode.JPEG}), p), "jpeg")
	if want, err := encode.AppendJPEG(nil, p, 85); err != nil || !bytes.Equal(byDefault, want) {
		t.Errorf("got %d bytes without a quality, want the %d of quality 85, %v", len(byDefault), len(want), err)
	}
	if small := file(t, dataURL(t, mustNew(t, &encode.Options{Format: encode.JPEG, Quality: 20}), p), "jpeg"); len(small) >= len(byDefault) {
		t.Errorf("got %d bytes of quality 20, want less than %d", len(small), len(byDefault))
	}
}

// TestDataURLAgain checks that the text of an unchanged picture is the very one of before, and that nothing else is.
func TestDataURLAgain(t *testing.T) {
	e := mustNew(t, nil)
	p := painted(rand.New(rand.NewPCG(3, 4)), 40, 30)
	url := dataURL(t, e, p)

	same := image.NewRGBA(image.Rect(5, 5, 60, 60)).SubImage(image.Rect(10, 10, 50, 40)).(*image.RGBA) // with gaps between rows
	for y := range 30 {
		copy(same.Pix[y*same.Stride:][:4*40], p.Pix[y*p.Stride:])
	}
	if again := dataURL(t, e, same); unsafe.StringData(again) != unsafe.StringData(url) {
		t.Error("an unchanged picture: got new text")
	}

	for _, change := range []func(){
		func() { p.Pix[0]++ },
		func() { p.Pix[len(p.Pix)-2]++ }, // the last colour
		func() { p = p.SubImage(image.Rect(0, 0, 40, 29)).(*image.RGBA) },
		func() { p = p.SubImage(image.Rect(0, 0, 39, 29)).(*image.RGBA) },
		func() { p = same }, // as before
	} {
		change()
		checkPNG(t, file(t, dataURL(t, e, p), "png"), p)
	}

	if _, err := e.DataURL(new(image.RGBA)); err == nil {
		t.Error("a picture without pixels: got no error")
	}
	checkPNG(t, file(t, dataURL(t, e, p), "png"), p)
}

func TestDataURLFromSeveralGoroutines(t *testing.T) {
	e := mustNew(t, nil)
	var others sync.WaitGroup
	for i := range uint64(4) {
		others.Go(func() {
			p := painted(rand.New(rand.NewPCG(i/2, 1)), 50, 50) // two pictures, each in two goroutines
			for range 20 {
				url, err := e.DataURL(p)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(strings.TrimPrefix(url, "data:image/png;base64,"))))
				if err != nil || !bytes.Equal(colours(got.(*image.RGBA)), colours(p)) {
					t.Errorf("got another picture, %v", err)
					return
				}
			}
		})
	}
	others.Wait()
}

// TestMemory checks that a picture that changes takes no more anew than its text, less than half of its pixels.
func TestMemory(t *testing.T) {
	p := desktop(t, image.Pt(1280, 720))
	e := mustNew(t, nil)
	dataURL(t, e, p)
	const rounds = 4
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		p.Pix[0]++
		dataURL(t, e, p)
	}
	runtime.ReadMemStats(&after)
	if got, most := (after.TotalAlloc-before.TotalAlloc)/rounds, uint64(len(p.Pix)/2); got > most {
		t.Errorf("got %d bytes allocated for a picture, want at most %d", got, most)
	}
}

func TestRefuses(t *testing.T) {
	for _, opts := range []encode.Options{{Format: 7}, {Format: -1}, {Quality: 80}, {Format: encode.JPEG, Quality: 101}, {Format: encode.JPEG, Quality: -1}} {
		if _, err := encode.New(&opts); err == nil {
			t.Errorf("%+v: got no error", opts)
		}
	}
	empty := image.NewRGBA(image.Rect(0, 0, 0, 5))
	if got, err := encode.AppendPNG([]byte("x"), empty); err == nil || string(got) != "x" {
		t.Errorf("PNG without pixels: got %q, %v", got, err)
	}
	if got, err := encode.AppendJPEG([]byte("x"), empty, 85); err == nil || string(got) != "x" {
		t.Errorf("JPEG without pixels: got %q, %v", got, err)
	}
	// Too wide for a JPEG, whose sides have 16 bits.
	if got, err := encode.AppendJPEG([]byte("x"), image.NewRGBA(image.Rect(0, 0, 1<<16, 1)), 85); err == nil || string(got) != "x" {
		t.Errorf("JPEG of 65536 columns: got %d bytes, %v", len(got), err)
	}
}

// BenchmarkEncode encodes on as many processors as GOMAXPROCS says; image/png and image/jpeg use one.
func BenchmarkEncode(b *testing.B) {
	for _, size := range []image.Point{{X: 1280, Y: 720}, {X: 1920, Y: 1080}} {
		p := desktop(b, size)
		var dst []byte
		var theirs bytes.Buffer
		e := mustNew(b, nil)
		for _, bb := range []struct {
			name   string
			encode func() (bytes int, err error)
		}{
			{"PNG", func() (int, error) { dst, err := encode.AppendPNG(dst[:0], p); return len(dst), err }},
			{"PNG/DataURL", func() (int, error) { p.Pix[0]++; url, err := e.DataURL(p); return len(url), err }},
			{"PNG/DataURL/unchanged", func() (int, error) { url, err := e.DataURL(p); return len(url), err }},
			{"PNG/stdlib", func() (int, error) {
				theirs.Reset()
				err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&theirs, p)
				return theirs.Len(), err
			}},
			{"JPEG75", func() (int, error) { dst, err := encode.AppendJPEG(dst[:0], p, 75); return len(dst), err }},
			{"JPEG85", func() (int, error) { dst, err := encode.AppendJPEG(dst[:0], p, 85); return len(dst), err }},
			{"JPEG95", func() (int, error) { dst, err := encode.AppendJPEG(dst[:0], p, 95); return len(dst), err }},
		} {
			b.Run(size.String()+"/"+bb.name, func(b *testing.B) {
				b.ReportAllocs()
				bytes := 0
				for b.Loop() {
					var err error
					if bytes, err = bb.encode(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(bytes), "bytes")
			})
		}
	}
}
