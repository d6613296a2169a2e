// Package xkb speaks the few requests of the X Keyboard Extension that the driver needs: what state the keyboard is
// in, what each key means on each group and level, and how to change either. xgb has no package for it.
//
// The layouts of the requests are those of The X Keyboard Extension: Protocol Specification, version 1.0, appendix D.
// All are about the core keyboard; the server passes a change on to the devices behind it, that of XTEST included.
package xkb

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// The requests, by their minor opcodes.
const (
	useExtension   = 0
	getState       = 4
	latchLockState = 5
	getMap         = 8
	setMap         = 9
)

// coreKeyboard stands for the keyboard whose events everybody gets.
const coreKeyboard = 0x100

// The parts of a map.
const (
	partTypes     = 1 << 0
	partSymbols   = 1 << 1
	partModifiers = 1 << 2
)

// An Extension sends requests over a connection that it does not own, for the goroutine that owns it.
type Extension struct {
	conn  *display.Conn
	major byte
}

// Use tells the server that the connection speaks the extension. The error wraps [driver.ErrUnsupported] when the
// server has none.
func Use(conn *display.Conn) (*Extension, error) {
	const name = "XKEYBOARD"
	found, err := xproto.QueryExtension(conn.X, uint16(len(name)), name).Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	if !found.Present {
		return nil, fmt.Errorf("%w: the X server has no %s extension", driver.ErrUnsupported, name)
	}
	x := &Extension{conn, found.MajorOpcode}
	var version writer
	version.put16(1, 0)
	reply, err := x.ask(useExtension, version)()
	if err != nil {
		return nil, fmt.Errorf("using %s 1.0: %w", name, err)
	}
	if supported := reply[1] != 0; !supported {
		return nil, fmt.Errorf("%w: %s 1.0 by the X server, which has %d.%d", driver.ErrUnsupported, name, xgb.Get16(reply[8:]), xgb.Get16(reply[10:]))
	}
	return x, nil
}

// A State is the state of the keyboard. Modifiers are masks as in core events: bit 0 is Shift, 1 Lock, 2 Control, 3
// to 7 Mod1 to Mod5.
type State struct {
	Base    byte // modifiers whose keys are down
	Latched byte // modifiers that are in force until the next key
	Locked  byte // modifiers that are in force until they are unlocked, such as Lock by Caps Lock
	Group   int  // the group in force, from 0
}

// State asks for the state of the keyboard.
func (x *Extension) State() (State, error) { return x.AskState()() }

// AskState is State in two steps: it sends the request, and what it returns waits for the reply. Several questions whose
// requests are sent first cost one wait.
func (x *Extension) AskState() func() (State, error) {
	var body writer
	body.put16(coreKeyboard, 0)
	answer := x.ask(getState, body)
	return func() (State, error) {
		reply, err := answer()
		if err != nil {
			return State{}, fmt.Errorf("asking for the state of the keyboard: %w", err)
		}
		return State{Base: reply[9], Latched: reply[10], Locked: reply[11], Group: int(reply[12])}, nil
	}
}

// Lock sets those modifiers of a mask that are locked to the ones in locked, and drops what is latched of the mask.
// It does not wait for the server.
func (x *Extension) Lock(mask, locked byte) {
	const keepGroup = 0
	var body writer
	body.put16(coreKeyboard)
	body.put8(mask, locked, keepGroup, 0, mask, 0, 0, keepGroup)
	body.put16(0)
	x.send(latchLockState, body)
}

// Announce has every client told of the state of the keyboard as it is, by latching a modifier and dropping it again. It
// does not wait for the server.
func (x *Extension) Announce() {
	const any, keepGroup = xproto.ModMask3, 0 // one that programs make little of
	for _, latched := range []byte{any, 0} {
		var body writer
		body.put16(coreKeyboard)
		body.put8(0, 0, keepGroup, 0, any, latched, 0, keepGroup)
		body.put16(0)
		x.send(latchLockState, body)
	}
}

// A Type says how the modifiers choose the level of a key.
type Type struct {
	Mods   byte         // the modifiers that are heeded
	Levels map[byte]int // by those of Mods that are in force; others give level 0
}

// Level is the level that a state of the modifiers gives.
func (t Type) Level(mods byte) int { return t.Levels[mods&t.Mods] }

// TwoLevel is the number, in every Map.Types, of the type whose level 1 Shift gives and nothing else.
const TwoLevel = 1

// A Key is what one key means. The zero Key means nothing.
type Key struct {
	Types   [4]byte // by group, numbers in Map.Types
	Groups  byte    // how many groups there are, and what is done about a state beyond them
	Width   byte    // symbols of each group
	Symbols []xproto.Keysym
}

// Group is the group of the key that a state's group leads to. It is false when the key has none.
func (k Key) Group(group int) (int, bool) {
	const clamp, redirect = 1, 2
	n := int(k.Groups & 15)
	switch {
	case n == 0:
		return 0, false
	case group < n:
		return group, true
	}
	switch k.Groups >> 6 {
	case clamp:
		return n - 1, true
	case redirect:
		if to := int(k.Groups >> 4 & 3); to < n {
			return to, true
		}
		return 0, true
	}
	return group % n, true
}

// Symbol is the symbol of a group and level, 0 when there is none.
func (k Key) Symbol(group, level int) xproto.Keysym {
	if i := group*int(k.Width) + level; level < int(k.Width) && i < len(k.Symbols) {
		return k.Symbols[i]
	}
	return 0
}

// A Map is what all keys mean.
type Map struct {
	Types     []Type
	First     xproto.Keycode
	Keys      []Key  // from First on
	Modifiers []byte // the modifiers that a key stands for, as Keys

	reply []byte // what it was read from
}

// Map reads the map that is in force, and returns old when it is that one still. To ask takes 50µs, and is how to hear
// of changes: to clients that speak the extension the server reports a new keyboard by an event of the extension alone,
// which xgb cannot read.
func (x *Extension) Map(old *Map) (*Map, error) { return x.AskMap(old)() }

// AskMap is Map in two steps, as AskState is State.
func (x *Extension) AskMap(old *Map) func() (*Map, error) {
	var body writer
	body.put16(coreKeyboard, partTypes|partSymbols|partModifiers)
	body = append(body, make([]byte, 20)...) // no other part, not even of a few keys
	answer := x.ask(getMap, body)
	return func() (*Map, error) {
		reply, err := answer()
		if err != nil {
			return nil, fmt.Errorf("reading the keyboard map: %w", err)
		}
		const head = 8 // with the number of the request
		if old != nil && bytes.Equal(reply[head:], old.reply[head:]) {
			return old, nil
		}
		m, err := parseMap(reply)
		if err != nil {
			return nil, fmt.Errorf("reading the keyboard map: %w", err)
		}
		return m, nil
	}
}

func parseMap(reply []byte) (m *Map, err error) {
	defer func() {
		if recover() != nil {
			m, err = nil, fmt.Errorf("a reply of %d bytes is cut short", len(reply))
		}
	}()
	first, last := reply[10], reply[11]
	types, keys, pairs := reply[15], reply[20], reply[33]
	m = &Map{reply: reply, First: xproto.Keycode(first), Keys: make([]Key, int(last)-int(first)+1), Modifiers: make([]byte, int(last)-int(first)+1)}
	r := reader(reply[40:])
	for range types {
		head := r.take(8)
		t := Type{Mods: head[0], Levels: map[byte]int{}}
		for range head[5] {
			if entry := r.take(8); entry[0] != 0 { // An entry is not active when a modifier that it names is on no key.
				t.Levels[entry[1]] = int(entry[2])
			}
		}
		if preserves := head[6] != 0; preserves {
			r.take(4 * int(head[5]))
		}
		m.Types = append(m.Types, t)
	}
	for i := range int(keys) {
		head := r.take(8)
		k := Key{Types: [4]byte(head[:4]), Groups: head[4], Width: head[5]}
		for range xgb.Get16(head[6:]) {
			k.Symbols = append(k.Symbols, xproto.Keysym(xgb.Get32(r.take(4))))
		}
		m.Keys[int(reply[17])-int(first)+i] = k
	}
	for range pairs {
		pair := r.take(2)
		m.Modifiers[pair[0]-first] = pair[1]
	}
	return m, nil
}

// SetKeys changes the symbols of the keys from first on, and nothing else: neither what they do nor whether they
// repeat. It is one request, so that every client is told once, and waits until the server has done it.
func (x *Extension) SetKeys(first xproto.Keycode, keys []Key) error {
	total := 0
	for _, k := range keys {
		total += len(k.Symbols)
	}
	var body writer
	body.put16(coreKeyboard, partSymbols, 0)
	body.put8(byte(x.conn.Setup.MinKeycode), byte(x.conn.Setup.MaxKeycode), 0, 0, byte(first), byte(len(keys)))
	body.put16(uint16(total))
	body = append(body, make([]byte, 18)...) // no other part
	for _, k := range keys {
		body.put8(k.Types[:]...)
		body.put8(k.Groups, k.Width)
		body.put16(uint16(len(k.Symbols)))
		for _, symbol := range k.Symbols {
			body = binary.LittleEndian.AppendUint32(body, uint32(symbol))
		}
	}
	x.send(setMap, body)
	return x.conn.Sync()
}

// ask sends a request, and returns a function that waits for its reply.
func (x *Extension) ask(minor byte, body writer) func() ([]byte, error) {
	cookie := x.conn.X.NewCookie(true, true)
	x.conn.X.NewRequest(x.request(minor, body), cookie)
	return func() ([]byte, error) {
		reply, err := cookie.Reply()
		if err != nil {
			return nil, display.Err(err)
		}
		return reply, nil
	}
}

// send sends a request that has no reply. What the server objects to comes with the next Sync.
func (x *Extension) send(minor byte, body writer) {
	x.conn.X.NewRequest(x.request(minor, body), x.conn.X.NewCookie(false, false))
}

func (x *Extension) request(minor byte, body writer) []byte {
	var head writer
	head.put8(x.major, minor)
	head.put16(uint16(1 + len(body)/4))
	return append(head, body...)
}

// A writer is a request being written, in the byte order that xgb asks for.
type writer []byte

func (w *writer) put8(values ...byte) { *w = append(*w, values...) }

func (w *writer) put16(values ...uint16) {
	for _, v := range values {
		*w = binary.LittleEndian.AppendUint16(*w, v)
	}
}

// A reader is the rest of a reply.
type reader []byte

func (r *reader) take(n int) []byte {
	taken := (*r)[:n]
	*r = (*r)[n:]
	return taken
}
