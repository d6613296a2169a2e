// Package event is the narrow place through which events reach an X server. What a user can tell apart (double
// clicks, drags, chords, text) is made of these few events, once, in package x11; how they get in is the sink's.
package event

import (
	"image"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

// A Sink puts events into one X server, as if they came from its devices. They take effect in the order of the
// calls. They may be on their way when a method returns, and so may be their faults; Sync waits for both.
//
// Nothing is checked here and nothing released: points are on the screen and keycodes on the keyboard, and who
// pressed releases. All methods are called from one goroutine. Errors wrap [driver.ErrDisplayLost] when the server is
// gone.
type Sink interface {
	// Move puts the pointer at a point of the root window.
	Move(screenPt image.Point) error
	// Button presses or releases a button by its X number: 1 left, 2 middle, 3 right, 8 back, 9 forward.
	Button(number byte, down bool) error
	// Wheel turns the wheel by some notches: presses and releases of button 4 up, 5 down, 6 left or 7 right.
	Wheel(number byte, notches int) error
	// Key presses or releases the key with a keycode. The symbol is the one it has without modifiers.
	Key(code xproto.Keycode, symbol driver.Key, down bool) error
	// Pointer is where the pointer is when the server has done all that was asked before. Faults of that may be returned
	// here, or by the next Sync.
	Pointer() (screenPt image.Point, err error)
	// Sync waits until the server has done all that was asked and returns the first fault.
	Sync() error
	// Close frees what the sink owns. What is down stays down.
	Close()
}
