package clipboard

import (
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// A transfer is an item on its way, in pieces, to a property of another program's window. The program deletes the
// property when it wants the next piece; the last one is empty.
type transfer struct {
	item
	sent  int // bytes
	fetch *fetch
}

type transferKey struct {
	window   xproto.Window
	property xproto.Atom
}

// serve handles events until the connection ends.
func (c *Clipboard) serve() {
	defer close(c.ended)
	for {
		event, fault := c.conn.X.WaitForEvent()
		if event == nil && fault == nil {
			return
		}
		// A fault is about the window of a program that has gone, of which an event tells too.
		switch e := event.(type) {
		case xproto.SelectionRequestEvent:
			c.answer(e)
		case xproto.SelectionClearEvent:
			c.mu.Lock()
			c.content = nil
			c.tell()
			c.mu.Unlock()
		case xproto.SelectionNotifyEvent:
			c.receive(e)
		case xproto.PropertyNotifyEvent:
			switch {
			case e.Window == c.window && e.Atom == c.atoms.clock:
				c.clocks <- e.Time
			case e.Window == c.window && e.State == xproto.PropertyNewValue:
				c.receive(e)
			case e.Window != c.window && e.State == xproto.PropertyDelete:
				c.next(transferKey{e.Window, e.Atom})
			}
		case xproto.DestroyNotifyEvent:
			c.forget(e.Window)
		}
	}
}

// receive hands on an event to the one who asks the owner of the clipboard.
func (c *Clipboard) receive(event xgb.Event) {
	select {
	case c.inbox <- event:
	default:
	}
}

// tell wakes up who waits for a change. The mutex is held.
func (c *Clipboard) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// answer answers a program that wants the content in some target.
func (c *Clipboard) answer(e xproto.SelectionRequestEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.tell()
	property := e.Property
	if property == xproto.AtomNone { // An obsolete client means this.
		property = e.Target
	}
	// A program that asks about a time before the selection was acquired means what was there then.
	early := e.Time != xproto.TimeCurrentTime && int32(e.Time-c.since) < 0
	if e.Selection != c.atoms.clipboard || c.content == nil || early || !c.give(transferKey{e.Requestor, property}, e.Target) {
		property = xproto.AtomNone
	}
	answer := xproto.SelectionNotifyEvent{Time: e.Time, Requestor: e.Requestor, Selection: e.Selection, Target: e.Target, Property: property}
	xproto.SendEvent(c.conn.X, false, e.Requestor, xproto.EventMaskNoEvent, string(answer.Bytes()))
}

// give puts the content in some target on a property, if there is such a target. The mutex is held.
func (c *Clipboard) give(to transferKey, target xproto.Atom) bool {
	who := c.clientOf(to.window)
	f := c.fetches[who]
	if f == nil {
		f = &fetch{asked: true}
		c.fetches[who] = f
	}
	f.active = time.Now()
	switch target {
	case c.atoms.targets:
		list := words(uint32(c.atoms.targets), uint32(c.atoms.multiple), uint32(c.atoms.timestamp))
		for _, it := range c.content.items {
			list = append(list, words(uint32(it.target))...)
		}
		c.put(to, item{target, xproto.AtomAtom, 32, list})
		return true
	case c.atoms.timestamp:
		c.put(to, item{target, xproto.AtomInteger, 32, words(uint32(c.since))})
		return true
	case c.atoms.multiple:
		return c.giveSeveral(to)
	}
	it, ok := c.content.in(target)
	if !ok {
		return false
	}
	if c.transfers[to] != nil { // The program has given up on it.
		c.end(to)
	}
	if len(it.data) <= c.piece() {
		c.put(to, it)
		f.has(len(it.data), true)
		return true
	}
	// INCR begins with the size, at least.
	xproto.ChangeWindowAttributes(c.conn.X, to.window, xproto.CwEventMask, []uint32{xproto.EventMaskPropertyChange | xproto.EventMaskStructureNotify})
	c.put(to, item{target, c.atoms.incr, 32, words(uint32(len(it.data)))})
	c.transfers[to] = &transfer{item: it, fetch: f}
	return true
}

// giveSeveral gives what a list of targets, each with its property, asks for, as clipboard managers do (Inter-Client
// Communication Conventions Manual, section 2.6.2). In the list it leaves out the properties of what is not to be had.
func (c *Clipboard) giveSeveral(list transferKey) bool {
	const pair, most = 8, 512 // bytes, words
	r, err := xproto.GetProperty(c.conn.X, false, list.window, list.property, xproto.GetPropertyTypeAny, 0, most).Reply()
	if err != nil || r.Format != 32 {
		return false
	}
	for wish := r.Value; len(wish) >= pair; wish = wish[pair:] {
		target, property := xproto.Atom(xgb.Get32(wish)), xproto.Atom(xgb.Get32(wish[4:]))
		if target == c.atoms.multiple || property == xproto.AtomNone || !c.give(transferKey{list.window, property}, target) {
			xgb.Put32(wish[4:], xproto.AtomNone)
		}
	}
	c.put(list, item{kind: c.atoms.pair, format: 32, data: r.Value})
	return true
}

// next sends the next piece of a transfer.
func (c *Clipboard) next(to transferKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.transfers[to]
	if t == nil {
		return
	}
	piece := t.data[t.sent:min(len(t.data), t.sent+c.piece())]
	c.put(to, item{t.target, t.kind, t.format, piece})
	t.fetch.has(t.sent, len(piece) == 0)
	t.sent += len(piece)
	if len(piece) == 0 {
		c.end(to)
	}
	c.tell()
}

// forget ends the transfers to a window that is no more.
func (c *Clipboard) forget(window xproto.Window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for to := range c.transfers {
		if to.window == window {
			c.end(to)
		}
	}
}

// end ends a transfer, and with the last one to a window the interest in its events. The mutex is held.
func (c *Clipboard) end(to transferKey) {
	delete(c.transfers, to)
	for other := range c.transfers {
		if other.window == to.window {
			return
		}
	}
	xproto.ChangeWindowAttributes(c.conn.X, to.window, xproto.CwEventMask, []uint32{xproto.EventMaskNoEvent})
}

// has notes that so many bytes were fetched.
func (f *fetch) has(bytes int, whole bool) {
	f.bytes, f.whole, f.active = max(f.bytes, bytes), f.whole || whole, time.Now()
}

// put sets a property of another program's window.
func (c *Clipboard) put(to transferKey, it item) {
	units := uint32(len(it.data) / int(it.format/8))
	xproto.ChangeProperty(c.conn.X, xproto.PropModeReplace, to.window, to.property, it.kind, it.format, units, it.data)
}

// piece is how many bytes fit into one request, whole units of any format.
func (c *Clipboard) piece() int {
	const head = 24 // bytes of a ChangeProperty request before the data
	return 4*int(c.conn.Setup.MaximumRequestLength) - head
}

// words are the bytes of numbers, in the order of the connection.
func words(numbers ...uint32) []byte {
	data := make([]byte, 4*len(numbers))
	for i, n := range numbers {
		xgb.Put32(data[4*i:], n)
	}
	return data
}
