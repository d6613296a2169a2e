package app

import (
	"encoding/binary"
	"image"
	"image/draw"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// A typeface is a [font.Face] of one of the Go fonts, which are TrueType. It reads what the window needs, the simple
// outlines of single characters, straight from the tables of the OpenType specification, and trusts them: they are
// part of the program. The general reader, x/image/font/opentype, would bring another module along. A typeface keeps
// the glyphs that it has drawn, so it belongs to one goroutine.
type typeface struct {
	data   []byte
	tables map[string]int // where they start
	scale  float64        // pixels a font unit
	glyphs map[rune]glyph
}

// A glyph is a drawn character. Its mask is placed relative to the dot on the baseline.
type glyph struct {
	mask    *image.Alpha
	advance fixed.Int26_6 // whole pixels, so that equal characters look equal
}

func newTypeface(ttf []byte, pixels float64) *typeface {
	f := &typeface{data: ttf, tables: map[string]int{}, glyphs: map[rune]glyph{}}
	for record := range f.u16(4) {
		at := 12 + 16*record
		f.tables[string(ttf[at:at+4])] = int(binary.BigEndian.Uint32(ttf[at+8:]))
	}
	f.scale = pixels / float64(f.u16(f.tables["head"]+18))
	return f
}

func (f *typeface) u16(at int) int { return int(binary.BigEndian.Uint16(f.data[at:])) }
func (f *typeface) i16(at int) int { return int(int16(f.u16(at))) }

// index returns the number of the glyph of a character: table cmap, format 4. Zero is the glyph for what is missing.
func (f *typeface) index(r rune) int {
	cmap := f.tables["cmap"]
	for record := range f.u16(cmap + 2) {
		at := cmap + 4 + 8*record
		if f.u16(at) != 3 || f.u16(at+2) != 1 { // Unicode, as Windows names it
			continue
		}
		at = cmap + int(binary.BigEndian.Uint32(f.data[at+4:]))
		size := f.u16(at + 6) // of each of four parallel arrays, in bytes
		ends, starts, deltas, offsets := at+14, at+16+size, at+16+2*size, at+16+3*size
		for i := 0; i < size; i += 2 {
			if int(r) > f.u16(ends+i) {
				continue
			}
			start, offset := f.u16(starts+i), f.u16(offsets+i)
			switch {
			case int(r) < start:
				return 0
			case offset == 0:
				return (int(r) + f.u16(deltas+i)) & 0xffff
			}
			return f.u16(offsets + i + offset + 2*(int(r)-start))
		}
	}
	return 0
}

// A vertex is a point of an outline in font units, y up; the curve passes through those that are on.
type vertex struct {
	x, y int
	on   bool
}

func (v vertex) middle(w vertex) vertex { return vertex{(v.x + w.x) / 2, (v.y + w.y) / 2, true} }

// outline returns the contours of a glyph: table glyf, simple glyphs only.
func (f *typeface) outline(index int) [][]vertex {
	loca, long := f.tables["loca"], f.u16(f.tables["head"]+50) != 0
	offset := func(i int) int {
		if long {
			return int(binary.BigEndian.Uint32(f.data[loca+4*i:]))
		}
		return 2 * f.u16(loca+2*i)
	}
	at := f.tables["glyf"] + offset(index)
	if offset(index) == offset(index+1) || f.i16(at) < 0 {
		return nil // a space, or put together from others, as accented letters are
	}
	contours := f.u16(at)
	ends := at + 10
	n := f.u16(ends+2*(contours-1)) + 1
	at = ends + 2*contours
	at += 2 + f.u16(at) // instructions

	const on, shortX, shortY, repeat, sameX, sameY = 1, 2, 4, 8, 16, 32
	flags := make([]byte, 0, n)
	for len(flags) < n {
		flag, times := f.data[at], 1
		at++
		if flag&repeat != 0 {
			times += int(f.data[at])
			at++
		}
		for range times {
			flags = append(flags, flag)
		}
	}
	vertices := make([]vertex, n)
	read := func(short, same byte, set func(v *vertex, n int)) {
		value := 0
		for i, flag := range flags {
			switch {
			case flag&short != 0 && flag&same != 0:
				value += int(f.data[at])
				at++
			case flag&short != 0:
				value -= int(f.data[at])
				at++
			case flag&same == 0:
				value += f.i16(at)
				at += 2
			}
			vertices[i].on = flag&on != 0
			set(&vertices[i], value)
		}
	}
	read(shortX, sameX, func(v *vertex, n int) { v.x = n })
	read(shortY, sameY, func(v *vertex, n int) { v.y = n })
	var outline [][]vertex
	for from, i := 0, 0; i < contours; i++ {
		to := f.u16(ends+2*i) + 1
		outline = append(outline, vertices[from:to])
		from = to
	}
	return outline
}

// glyph returns a character, drawn.
func (f *typeface) glyph(r rune) glyph {
	if g, ok := f.glyphs[r]; ok {
		return g
	}
	index := f.index(r)
	// The last of the widths holds for all glyphs after it.
	width := f.u16(f.tables["hmtx"] + 4*min(index, f.u16(f.tables["hhea"]+34)-1))
	g := glyph{advance: fixed.I(int(math.Round(float64(width) * f.scale)))}
	outline := f.outline(index)
	var bounds image.Rectangle
	for _, contour := range outline {
		for _, v := range contour {
			x, y := int(math.Floor(float64(v.x)*f.scale)), int(math.Floor(float64(-v.y)*f.scale))
			bounds = bounds.Union(image.Rect(x, y, x+2, y+2))
		}
	}
	raster := vector.NewRasterizer(bounds.Dx(), bounds.Dy())
	place := func(v vertex) (x, y float32) {
		return float32(float64(v.x)*f.scale) - float32(bounds.Min.X), float32(float64(-v.y)*f.scale) - float32(bounds.Min.Y)
	}
	for _, contour := range outline {
		// Between two points that are off the curve lies one that is on it.
		first, last := contour[0], contour[len(contour)-1]
		if !first.on {
			if first = first.middle(last); last.on {
				first = last
			}
		}
		raster.MoveTo(place(first))
		for i, v := range contour {
			if v.on {
				raster.LineTo(place(v))
				continue
			}
			next := first
			if i+1 < len(contour) {
				next = contour[i+1]
			}
			if !next.on {
				next = v.middle(next)
			}
			bx, by := place(v)
			cx, cy := place(next)
			raster.QuadTo(bx, by, cx, cy)
		}
		raster.ClosePath()
	}
	g.mask = image.NewAlpha(bounds)
	raster.DrawOp = draw.Src
	raster.Draw(g.mask, bounds, image.Opaque, image.Point{})
	f.glyphs[r] = g
	return g
}

// Glyph implements [font.Face]; dots are rounded to whole pixels.
func (f *typeface) Glyph(dot fixed.Point26_6, r rune) (image.Rectangle, image.Image, image.Point, fixed.Int26_6, bool) {
	g := f.glyph(r)
	return g.mask.Rect.Add(image.Pt(dot.X.Round(), dot.Y.Round())), g.mask, g.mask.Rect.Min, g.advance, true
}

// GlyphBounds implements [font.Face].
func (f *typeface) GlyphBounds(r rune) (fixed.Rectangle26_6, fixed.Int26_6, bool) {
	g := f.glyph(r)
	return fixed.R(g.mask.Rect.Min.X, g.mask.Rect.Min.Y, g.mask.Rect.Max.X, g.mask.Rect.Max.Y), g.advance, true
}

// GlyphAdvance implements [font.Face].
func (f *typeface) GlyphAdvance(r rune) (fixed.Int26_6, bool) { return f.glyph(r).advance, true }

// Kern implements [font.Face]; the Go fonts have no kerning.
func (f *typeface) Kern(_, _ rune) fixed.Int26_6 { return 0 }

// Metrics implements [font.Face].
func (f *typeface) Metrics() font.Metrics {
	units := func(at int) fixed.Int26_6 { return fixed.Int26_6(math.Round(float64(f.i16(at)) * f.scale * 64)) }
	hhea, os2 := f.tables["hhea"], f.tables["OS/2"]
	return font.Metrics{
		Height: units(hhea+4) - units(hhea+6) + units(hhea+8), Ascent: units(hhea + 4), Descent: -units(hhea + 6),
		XHeight: units(os2 + 86), CapHeight: units(os2 + 88), CaretSlope: image.Pt(0, 1),
	}
}

// Close implements [font.Face].
func (f *typeface) Close() error { return nil }
