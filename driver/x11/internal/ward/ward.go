// Package ward keeps a record, on the display itself, of what the driver may leave behind if it dies: keys and
// buttons that may be down, keycodes that were given another meaning, and locks that were lifted. The server undoes none
// of that at the end of a connection. The record is written before the deed, so that whoever comes after, the watchdog or
// the next driver, knows what to undo.
//
// # On the display
//
// A driver has one of a few places, each with an atom of its own, such as _DESKAGENT_WARD_0. The atom names two
// things: a property of the root window, which is the record, and a selection, whose owner is a window of the
// driver. The server ends the ownership with the connection, however that comes about, and only after it has done
// all that came over it. So a record whose selection has no owner is one of a driver that died, and it is whole.
//
// The record is a list of words, type CARDINAL, each a kind in the upper bits and a number in the lowest eight. A keycode
// with another meaning is followed by the meaning that it had: a word for the types of its groups; one for its groups, its
// width and the number of its symbols, in this order from the uppermost byte, the number in 16 bits; and the symbols. No
// property is an empty record.
package ward

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

// places is how many drivers one display may have at a time. More than one is only of use to look on while another
// acts.
const places = 8

// The kinds of a record's words, above the number.
const (
	kindKey    = 1 << 8
	kindButton = 2 << 8
	kindBound  = 3 << 8
	kindLocked = 4 << 8
)

// A State is what may be left behind. In each list the order is of no importance.
type State struct {
	Keys    []xproto.Keycode // that may be down
	Buttons []byte           // that may be down, by their X numbers
	// Bound are keycodes that may have another meaning now, with the one that they had: mostly none.
	Bound  map[xproto.Keycode]xkb.Key
	Locked byte // modifiers that were locked and may be no longer, as a mask of core events
}

// Empty reports whether there is nothing to undo.
func (s State) Empty() bool { return len(s.Keys)+len(s.Buttons)+len(s.Bound) == 0 && s.Locked == 0 }

// union returns what is in either. Of a keycode that is bound in both, what it meant in s counts, which is older.
func (s State) union(other State) State {
	bound := maps.Clone(other.Bound)
	if bound == nil {
		bound = map[xproto.Keycode]xkb.Key{}
	}
	maps.Copy(bound, s.Bound)
	return State{merge(s.Keys, other.Keys), merge(s.Buttons, other.Buttons), bound, s.Locked | other.Locked}
}

func merge[T cmp.Ordered](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// encode writes a state as a record.
func (s State) encode() []byte {
	var words []uint32
	for _, code := range s.Keys {
		words = append(words, kindKey|uint32(code))
	}
	for _, number := range s.Buttons {
		words = append(words, kindButton|uint32(number))
	}
	for _, code := range slices.Sorted(maps.Keys(s.Bound)) {
		key := s.Bound[code]
		words = append(words, kindBound|uint32(code), xgb.Get32(key.Types[:]), uint32(key.Groups)<<24|uint32(key.Width)<<16|uint32(len(key.Symbols)))
		for _, symbol := range key.Symbols {
			words = append(words, uint32(symbol))
		}
	}
	if s.Locked != 0 {
		words = append(words, kindLocked|uint32(s.Locked))
	}
	record := make([]byte, 4*len(words))
	for i, word := range words {
		xgb.Put32(record[4*i:], word)
	}
	return record
}

// decode reads a record. Others can write on the root window too, so what makes no sense is left out.
func decode(record []byte) (s State) {
	for ; len(record) >= 4; record = record[4:] {
		word := xgb.Get32(record)
		number := byte(word)
		switch kind := word &^ 0xff; {
		case kind == kindKey && number >= firstKeycode:
			s.Keys = append(s.Keys, xproto.Keycode(number))
		case kind == kindButton && number > 0:
			s.Buttons = append(s.Buttons, number)
		case kind == kindBound && number >= firstKeycode:
			key, rest := decodeKey(record)
			if rest == nil {
				return s
			}
			if s.Bound == nil {
				s.Bound = map[xproto.Keycode]xkb.Key{}
			}
			s.Bound[xproto.Keycode(number)], record = key, rest
		case kind == kindLocked:
			s.Locked |= number
		}
	}
	return s
}

// decodeKey reads what a keycode meant, from the word of the keycode on, and returns the record from the last word of that
// on. There is no record left when it makes no sense.
func decodeKey(record []byte) (key xkb.Key, rest []byte) {
	const head, mostGroups = 3 * 4, 4
	if len(record) < head {
		return key, nil
	}
	shape := xgb.Get32(record[8:])
	key = xkb.Key{Types: [4]byte(record[4:]), Groups: byte(shape >> 24), Width: byte(shape >> 16)}
	groups, symbols := int(key.Groups&15), int(shape&0xffff)
	end := head + 4*symbols
	if groups > mostGroups || symbols != groups*int(key.Width) || len(record) < end {
		return xkb.Key{}, nil
	}
	for word := head; word < end; word += 4 {
		key.Symbols = append(key.Symbols, xproto.Keysym(xgb.Get32(record[word:])))
	}
	return key, record[end-4:]
}

// firstKeycode is the lowest keycode that the X protocol allows.
const firstKeycode = 8

// A Ward is the record of one living driver. Its methods send requests and wait for no answer: they are on the
// display before whatever is sent later over the same connection. A nil Ward, that of a dry run, records nothing.
type Ward struct {
	conn  *display.Conn
	place xproto.Atom
	owner xproto.Window
	state State
}

// Claim takes a place for a driver that is connected by conn, until that connection ends. Before that it does what
// [Recover] does, and returns what that was. The error wraps [driver.ErrUnsupported] when all places are taken.
func Claim(conn *display.Conn, restore Restore) (w *Ward, found State, err error) {
	err = alone(conn, func() error {
		if found, err = recoverAll(conn, restore); err != nil {
			return err
		}
		for number := range places {
			place, owner, err := lookUp(conn, number, false)
			if err != nil {
				return err
			}
			if owner == xproto.WindowNone {
				w, err = claim(conn, place)
				return err
			}
		}
		return fmt.Errorf("%w: this display has %d drivers already", driver.ErrUnsupported, places)
	})
	return w, found, err
}

func claim(conn *display.Conn, place xproto.Atom) (*Ward, error) {
	owner, err := xproto.NewWindowId(conn.X)
	if err != nil {
		return nil, display.Err(err)
	}
	// It is never shown, and so of no size and no colours that would matter.
	err = xproto.CreateWindowChecked(conn.X, 0, owner, conn.Screen.Root, 0, 0, 1, 1, 0, xproto.WindowClassInputOnly, 0, 0, nil).Check()
	if err != nil {
		return nil, display.Err(err)
	}
	xproto.SetSelectionOwner(conn.X, owner, place, xproto.TimeCurrentTime)
	return &Ward{conn: conn, place: place, owner: owner}, nil
}

// Owner is the window that ends with the driver's connection.
func (w *Ward) Owner() xproto.Window { return w.owner }

// State is what was recorded last.
func (w *Ward) State() State {
	if w == nil {
		return State{}
	}
	return w.state
}

// Set makes s the record. It keeps s, which the caller does not change afterwards.
func (w *Ward) Set(s State) error {
	if w == nil || s.Empty() && w.state.Empty() {
		return nil
	}
	w.state = s
	if s.Empty() {
		xproto.DeleteProperty(w.conn.X, w.conn.Screen.Root, w.place)
		return nil
	}
	data := s.encode()
	xproto.ChangeProperty(w.conn.X, xproto.PropModeReplace, w.conn.Screen.Root, w.place, xproto.AtomCardinal, 32, uint32(len(data)/4), data)
	return nil
}

// Add records s beside what is recorded already, and reports whether that is new.
func (w *Ward) Add(s State) (added bool, err error) {
	if w == nil {
		return false, nil
	}
	if contains(w.state.Keys, s.Keys) && contains(w.state.Buttons, s.Buttons) && w.binds(s.Bound) && s.Locked&^w.state.Locked == 0 {
		return false, nil // as for nearly all characters of a text
	}
	return true, w.Set(w.state.union(s))
}

// contains reports whether all of the few are among the many.
func contains[T comparable](many, few []T) bool {
	return !slices.ContainsFunc(few, func(one T) bool { return !slices.Contains(many, one) })
}

// binds reports whether all of the keycodes are on record.
func (w *Ward) binds(bound map[xproto.Keycode]xkb.Key) bool {
	for code := range bound {
		if _, ok := w.state.Bound[code]; !ok {
			return false
		}
	}
	return true
}

// Ask asks whether the record is on the display, which has to be so before what is sent over another connection. What it
// returns waits for the answer.
func (w *Ward) Ask() (wait func() error) {
	if w == nil {
		return func() error { return nil }
	}
	return w.conn.AskSync()
}

// Clear empties the record.
func (w *Ward) Clear() error { return w.Set(State{}) }

// A Restore gives keycodes back the meanings that they had, and locks modifiers.
type Restore func(conn *display.Conn, bound map[xproto.Keycode]xkb.Key, locked byte) error

// Recover undoes what drivers that died have left behind, and returns what they recorded. Of the keys and buttons
// it releases those that are down, with XTEST, which the caller has found to be there. A record stays when
// something in between fails.
func Recover(conn *display.Conn, restore Restore) (found State, err error) {
	err = alone(conn, func() error {
		found, err = recoverAll(conn, restore)
		return err
	})
	return found, err
}

func recoverAll(conn *display.Conn, restore Restore) (found State, err error) {
	var stale []xproto.Atom
	for number := range places {
		place, owner, err := lookUp(conn, number, true)
		if err != nil {
			return found, err
		}
		if place == xproto.AtomNone || owner != xproto.WindowNone {
			continue
		}
		recorded, err := read(conn, place)
		if err != nil {
			return found, err
		}
		if !recorded.Empty() {
			stale, found = append(stale, place), found.union(recorded)
		}
	}
	if len(stale) == 0 {
		return found, nil
	}
	down, err := conn.Input()
	if err != nil {
		return found, err
	}
	if err := Release(conn, found.among(down)); err != nil {
		return found, err
	}
	if len(found.Bound) > 0 || found.Locked != 0 {
		if err := restore(conn, found.Bound, found.Locked); err != nil {
			return found, err
		}
	}
	for _, place := range stale {
		xproto.DeleteProperty(conn.X, conn.Screen.Root, place)
	}
	return found, nil
}

// among leaves out the keys and buttons that are not down. Buttons of which the server does not tell are taken to be:
// to release what is not down does nothing.
func (s State) among(down display.Input) (both State) {
	const lastTold = 5
	for _, code := range s.Keys {
		if slices.Contains(down.Keys, code) {
			both.Keys = append(both.Keys, code)
		}
	}
	for _, number := range s.Buttons {
		if number > lastTold || slices.Contains(down.Buttons, number) {
			both.Buttons = append(both.Buttons, number)
		}
	}
	return both
}

// Release releases keys and buttons, with XTEST, and waits until the server has done it.
func Release(conn *display.Conn, s State) error {
	if err := xtest.Init(conn.X); err != nil {
		return display.Err(err)
	}
	for _, code := range s.Keys {
		xtest.FakeInput(conn.X, xproto.KeyRelease, byte(code), xproto.TimeCurrentTime, conn.Screen.Root, 0, 0, 0)
	}
	for _, number := range s.Buttons {
		xtest.FakeInput(conn.X, xproto.ButtonRelease, number, xproto.TimeCurrentTime, conn.Screen.Root, 0, 0, 0)
	}
	return conn.Sync()
}

// alone runs f while the server listens to nobody else.
func alone(conn *display.Conn, f func() error) error {
	xproto.GrabServer(conn.X)
	err := f()
	xproto.UngrabServer(conn.X)
	return cmp.Or(err, conn.Sync())
}

// lookUp finds the atom of a place and its owner. If it exists not and is not to be made, the atom is AtomNone.
func lookUp(conn *display.Conn, number int, onlyIfExists bool) (xproto.Atom, xproto.Window, error) {
	name := fmt.Sprintf("_DESKAGENT_WARD_%d", number)
	atom, err := xproto.InternAtom(conn.X, onlyIfExists, uint16(len(name)), name).Reply()
	if err != nil {
		return 0, 0, display.Err(err)
	}
	if atom.Atom == xproto.AtomNone {
		return 0, 0, nil
	}
	selection, err := xproto.GetSelectionOwner(conn.X, atom.Atom).Reply()
	if err != nil {
		return 0, 0, display.Err(err)
	}
	return atom.Atom, selection.Owner, nil
}

// read reads the record of a place.
func read(conn *display.Conn, place xproto.Atom) (State, error) {
	const most = 1 << 16 // words: far more than all keys and what they may mean
	property, err := xproto.GetProperty(conn.X, false, conn.Screen.Root, place, xproto.AtomCardinal, 0, most).Reply()
	if err != nil {
		return State{}, display.Err(err)
	}
	if property.Format != 32 {
		return State{}, nil
	}
	return decode(property.Value), nil
}
