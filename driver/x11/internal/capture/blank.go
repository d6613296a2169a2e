package capture

import (
	"errors"
	"fmt"
	"image"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// saverQueryInfo is the request of MIT-SCREEN-SAVER that tells its state, by its minor opcode, as saver.h numbers it.
const saverQueryInfo = 1

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
	on, err := saving(conn)
	if err != nil && !errors.Is(err, driver.ErrUnsupported) {
		return "", fmt.Errorf("asking for the screen saver: %w", err)
	}
	if on {
		words += ": the screen saver is on"
	}
	return words, nil
}

// saving reports whether a screen saver is on. Monitors that save power (DPMS) are not asked about: pictures are of what
// they would show, and stay as they are.
func saving(conn *display.Conn) (bool, error) {
	saver, err := use(conn, "MIT-SCREEN-SAVER")
	if err != nil {
		return false, err
	}
	info, err := saver.ask(saverQueryInfo, uint32(conn.Root()))
	const on = 1
	return err == nil && info[1] == on, err
}
