package clipboard

import (
	"context"
	"errors"
	"fmt"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

// HandOver has a clipboard manager keep the content that is served from here, so that it stays when the Clipboard is
// closed. It is an error when there is no manager, or none that has all of the content before ctx ends. The way is that of
// freedesktop.org's Clipboard Manager specification: the manager owns a selection of its own, is asked to save, fetches
// the content as others do, and then says that it is done.
func (c *Clipboard) HandOver(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("handing over the clipboard: %w", err)
		}
	}()
	c.mu.Lock()
	var targets []byte
	if c.content != nil {
		for _, it := range c.content.items {
			targets = append(targets, words(uint32(it.target))...)
		}
	}
	c.mu.Unlock()
	if len(targets) == 0 {
		return nil
	}
	manager, err := c.owner(c.atoms.manager)
	if err != nil {
		return err
	}
	if manager == xproto.WindowNone {
		return errors.New("there is no clipboard manager")
	}
	now, err := c.clock()
	if err != nil {
		return err
	}
	c.put(transferKey{c.window, c.atoms.saveTargets}, item{kind: xproto.AtomAtom, format: 32, data: targets})
	xproto.ConvertSelection(c.conn.X, c.window, c.atoms.manager, c.atoms.saveTargets, c.atoms.saveTargets, now)
	for {
		select {
		case event := <-c.inbox:
			e, ok := event.(xproto.SelectionNotifyEvent)
			switch {
			case !ok || e.Selection != c.atoms.manager || e.Time != now:
			case e.Property == xproto.AtomNone:
				return errors.New("the clipboard manager does not want it")
			default:
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ended:
			return driver.ErrDisplayLost
		}
	}
}
