package capture

import (
	"errors"
	"fmt"
	"image"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// The requests that tell what a screen is blanked by, by their minor opcodes, as saver.h and dpmsproto.h number them.
const (
	saverQueryInfo = 1
	dpmsInfo       = 7
)

// Blank says in words what is the matter with a picture that shows nothing, such as "all black: the screen saver is
// on", and is empty for others. It looks at the picture first, and asks the server only when all pixels are alike. That
// may be right: a screen that has just come up is black.
func Blank(conn *display.Conn, r *Raw) (string, error) {
	if !r.Uniform() {
		return "", nil
	}
	pixel := image.NewRGBA(image.Rectangle{Min: r.Bounds.Min, Max: r.Bounds.Min.Add(image.Pt(1, 1))})
	r.RGBA(pixel)
	words := fmt.Sprintf("all of one colour, #%x", pixel.Pix[:3])
	if pixel.Pix[0] == 0 && pixel.Pix[1] == 0 && pixel.Pix[2] == 0 {
		words = "all black"
	}
	for _, cause := range []func(*display.Conn) (string, error){saver, power} {
		why, err := cause(conn)
		if err != nil && !errors.Is(err, driver.ErrUnsupported) {
			return "", fmt.Errorf("asking what blanks the screen: %w", err)
		}
		if why != "" {
			words += ": " + why
		}
	}
	return words, nil
}

// saver tells of a screen saver that is on.
func saver(conn *display.Conn) (string, error) {
	extension, err := use(conn, "MIT-SCREEN-SAVER")
	if err != nil {
		return "", err
	}
	info, err := extension.ask(saverQueryInfo, uint32(conn.Root()))
	const on = 1
	if err != nil || info[1] != on {
		return "", err
	}
	return "the screen saver is on", nil
}

// power tells of monitors that save power.
func power(conn *display.Conn) (string, error) {
	extension, err := use(conn, "DPMS")
	if err != nil {
		return "", err
	}
	info, err := extension.ask(dpmsInfo)
	if err != nil {
		return "", err
	}
	level, enabled := info.uint16(8), info[10] != 0
	if !enabled || level == 0 {
		return "", nil
	}
	return "the monitors are off (DPMS)", nil
}
