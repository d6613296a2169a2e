package event

import (
	"fmt"
	"image"
	"io"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

// A Printer is a Sink that writes a line for each event instead of sending it.
type Printer struct{ W io.Writer }

var _ Sink = Printer{}

func (p Printer) line(format string, args ...any) error {
	_, err := fmt.Fprintf(p.W, format+"\n", args...)
	return err
}

// Move writes a line such as "pointer to (640,360)".
func (p Printer) Move(screenPt image.Point) error { return p.line("pointer to %v", screenPt) }

// Button writes a line such as "button 1 down".
func (p Printer) Button(number byte, down bool) error {
	return p.line("button %d %s", number, Direction(down))
}

// Wheel writes a line such as "button 5 down and up, 3 times".
func (p Printer) Wheel(number byte, notches int) error {
	return p.line("button %d down and up, %d times", number, notches)
}

// Key writes a line such as "key Control_L down (keycode 37)".
func (p Printer) Key(code xproto.Keycode, symbol driver.Key, down bool) error {
	return p.line("key %v %s (keycode %d)", symbol, Direction(down), code)
}

// Pointer knows of no place: nothing is moved.
func (p Printer) Pointer() (image.Point, error) { return image.Point{}, nil }

// Sync has nothing to wait for.
func (p Printer) Sync() error { return nil }

// Close has nothing to free.
func (p Printer) Close() {}

// Direction is the word for a press or a release.
func Direction(down bool) string {
	if down {
		return "down"
	}
	return "up"
}
