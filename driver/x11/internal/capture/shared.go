package capture

import (
	"context"
	"fmt"
	"image"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/shm"
	"github.com/deskagent/deskagent/driver/x11/internal/wire"
)

// The requests of MIT-SHM, by their minor opcodes, as shmproto.h numbers them.
const (
	shmQueryVersion = 0
	shmDetach       = 2
	shmGetImage     = 4
	shmAttachFd     = 6
)

// Shared has the server write pixels into memory that both share, over a connection of its own. A frame costs one
// message and one copy within the server, and here no allocation.
type Shared struct {
	root
	major   byte // of MIT-SHM
	id      uint32
	segment *shm.Segment
}

// NewShared connects to a display and shares memory for all of its screen. The error wraps [driver.ErrUnsupported]
// where that cannot be done: a server without MIT-SHM 1.2, which all have had since 2013 unless it is switched off, or
// one at the other end of a network.
func NewShared(ctx context.Context, display string) (*Shared, error) {
	r, err := openRoot(ctx, display)
	if err != nil {
		return nil, err
	}
	s := &Shared{root: r}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Shared) open(ctx context.Context) (err error) {
	if s.major, err = s.conn.Extension(ctx, "MIT-SHM"); err != nil {
		return err
	}
	s.conn.Add(s.major, shmQueryVersion)
	if err := s.conn.Send(ctx); err != nil {
		return err
	}
	reply, err := s.conn.Reply(ctx)
	if err != nil {
		return fmt.Errorf("asking for the version of MIT-SHM: %w", err)
	}
	if major, minor := reply.Uint16(8), reply.Uint16(10); major < 1 || major == 1 && minor < 2 {
		return fmt.Errorf("%w: MIT-SHM 1.2 by the X server, which has %d.%d", driver.ErrUnsupported, major, minor)
	}
	return s.attach(ctx, s.layout.stride(s.screen.Dx())*s.screen.Dy())
}

// attach shares a segment of the given size, in bytes, in place of the one before. It heeds the end of ctx only as far
// as its values go, so that it is known afterwards which segment the server has.
func (s *Shared) attach(ctx context.Context, size int) error {
	ctx = context.WithoutCancel(ctx)
	const readWrite = 0
	id := s.conn.NewID()
	s.conn.Add(s.major, shmAttachFd, id, readWrite)
	s.conn.Add(getGeometry, 0, uint32(s.conn.Screen.Root)) // has a reply, which comes after an error
	segment, err := shm.New(size, func(rights []byte) error { return s.conn.SendRights(ctx, rights) })
	if err != nil {
		return err
	}
	answer, err := s.conn.Receive(ctx)
	if err == nil && answer.Err() != nil {
		err = fmt.Errorf("%w: sharing memory with the X server: %w", driver.ErrUnsupported, answer.Err())
	}
	if err != nil {
		segment.Close()
		return err
	}
	if s.segment != nil {
		s.conn.Add(s.major, shmDetach, s.id)
		s.segment.Close()
	}
	s.segment, s.id = segment, id
	return nil
}

// Grab is [Grabber]'s.
func (s *Shared) Grab(ctx context.Context, area image.Rectangle) (*Raw, error) {
	return s.grab(ctx, area, s)
}

func (s *Shared) ask(ctx context.Context, area image.Rectangle) error {
	need := s.layout.stride(area.Dx()) * area.Dy()
	if len(s.segment.Data) < need { // The screen has become larger.
		if err := s.attach(ctx, need); err != nil {
			return err
		}
	}
	const offset = 0
	s.conn.Add(s.major, shmGetImage, uint32(s.conn.Screen.Root), at(area), size(area), allPlanes, zPixmap, s.id, offset)
	return nil
}

func (s *Shared) take(_ context.Context, area image.Rectangle, _ *wire.Answer) ([]byte, error) {
	return s.segment.Data[:s.layout.stride(area.Dx())*area.Dy()], nil
}

// Close ends the connection, with which the server lets go of the memory.
func (s *Shared) Close() error {
	err := s.conn.Close()
	if s.segment != nil {
		s.segment.Close()
		s.segment = nil
	}
	return err
}
