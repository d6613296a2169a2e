package scaling

import (
	"encoding/binary"
	"fmt"
	"image"
	"runtime"
	"slices"
	"sync"
)

// Order is the order of the bytes of a pixel.
type Order int

// The orders of a [Source]. The last byte is not looked at: it is the padding of a server, or the alpha of a screen,
// which is opaque.
const (
	RGBA Order = iota // as in image.RGBA
	BGRX              // as a little-endian X server has them at depth 24
)

// A Source is pixels of four bytes each in rows, as a server or an image.RGBA has them.
type Source struct {
	Pix    []byte          // the pixel at Bounds.Min comes first
	Stride int             // bytes from a row to the next
	Bounds image.Rectangle // screen space
	Order  Order
}

// row returns the pixels of row y from column x0 to column x1, in screen space.
func (s *Source) row(y, x0, x1 int) []byte {
	from := (y-s.Bounds.Min.Y)*s.Stride + 4*(x0-s.Bounds.Min.X)
	return s.Pix[from : from+4*(x1-x0)]
}

// check reports what is wrong with the shape of s.
func (s *Source) check() error {
	w, h := s.Bounds.Dx(), s.Bounds.Dy()
	if s.Order != RGBA && s.Order != BGRX {
		return fmt.Errorf("pixels of unknown order %d", s.Order)
	}
	if w <= 0 || h <= 0 || s.Stride < 4*w || len(s.Pix) < (h-1)*s.Stride+4*w {
		return fmt.Errorf("%d bytes in rows of %d are not the pixels of %v", len(s.Pix), s.Stride, s.Bounds)
	}
	return nil
}

// Draw makes the picture of a screen in dst, whose bounds must be those of the picture, from (0,0). src must cover
// the crop. All of dst is written, and the result is opaque. Next to nothing is allocated once the first
// picture of this mapping was made, and the memory kept for that is small beside a picture.
//
// Where the picture is smaller than the part it shows, a pixel of it is the mean of the screen pixels in its cell,
// each weighted by the area that lies in the cell; where it is larger, it is interpolated linearly between pixel
// centres. Width and height are treated apart. The result is the exact mean, rounded once, half up, so an even area
// keeps its colour. Nearest neighbour is never used: it makes small text unreadable.
//
// Draw uses several goroutines for large pictures, at most [runtime.GOMAXPROCS], and waits for them. It may be called
// from several goroutines, with different destinations.
func (m Mapping) Draw(dst *image.RGBA, src Source) error {
	if want := (image.Rectangle{Max: m.size}); dst.Rect != want || want.Empty() {
		return fmt.Errorf("drawing %v into a picture of %v: want %v", m, dst.Rect, want)
	}
	if err := src.check(); err != nil {
		return fmt.Errorf("drawing %v: %w", m, err)
	}
	if !m.crop.In(src.Bounds) {
		return fmt.Errorf("pixels of %v do not cover the part to show, %v", src.Bounds, m.crop)
	}
	if m.size == m.crop.Size() {
		for y := range m.size.Y {
			copyRow(dst.Pix[y*dst.Stride:][:4*m.size.X], src.row(m.crop.Min.Y+y, m.crop.Min.X, m.crop.Max.X), src.Order)
		}
		return nil
	}
	r := resamplers.Get().(*resampler)
	defer resamplers.Put(r)
	n := min(runtime.GOMAXPROCS(0), 1+m.crop.Dx()*m.crop.Dy()/share)
	r.prepare(m, n)
	if n == 1 {
		r.draw(dst, &src, m.crop.Min, 0, m.size.Y, r.sums[0])
	} else {
		r.drawWith(n, dst, src, m.crop.Min)
	}
	return nil
}

// share is how many source pixels are worth a goroutine: about 2 ms of work, beside some 10 µs to start and wait.
const share = 1 << 19

// copyRow copies pixels to the order of image.RGBA and makes them opaque.
func copyRow(dst, src []byte, order Order) {
	if order == RGBA {
		copy(dst, src)
		for i := 3; i < len(dst); i += 4 {
			dst[i] = 0xFF
		}
		return
	}
	for ; len(src) >= 8 && len(dst) >= 8; src, dst = src[8:], dst[8:] {
		p := binary.LittleEndian.Uint64(src)
		binary.LittleEndian.PutUint64(dst, p>>16&0x000000FF_000000FF|p&0x0000FF00_0000FF00|p&0x000000FF_000000FF<<16|0xFF000000_FF000000)
	}
	if len(src) >= 4 {
		dst[0], dst[1], dst[2], dst[3] = src[2], src[1], src[0], 0xFF
	}
}

// A span is what one pixel of the picture is made of in one direction: the source pixels from the one to the other,
// both included. These two have weights of their own, which add up where they are the same; those between weigh
// axis.inner. The limit on sides makes the numbers fit.
type span struct{ from, to, first, last uint32 }

// An axis is the spans of all pixels of the picture in one direction. The weights of each add up to sum. They are exact:
// areas in the largest unit that all of them are multiples of.
type axis struct {
	spans      []span
	inner, sum uint64
}

// fill sets a to how size pixels are made from source pixels, keeping its memory.
func (a *axis) fill(source, size int) {
	a.spans = slices.Grow(a.spans[:0], size)
	common := gcd(source, size)
	s, p := source/common, size/common
	if p > s {
		// Enlarging: between the two nearest pixel centres. That of pixel i is at (2i+1)·s/2p; all is in units of 1/2p of
		// a source pixel.
		a.inner, a.sum = 0, uint64(2*p)
		for i := range size {
			at := max(0, (2*i+1)*s-p) // from the centre of the first source pixel
			from, part := at/(2*p), at%(2*p)
			a.append(from, min(from+1, source-1), 2*p-part, part)
		}
		return
	}
	// Shrinking: the cell of pixel i is [i·s, (i+1)·s) in units of 1/p of a source pixel.
	a.inner, a.sum = uint64(p), uint64(s)
	for i := range size {
		lo, hi := i*s, (i+1)*s
		from, to := lo/p, (hi-1)/p
		if from == to {
			a.append(from, to, s, 0)
		} else {
			a.append(from, to, (from+1)*p-lo, hi-to*p)
		}
	}
}

func (a *axis) append(from, to, first, last int) {
	a.spans = append(a.spans, span{uint32(from), uint32(to), uint32(first), uint32(last)})
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A resampler makes pictures of one size of crop and picture. It works row by row: the source rows of a picture row are
// added up, weighted, into a row of sums as wide as the crop, and these from left to right. There is one division, at
// the end, by the product of what the weights of both axes add up to.
type resampler struct {
	crop, size    image.Point // what the axes are for
	columns, rows axis
	total         uint64 // product of the sums of both
	form          form
	sums          [][]uint64 // a row of sums for each goroutine
}

// resamplers keeps those that nobody uses: their tables take about as long to make as some rows of the picture.
var resamplers = sync.Pool{New: func() any { return new(resampler) }}

// prepare sets r up for pictures of m, made by some goroutines.
func (r *resampler) prepare(m Mapping, goroutines int) {
	if r.crop != m.crop.Size() || r.size != m.size {
		r.crop, r.size = m.crop.Size(), m.size
		r.columns.fill(r.crop.X, r.size.X)
		r.rows.fill(r.crop.Y, r.size.Y)
		r.total = r.columns.sum * r.rows.sum
		if r.form = wide; r.total <= packable {
			r.form = packed
		}
		r.sums = r.sums[:0]
	}
	for len(r.sums) < goroutines {
		r.sums = append(r.sums, make([]uint64, r.form.words*r.crop.X))
	}
}

// drawWith draws with n goroutines, this one included. The crop begins at the given corner of src.
func (r *resampler) drawWith(n int, dst *image.RGBA, src Source, corner image.Point) {
	var others sync.WaitGroup
	for i := 1; i < n; i++ {
		others.Go(func() { r.draw(dst, &src, corner, i*r.size.Y/n, (i+1)*r.size.Y/n, r.sums[i]) })
	}
	r.draw(dst, &src, corner, 0, r.size.Y/n, r.sums[0])
	others.Wait()
}

// draw makes the rows of dst in [from, to). The crop begins at the given corner of src.
func (r *resampler) draw(dst *image.RGBA, src *Source, corner image.Point, from, to int, sums []uint64) {
	row := func(i uint32) []byte { return src.row(corner.Y+int(i), corner.X, corner.X+r.crop.X) }
	for y := from; y < to; y++ {
		rows := &r.rows.spans[y]
		r.form.set(sums, row(rows.from), row(rows.to), uint64(rows.first), uint64(rows.last))
		for i := rows.from + 1; i < rows.to; i++ {
			r.form.add(sums, row(i), r.rows.inner)
		}
		out := dst.Pix[y*dst.Stride:][:4*r.size.X]
		r.form.finish(out, sums, &r.columns, r.total, src.Order == BGRX)
	}
}

// A form is how the sums of a row are kept. It has two ways to put a row of source pixels there, weighted: set takes two,
// which may be the same, in place of what was there, and add takes another. finish makes a row of the picture of the
// sums, the first and the third colour swapped if asked. Loops are unrolled where that was measured to pay.
type form struct {
	words  int // for a pixel
	set    func(sums []uint64, a, b []byte, wa, wb uint64)
	add    func(sums []uint64, a []byte, w uint64)
	finish func(out []byte, sums []uint64, columns *axis, total uint64, swap bool)
}

var (
	// packed has the colours of a pixel in one word, 16 bits each, so that one multiplication weighs them all.
	packed = form{1, setPacked, addPacked, finishPacked}
	// wide has a word for each colour, which is always enough.
	wide = form{3, setWide, addWide, finishWide}
)

// packable is the largest product of the sums of both axes for packed: 255 times that, and a half of it to round, must
// fit into 16 bits. It is 9 at 3:2 and 256 at 16:9; sizes without a common divisor have more.
const packable = 256

// spread gives each byte of a pixel but the last 16 bits: the first, the third, the second, from the lowest.
func spread(pixel uint32) uint64 {
	p := uint64(pixel)
	return (p | p<<24) & 0x000000FF_00FF00FF
}

func setPacked(sums []uint64, a, b []byte, wa, wb uint64) {
	for ; len(sums) >= 4 && len(a) >= 16 && len(b) >= 16; sums, a, b = sums[4:], a[16:], b[16:] {
		a0, b0 := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		a1, b1 := binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:])
		sums[0] = spread(uint32(a0))*wa + spread(uint32(b0))*wb
		sums[1] = spread(uint32(a0>>32))*wa + spread(uint32(b0>>32))*wb
		sums[2] = spread(uint32(a1))*wa + spread(uint32(b1))*wb
		sums[3] = spread(uint32(a1>>32))*wa + spread(uint32(b1>>32))*wb
	}
	for i := range sums {
		sums[i] = spread(binary.LittleEndian.Uint32(a[4*i:]))*wa + spread(binary.LittleEndian.Uint32(b[4*i:]))*wb
	}
}

func addPacked(sums []uint64, a []byte, w uint64) {
	for ; len(sums) >= 4 && len(a) >= 16; sums, a = sums[4:], a[16:] {
		a0, a1 := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(a[8:])
		sums[0] += spread(uint32(a0)) * w
		sums[1] += spread(uint32(a0>>32)) * w
		sums[2] += spread(uint32(a1)) * w
		sums[3] += spread(uint32(a1>>32)) * w
	}
	for i := range sums {
		sums[i] += spread(binary.LittleEndian.Uint32(a[4*i:])) * w
	}
}

func finishPacked(out []byte, sums []uint64, columns *axis, total uint64, swap bool) {
	// With scale = 2^24/total, rounded up, sum·scale>>24 is exactly sum/total: sum is at most 255½·256, scale is too
	// large by less than one, and 255½·256·255 < 2^24. The products stay below 2^32, so two are worked out in one word.
	const even, bytes = 0x0000FFFF_0000FFFF, 0x000000FF_000000FF
	scale := (1<<24 + total - 1) / total
	start := total/2*0x00000001_00010001 + 255*total<<48 // half of each, to round, and opaque
	for i := range columns.spans {
		c := &columns.spans[i]
		sum := start + sums[c.from]*uint64(c.first) + sums[c.to]*uint64(c.last)
		for j := c.from + 1; j < c.to; j++ {
			sum += sums[j] * columns.inner
		}
		first, third := sum&even*scale>>24&bytes, sum>>16&even*scale>>24&bytes // and 32 bits up the second and the fourth
		others := first>>24 | third>>8
		if swap {
			first, third = third, first
		}
		if len(out) < 4 {
			return
		}
		binary.LittleEndian.PutUint32(out, uint32(first|third<<16|others))
		out = out[4:]
	}
}

func setWide(sums []uint64, a, b []byte, wa, wb uint64) {
	for ; len(sums) >= 3 && len(a) >= 4 && len(b) >= 4; sums, a, b = sums[3:], a[4:], b[4:] {
		p, q := binary.LittleEndian.Uint32(a), binary.LittleEndian.Uint32(b)
		sums[0] = uint64(p&0xFF)*wa + uint64(q&0xFF)*wb
		sums[1] = uint64(p>>8&0xFF)*wa + uint64(q>>8&0xFF)*wb
		sums[2] = uint64(p>>16&0xFF)*wa + uint64(q>>16&0xFF)*wb
	}
}

func addWide(sums []uint64, a []byte, w uint64) {
	for ; len(sums) >= 3 && len(a) >= 4; sums, a = sums[3:], a[4:] {
		p := binary.LittleEndian.Uint32(a)
		sums[0] += uint64(p&0xFF) * w
		sums[1] += uint64(p>>8&0xFF) * w
		sums[2] += uint64(p>>16&0xFF) * w
	}
}

func finishWide(out []byte, sums []uint64, columns *axis, total uint64, swap bool) {
	// The quotients are below 256 and total below 2^43, as sides are limited. So a sum is exact as a float64, and that it
	// is a half above an integer keeps the quotient further from the next one than the rounding of three operations.
	inverse := 1 / float64(total)
	mean := func(sum uint64) byte { return byte(int64((float64(int64(sum)) + 0.5) * inverse)) }
	for i := range columns.spans {
		c := &columns.spans[i]
		a, b := sums[3*c.from:][:3], sums[3*c.to:][:3]
		wa, wb := uint64(c.first), uint64(c.last)
		s0, s1, s2 := total/2+a[0]*wa+b[0]*wb, total/2+a[1]*wa+b[1]*wb, total/2+a[2]*wa+b[2]*wb
		for j := c.from + 1; j < c.to; j++ {
			a := sums[3*j:][:3]
			s0, s1, s2 = s0+a[0]*columns.inner, s1+a[1]*columns.inner, s2+a[2]*columns.inner
		}
		if swap {
			s0, s2 = s2, s0
		}
		out[0], out[1], out[2], out[3] = mean(s0), mean(s1), mean(s2), 0xFF
		out = out[4:]
	}
}
