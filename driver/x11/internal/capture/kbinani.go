package capture

import (
	"fmt"
	"image"
	"os"

	"github.com/jezek/xgb/xinerama"
	"github.com/kbinani/screenshot"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// Kbinani takes pictures with kbinani/screenshot, where that is right; elsewhere it is an error. It is not the
// default: each of its calls registers X extensions anew in tables that all xgb connections of the process read
// without a lock, so that an event that comes in on one of them at that moment ends the process. It suits a
// process whose only X client is the driver, and tests, as another opinion on the pixels.
type Kbinani struct{ conn *display.Conn }

// NewKbinani checks what kbinani/screenshot takes for granted.
func NewKbinani(conn *display.Conn) (Kbinani, error) {
	// It has no parameter for the display and looks at the environment itself, and so must we, to know whether
	// it would show another screen, or ask a Wayland desktop's portal for one.
	if env := os.Getenv("DISPLAY"); env != conn.Name {
		return Kbinani{}, fmt.Errorf("%w: kbinani/screenshot shows $DISPLAY, %q, not %q", driver.ErrUnsupported, env, conn.Name)
	}
	if os.Getenv("XDG_SESSION_TYPE") == "wayland" {
		return Kbinani{}, fmt.Errorf("%w: kbinani/screenshot does not look at the X server when XDG_SESSION_TYPE is wayland", driver.ErrUnsupported)
	}
	if err := xinerama.Init(conn.X); err != nil {
		return Kbinani{}, fmt.Errorf("%w: kbinani/screenshot needs XINERAMA: %w", driver.ErrUnsupported, display.Err(err))
	}
	// Other depths come out in wrong colours, without an error.
	return Kbinani{conn}, checkFormat(conn)
}

// Grab asks for the origin first: kbinani/screenshot counts from the first monitor, not from the root window.
func (k Kbinani) Grab() (*image.RGBA, error) {
	bounds, err := k.conn.Bounds()
	if err != nil {
		return nil, err
	}
	monitors, err := xinerama.QueryScreens(k.conn.X).Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	var origin image.Point
	if len(monitors.ScreenInfo) > 0 {
		origin = image.Pt(int(monitors.ScreenInfo[0].XOrg), int(monitors.ScreenInfo[0].YOrg))
	}
	img, err := screenshot.Capture(-origin.X, -origin.Y, bounds.Dx(), bounds.Dy())
	if err != nil {
		return nil, fmt.Errorf("kbinani/screenshot: %w", err)
	}
	return img, nil
}
