package app

import (
	"image"
	"image/color"
	"image/draw"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// The look: white cards on a light ground, ink for what matters, grey for what explains. The only loud colours are
// those of the marks.
var (
	ground  = color.RGBA{0xf1, 0xf3, 0xf7, 0xff}
	surface = color.RGBA{0xff, 0xff, 0xff, 0xff}
	sunken  = color.RGBA{0xf8, 0xf9, 0xfb, 0xff}
	line    = color.RGBA{0xda, 0xde, 0xe6, 0xff}
	ink     = color.RGBA{0x1f, 0x25, 0x33, 0xff}
	grey    = color.RGBA{0x6b, 0x72, 0x80, 0xff}
	accent  = color.RGBA{0x3b, 0x5b, 0xdb, 0xff}
	tint    = color.RGBA{0xe4, 0xe9, 0xfc, 0xff}
)

// faces are the typefaces of the window.
type faces struct {
	title, strong, text, small, mono font.Face
}

func newFaces() *faces {
	return &faces{
		title: newFace(gobold.TTF, 21), strong: newFace(gomedium.TTF, 14), text: newFace(goregular.TTF, 14),
		small: newFace(goregular.TTF, 12), mono: newFace(gomono.TTF, 14),
	}
}

// newFace returns a face of one of the Go fonts, so many pixels high. They are part of the program, so it is no use to
// report that one is broken.
func newFace(ttf []byte, pixels float64) font.Face {
	parsed, err := opentype.Parse(ttf)
	if err != nil {
		panic(err)
	}
	// At 72 dots an inch a point is a pixel. Full hinting makes equal characters look equal.
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: pixels, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		panic(err)
	}
	return face
}

// A canvas draws shapes and text on a picture, in its coordinates.
type canvas struct {
	*image.RGBA
	*faces
}

// within returns a canvas that draws inside r only, in the same coordinates.
func (c canvas) within(r image.Rectangle) canvas {
	return canvas{c.SubImage(r).(*image.RGBA), c.faces}
}

func (c canvas) fill(r image.Rectangle, col color.RGBA) {
	draw.Draw(c.RGBA, r, image.NewUniform(col), image.Point{}, draw.Src)
}

// box fills a rectangle with rounded corners.
func (c canvas) box(r image.Rectangle, radius int, col color.RGBA) {
	c.fill(image.Rect(r.Min.X, r.Min.Y+radius, r.Max.X, r.Max.Y-radius), col)
	c.fill(image.Rect(r.Min.X+radius, r.Min.Y, r.Max.X-radius, r.Min.Y+radius), col)
	c.fill(image.Rect(r.Min.X+radius, r.Max.Y-radius, r.Max.X-radius, r.Max.Y), col)
	for dy := range radius {
		for dx := range radius {
			// How far the pixel's centre is outside the circle decides how much of it is covered.
			outside := math.Hypot(float64(radius-dx)-.5, float64(radius-dy)-.5) - float64(radius)
			cover := min(max(.5-outside, 0), 1)
			for _, p := range []image.Point{
				{X: r.Min.X + dx, Y: r.Min.Y + dy}, {X: r.Max.X - 1 - dx, Y: r.Min.Y + dy},
				{X: r.Min.X + dx, Y: r.Max.Y - 1 - dy}, {X: r.Max.X - 1 - dx, Y: r.Max.Y - 1 - dy},
			} {
				if p.In(c.Rect) {
					c.SetRGBA(p.X, p.Y, mix(c.RGBAAt(p.X, p.Y), col, cover))
				}
			}
		}
	}
}

// outlined is a box with a line of one pixel around it.
func (c canvas) outlined(r image.Rectangle, radius int, edge, inside color.RGBA) {
	c.box(r, radius, edge)
	c.box(r.Inset(1), radius-1, inside)
}

func mix(below, above color.RGBA, cover float64) color.RGBA {
	part := func(b, a uint8) uint8 { return uint8(math.Round(float64(b) + (float64(a)-float64(b))*cover)) }
	return color.RGBA{part(below.R, above.R), part(below.G, above.G), part(below.B, above.B), 0xff}
}

// write puts text with its baseline starting at p and returns where it ends.
func (c canvas) write(p image.Point, face font.Face, col color.RGBA, text string) image.Point {
	d := font.Drawer{Dst: c.RGBA, Src: image.NewUniform(col), Face: face, Dot: fixed.P(p.X, p.Y)}
	d.DrawString(text)
	return image.Pt(d.Dot.X.Round(), p.Y)
}

// writeCentred puts text in the middle of r.
func (c canvas) writeCentred(r image.Rectangle, face font.Face, col color.RGBA, text string) {
	width, metrics := font.MeasureString(face, text).Round(), face.Metrics()
	c.write(image.Pt((r.Min.X+r.Max.X-width)/2, (r.Min.Y+r.Max.Y+metrics.CapHeight.Round())/2), face, col, text)
}

// mark paints a mark with its upper left corner at p.
func (c canvas) mark(p image.Point, m palette.Mark) { m.Draw(c.RGBA, p) }

// centred returns the rectangle of the given size in the middle of r.
func centred(r image.Rectangle, size image.Point) image.Rectangle {
	at := r.Min.Add(r.Size().Sub(size).Div(2))
	return image.Rectangle{Min: at, Max: at.Add(size)}
}
