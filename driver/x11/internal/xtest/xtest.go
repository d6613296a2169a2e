// Package xtest is the event sink that speaks the XTEST protocol itself, without cgo.
package xtest

import (
	"fmt"
	"image"

	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// A Sink sends events over a connection that it does not own. It is an event.Sink; events are on their way when a
// method returns.
type Sink struct {
	conn *display.Conn
	sent bool // since the last Sync
}

// New checks that the server has XTEST. The error wraps [driver.ErrUnsupported] when it has not.
func New(conn *display.Conn) (*Sink, error) {
	ext, err := xproto.QueryExtension(conn.X, uint16(len("XTEST")), "XTEST").Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	if !ext.Present {
		return nil, fmt.Errorf("%w: the X server has no XTEST extension", driver.ErrUnsupported)
	}
	if err := xtest.Init(conn.X); err != nil {
		return nil, display.Err(err)
	}
	return &Sink{conn: conn}, nil
}

// Move sends an absolute motion.
func (s *Sink) Move(screenPt image.Point) error {
	s.fake(xproto.MotionNotify, 0, screenPt)
	return nil
}

// Button sends a press or a release.
func (s *Sink) Button(number byte, down bool) error {
	kind := byte(xproto.ButtonRelease)
	if down {
		kind = xproto.ButtonPress
	}
	s.fake(kind, number, image.Point{})
	return nil
}

// Wheel sends presses and releases.
func (s *Sink) Wheel(number byte, notches int) error {
	for range notches {
		s.fake(xproto.ButtonPress, number, image.Point{})
		s.fake(xproto.ButtonRelease, number, image.Point{})
	}
	return nil
}

// Key sends a press or a release.
func (s *Sink) Key(code xproto.Keycode, _ driver.Key, down bool) error {
	kind := byte(xproto.KeyRelease)
	if down {
		kind = xproto.KeyPress
	}
	s.fake(kind, byte(code), image.Point{})
	return nil
}

// fake waits for no answer, so that many events go in one go; what the server objects to comes with Sync.
func (s *Sink) fake(kind, detail byte, screenPt image.Point) {
	s.sent = true
	xtest.FakeInput(s.conn.X, kind, detail, xproto.TimeCurrentTime, s.conn.Screen.Root, int16(screenPt.X), int16(screenPt.Y), 0)
}

// Pointer asks over the same connection.
func (s *Sink) Pointer() (image.Point, error) { return s.conn.Pointer() }

// Sync waits for the server, if there is anything to wait for.
func (s *Sink) Sync() error {
	if !s.sent {
		return nil
	}
	s.sent = false
	return s.conn.Sync()
}

// Close has nothing to free.
func (s *Sink) Close() {}
