package ward_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/ward"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// connect connects to a display. What it returns may be closed by the test.
func connect(t *testing.T, server *xvfb.Server) *display.Conn {
	t.Helper()
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	if err := xtest.Init(conn.X); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func claim(t *testing.T, conn *display.Conn) *ward.Ward {
	t.Helper()
	w, found, err := ward.Claim(conn, noRestore)
	if err != nil || !found.Empty() {
		t.Fatalf("got %v, %v, want a place and nothing found", found, err)
	}
	return w
}

func noRestore(_ *display.Conn, codes map[xproto.Keycode]xkb.Key, _ byte) error {
	return fmt.Errorf("asked to restore %v", codes)
}

func press(t *testing.T, conn *display.Conn, kind, detail byte) {
	t.Helper()
	if err := xtest.FakeInputChecked(conn.X, kind, detail, 0, conn.Screen.Root, 0, 0, 0).Check(); err != nil {
		t.Fatal(err)
	}
}

// end closes a connection and waits until the server knows.
func end(t *testing.T, conn *display.Conn) {
	t.Helper()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
}

// TestRecover lets a driver end with much down: the next one releases what was recorded, all of it and nothing
// else, and has the keycodes unbound, once.
func TestRecover(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	window := witness.ForTest(t, server.Display())
	dead, other := connect(t, server), connect(t, server)
	bound := map[xproto.Keycode]xkb.Key{
		248: {}, 249: {}, 54: {Types: [4]byte{2, 1}, Groups: 2, Width: 2, Symbols: []xproto.Keysym{0x6d3, 0x6f3, 0x01000430, 0}},
	}
	state := ward.State{Keys: []xproto.Keycode{37, 50, 38}, Buttons: []byte{1, 8}, Bound: bound, Locked: xproto.ModMaskLock}
	if err := claim(t, dead).Set(state); err != nil {
		t.Fatal(err)
	}
	for _, code := range []byte{37, 38, 64} { // 64 is in no record
		press(t, dead, xproto.KeyPress, code)
	}
	press(t, dead, xproto.ButtonPress, 1)
	press(t, dead, xproto.ButtonPress, 8)
	if found, err := ward.Recover(other, noRestore); err != nil || !found.Empty() {
		t.Errorf("got %v, %v while the driver lives, want nothing", found, err)
	}
	end(t, dead)

	broken := errors.New("broken")
	if _, err := ward.Recover(other, func(*display.Conn, map[xproto.Keycode]xkb.Key, byte) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want the fault of restoring", err)
	}
	var unbound map[xproto.Keycode]xkb.Key
	var locked byte
	w, found, err := ward.Claim(other, func(_ *display.Conn, codes map[xproto.Keycode]xkb.Key, mask byte) error {
		unbound, locked = codes, mask
		return nil
	})
	if err != nil || w == nil {
		t.Fatal(err)
	}
	want := ward.State{Keys: []xproto.Keycode{37, 38, 50}, Buttons: []byte{1, 8}, Bound: bound, Locked: xproto.ModMaskLock}
	if got := fmt.Sprint(found); got != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	if !reflect.DeepEqual(unbound, bound) || locked != want.Locked {
		t.Errorf("unbound %v and locked %#x, want %v and %#x", unbound, locked, want.Bound, want.Locked)
	}
	if held, err := window.Held(); err != nil || !slices.Equal(held, []string{"Alt_L"}) {
		t.Errorf("held %v, %v, want only what was not recorded", held, err)
	}
	if again, err := ward.Recover(other, noRestore); err != nil || !again.Empty() {
		t.Errorf("got %v, %v the second time, want nothing", again, err)
	}
}

// TestAddAndClear checks that a record holds what was added, and that a cleared one leaves nothing to recover.
func TestAddAndClear(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	dead, judge := connect(t, server), connect(t, server)
	w := claim(t, dead)
	old := xkb.Key{Groups: 1, Width: 1, Symbols: []xproto.Keysym{'c'}}
	for i, step := range []struct {
		add   ward.State
		isNew bool
	}{
		{ward.State{Keys: []xproto.Keycode{37}}, true},
		{ward.State{Keys: []xproto.Keycode{37}}, false},
		{ward.State{Buttons: []byte{1}}, true},
		{ward.State{}, false},
		{ward.State{Keys: []xproto.Keycode{50, 37}, Buttons: []byte{1}}, true},
		{ward.State{Bound: map[xproto.Keycode]xkb.Key{54: old}}, true},
		{ward.State{Bound: map[xproto.Keycode]xkb.Key{54: {}}}, false},
		{ward.State{Bound: map[xproto.Keycode]xkb.Key{54: {}, 55: old}}, true},
	} {
		if isNew, err := w.Add(step.add); err != nil || isNew != step.isNew {
			t.Errorf("step %d: got %v, %v, want %v", i, isNew, err, step.isNew)
		}
	}
	want := fmt.Sprint(ward.State{Keys: []xproto.Keycode{37, 50}, Buttons: []byte{1}, Bound: map[xproto.Keycode]xkb.Key{54: old, 55: old}})
	if got := fmt.Sprint(w.State()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	end(t, dead)
	restore := func(*display.Conn, map[xproto.Keycode]xkb.Key, byte) error { return nil }
	if found, err := ward.Recover(judge, restore); err != nil || fmt.Sprint(found) != want {
		t.Errorf("found %v, %v, want %s", found, err, want)
	}

	dead = connect(t, server)
	w = claim(t, dead)
	if err := w.Set(ward.State{Keys: []xproto.Keycode{37}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Clear(); err != nil {
		t.Fatal(err)
	}
	end(t, dead)
	if found, err := ward.Recover(judge, noRestore); err != nil || !found.Empty() {
		t.Errorf("found %v, %v after Clear, want nothing", found, err)
	}
}

// TestPlaces takes all places of a display, and has one back when a driver goes. Records do not mix.
func TestPlaces(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	judge := connect(t, server)
	var conns []*display.Conn
	for i := range 8 {
		conn := connect(t, server)
		if err := claim(t, conn).Set(ward.State{Keys: []xproto.Keycode{xproto.Keycode(40 + i)}}); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if w, _, err := ward.Claim(judge, noRestore); w != nil || !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v, %v, want a ninth driver refused", w, err)
	}
	end(t, conns[3])
	w, found, err := ward.Claim(judge, noRestore)
	if err != nil || w == nil {
		t.Fatal(err)
	}
	if want := []xproto.Keycode{43}; !slices.Equal(found.Keys, want) {
		t.Errorf("found keys %v, want %v", found.Keys, want)
	}
}

// TestNonsense writes what is no record: nothing of it is believed, and nothing breaks.
func TestNonsense(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	dead, judge := connect(t, server), connect(t, server)
	claim(t, dead)
	end(t, dead)
	const name = "_DESKAGENT_WARD_0"
	atom, err := xproto.InternAtom(judge.X, true, uint16(len(name)), name).Reply()
	if err != nil || atom.Atom == xproto.AtomNone {
		t.Fatalf("got %v, %v, want the atom of the place", atom, err)
	}
	for _, test := range []struct {
		name   string
		kind   xproto.Atom
		format byte
		data   []byte
	}{
		{"text", xproto.AtomString, 8, []byte("keys and buttons")},
		{"bytes", xproto.AtomCardinal, 8, []byte{37, 1, 0, 0}},
		{"another type", xproto.AtomAtom, 32, []byte{37, 1, 0, 0}},
		{"unknown kind", xproto.AtomCardinal, 32, []byte{37, 0, 0, 0, 37, 9, 0, 0, 37, 1, 1, 0}},
		{"no such numbers", xproto.AtomCardinal, 32, []byte{7, 1, 0, 0, 0, 2, 0, 0, 7, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"a meaning cut short", xproto.AtomCardinal, 32, []byte{54, 3, 0, 0, 0, 0, 0, 0}},
		{"symbols cut short", xproto.AtomCardinal, 32, []byte{54, 3, 0, 0, 0, 0, 0, 0, 2, 0, 2, 1, 37, 1, 0, 0}},
		{"more symbols than levels", xproto.AtomCardinal, 32, []byte{54, 3, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 37, 1, 0, 0}},
		{"too many groups", xproto.AtomCardinal, 32, []byte{54, 3, 0, 0, 0, 0, 0, 0, 5, 0, 1, 5, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := xproto.ChangePropertyChecked(judge.X, xproto.PropModeReplace, judge.Screen.Root, atom.Atom, test.kind, test.format,
				uint32(len(test.data)/(int(test.format)/8)), test.data).Check()
			if err != nil {
				t.Fatal(err)
			}
			if found, err := ward.Recover(judge, noRestore); err != nil || !found.Empty() {
				t.Errorf("found %v, %v, want nothing", found, err)
			}
		})
	}
}

// TestNoWard checks that there may be none.
func TestNoWard(t *testing.T) {
	var w *ward.Ward
	added, err := w.Add(ward.State{Keys: []xproto.Keycode{37}})
	if err := errors.Join(err, w.Set(ward.State{Keys: []xproto.Keycode{37}}), w.Clear()); err != nil || added || !w.State().Empty() {
		t.Errorf("got %v, %v, %v, want nothing recorded", added, err, w.State())
	}
}
