package capture

import (
	"encoding/binary"
	"fmt"
	"image"
	"math/bits"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

// A Raw is a picture as the server has it, in memory that the next Grab overwrites and Close takes away.
type Raw struct {
	Pix    []byte          // rows of Bounds, Stride bytes apart
	Stride int             // in bytes; a row may have some more than its pixels need
	Format Format          // where the channels are
	Bounds image.Rectangle // the part of the screen it shows, in screen space
	Screen image.Rectangle // the whole screen at that moment
}

// A Format says where the channels of a pixel are. Pixels are numbers of 2 or 4 bytes, the least significant first.
type Format uint8

// The formats, named from the most significant bit on. What X stands for has no meaning, and may be anything. All but
// BGRX8888 are named as Linux names them; that one by its bytes, as they lie in memory, as most do.
const (
	BGRX8888    Format = iota // depth 24: bytes B, G, R, X
	RGB565                    // depth 16: 5 bits of red, 6 of green, 5 of blue
	XRGB2101010               // depth 30: 2 bits of nothing, 10 of red, 10 of green, 10 of blue
)

// formats is what makes a screen's pixels of a format.
var formats = [...]struct {
	name             string
	depth, bits      byte // bits is how many a pixel takes up
	red, green, blue uint32
}{
	BGRX8888:    {"BGRX8888", 24, 32, 0xff << 16, 0xff << 8, 0xff},
	RGB565:      {"RGB565", 16, 16, 0x1f << 11, 0x3f << 5, 0x1f},
	XRGB2101010: {"XRGB2101010", 30, 32, 0x3ff << 20, 0x3ff << 10, 0x3ff},
}

func (f Format) String() string {
	if int(f) >= len(formats) {
		return fmt.Sprintf("Format(%d)", f)
	}
	return formats[f].name
}

// Bytes is how many bytes a pixel takes up.
func (f Format) Bytes() int { return int(formats[f].bits / 8) }

// mask is the bits of a pixel that have a meaning.
func (f Format) mask() uint32 { return formats[f].red | formats[f].green | formats[f].blue }

// A layout is how the server lays pixels out.
type layout struct {
	format Format
	pad    int // rows take up a multiple of it, in bits
}

// stride is the distance between two rows of the given width, in bytes.
func (l layout) stride(width int) int {
	row := width * int(formats[l.format].bits)
	return (row + l.pad - 1) / l.pad * l.pad / 8
}

// layoutOf refuses pixels that no Format is for, instead of having them shown in wrong colours.
func layoutOf(setup *xproto.SetupInfo, screen *xproto.ScreenInfo) (layout, error) {
	var visual xproto.VisualInfo
	for _, allowed := range screen.AllowedDepths {
		for _, v := range allowed.Visuals {
			if v.VisualId == screen.RootVisual {
				visual = v
			}
		}
	}
	var width, pad byte
	for _, format := range setup.PixmapFormats {
		if format.Depth == screen.RootDepth {
			width, pad = format.BitsPerPixel, format.ScanlinePad
		}
	}
	for f, want := range formats {
		if screen.RootDepth != want.depth {
			continue
		}
		switch {
		case setup.ImageByteOrder != xproto.ImageOrderLSBFirst:
			return layout{}, fmt.Errorf("screen with the most significant byte first: %w, want the least significant", driver.ErrUnsupported)
		case visual.Class != xproto.VisualClassTrueColor:
			return layout{}, fmt.Errorf("screen whose visual is of class %d: %w, want %d, TrueColor", visual.Class, driver.ErrUnsupported, xproto.VisualClassTrueColor)
		case width != want.bits:
			return layout{}, fmt.Errorf("screen of depth %d with %d bits per pixel: %w, want %d", want.depth, width, driver.ErrUnsupported, want.bits)
		case visual.RedMask != want.red || visual.GreenMask != want.green || visual.BlueMask != want.blue:
			return layout{}, fmt.Errorf("screen of depth %d with the colour masks %#x, %#x, %#x: %w, want %#x, %#x, %#x", want.depth,
				visual.RedMask, visual.GreenMask, visual.BlueMask, driver.ErrUnsupported, want.red, want.green, want.blue)
		}
		return layout{Format(f), int(pad)}, nil
	}
	return layout{}, fmt.Errorf("screen of depth %d: %w, want depth 24, 16 or 30", screen.RootDepth, driver.ErrUnsupported)
}

// RGBA converts what r and dst have in common; both are in screen space. The pixels become opaque: the X of BGRX is 0
// on most servers, and taken for alpha would make the picture transparent.
//
// Channels of 5 and 6 bits are widened by repeating their upper bits below, so that nothing stays 0 and all ones
// become 255, as the programs that show xwd files do it. Of channels of 10 bits the upper 8 are kept.
func (r *Raw) RGBA(dst *image.RGBA) {
	part := r.Bounds.Intersect(dst.Rect)
	convert := [...]func(rgba, pixels []byte){BGRX8888: swap, RGB565: widen, XRGB2101010: narrow}[r.Format]
	size := r.Format.Bytes()
	for y := part.Min.Y; y < part.Max.Y && part.Dx() > 0; y++ {
		from := (y-r.Bounds.Min.Y)*r.Stride + (part.Min.X-r.Bounds.Min.X)*size
		to := dst.PixOffset(part.Min.X, y)
		convert(dst.Pix[to:to+4*part.Dx()], r.Pix[from:from+size*part.Dx()])
	}
}

// What follows works on words of two pixels. Slices turned into pointers to arrays are checked once for each array
// instead of for each word. A second goroutine gained nothing where both cores were busy; the time is twice that of a copy.

// lanes is a pattern of 32 bits, twice.
const lanes = 1<<32 | 1

// opaque is alpha of 255 in RGBA. It is a variable, as the compiler, where it knows a byte of a word, writes that by
// itself and the word in four parts, which takes twice the time.
var opaque uint64 = (0xff << 24) * lanes

// swap makes opaque RGBA of BGRX, and the other way round. Reversing a word reverses its channels and its pixels; to
// rotate it puts the pixels right again and has X, of the other pixel, where alpha goes.
func swap(rgba, bgrx []byte) {
	alpha := opaque
	two := func(p uint64) uint64 { return bits.RotateLeft64(bits.ReverseBytes64(p), 24) | alpha }
	for len(bgrx) >= 32 && len(rgba) >= 32 {
		from, to := (*[32]byte)(bgrx), (*[32]byte)(rgba)
		binary.LittleEndian.PutUint64(to[0:], two(binary.LittleEndian.Uint64(from[0:])))
		binary.LittleEndian.PutUint64(to[8:], two(binary.LittleEndian.Uint64(from[8:])))
		binary.LittleEndian.PutUint64(to[16:], two(binary.LittleEndian.Uint64(from[16:])))
		binary.LittleEndian.PutUint64(to[24:], two(binary.LittleEndian.Uint64(from[24:])))
		bgrx, rgba = bgrx[32:], rgba[32:]
	}
	for len(bgrx) >= 4 && len(rgba) >= 4 {
		binary.LittleEndian.PutUint32(rgba, uint32(two(uint64(binary.LittleEndian.Uint32(bgrx)))))
		bgrx, rgba = bgrx[4:], rgba[4:]
	}
}

// widen makes opaque RGBA of RGB565.
func widen(rgba, rgb []byte) {
	alpha := opaque
	two := func(p uint32) uint64 {
		q := uint64(p&0xffff) | uint64(p>>16)<<32
		return q>>8&(0xf8*lanes) | q>>13&(0x07*lanes) |
			q<<5&(0xfc00*lanes) | q>>1&(0x0300*lanes) |
			q<<19&(0xf80000*lanes) | q<<14&(0x070000*lanes) | alpha
	}
	for len(rgb) >= 8 && len(rgba) >= 16 {
		from, to := (*[8]byte)(rgb), (*[16]byte)(rgba)
		binary.LittleEndian.PutUint64(to[0:], two(binary.LittleEndian.Uint32(from[0:])))
		binary.LittleEndian.PutUint64(to[8:], two(binary.LittleEndian.Uint32(from[4:])))
		rgb, rgba = rgb[8:], rgba[16:]
	}
	for len(rgb) >= 2 && len(rgba) >= 4 {
		binary.LittleEndian.PutUint32(rgba, uint32(two(uint32(binary.LittleEndian.Uint16(rgb)))))
		rgb, rgba = rgb[2:], rgba[4:]
	}
}

// narrow makes opaque RGBA of XRGB2101010.
func narrow(rgba, rgb []byte) {
	alpha := opaque
	two := func(p uint64) uint64 {
		return p>>22&(0xff*lanes) | p>>4&(0xff00*lanes) | p<<14&(0xff0000*lanes) | alpha
	}
	for len(rgb) >= 16 && len(rgba) >= 16 {
		from, to := (*[16]byte)(rgb), (*[16]byte)(rgba)
		binary.LittleEndian.PutUint64(to[0:], two(binary.LittleEndian.Uint64(from[0:])))
		binary.LittleEndian.PutUint64(to[8:], two(binary.LittleEndian.Uint64(from[8:])))
		rgb, rgba = rgb[16:], rgba[16:]
	}
	for len(rgb) >= 4 && len(rgba) >= 4 {
		binary.LittleEndian.PutUint32(rgba, uint32(two(uint64(binary.LittleEndian.Uint32(rgb)))))
		rgb, rgba = rgb[4:], rgba[4:]
	}
}

// Uniform reports whether all pixels are alike, as on a screen that is blanked. It ends at the first that is not.
func (r *Raw) Uniform() bool {
	size := r.Format.Bytes()
	width := r.Bounds.Dx() * size
	if r.Bounds.Empty() {
		return true
	}
	var first, mask uint64 // of a word, which is two or four pixels
	for i := 0; i < 8; i += size {
		mask |= uint64(r.Format.mask()) << (8 * i)
		for j, b := range r.Pix[:size] {
			first |= uint64(b) << (8 * (i + j))
		}
	}
	for y := range r.Bounds.Dy() {
		row := r.Pix[y*r.Stride:][:width]
		for len(row) >= 32 {
			four := (*[32]byte)(row)
			other := (binary.LittleEndian.Uint64(four[0:]) ^ first) | (binary.LittleEndian.Uint64(four[8:]) ^ first) |
				(binary.LittleEndian.Uint64(four[16:]) ^ first) | (binary.LittleEndian.Uint64(four[24:]) ^ first)
			if other&mask != 0 {
				return false
			}
			row = row[32:]
		}
		for i, b := range row {
			if (uint64(b)^first>>(8*(i%8)))&(mask>>(8*(i%8)))&0xff != 0 {
				return false
			}
		}
	}
	return true
}
