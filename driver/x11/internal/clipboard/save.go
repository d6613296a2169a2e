package clipboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

const (
	// saveTime and saveSize bound what is fetched from the owner of the clipboard, all targets together.
	saveTime = 2 * time.Second
	saveSize = 64 << 20 // bytes
)

// Why a target cannot be saved. After the first two no other can be either.
var (
	errGone    = errors.New("its owner went away")
	errLate    = fmt.Errorf("its owner did not give it within %v", saveTime)
	errLarge   = fmt.Errorf("it is beyond %d MB, with those before it", saveSize>>20)
	errRefused = errors.New("its owner did not give it")
	errHandle  = errors.New("it stands for something of its owner's")
)

// save fetches all that is on the clipboard, and says of which targets it could not. It returns nil for a clipboard that
// is empty, or whose owner goes away meanwhile. An error is one of ctx or of the display.
func (c *Clipboard) save(ctx context.Context) (saved *content, lost []string, err error) {
	c.mu.Lock()
	saved = c.content
	c.mu.Unlock()
	if saved != nil {
		return saved, nil, nil
	}
	owner, err := c.owner(c.atoms.clipboard)
	if err != nil || owner == xproto.WindowNone {
		return nil, nil, err
	}
	now, err := c.clock()
	if err != nil {
		return nil, nil, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, saveTime, errLate)
	defer cancel()
	for len(c.inbox) > 0 {
		<-c.inbox // of a saving that was given up
	}
	s := &saving{Clipboard: c, ctx: bounded, owner: owner, now: now, room: saveSize}
	targets, err := s.targets()
	if err != nil {
		lost = append(lost, fmt.Sprintf("all: %v", err))
	}
	saved = &content{}
	for i, target := range targets {
		var it item
		if it, err = s.fetch(target); err == nil {
			saved.items = append(saved.items, it)
			continue
		}
		lost = append(lost, fmt.Sprintf("%s: %v", c.name(target), err))
		if errors.Is(err, errGone) || errors.Is(err, errLate) {
			for _, rest := range targets[i+1:] {
				lost = append(lost, fmt.Sprintf("%s: %v", c.name(rest), err))
			}
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case errors.Is(err, driver.ErrDisplayLost):
		return nil, nil, err
	case errors.Is(err, errGone) || len(saved.items) == 0:
		return nil, lost, nil
	}
	return saved, lost, nil
}

// name is the name of an atom.
func (c *Clipboard) name(atom xproto.Atom) string {
	r, err := xproto.GetAtomName(c.conn.X, atom).Reply()
	if err != nil {
		return fmt.Sprintf("target %d", atom)
	}
	return r.Name
}

// saving is what is known while the clipboard is saved.
type saving struct {
	*Clipboard
	ctx   context.Context
	owner xproto.Window
	now   xproto.Timestamp
	room  int // bytes that are left of saveSize
}

// targets asks for the targets that there are to save.
func (s *saving) targets() ([]xproto.Atom, error) {
	list, err := s.fetch(s.atoms.targets)
	if errors.Is(err, errRefused) {
		return []xproto.Atom{s.atoms.utf8, xproto.AtomString}, nil // All that a program of old may have.
	}
	if err != nil {
		return nil, err
	}
	var targets []xproto.Atom
	own := append([]xproto.Atom{s.atoms.targets, s.atoms.multiple, s.atoms.timestamp, xproto.AtomNone}, s.atoms.effects...)
	for data := list.data; len(data) >= 4; data = data[4:] {
		target := xproto.Atom(xgb.Get32(data))
		if !slices.Contains(own, target) && !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	return targets, nil
}

// handles are the types of what only its owner can keep alive.
var handles = []xproto.Atom{xproto.AtomBitmap, xproto.AtomPixmap, xproto.AtomDrawable, xproto.AtomWindow, xproto.AtomColormap, xproto.AtomCursor, xproto.AtomFont}

// fetch fetches the content in one target. Each target comes by a property of that name, so that one that comes late is
// not taken for another.
func (s *saving) fetch(target xproto.Atom) (item, error) {
	xproto.DeleteProperty(s.conn.X, s.window, target)
	xproto.ConvertSelection(s.conn.X, s.window, s.atoms.clipboard, target, target, s.now)
	for {
		event, err := s.event()
		if err != nil {
			return item{}, err
		}
		e, ok := event.(xproto.SelectionNotifyEvent)
		if !ok || e.Target != target || e.Time != s.now {
			continue
		}
		if e.Property == xproto.AtomNone {
			return item{}, errRefused
		}
		it, err := s.take(target)
		if err == nil && it.kind == s.atoms.incr {
			it, err = s.takePieces(target)
		}
		switch {
		case err == nil && it.format == 0:
			err = errRefused
		case err == nil && slices.Contains(handles, it.kind):
			err = errHandle
		}
		return it, err
	}
}

// take reads a property of the window and deletes it, which asks for the next piece if there is one. The item of a
// property that is not there has no format.
func (s *saving) take(target xproto.Atom) (item, error) {
	r, err := xproto.GetProperty(s.conn.X, true, s.window, target, xproto.GetPropertyTypeAny, 0, uint32(s.room+3)/4).Reply()
	if err != nil {
		return item{}, display.Err(err)
	}
	if r.BytesAfter > 0 {
		xproto.DeleteProperty(s.conn.X, s.window, target)
		return item{}, errLarge
	}
	s.room = max(0, s.room-len(r.Value))
	return item{target, r.Type, r.Format, r.Value}, nil
}

// takePieces reads the pieces of what comes by INCR.
func (s *saving) takePieces(target xproto.Atom) (whole item, err error) {
	for {
		event, err := s.event()
		if err != nil {
			return item{}, err
		}
		if e, ok := event.(xproto.PropertyNotifyEvent); !ok || e.Atom != target {
			continue
		}
		piece, err := s.take(target)
		if err != nil {
			return item{}, err
		}
		switch {
		case piece.format == 0: // Somebody set it and somebody took it back.
		case len(piece.data) == 0 && whole.format == 0:
			return piece, nil
		case len(piece.data) == 0:
			return whole, nil
		default:
			piece.data = append(whole.data, piece.data...)
			whole = piece
		}
	}
}

// event waits for an event from the owner, as long as it is the owner.
func (s *saving) event() (xgb.Event, error) {
	const interval = 20 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case event := <-s.inbox:
			return event, nil
		case <-tick.C:
			owner, err := s.Clipboard.owner(s.atoms.clipboard)
			if err != nil {
				return nil, err
			}
			if owner != s.owner {
				return nil, errGone
			}
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		case <-s.ended:
			return nil, driver.ErrDisplayLost
		}
	}
}
