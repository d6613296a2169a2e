// Package capture takes pictures of the screen, and tells what belongs to them: where the monitors are, what the
// pointer looks like, and whether the screen is blanked.
//
// There are three ways to read pixels. [Shared] has the server write them into memory that both share, [Direct] has
// them sent over the connection, and [Kbinani] leaves it to kbinani/screenshot. All show the same pixels, and none shows
// the pointer, which [Cursor] can draw. [Open] chooses.
package capture

import (
	"context"
	"fmt"
	"image"
	"log/slog"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/wire"
)

// A Grabber takes pictures of the root window. It belongs to one goroutine.
type Grabber interface {
	// Grab takes a picture of an area of the root window, in screen space, as it is now; of all of it if the area is
	// empty. The Raw is good until the next call of Grab or Close.
	//
	// The error wraps [driver.ErrOutOfBounds] if the area is not inside the screen, [driver.ErrDisplayLost] if the
	// server is gone or has been silent for [wire.Patience], and context.Cause when ctx is done.
	Grab(ctx context.Context, area image.Rectangle) (*Raw, error)
	// Close ends what the Grabber has of its own.
	Close() error
}

// Open opens the fastest Grabber that a display, such as ":3", allows, which is found out by trying. Why it is not
// Shared is said to the logger, at level info. The error wraps [driver.ErrNoDisplay], or [driver.ErrUnsupported] for
// a screen whose pixels nobody here can read.
func Open(ctx context.Context, display string, log *slog.Logger) (Grabber, error) {
	shared, err := NewShared(ctx, display)
	if err == nil {
		return shared, nil
	}
	direct, directErr := NewDirect(ctx, display)
	if directErr != nil {
		return nil, directErr
	}
	log.Info("pictures come over the connection", "why", err)
	return direct, nil
}

// attempts is how often a picture is tried while the screen is being resized.
const attempts = 5

// The opcodes of the core requests.
const (
	getGeometry = 14
	getImage    = 73
)

// The arguments of requests for pictures.
const (
	allPlanes = 0xffffffff
	zPixmap   = 2
)

// A root is the root window of a screen, over a connection of its own.
type root struct {
	conn   *wire.Conn
	layout layout
	screen image.Rectangle // as the server last said
	raw    Raw
}

func openRoot(ctx context.Context, display string) (root, error) {
	conn, err := wire.Dial(ctx, display)
	if err != nil {
		return root{}, err
	}
	layout, err := layoutOf(&conn.Setup, conn.Screen)
	if err != nil {
		conn.Close()
		return root{}, err
	}
	screen := image.Rect(0, 0, int(conn.Screen.WidthInPixels), int(conn.Screen.HeightInPixels))
	return root{conn: conn, layout: layout, screen: screen}, nil
}

// A way is how pixels come from the server.
type way interface {
	// ask adds to the batch what has the server send the pixels of an area that is inside the screen.
	ask(ctx context.Context, area image.Rectangle) error
	// take returns the pixels, given the reply.
	take(ctx context.Context, area image.Rectangle, reply *wire.Answer) ([]byte, error)
}

// grab takes a picture and asks for the size of the screen, in one batch, the size last: when it is what the area was
// made for, it has been so all along. Another size is noted, and the picture taken anew; a server whose screen has
// become smaller refuses it with BadMatch.
func (r *root) grab(ctx context.Context, area image.Rectangle, by way) (*Raw, error) {
	var fault error
	for range attempts {
		part := area
		if area.Empty() {
			part = r.screen
		}
		inside := part.In(r.screen)
		if inside {
			if err := by.ask(ctx, part); err != nil {
				return nil, err
			}
		}
		number := r.conn.Add(getGeometry, 0, uint32(r.conn.Screen.Root))
		if err := r.conn.Send(ctx); err != nil {
			return nil, err
		}
		answer, err := r.conn.Receive(ctx)
		if err != nil {
			return nil, err
		}
		var pixels []byte
		if answer.Request() != number {
			if fault = answer.Err(); fault == nil {
				if pixels, err = by.take(ctx, part, answer); err != nil {
					return nil, err
				}
			}
			if answer, err = r.conn.Receive(ctx); err != nil {
				return nil, err
			}
		}
		if err := answer.Err(); err != nil {
			return nil, fmt.Errorf("asking for the size of the screen: %w", err)
		}
		screen := image.Rect(0, 0, int(answer.Uint16(16)), int(answer.Uint16(18)))
		same := screen == r.screen
		r.screen = screen
		switch {
		case !area.Empty() && !area.In(screen):
			return nil, outside(area, screen)
		case same && pixels != nil:
			r.raw = Raw{Pix: pixels, Stride: r.layout.stride(part.Dx()), Format: r.layout.format, Bounds: part, Screen: screen}
			return &r.raw, nil
		case same && inside:
			return nil, fmt.Errorf("picture of %v of %v: %w", part, screen, fault)
		}
	}
	return nil, fmt.Errorf("picture of a screen that is being resized, now to %v, %d times", r.screen, attempts)
}

func outside(area, screen image.Rectangle) error {
	return fmt.Errorf("picture of %v: %w, which is %v", area, driver.ErrOutOfBounds, screen)
}

// at and size are areas as requests have them.
func at(area image.Rectangle) uint32   { return pair(area.Min) }
func size(area image.Rectangle) uint32 { return pair(area.Size()) }

func pair(p image.Point) uint32 { return uint32(p.X) | uint32(p.Y)<<16 }
