package app

import (
	"flag"
	"image"
	"image/draw"
	"image/png"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden pictures anew")

// TestPaint compares the window with a picture of it; it covers the shapes, the typefaces and the marks. Curves may
// be rounded differently on another processor, which changes a pixel at their edge by little.
func TestPaint(t *testing.T) {
	const file, tolerance = "testdata/window.png", 8
	h := newHand(7)
	h.record.Checked = true
	h.click(buttonLeft, 0)
	h.types("abc@%&", 0)
	h.drag(centre(h.handle()), centre(h.handle()).Add(image.Pt(70, 0)), 4)
	h.record.Notes, h.record.Item = h.challenge.Notes, h.challenge.List[2]
	h.openMenu(centre(contextCard))
	got := canvas{image.NewRGBA(image.Rectangle{Max: Size}), newFaces()}
	h.paint(got)
	if *update {
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(f, got); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	golden, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	want := image.NewRGBA(got.Rect)
	draw.Draw(want, want.Rect, golden, image.Point{}, draw.Src)
	for i := range want.Pix {
		if a, b := got.Pix[i], want.Pix[i]; max(a, b)-min(a, b) > tolerance {
			t.Fatalf("pixel %d,%d: got %v, want %v", i/4%Size.X, i/4/Size.X, got.At(i/4%Size.X, i/4/Size.X), want.At(i/4%Size.X, i/4/Size.X))
		}
	}
}

func BenchmarkPaint(b *testing.B) {
	d := newDesk(NewChallenge(7))
	c := canvas{image.NewRGBA(image.Rectangle{Max: Size}), newFaces()}
	for b.Loop() {
		d.paint(c)
	}
}
