package encode

import (
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"hash/crc32"
	"image"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"
)

// pngs keeps encoders that nobody uses.
var pngs = sync.Pool{New: func() any { return new(pngEncoder) }}

// AppendPNG appends a picture to dst as a PNG file of 8-bit colours without alpha, whose bytes are not looked at. It
// compresses for speed, and in several goroutines where there are so many processors and pixels; for each beyond the
// first the file grows by some hundred bytes, and so it depends on [runtime.GOMAXPROCS]. It may be called from several
// goroutines. The only error is a picture without pixels, or with more than a PNG can have.
func AppendPNG(dst []byte, picture *image.RGBA) ([]byte, error) {
	e := pngs.Get().(*pngEncoder)
	defer pngs.Put(e)
	return e.append(dst, picture)
}

// A pngEncoder encodes one picture at a time. It keeps its compressors, which take about 1 MiB each, and time to make.
type pngEncoder struct{ strips []*strip }

func (e *pngEncoder) append(dst []byte, picture *image.RGBA) ([]byte, error) {
	w, h := picture.Rect.Dx(), picture.Rect.Dy()
	if w < 1 || h < 1 || w > math.MaxInt32/4 || h > math.MaxInt32 {
		return dst, fmt.Errorf("encoding a picture of %dx%d as PNG: want from 1x1 pixels", w, h)
	}
	n := min(runtime.GOMAXPROCS(0), 1+w*h/share, h)
	for len(e.strips) < n {
		e.strips = append(e.strips, newStrip())
	}
	strips := e.strips[:n]
	var others sync.WaitGroup
	for i, s := range strips[1:] {
		others.Go(func() { s.encode(picture, (i+1)*h/n, (i+2)*h/n) })
	}
	strips[0].encode(picture, 0, h/n)
	others.Wait()

	dst = append(dst, signature...)
	dst, start := openChunk(dst, "IHDR")
	dst = binary.BigEndian.AppendUint32(dst, uint32(w))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h))
	dst = closeChunk(append(dst, 8, 2, 0, 0, 0), start) // bits, truecolour, deflate, adaptive filters, not interlaced
	sum := uint32(1)
	for _, s := range strips {
		dst = append(dst, s.chunk...)
		sum = joinSums(sum, s.sum, s.length)
	}
	dst, start = openChunk(dst, "IDAT")
	dst = closeChunk(binary.BigEndian.AppendUint32(dst, sum), start)
	dst, start = openChunk(dst, "IEND")
	return closeChunk(dst, start), nil
}

// share is how many pixels are worth a goroutine: about 2 ms of work.
const share = 1 << 18

const signature = "\x89PNG\r\n\x1a\n"

// zlibHeader says deflate with a window of 32 KiB, compressed for speed (RFC 1950, 2.2).
var zlibHeader = []byte{0x78, 0x01}

// openChunk begins a chunk at the end of dst, and returns where.
func openChunk(dst []byte, name string) (b []byte, start int) {
	start = len(dst)
	return append(append(dst, 0, 0, 0, 0), name...), start
}

// closeChunk ends the chunk that begins at start.
func closeChunk(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-8))
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[start+4:]))
}

// joinSums returns the Adler-32 of two pieces of data one after the other, given those of both and the length of the
// second.
func joinSums(first, second uint32, length int) uint32 {
	const base = 65521
	a1, b1, a2, b2 := uint64(first&0xFFFF), uint64(first>>16), uint64(second&0xFFFF), uint64(second>>16)
	a := (a1 + a2 + base - 1) % base
	b := (b1 + b2 + uint64(length)%base*(a1+base-1)) % base
	return uint32(b<<16 | a)
}

// A strip is some rows of a picture, filtered and compressed on their own. Its deflate blocks end at a byte, with an
// empty stored block that aligns them (RFC 1951, 3.2.4), so that those of the next strip can follow.
type strip struct {
	filtered []byte // some rows on their way
	deflate  *flate.Writer
	chunk    buffer // all of the strip as an IDAT chunk
	sum      uint32 // Adler-32 of all that was filtered
	length   int    // of all that
}

// A buffer is bytes that can be written to.
type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func newStrip() *strip {
	deflate, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // there is this level
	}
	return &strip{deflate: deflate}
}

// encode encodes the rows of p in [from, to).
func (s *strip) encode(p *image.RGBA, from, to int) {
	s.chunk, _ = openChunk(s.chunk[:0], "IDAT")
	if from == 0 {
		s.chunk = append(s.chunk, zlibHeader...)
	}
	s.deflate.Reset(&s.chunk)
	s.sum, s.length = 1, 0
	for y := from; y < to; {
		s.filtered = s.filtered[:0]
		for ; y < to && len(s.filtered) < 32<<10; y++ { // as much as stays in the cache
			if y == 0 {
				s.filtered = appendLeft(s.filtered, row(p, 0))
			} else {
				s.filtered = appendNearer(s.filtered, row(p, y), row(p, y-1))
			}
		}
		s.sum = joinSums(s.sum, adler32.Checksum(s.filtered), len(s.filtered))
		s.length += len(s.filtered)
		must(s.deflate.Write(s.filtered))
	}
	if to == p.Rect.Dy() {
		must(0, s.deflate.Close())
	} else {
		must(0, s.deflate.Flush())
	}
	s.chunk = closeChunk(s.chunk, 0)
}

// must is for what is written to a buffer, which takes everything.
func must(_ int, err error) {
	if err != nil {
		panic(err)
	}
}

// The filters that are used of those that a PNG has: what a row differs by from its own pixels to the left, or from the
// row above. Desktops need both, and the others bring little.
const (
	filterLeft  = 1
	filterAbove = 2
)

// appendNearer filters a row by the neighbour that more of its pixels are equal to. To count these is a good guess at
// what compresses better, and quicker to find out than the sum of differences that is usual.
func appendNearer(dst, row, above []byte) []byte {
	left, up := 0, 0
	for a, b := row, above; len(a) >= 12 && len(b) >= 12; a, b = a[8:], b[8:] { // two pixels at a time
		v := binary.LittleEndian.Uint64(a[4:])
		if v == binary.LittleEndian.Uint64(a) {
			left++
		}
		if v == binary.LittleEndian.Uint64(b[4:]) {
			up++
		}
	}
	if left > up {
		return appendLeft(dst, row)
	}
	dst, out := grow(dst, 1+len(row)/4*3)
	out[0] = filterAbove
	subtract(out[1:], row, above)
	return dst
}

func appendLeft(dst, row []byte) []byte {
	dst, out := grow(dst, 1+len(row)/4*3)
	out[0] = filterLeft
	copy(out[1:], row[:3])
	subtract(out[4:], row[4:], row)
	return dst
}

// grow makes dst longer by n bytes, which it returns too.
func grow(dst []byte, n int) (longer, added []byte) {
	longer = slices.Grow(dst, n)[:len(dst)+n]
	return longer, longer[len(dst):]
}

// subtract writes the colours of the pixels in a, less those in b, byte by byte, to dst. Pixels have four bytes in a and
// b and three in dst, which has room for all of a.
func subtract(dst, a, b []byte) {
	for ; len(a) >= 16 && len(b) >= 16 && len(dst) >= 12; a, b, dst = a[16:], b[16:], dst[12:] {
		p := pack(difference(binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)))
		q := pack(difference(binary.LittleEndian.Uint64(a[8:]), binary.LittleEndian.Uint64(b[8:])))
		binary.LittleEndian.PutUint64(dst, p|q<<48)
		binary.LittleEndian.PutUint32(dst[8:], uint32(q>>16))
	}
	for ; len(a) >= 4; a, b, dst = a[4:], b[4:], dst[3:] {
		dst[0], dst[1], dst[2] = a[0]-b[0], a[1]-b[1], a[2]-b[2]
	}
}

// difference subtracts the eight bytes of b from those of a. The top bit of each is kept out of the subtraction, so that
// nothing is borrowed from the next byte, and added afterwards, which for one bit is exclusive or.
func difference(a, b uint64) uint64 {
	const top = 0x80808080_80808080
	return ((a | top) - (b &^ top)) ^ ((a ^ ^b) & top)
}

// pack takes the fourth and the eighth byte out.
func pack(p uint64) uint64 { return p&0xFFFFFF | p>>8&0xFFFFFF_000000 }
