package capture

import (
	"context"
	"fmt"
	"image"

	"github.com/deskagent/deskagent/driver/x11/internal/wire"
)

// Direct has pixels sent over a connection of its own, with the core protocol. It works wherever a client can
// connect, such as over a network or from another container, and takes several times as long as Shared.
type Direct struct {
	root
	pixels []byte
}

// NewDirect connects to a display.
func NewDirect(ctx context.Context, display string) (*Direct, error) {
	r, err := openRoot(ctx, display)
	if err != nil {
		return nil, err
	}
	return &Direct{root: r}, nil
}

// Grab is [Grabber]'s.
func (d *Direct) Grab(ctx context.Context, area image.Rectangle) (*Raw, error) {
	return d.grab(ctx, area, d)
}

func (d *Direct) ask(_ context.Context, area image.Rectangle) error {
	d.conn.Add(getImage, zPixmap, uint32(d.conn.Screen.Root), at(area), size(area), allPlanes)
	return nil
}

func (d *Direct) take(ctx context.Context, area image.Rectangle, _ *wire.Answer) ([]byte, error) {
	want := d.layout.stride(area.Dx()) * area.Dy()
	if got := d.conn.Rest(); got < want {
		return nil, fmt.Errorf("picture of %v: got %d bytes, want %d", area, got, want)
	}
	if cap(d.pixels) < want {
		d.pixels = make([]byte, want)
	}
	d.pixels = d.pixels[:want]
	_, err := d.conn.Read(ctx, d.pixels)
	return d.pixels, err
}

// Close ends the connection.
func (d *Direct) Close() error { return d.conn.Close() }
