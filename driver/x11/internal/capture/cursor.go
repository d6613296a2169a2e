package capture

import (
	"fmt"
	"image"
	"image/draw"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// The requests of XFIXES, by their minor opcodes, as xfixeswire.h numbers them.
const (
	fixesQueryVersion   = 0
	fixesGetCursorImage = 4
)

// A CursorImage is what the pointer looks like, and where it is.
type CursorImage struct {
	Image *image.RGBA // at its place, in screen space; it may extend beyond the screen
	Hot   image.Point // the pixel that the pointer points to, in screen space
}

// Cursor asks for the pointer as it is now; a hidden one is transparent. The error wraps [driver.ErrUnsupported] where
// the server has no XFIXES.
func Cursor(conn *display.Conn) (*CursorImage, error) {
	fixes, err := use(conn, "XFIXES")
	if err != nil {
		return nil, err
	}
	// Without this the server refuses the other. The first version has it already.
	if _, err := fixes.ask(fixesQueryVersion, 1, 0); err != nil {
		return nil, fmt.Errorf("using XFIXES: %w", err)
	}
	cursor, err := fixes.ask(fixesGetCursorImage)
	if err != nil {
		return nil, fmt.Errorf("asking for the pointer's image: %w", err)
	}
	hot := image.Pt(cursor.int16(8), cursor.int16(10))
	corner := hot.Sub(image.Pt(cursor.uint16(16), cursor.uint16(18)))
	img := image.NewRGBA(image.Rect(0, 0, cursor.uint16(12), cursor.uint16(14)).Add(corner))
	for i := 0; i < len(img.Pix); i += 4 {
		p := cursor.uint32(32 + i)
		// The colours have been multiplied by alpha, as those of an image.RGBA are. Whoever made the cursor may not
		// have kept to it, and what is brighter would wrap to dark.
		a := p >> 24
		img.Pix[i], img.Pix[i+1] = uint8(min(p>>16&0xff, a)), uint8(min(p>>8&0xff, a))
		img.Pix[i+2], img.Pix[i+3] = uint8(min(p&0xff, a)), uint8(a)
	}
	return &CursorImage{img, hot}, nil
}

// Draw draws the pointer over a picture of the screen, or of a part of it.
func (c *CursorImage) Draw(dst *image.RGBA) {
	draw.Draw(dst, c.Image.Rect, c.Image, c.Image.Rect.Min, draw.Over)
}
