// Package driver holds the words that everything here shares: the actions a model may ask for, the Driver
// that performs them, the names of buttons and keys, and the errors that callers branch on. It needs no
// display, no cgo and no network, so it builds and tests on any machine.
//
// # Coordinates
//
// Every point of an [Action] given to a [Driver] is in screen space: pixels of the X root window, (0,0) in its
// top left corner, x to the right and y down. Package scaling maps the pictures a model sees to that space.
//
// # Actions
//
// Actions have the names and fields of the computer actions of the Responses API, so that a transcript, a log
// line and this code can be read side by side. [DecodeAction] reads the API's JSON form and is strict about its
// shape; what is impossible on the screen at hand (a point outside it, an unknown key, a path without points) is
// for the Driver to refuse, before it sends any event.
package driver

import (
	"context"
	"errors"
	"image"
)

// A Driver is the pair of hands and eyes on one desktop.
//
// Each method performs one action completely or returns an error. Implementations must:
//
//   - check the whole action first: a point outside the screen, an unknown key or an empty path is an error that
//     names the value, and no event is sent;
//   - release every key and button they pressed on every way out, cancellation and panics included;
//   - stop soon after ctx is done and return an error that wraps context.Cause(ctx);
//   - leave the action they are given unchanged.
//
// One desktop has one pointer, so actions run one at a time; implementations serialise calls that come from
// several goroutines. Errors wrap the sentinels of this package where one applies.
type Driver interface {
	// Click moves to the point and presses and releases the button once, while holding Keys.
	Click(ctx context.Context, a Click) error
	// DoubleClick is two clicks of the left button that programs take for one double click.
	DoubleClick(ctx context.Context, a DoubleClick) error
	// Drag presses the left button on the first point of the path, moves along it and releases exactly on the
	// last point.
	Drag(ctx context.Context, a Drag) error
	// Keypress presses the keys in the order given and releases them in the reverse order, as one chord.
	Keypress(ctx context.Context, a Keypress) error
	// Move moves the pointer.
	Move(ctx context.Context, a Move) error
	// Scroll moves to the point and turns the wheel. Positive distances show what is further down and right.
	Scroll(ctx context.Context, a Scroll) error
	// Type types text into whatever has the focus. A newline is the Return key, a tab the Tab key.
	Type(ctx context.Context, a Type) error
	// Wait lets the desktop do its work, until something has changed and come to rest, or for a moment.
	Wait(ctx context.Context, a Wait) error
	// Screenshot takes a picture of the screen, once what was done before has taken effect.
	Screenshot(ctx context.Context) (*Frame, error)
}

// A Sizer is a Driver that can tell the area of its screen, in screen space, without taking a picture.
type Sizer interface {
	Bounds(ctx context.Context) (image.Rectangle, error)
}

// What callers branch on, with errors.Is. The error that wraps one of them names the value at fault.
var (
	ErrNoDisplay     = errors.New("no display")
	ErrDisplayLost   = errors.New("display lost")
	ErrOutOfBounds   = errors.New("outside the screen")
	ErrUnknownKey    = errors.New("unknown key")
	ErrUnknownButton = errors.New("unknown button")
	ErrUnsupported   = errors.New("not supported")
	ErrInvalidAction = errors.New("invalid action")
	// ErrHeld is about keys or buttons that somebody else holds down, which would give an action another meaning.
	ErrHeld = errors.New("held down by somebody else")
	// ErrInterference is about somebody else who moved the pointer during an action.
	ErrInterference = errors.New("somebody else moved the pointer")
	// ErrStale is about a frame whose geometry no longer holds: what it showed is not at the same place any more.
	ErrStale = errors.New("the picture no longer holds")
)
