package model

import (
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"math"
	"slices"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// A sighting is a mark and where it was seen.
type sighting struct {
	palette.Mark
	at   image.Point // the centre, in picture space
	size image.Point // of the whole mark
}

// see finds the marks in a picture, from top to bottom. What is covered in part, torn or not a mark is left out.
func see(picture image.Image) []sighting {
	pixels, ok := picture.(*image.RGBA)
	if !ok {
		pixels = image.NewRGBA(picture.Bounds())
		draw.Draw(pixels, pixels.Rect, picture, pixels.Rect.Min, draw.Src)
	}
	ends := bars(pixels, palette.End)
	var seen []sighting
	for _, start := range bars(pixels, palette.Start) {
		// The nearest bar to the right that stands as high is the other end.
		var end image.Rectangle
		for _, bar := range ends {
			beside := bar.Min.X >= start.Max.X && distance(bar.Min.Y, start.Min.Y) <= 1 && distance(bar.Max.Y, start.Max.Y) <= 1
			if beside && (end.Empty() || bar.Min.X < end.Min.X) {
				end = bar
			}
		}
		if mark, ok := read(pixels, start, end); ok {
			all := start.Union(end)
			seen = append(seen, sighting{mark, all.Min.Add(all.Max).Div(2), all.Size()})
		}
	}
	slices.SortStableFunc(seen, func(a, b sighting) int { return cmp.Or(a.at.Y-b.at.Y, a.at.X-b.at.X) })
	return seen
}

// read reads the mark between two bars. Its width in columns follows from the distance of the bars, but the blur at
// their edges makes the size of a cell uncertain; the mark's own length and check sum tell which width is right.
func read(pixels *image.RGBA, start, end image.Rectangle) (palette.Mark, bool) {
	if end.Empty() {
		return palette.Mark{}, false
	}
	left, right := middle(start.Min.X, start.Max.X), middle(end.Min.X, end.Max.X)
	height := float64(start.Dy())
	likely := int(math.Round((right-left)/(height/palette.Rows))) + 1
	const uncertainty = 4
	for n := max(likely-uncertainty, 2); n <= likely+uncertainty; n++ {
		columns := make([]palette.Column, n)
		for i := range columns {
			x := left + (right-left)*float64(i)/float64(n-1)
			for row := range palette.Rows {
				y := float64(start.Min.Y) + height*(float64(row)+.5)/palette.Rows
				columns[i][row] = pixels.RGBAAt(int(x), int(y))
			}
		}
		if mark, ok := palette.Decode(columns); ok {
			return mark, true
		}
	}
	return palette.Mark{}, false
}

// middle returns the middle of a half-open range of pixels, where the centre of pixel n lies at n+½.
func middle(low, high int) float64 { return float64(low+high) / 2 }

func distance(a, b int) int { return max(a-b, b-a) }

// bars returns the upright bars of a colour: filled rectangles, higher than wide, that are large enough to be read.
func bars(pixels *image.RGBA, colour color.RGBA) []image.Rectangle {
	const smallest = 3 // pixels a cell
	r := pixels.Rect
	visited := make([]bool, r.Dx()*r.Dy())
	// visit reports whether p is a pixel of the colour, the first time it is asked.
	visit := func(p image.Point) bool {
		if !p.In(r) || !palette.Alike(pixels.RGBAAt(p.X, p.Y), colour) {
			return false
		}
		seen := &visited[(p.Y-r.Min.Y)*r.Dx()+p.X-r.Min.X]
		first := !*seen
		*seen = true
		return first
	}
	var found []image.Rectangle
	var queue []image.Point
	for y := r.Min.Y; y < r.Max.Y; y++ {
		row := pixels.Pix[pixels.PixOffset(r.Min.X, y):]
		for x := r.Min.X; x < r.Max.X; x++ {
			// Nearly all pixels are of some other colour, so that is found out first and fast.
			if i := 4 * (x - r.Min.X); !palette.Alike(color.RGBA{R: row[i], G: row[i+1], B: row[i+2]}, colour) || !visit(image.Pt(x, y)) {
				continue
			}
			area, bounds := 0, image.Rectangle{}
			for queue = append(queue[:0], image.Pt(x, y)); len(queue) > 0; area++ {
				p := queue[len(queue)-1]
				queue = queue[:len(queue)-1]
				bounds = bounds.Union(image.Rectangle{Min: p, Max: p.Add(image.Pt(1, 1))})
				for _, step := range []image.Point{{X: 1}, {X: -1}, {Y: 1}, {Y: -1}} {
					if next := p.Add(step); visit(next) {
						queue = append(queue, next)
					}
				}
			}
			filled := area*4 >= bounds.Dx()*bounds.Dy()*3
			if filled && bounds.Dx() >= smallest && bounds.Dy() >= palette.Rows*smallest && bounds.Dy() > bounds.Dx() {
				found = append(found, bounds)
			}
		}
	}
	return found
}
