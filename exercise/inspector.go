package exercise

import (
	"errors"
	"fmt"
	"image"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// An inspector asks the X server itself, over a connection of its own. It also keeps a private display from starting
// afresh between the other clients.
type inspector struct {
	conn   *xgb.Conn
	root   xproto.Window
	screen image.Rectangle
}

func openInspector(display string) (*inspector, error) {
	conn, err := xgb.NewConnDisplay(display)
	if err != nil {
		return nil, fmt.Errorf("connecting to display %q: %w", display, err)
	}
	screen := xproto.Setup(conn).DefaultScreen(conn)
	return &inspector{conn, screen.Root, image.Rect(0, 0, int(screen.WidthInPixels), int(screen.HeightInPixels))}, nil
}

// close closes the connection and waits until it is closed.
func (i *inspector) close() error {
	i.conn.Close()
	for {
		if event, err := i.conn.WaitForEvent(); event == nil && err == nil {
			return nil
		}
	}
}

// paintBackdrop gives the screen a calm colour; a new display shows a pattern that hurts the eye.
func (i *inspector) paintBackdrop() {
	const slate = 0x2f3848
	xproto.ChangeWindowAttributes(i.conn, i.root, xproto.CwBackPixel, []uint32{slate})
	xproto.ClearArea(i.conn, false, i.root, 0, 0, 0, 0)
}

// check returns an error when a key or a button is down. The X buttons above 5 are not in what a server tells; those
// are in the events.
func (i *inspector) check() error {
	keys, err := xproto.QueryKeymap(i.conn).Reply()
	if err != nil {
		return fmt.Errorf("asking the server for the keys that are down: %w", err)
	}
	pointer, err := xproto.QueryPointer(i.conn, i.root).Reply()
	if err != nil {
		return fmt.Errorf("asking the server for the buttons that are down: %w", err)
	}
	var errs []error
	for code := range 8 * len(keys.Keys) {
		if keys.Keys[code/8]>>(code%8)&1 != 0 {
			errs = append(errs, fmt.Errorf("the key with code %d is still down", code))
		}
	}
	if down := pointer.Mask & buttons; down != 0 {
		errs = append(errs, fmt.Errorf("buttons are still down: mask %#x", down))
	}
	return errors.Join(errs...)
}
