package main

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"math/rand/v2"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// drawDesktop draws what benchmarks look at, always the same at a size: a wallpaper, a page of text, a terminal and a
// photograph. These are what pictures of desktops are made of, and each is hard on another part of an encoder. Nothing in
// it has the colour of a target: see likeness.
func drawDesktop(size image.Point) *image.RGBA {
	d := canvas{image.NewRGBA(image.Rectangle{Max: size}), rand.New(rand.NewPCG(4, 5))}
	d.wallpaper()
	// In hundredths of the screen, one above the other.
	part := func(x0, y0, x1, y1 int) image.Rectangle {
		return image.Rect(x0*size.X/100, y0*size.Y/100, x1*size.X/100, y1*size.Y/100)
	}
	d.page(part(3, 6, 58, 92))
	d.photograph(part(62, 8, 97, 52))
	d.terminal(part(48, 44, 93, 90))
	return d.RGBA
}

var (
	paper = color.RGBA{0xfd, 0xfd, 0xfd, 0xff}
	ink   = color.RGBA{0x22, 0x26, 0x2c, 0xff}
	night = color.RGBA{0x14, 0x1a, 0x1c, 0xff}
	bar   = color.RGBA{0x2c, 0x3e, 0x50, 0xff}
	edge  = color.RGBA{0x10, 0x18, 0x20, 0xff}
)

// A canvas is a picture of a desktop, and the chance that its content comes from.
type canvas struct {
	*image.RGBA
	chance *rand.Rand
}

func (d canvas) fill(r image.Rectangle, c color.RGBA) {
	draw.Draw(d.RGBA, r, image.NewUniform(c), image.Point{}, draw.Src)
}

// wallpaper is a slanting gradient.
func (d canvas) wallpaper() {
	size := d.Rect.Size()
	for y := range size.Y {
		for x := range size.X {
			part := (float64(x)/float64(size.X) + 2*float64(y)/float64(size.Y)) / 3
			d.SetRGBA(x, y, color.RGBA{uint8(20 + 50*part), uint8(70 + 90*part), uint8(110 + 50*part), 0xff})
		}
	}
}

// frame puts a window in its place, and returns where its content goes.
func (d canvas) frame(r image.Rectangle, title string) image.Rectangle {
	const titleHeight = 28
	d.fill(r, edge)
	r = r.Inset(1)
	d.fill(image.Rect(r.Min.X, r.Min.Y, r.Max.X, r.Min.Y+titleHeight), bar)
	d.write(r.Min.Add(image.Pt(10, 19)), newFace(goregular.TTF), paper, title)
	r.Min.Y += titleHeight
	return r
}

// page is black text on white paper, in paragraphs.
func (d canvas) page(r image.Rectangle) {
	r = d.frame(r, "A page of text")
	d.fill(r, paper)
	face := newFace(goregular.TTF)
	for y := r.Min.Y + 30; y < r.Max.Y-10; y += 20 {
		end := r.Max.X - 120
		if d.chance.IntN(6) == 0 { // the last line of a paragraph
			end = r.Min.X + r.Dx()/3
		}
		for x := r.Min.X + 20; x < end; {
			x = d.write(image.Pt(x, y), face, ink, d.word()+" ")
		}
	}
}

// terminal is coloured text on a dark ground.
func (d canvas) terminal(r image.Rectangle) {
	r = d.frame(r, "A terminal")
	d.fill(r, night)
	face := newFace(gomono.TTF)
	colours := []color.RGBA{{0xd0, 0xd4, 0xc8, 0xff}, {0x6c, 0xd0, 0x70, 0xff}, {0xe0, 0xc0, 0x60, 0xff}, {0x60, 0xc8, 0xd8, 0xff}}
	for y := r.Min.Y + 20; y < r.Max.Y-6; y += 17 {
		for x, n := r.Min.X+8, 1+d.chance.IntN(9); n > 0 && x < r.Max.X-120; n-- {
			x = d.write(image.Pt(x, y), face, colours[d.chance.IntN(len(colours))], d.word()+" ")
		}
	}
}

// photograph is soft shapes in natural colours, with the grain of a sensor.
func (d canvas) photograph(r image.Rectangle) {
	r = d.frame(r, "A photograph")
	var waves [12]struct{ x, y, phase float64 }
	for i := range waves {
		length := float64(r.Dx()) / float64(1+i*i)
		angle := 2 * math.Pi * d.chance.Float64()
		waves[i].x, waves[i].y = math.Cos(angle)*2*math.Pi/length, math.Sin(angle)*2*math.Pi/length
		waves[i].phase = 2 * math.Pi * d.chance.Float64()
	}
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			height := 0.0
			for i, w := range waves {
				height += math.Sin(w.x*float64(x)+w.y*float64(y)+w.phase) / float64(1+i)
			}
			light := 100 + 25*height + 8*d.chance.NormFloat64()
			at := func(part float64) uint8 { return uint8(min(max(part*light, 0), 255)) }
			d.SetRGBA(x, y, color.RGBA{at(.95), at(1.05), at(.6), 0xff})
		}
	}
}

func (d canvas) word() string {
	letters := []byte("etaoinshrdlucmfwypvbgk.,(0123)")
	word := make([]byte, 2+d.chance.IntN(8))
	for i := range word {
		word[i] = letters[min(d.chance.IntN(len(letters)), d.chance.IntN(len(letters)))] // the first ones more often
	}
	return string(word)
}

// write puts text with its baseline at p, and returns where it ends.
func (d canvas) write(p image.Point, face font.Face, c color.RGBA, text string) (x int) {
	drawer := font.Drawer{Dst: d.RGBA, Src: image.NewUniform(c), Face: face, Dot: fixed.P(p.X, p.Y)}
	drawer.DrawString(text)
	return drawer.Dot.X.Round()
}

// newFace returns a face of one of the Go fonts, which are part of the program: there is nothing to do about a broken
// one.
func newFace(ttf []byte) font.Face {
	parsed, err := opentype.Parse(ttf)
	if err != nil {
		panic(err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: 14, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		panic(err)
	}
	return face
}
