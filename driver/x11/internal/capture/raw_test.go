package capture

import (
	"encoding/binary"
	"fmt"
	"image"
	"testing"

	"github.com/jezek/xgb/xproto"
)

// TestRGBA checks, for rows of each width, the rules by which channels become 8 bits.
func TestRGBA(t *testing.T) {
	for _, test := range []struct {
		format Format
		pixel  uint32
		want   [4]byte
	}{
		{BGRX8888, 0x00123456, [4]byte{0x12, 0x34, 0x56, 0xff}},
		{BGRX8888, 0xff000000, [4]byte{0, 0, 0, 0xff}},
		{BGRX8888, 0xabff00fe, [4]byte{0xff, 0, 0xfe, 0xff}},
		{RGB565, 0xffff, [4]byte{0xff, 0xff, 0xff, 0xff}},
		{RGB565, 0x0000, [4]byte{0, 0, 0, 0xff}},
		{RGB565, 1<<11 | 1<<5 | 1, [4]byte{0x08, 0x04, 0x08, 0xff}},
		{RGB565, 0x10<<11 | 0x20<<5 | 0x10, [4]byte{0x84, 0x82, 0x84, 0xff}},
		{RGB565, 0x1f << 11, [4]byte{0xff, 0, 0, 0xff}},
		{XRGB2101010, 0xffffffff, [4]byte{0xff, 0xff, 0xff, 0xff}},
		{XRGB2101010, 0xc0000000, [4]byte{0, 0, 0, 0xff}},
		{XRGB2101010, 0x3ff << 10, [4]byte{0, 0xff, 0, 0xff}},
		{XRGB2101010, 0x3<<20 | 0x4<<10 | 0x204, [4]byte{0, 1, 0x81, 0xff}},
	} {
		for width := range 20 {
			raw := uniform(test.format, width, 2, test.pixel)
			dst := image.NewRGBA(raw.Bounds)
			raw.RGBA(dst)
			for i := 0; i < len(dst.Pix); i += 4 {
				if got := [4]byte(dst.Pix[i:]); got != test.want {
					t.Fatalf("%v %#x: got %v as pixel %d of rows of %d, want %v", test.format, test.pixel, got, i/4, width, test.want)
				}
			}
		}
	}
}

// uniform is a picture of one colour, away from the origin, with rows that are longer than they need to be.
func uniform(format Format, width, height int, pixel uint32) *Raw {
	size := format.Bytes()
	r := &Raw{Format: format, Bounds: image.Rect(10, 20, 10+width, 20+height), Stride: (width + 3) * size}
	r.Pix = noise(r.Stride * height)
	for i := range width * height {
		r.set(i%width, i/width, pixel)
	}
	return r
}

func (r *Raw) set(x, y int, pixel uint32) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], pixel)
	copy(r.Pix[y*r.Stride+x*r.Format.Bytes():], p[:r.Format.Bytes()])
}

// TestRGBAPart checks that what is not in both pictures stays as it is.
func TestRGBAPart(t *testing.T) {
	raw := uniform(BGRX8888, 10, 10, 0x112233) // at (10,20)-(20,30)
	for _, bounds := range []image.Rectangle{
		image.Rect(0, 0, 40, 40), image.Rect(12, 22, 15, 25), image.Rect(15, 15, 25, 25), image.Rect(5, 25, 15, 35), image.Rect(0, 0, 10, 20), {},
	} {
		dst := image.NewRGBA(bounds)
		raw.RGBA(dst)
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				var want [4]byte
				if image.Pt(x, y).In(raw.Bounds) {
					want = [4]byte{0x11, 0x22, 0x33, 0xff}
				}
				if got := [4]byte(dst.Pix[dst.PixOffset(x, y):]); got != want {
					t.Fatalf("into %v: got %v at (%d,%d), want %v", bounds, got, x, y, want)
				}
			}
		}
	}
}

// TestUniform changes each pixel of a uniform picture, in each bit, those without a meaning included.
func TestUniform(t *testing.T) {
	for f := range formats {
		format := Format(f)
		for _, width := range []int{1, 2, 3, 5, 8, 9, 17, 21} {
			const height, pixel = 3, 0x12345678
			raw := uniform(format, width, height, pixel)
			if !raw.Uniform() {
				t.Fatalf("%v: %d pixels in a row that are alike are not uniform", format, width)
			}
			for i := 1; i < width*height; i++ {
				for bit := range 8 * format.Bytes() {
					raw.set(i%width, i/width, pixel^1<<bit)
					if got, want := raw.Uniform(), format.mask()&(1<<bit) == 0; got != want {
						t.Fatalf("%v: got %v with bit %d of pixel %d changed, in rows of %d, want %v", format, got, bit, i, width, want)
					}
				}
				raw.set(i%width, i/width, pixel)
			}
		}
	}
}

// TestLayout checks that pixels of another kind than a Format says are refused, by what they are.
func TestLayout(t *testing.T) {
	type server struct {
		setup  xproto.SetupInfo
		screen xproto.ScreenInfo
	}
	for _, test := range []struct {
		name   string
		change func(*server, *xproto.VisualInfo)
		want   string
	}{
		{"as usual", func(*server, *xproto.VisualInfo) {}, ""},
		{"big-endian", func(s *server, _ *xproto.VisualInfo) { s.setup.ImageByteOrder = xproto.ImageOrderMSBFirst }, "most significant byte first"},
		{"packed", func(s *server, _ *xproto.VisualInfo) { s.setup.PixmapFormats[1].BitsPerPixel = 24 }, "24 bits per pixel"},
		{"BGR", func(_ *server, v *xproto.VisualInfo) { v.RedMask, v.BlueMask = v.BlueMask, v.RedMask }, "colour masks 0xff, 0xff00, 0xff0000"},
		{"DirectColor", func(_ *server, v *xproto.VisualInfo) { v.Class = xproto.VisualClassDirectColor }, "class 5"},
		{"depth 32", func(s *server, _ *xproto.VisualInfo) { s.screen.RootDepth = 32 }, "depth 32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			visual := xproto.VisualInfo{VisualId: 7, Class: xproto.VisualClassTrueColor, RedMask: 0xff0000, GreenMask: 0xff00, BlueMask: 0xff}
			var s server
			s.setup.PixmapFormats = []xproto.Format{{Depth: 1, BitsPerPixel: 1, ScanlinePad: 32}, {Depth: 24, BitsPerPixel: 32, ScanlinePad: 64}}
			s.screen = xproto.ScreenInfo{RootDepth: 24, RootVisual: 7}
			test.change(&s, &visual)
			s.screen.AllowedDepths = []xproto.DepthInfo{{Depth: 24, Visuals: []xproto.VisualInfo{{VisualId: 6}, visual}}}
			got, err := layoutOf(&s.setup, &s.screen)
			if test.want != "" {
				wantError(t, err, test.want)
				return
			}
			if got, want := fmt.Sprint(got.format, got.stride(3), err), "BGRX8888 16 <nil>"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
