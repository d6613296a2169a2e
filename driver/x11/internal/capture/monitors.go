package capture

import (
	"fmt"
	"image"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// A Monitor is a part of the screen that is looked at as one: mostly what one device shows.
type Monitor struct {
	Name    string
	Bounds  image.Rectangle // in screen space, wherever the other monitors are
	Primary bool
}

// The requests of RANDR, by their minor opcodes, as randr.h numbers them.
const (
	randrQueryVersion = 0
	randrGetMonitors  = 42
)

// Monitors asks for the monitors that are in use, in the server's order: none if all are switched off. There may be
// parts of the screen that are on none, or on several, and a monitor may extend beyond the screen. Their list is that
// of RANDR 1.5, as that of XINERAMA lacks names, and what it counts from moves with the first monitor. The error wraps
// [driver.ErrUnsupported] where the server is older.
func Monitors(conn *display.Conn) ([]Monitor, error) {
	randr, err := use(conn, "RANDR")
	if err != nil {
		return nil, err
	}
	version, err := randr.ask(randrQueryVersion, 1, 5)
	if err != nil {
		return nil, fmt.Errorf("asking for the version of RANDR: %w", err)
	}
	if major, minor := version.uint32(8), version.uint32(12); major < 1 || major == 1 && minor < 5 {
		return nil, fmt.Errorf("%w: RANDR 1.5 by the X server, which has %d.%d", driver.ErrUnsupported, major, minor)
	}
	const inUse = 1
	list, err := randr.ask(randrGetMonitors, uint32(conn.Root()), inUse)
	if err != nil {
		return nil, fmt.Errorf("asking for the monitors: %w", err)
	}
	monitors := make([]Monitor, list.uint32(12))
	rest := list[32:]
	for i := range monitors {
		name, err := xproto.GetAtomName(conn.X, xproto.Atom(rest.uint32(0))).Reply()
		if err != nil {
			return nil, fmt.Errorf("asking for the name of monitor %d: %w", i, display.Err(err))
		}
		x, y, outputs := rest.int16(8), rest.int16(10), rest.uint16(6)
		monitors[i] = Monitor{name.Name, image.Rect(x, y, x+rest.uint16(12), y+rest.uint16(14)), rest[4] != 0}
		rest = rest[24+4*outputs:]
	}
	return monitors, nil
}
