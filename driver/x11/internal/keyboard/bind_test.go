package keyboard

import (
	"os/exec"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestRestore checks that another connection puts back what one has bound and unlocked, to the byte.
func TestRestore(t *testing.T) {
	server := xvfb.ForTest(t, 64, 64)
	setLayout(t, server, "us,ru,de")
	connect := func() (*display.Conn, *xkb.Extension) {
		conn, err := display.Open(server.Display())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		x, err := xkb.Use(conn)
		if err != nil {
			t.Fatal(err)
		}
		return conn, x
	}
	_, dead := connect()
	living, judge := connect()
	before := compiled(t, server)
	m, err := Read(dead, nil)
	if err != nil {
		t.Fatal(err)
	}
	var bindings []Binding
	meanings := map[xproto.Keycode]xkb.Key{}
	const theA, theEight = 38, 17
	for _, code := range append(m.empty, theA, theEight) {
		bindings = append(bindings, twoLevels(code, 0x01004e2d, 0x0101f600)) // 中, 😀
		meanings[code] = m.Key(code)
	}
	if err := Bind(dead, bindings); err != nil {
		t.Fatal(err)
	}
	changed, err := Read(dead, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings {
		for level, mods := range []byte{0, xproto.ModMaskShift} {
			got := changed.keys.Keys[b.Code-changed.keys.First].Symbol(0, level)
			if want := xproto.Keysym(b.Symbols[level]); got != want {
				t.Errorf("key %d with %#x: got %#x, want %#x", b.Code, mods, got, want)
			}
		}
	}
	if err := Bind(dead, []Binding{{Code: 1}}); err == nil {
		t.Error("got no error for a keycode that no keyboard has")
	}
	if err := Restore(living, meanings, xproto.ModMaskLock); err != nil {
		t.Fatal(err)
	}
	if compiled(t, server) != before {
		t.Error("the map is not as it was")
	}
	state, err := judge.State()
	if want := (xkb.State{Locked: xproto.ModMaskLock}); err != nil || state != want {
		t.Errorf("got %+v, %v, want %+v", state, err, want)
	}
	if same, err := Read(dead, m); err != nil || same != m {
		t.Errorf("got %p, %v, want %p, which is in force again", same, err, m)
	}
}

// compiled is the whole keyboard map as a program of its own shows it.
func compiled(t *testing.T, server *xvfb.Server) string {
	t.Helper()
	program, err := exec.LookPath("xkbcomp")
	if err != nil {
		t.Skip("needs xkbcomp")
	}
	out, err := exec.Command(program, "-w", "0", "-xkb", server.Display(), "-").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// setLayout puts a keyboard map in force.
func setLayout(t *testing.T, server *xvfb.Server, layout string) {
	t.Helper()
	program, err := exec.LookPath("setxkbmap")
	if err != nil {
		t.Skip("needs setxkbmap")
	}
	if out, err := exec.Command(program, "-display", server.Display(), "-layout", layout).CombinedOutput(); err != nil {
		t.Fatalf("setxkbmap: %v: %s", err, out)
	}
}
