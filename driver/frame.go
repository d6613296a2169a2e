package driver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"
	"time"
)

// A Frame is one picture of the screen, as it was at one moment, and what is known about that moment. What a driver
// does not know is zero.
type Frame struct {
	// Image holds the pixels, fully opaque. Its bounds are Area, or start at (0,0) where a [Viewer] has changed the size.
	// A Viewer may leave it nil, if it has a DataURL: Pixels makes it of that.
	Image *image.RGBA
	// DataURL is the picture as the data URL of a PNG file, where a driver got it as a file. Whoever only sends it on
	// need not decode and encode it again. Otherwise it is empty.
	DataURL string
	// Taken is when the pixels were read.
	Taken time.Time
	// ID numbers the frames of one driver, from 1.
	ID uint64
	// Area is the part of the screen that the picture shows, and Scene what there was to show, both in screen space.
	Area  image.Rectangle
	Scene Scene
	// Settling says how the screen came to rest before.
	Settling Settling
	// Blank says why there may be nothing to see: "all black", say, or that the screen saver is on.
	Blank string
}

// Pixels returns Image, which it first makes of DataURL where there is none. Not for several goroutines at once.
func (f *Frame) Pixels() (*image.RGBA, error) {
	if f.Image != nil {
		return f.Image, nil
	}
	_, file, ok := strings.Cut(f.DataURL, ";base64,")
	if !ok {
		return nil, errors.New("a frame without a picture")
	}
	picture, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(file)))
	if err != nil {
		return nil, fmt.Errorf("decoding a picture: %w", err)
	}
	rgba, ok := picture.(*image.RGBA) // what image/png makes of colours without alpha
	if !ok {
		return nil, fmt.Errorf("decoding a picture: pixels of type %T, want colours of 8 bits without alpha", picture)
	}
	f.Image = rgba
	return rgba, nil
}

// A Scene is the geometry of a screen at one moment, in screen space.
type Scene struct {
	// Screen is the area that a picture shows by default.
	Screen image.Rectangle
	// Window is the active window; its ID is 0 when there is none.
	Window Window
}

// A Window is a window on the screen, with the frame that a window manager has put around it.
type Window struct {
	ID     uint32
	Bounds image.Rectangle
	// Visible is Bounds with the window's menus, tooltips and dialogues, cut off at the edges of the screen.
	Visible image.Rectangle
}

// Settling is what was seen of the screen between an action and the picture after it.
type Settling struct {
	State   SettleState
	Elapsed time.Duration // from the action to the answer
	// Changed is the smallest area with all that changed since the action, Recurring that of what changes again and
	// again in a small place, such as a caret or a spinner, and was not waited for. In screen space.
	Changed, Recurring image.Rectangle
}

// SettleState is how a screen came to rest. The zero value is that nobody has looked.
type SettleState string

// The states.
const (
	Settled   SettleState = "settled"        // something changed, and then nothing for a while
	Unchanged SettleState = "unchanged"      // nothing changed in the time that a reaction may take to begin
	Changing  SettleState = "still changing" // it was not waited any longer
)

// A Viewer is a Driver that can take a picture of a part of the screen in another size, which is quicker than scaling
// one of the whole screen.
type Viewer interface {
	// View takes a picture as Screenshot does. It calls choose with what there is to show at that moment, for the
	// part to show, in screen space, and the size that it is to have, in pixels. It may call it again, when that
	// changes before the picture is taken. choose must not call the driver.
	View(ctx context.Context, choose func(Scene) (area image.Rectangle, size image.Point, err error)) (*Frame, error)
}

// A Holder is a Driver that can tell whether points of an earlier frame still mean what they meant.
type Holder interface {
	// Holds returns nil as long as the screen has the size that it had in the scene and, if it had an active window
	// that is given, that window has its place and size. Otherwise the error wraps [ErrStale] and says what is other.
	Holds(ctx context.Context, s Scene) error
}
