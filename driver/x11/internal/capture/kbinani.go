package capture

import (
	"context"
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
type Kbinani struct {
	conn *display.Conn
	raw  Raw
}

// NewKbinani checks what kbinani/screenshot takes for granted. The connection stays the caller's, and Grab belongs
// to its goroutine.
func NewKbinani(conn *display.Conn) (*Kbinani, error) {
	// It has no parameter for the display and looks at the environment itself, and so must we, to know whether
	// it would show another screen, or ask a Wayland desktop's portal for one.
	if env := os.Getenv("DISPLAY"); env != conn.Name {
		return nil, fmt.Errorf("%w: kbinani/screenshot shows $DISPLAY, %q, not %q", driver.ErrUnsupported, env, conn.Name)
	}
	if os.Getenv("XDG_SESSION_TYPE") == "wayland" {
		return nil, fmt.Errorf("%w: kbinani/screenshot does not look at the X server when XDG_SESSION_TYPE is wayland", driver.ErrUnsupported)
	}
	if err := xinerama.Init(conn.X); err != nil {
		return nil, fmt.Errorf("%w: kbinani/screenshot needs XINERAMA: %w", driver.ErrUnsupported, display.Err(err))
	}
	layout, err := layoutOf(conn.Setup, conn.Screen)
	if err != nil {
		return nil, err
	}
	if layout.format != BGRX8888 { // comes out in wrong colours, without an error
		return nil, fmt.Errorf("screen of depth %d: %w by kbinani/screenshot, want depth 24", conn.Screen.RootDepth, driver.ErrUnsupported)
	}
	return &Kbinani{conn: conn}, nil
}

// Grab is [Grabber]'s, but for waiting, which it does without an end. It asks for the origin first: kbinani/screenshot
// counts from the first monitor, not from the root window.
func (k *Kbinani) Grab(ctx context.Context, area image.Rectangle) (*Raw, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	screen, err := k.conn.Bounds()
	if err != nil {
		return nil, err
	}
	if area.Empty() {
		area = screen
	}
	if !area.In(screen) { // comes out black, without an error
		return nil, outside(area, screen)
	}
	monitors, err := xinerama.QueryScreens(k.conn.X).Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	if len(monitors.ScreenInfo) == 0 {
		return nil, fmt.Errorf("%w: kbinani/screenshot needs a monitor, and all are off", driver.ErrUnsupported)
	}
	origin := image.Pt(int(monitors.ScreenInfo[0].XOrg), int(monitors.ScreenInfo[0].YOrg))
	from := area.Min.Sub(origin)
	img, err := screenshot.Capture(from.X, from.Y, area.Dx(), area.Dy())
	if err != nil {
		return nil, fmt.Errorf("kbinani/screenshot: %w", err)
	}
	swap(img.Pix, img.Pix) // back to what the server has
	k.raw = Raw{Pix: img.Pix, Stride: img.Stride, Format: BGRX8888, Bounds: area, Screen: screen}
	return &k.raw, nil
}

// Close does nothing: kbinani/screenshot has a connection for each picture.
func (*Kbinani) Close() error { return nil }
