package model

import (
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/image/draw"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// paint paints a mark with its upper left corner at p, as package palette says it looks, and returns its area.
func paint(dst draw.Image, p image.Point, m palette.Mark) image.Rectangle {
	columns := m.Columns()
	for x, column := range columns {
		for y, cell := range column {
			at := p.Add(image.Pt(x, y).Mul(palette.Cell))
			draw.Draw(dst, image.Rectangle{Min: at, Max: at.Add(image.Pt(palette.Cell, palette.Cell))}, image.NewUniform(cell), image.Point{}, draw.Src)
		}
	}
	return image.Rectangle{Min: p, Max: p.Add(image.Pt(len(columns), palette.Rows).Mul(palette.Cell))}
}

// clutter fills a picture with rectangles in all colours, those of the marks most of all.
func clutter(dst draw.Image, random *rand.Rand) {
	colours := append([]color.RGBA{palette.Start, palette.End}, append(palette.Digits[:], palette.Lamps[:]...)...)
	size := dst.Bounds().Size()
	for range 400 {
		c := colours[random.IntN(len(colours))]
		if random.IntN(2) == 0 {
			c = color.RGBA{uint8(random.IntN(256)), uint8(random.IntN(256)), uint8(random.IntN(256)), 0xff}
		}
		at := image.Pt(random.IntN(size.X), random.IntN(size.Y))
		r := image.Rectangle{Min: at, Max: at.Add(image.Pt(1+random.IntN(80), 1+random.IntN(80)))}
		draw.Draw(dst, r, image.NewUniform(c), image.Point{}, draw.Src)
	}
}

// TestSee finds every mark, and nothing else, in pictures at the sizes that the exercise uses and at half the size,
// wherever the marks are and whatever lies around them.
func TestSee(t *testing.T) {
	marks := []palette.Mark{
		{Kind: palette.TextArea, Text: "--it's abc\n\t`$HOME` -7"}, {Kind: palette.TextField, Lamp: palette.Done, Text: "bcdfg3"},
		{Kind: palette.CheckBox}, {Kind: palette.Slow, Lamp: palette.Busy}, {Kind: palette.List, Text: "QX"}, {Kind: palette.Chord, Text: "K"},
	}
	screen := image.Pt(1200, 800)
	for _, picture := range []image.Point{screen, {X: 960, Y: 640}, {X: 800, Y: 533}, {X: 750, Y: 500}, {X: 600, Y: 400}} {
		t.Run(fmt.Sprintf("%dx%d", picture.X, picture.Y), func(t *testing.T) {
			for seed := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, 1))
				src := image.NewRGBA(image.Rectangle{Max: screen})
				clutter(src, random)
				want := map[palette.Mark]image.Point{}
				for i, m := range marks {
					// One mark to a band of the screen, each on a light ground as a window gives it.
					at := image.Pt(random.IntN(screen.X-500), i*130+random.IntN(100))
					area := image.Rectangle{Min: at, Max: at.Add(image.Pt(len(m.Columns()), palette.Rows).Mul(palette.Cell))}
					draw.Draw(src, area.Inset(-3), image.White, image.Point{}, draw.Src)
					paint(src, at, m)
					want[m] = area.Min.Add(area.Max).Div(2)
				}
				dst := image.NewRGBA(image.Rectangle{Max: picture})
				if picture == screen {
					dst = src
				} else {
					draw.ApproxBiLinear.Scale(dst, dst.Rect, src, src.Rect, draw.Src, nil)
				}
				seen := see(dst)
				for _, s := range seen {
					at, ok := want[s.Mark]
					at.X, at.Y = at.X*picture.X/screen.X, at.Y*picture.Y/screen.Y
					if !ok || distance(s.at.X, at.X) > 1 || distance(s.at.Y, at.Y) > 1 {
						t.Errorf("seed %d: got %+v at %v, want it at %v (%v)", seed, s.Mark, s.at, at, ok)
					}
				}
				if len(seen) != len(marks) {
					t.Errorf("seed %d: got %d marks, want %d", seed, len(seen), len(marks))
				}
			}
		})
	}
}

// TestSeeDamaged covers a part of a mark: then it is not to be read as another.
func TestSeeDamaged(t *testing.T) {
	mark := palette.Mark{Kind: palette.TextField, Text: "bcdfg3"}
	for _, cover := range []image.Rectangle{
		image.Rect(0, 0, 60, 100), image.Rect(150, 0, 200, 100), image.Rect(80, 0, 100, 100), image.Rect(0, 0, 300, 61), image.Rect(0, 59, 300, 100),
	} {
		picture := image.NewRGBA(image.Rect(0, 0, 300, 100))
		draw.Draw(picture, picture.Rect, image.White, image.Point{}, draw.Src)
		paint(picture, image.Pt(50, 50), mark)
		if got := see(picture); len(got) != 1 || got[0].Mark != mark {
			t.Fatalf("got %+v, want the mark while it is whole", got)
		}
		draw.Draw(picture, cover, image.NewUniform(color.RGBA{0x80, 0x80, 0x80, 0xff}), image.Point{}, draw.Src)
		if got := see(picture); len(got) != 0 {
			t.Errorf("covered by %v: got %+v, want nothing", cover, got)
		}
	}
}

// TestSeeOrder is from top to bottom, then from left to right, in pictures that do not start at (0,0) too.
func TestSeeOrder(t *testing.T) {
	picture := image.NewNRGBA(image.Rect(-10, -20, 300, 200))
	draw.Draw(picture, picture.Rect, image.White, image.Point{}, draw.Src)
	for kind, at := range []image.Point{{X: 100, Y: 100}, {X: 10, Y: 100}, {X: 200, Y: -15}} {
		paint(picture, at, palette.Mark{Kind: palette.Kind(kind)})
	}
	var got []palette.Kind
	for _, s := range see(picture) {
		got = append(got, s.Kind)
	}
	if want := []palette.Kind{2, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkSee(b *testing.B) {
	picture := image.NewRGBA(image.Rect(0, 0, 1280, 800))
	clutter(picture, rand.New(rand.NewPCG(1, 1)))
	for b.Loop() {
		see(picture)
	}
}
