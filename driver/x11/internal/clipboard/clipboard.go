// Package clipboard puts a text on the CLIPBOARD selection for a moment and then puts back what was there.
//
// X keeps no clipboard: a program that owns a selection is asked for it each time somebody pastes, in one of several
// formats, the targets (Inter-Client Communication Conventions Manual, version 2.0, section 2). So what was there is
// fetched from its owner before, in every target that it has, and is served from here afterwards, until another program
// takes the selection or the Clipboard is closed; a clipboard manager, where there is one, keeps it beyond that. The other
// selections are left alone.
//
// What is larger than a request to the server goes in pieces, by INCR (section 2.7.2), in both directions.
package clipboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

const (
	// patience is how long the program that is to paste may do nothing about it.
	patience = 5 * time.Second
	// quiet is how long a program that has the text asks for nothing more, as some do that look for better formats.
	quiet = 50 * time.Millisecond
)

// ErrTaken says that another program took the clipboard while it was lent.
var ErrTaken = errors.New("another program took the clipboard")

// A Clipboard has a connection of its own to the display. Its methods are called by one goroutine at a time; another
// one answers those who paste.
type Clipboard struct {
	conn   *display.Conn
	window xproto.Window // that owns the selection and is given what was asked for
	atoms  atoms
	ended  chan struct{}  // closed when nobody is answered any more
	inbox  chan xgb.Event // those that are about what was asked for
	clocks chan xproto.Timestamp

	mu        sync.Mutex
	content   *content         // what is served; nil when another program owns the selection, or none
	since     xproto.Timestamp // when the selection was acquired
	saved     *content         // what is to come back; nil for an empty clipboard
	lent      *content         // the text that Lend put there, which is the content unless it was taken or returned
	transfers map[transferKey]*transfer
	fetches   map[client]*fetch // since Lend
	changed   chan struct{}     // closed and replaced whenever one of the above changes
}

// The atoms, by their names.
type atoms struct {
	clipboard, manager, saveTargets                 xproto.Atom
	targets, multiple, timestamp, incr, pair, clock xproto.Atom
	utf8, text, plain                               xproto.Atom
	effects                                         []xproto.Atom // targets that do something instead of giving something
}

// content is what is on a clipboard.
type content struct{ items []item }

// An item is the content in one target.
type item struct {
	target, kind xproto.Atom
	format       byte // bits of a unit: 8, 16 or 32
	data         []byte
}

// in returns the item of a target.
func (c *content) in(target xproto.Atom) (item, bool) {
	i := slices.IndexFunc(c.items, func(it item) bool { return it.target == target })
	if i < 0 {
		return item{}, false
	}
	return c.items[i], true
}

// A client is a connection to the server, as the upper bits of the windows that were made over it.
type client uint32

func (c *Clipboard) clientOf(window xproto.Window) client {
	return client(uint32(window) &^ c.conn.Setup.ResourceIdMask)
}

// fetch is how far a client has come with the content.
type fetch struct {
	asked  bool // for anything, be it only what targets there are
	bytes  int  // of the transfer that has come furthest
	whole  bool
	active time.Time // when it last asked for anything, or took a piece
}

// Open connects to a display. Its errors are those of [display.Open].
func Open(name string) (*Clipboard, error) {
	conn, err := display.Open(name)
	if err != nil {
		return nil, err
	}
	c := &Clipboard{
		conn: conn, ended: make(chan struct{}), changed: make(chan struct{}),
		// They come one by one, as they are asked for. What another program sends beside does not fit at some time.
		inbox: make(chan xgb.Event, 64), clocks: make(chan xproto.Timestamp, 1),
		transfers: map[transferKey]*transfer{}, fetches: map[client]*fetch{},
	}
	if err := c.open(); err != nil {
		conn.Close()
		return nil, err
	}
	go c.serve()
	return c, nil
}

func (c *Clipboard) open() (err error) {
	var deletion, insertSelection, insertProperty xproto.Atom
	for name, atom := range map[string]*xproto.Atom{
		"CLIPBOARD": &c.atoms.clipboard, "CLIPBOARD_MANAGER": &c.atoms.manager, "SAVE_TARGETS": &c.atoms.saveTargets, "TARGETS": &c.atoms.targets, "MULTIPLE": &c.atoms.multiple, "TIMESTAMP": &c.atoms.timestamp,
		"INCR": &c.atoms.incr, "ATOM_PAIR": &c.atoms.pair, "_DESKAGENT_CLOCK": &c.atoms.clock,
		"UTF8_STRING": &c.atoms.utf8, "TEXT": &c.atoms.text, "text/plain;charset=utf-8": &c.atoms.plain,
		"DELETE": &deletion, "INSERT_SELECTION": &insertSelection, "INSERT_PROPERTY": &insertProperty,
	} {
		r, err := xproto.InternAtom(c.conn.X, false, uint16(len(name)), name).Reply()
		if err != nil {
			return display.Err(err)
		}
		*atom = r.Atom
	}
	c.atoms.effects = []xproto.Atom{deletion, insertSelection, insertProperty, c.atoms.saveTargets}
	if c.window, err = xproto.NewWindowId(c.conn.X); err != nil {
		return display.Err(err)
	}
	// It is never shown, and so of no size and no colours that would matter.
	err = xproto.CreateWindowChecked(c.conn.X, 0, c.window, c.conn.Screen.Root, 0, 0, 1, 1, 0, xproto.WindowClassInputOnly, 0,
		xproto.CwEventMask, []uint32{xproto.EventMaskPropertyChange}).Check()
	if err != nil {
		return display.Err(err)
	}
	return nil
}

// Serving reports whether the clipboard has content that is served from here.
func (c *Clipboard) Serving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.content != nil
}

// Close ends the connection, and with it the content that is served from here. It waits for the goroutine.
func (c *Clipboard) Close() error {
	err := c.conn.Close()
	if err == nil {
		<-c.ended
	}
	return err
}

// Lend saves what is on the clipboard and puts a text there, which is valid UTF-8. It returns what of the former content
// could not be saved, a target each with the reason. After an error the clipboard is as it was.
func (c *Clipboard) Lend(ctx context.Context, text string) (lost []string, err error) {
	saved, lost, err := c.save(ctx)
	if err != nil {
		return nil, fmt.Errorf("saving the clipboard: %w", err)
	}
	now, err := c.clock()
	if err != nil {
		return nil, fmt.Errorf("taking the clipboard: %w", err)
	}
	c.mu.Lock()
	c.saved, c.lent = saved, c.textual(text)
	clear(c.fetches)
	c.mu.Unlock()
	if err := c.acquire(c.lent, now); err != nil {
		return nil, fmt.Errorf("taking the clipboard: %w", err)
	}
	return lost, nil
}

// textual is the content of a text. Only what Latin-1 has can be a STRING.
func (c *Clipboard) textual(text string) *content {
	utf8 := []byte(text)
	made := &content{items: []item{
		{c.atoms.utf8, c.atoms.utf8, 8, utf8}, {c.atoms.plain, c.atoms.plain, 8, utf8}, {c.atoms.text, c.atoms.utf8, 8, utf8},
	}}
	latin := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return made
		}
		latin = append(latin, byte(r))
	}
	made.items = append(made.items, item{xproto.AtomString, xproto.AtomString, 8, latin})
	return made
}

// Fetched waits until the program that a window belongs to has fetched the text that was lent, and has asked for
// nothing more for a moment. Others may look at the clipboard too, above all clipboard managers. The error says how much
// of the text was fetched: it is one when nothing happens for 5s, and wraps [ErrTaken] when another program takes the
// clipboard before this one has asked. What is on its way already goes on to the program in any case. It is called
// between Lend and Return.
func (c *Clipboard) Fetched(ctx context.Context, reader xproto.Window) error {
	begun := time.Now()
	for {
		c.mu.Lock()
		f := fetch{active: begun}
		if known := c.fetches[c.clientOf(reader)]; known != nil {
			f = *known
		}
		total, programs := len(c.lent.items[0].data), len(c.fetches)
		taken, changed := c.content != c.lent, c.changed
		c.mu.Unlock()

		bound := patience
		if f.whole {
			bound = quiet
		}
		rest := bound - time.Since(f.active)
		var err error
		switch {
		case f.whole && rest <= 0:
			return nil
		case rest <= 0:
			err = fmt.Errorf("%s within %v", f.halt(programs), patience)
		case taken && f.bytes == 0:
			err = ErrTaken
		default:
			err = c.wait(ctx, changed, rest)
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", f.bytes, total, err)
		}
	}
}

// wait waits for a change, but not for long.
func (c *Clipboard) wait(ctx context.Context, changed <-chan struct{}, long time.Duration) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended:
		return driver.ErrDisplayLost
	}
	return nil
}

// halt says how a program stands that does not go on.
func (f fetch) halt(programs int) string {
	switch {
	case f.asked:
		return "the program did not fetch more"
	case programs > 0:
		return "another program asked for it, and not the one with the focus"
	}
	return "no program asked for it"
}

// Return puts back what was on the clipboard before Lend, or nothing if there was nothing. What another program has put
// there in the meantime stays.
func (c *Clipboard) Return() error {
	c.mu.Lock()
	ours, saved := c.content != nil && c.content == c.lent, c.saved
	c.lent, c.saved = nil, nil
	c.mu.Unlock()
	if !ours {
		return nil
	}
	if saved == nil {
		return c.release()
	}
	now, err := c.clock()
	if err == nil {
		err = c.acquire(saved, now)
	}
	if err != nil && !errors.Is(err, ErrTaken) {
		return fmt.Errorf("putting back the clipboard: %w", err)
	}
	return nil
}

// acquire makes something the content, and tells all who watch that it is new.
func (c *Clipboard) acquire(what *content, now xproto.Timestamp) error {
	c.mu.Lock()
	c.content, c.since = what, now
	c.mu.Unlock()
	xproto.SetSelectionOwner(c.conn.X, c.window, c.atoms.clipboard, now)
	owner, err := c.owner(c.atoms.clipboard)
	if err == nil && owner != c.window {
		err = ErrTaken
		c.mu.Lock()
		c.content = nil
		c.mu.Unlock()
	}
	return err
}

// release leaves the clipboard empty, unless another program has taken it by then: the server ignores a request of a
// time before that.
func (c *Clipboard) release() error {
	c.mu.Lock()
	c.content = nil
	since := c.since
	c.mu.Unlock()
	xproto.SetSelectionOwner(c.conn.X, xproto.WindowNone, c.atoms.clipboard, since)
	_, err := c.owner(c.atoms.clipboard)
	return err
}

// owner asks for the owner of a selection.
func (c *Clipboard) owner(selection xproto.Atom) (xproto.Window, error) {
	r, err := xproto.GetSelectionOwner(c.conn.X, selection).Reply()
	if err != nil {
		return 0, display.Err(err)
	}
	return r.Owner, nil
}

// clock asks for the server's time, which comes with an event: a selection is to be acquired at a time that the server
// can compare with others.
func (c *Clipboard) clock() (xproto.Timestamp, error) {
	xproto.ChangeProperty(c.conn.X, xproto.PropModeAppend, c.window, c.atoms.clock, xproto.AtomInteger, 32, 0, nil)
	select {
	case now := <-c.clocks:
		return now, nil
	case <-c.ended:
		return 0, driver.ErrDisplayLost
	}
}
