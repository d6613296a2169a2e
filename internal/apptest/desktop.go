package apptest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/internal/run"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// A Desktop is a private display of 1280x800 pixels with the window manager openbox. Its methods are called from the
// goroutine of the test.
type Desktop struct {
	*xvfb.Server
	x    *xgb.Conn
	root xproto.Window
	xkb  byte // major opcode of the XKB extension
}

// NewDesktop starts a desktop, which ends with the test. The test is skipped where Xvfb or openbox is missing.
func NewDesktop(t testing.TB) *Desktop {
	t.Helper()
	openbox := find(t, "openbox")
	d := &Desktop{Server: xvfb.ForTest(t, 1280, 800)}
	x, err := xgb.NewConnDisplay(d.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	d.x, d.root = x, xproto.Setup(x).DefaultScreen(x).Root
	d.initXKB(t)
	manager, err := run.Start(t.Context(), []string{openbox, "--sm-disable"}, &run.Options{Env: []string{"DISPLAY=" + d.Display(), "HOME=" + t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Stop)
	d.awaitManager(t)
	return d
}

// awaitManager waits until windows are managed. The manager says that it is there some time before, and forgets windows
// that ask to be shown in between.
func (d *Desktop) awaitManager(t testing.TB) {
	t.Helper()
	window, err := xproto.NewWindowId(d.x)
	if err != nil {
		t.Fatal(err)
	}
	xproto.CreateWindow(d.x, 0, window, d.root, 0, 0, 1, 1, 0, xproto.WindowClassInputOutput, 0, 0, nil)
	defer xproto.DestroyWindow(d.x, window)
	// It wants no keys. Otherwise it would be given the focus, and when it goes the manager would take the focus from
	// whoever has it then.
	const inputHint, length = 1, 9
	noInput := make([]byte, 4*length)
	noInput[0] = inputHint
	xproto.ChangeProperty(d.x, xproto.PropModeReplace, window, xproto.AtomWmHints, xproto.AtomWmHints, 32, length, noInput)
	for deadline := time.Now().Add(startTime); d.property(window, "WM_STATE") == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no window manager within %v", startTime)
		}
		if d.property(d.root, "_NET_SUPPORTING_WM_CHECK") != nil {
			xproto.MapWindow(d.x, window)
		}
	}
}

// active is the title of the window that the window manager says is active.
func (d *Desktop) active() string {
	window := d.property(d.root, "_NET_ACTIVE_WINDOW")
	if len(window) != 4 {
		return ""
	}
	return string(d.property(xproto.Window(xgb.Get32(window)), "WM_NAME"))
}

// property is nil where there is none.
func (d *Desktop) property(window xproto.Window, name string) []byte {
	atom, err := xproto.InternAtom(d.x, true, uint16(len(name)), name).Reply()
	if err != nil {
		return nil
	}
	reply, err := xproto.GetProperty(d.x, false, window, atom.Atom, xproto.GetPropertyTypeAny, 0, 64).Reply()
	if err != nil || reply.Format == 0 {
		return nil
	}
	return reply.Value
}

// A Keyboard is a keyboard map and its state.
type Keyboard struct {
	Layout  string // as setxkbmap takes it; several with commas between them
	Variant string
	Group   byte // the layout in force, from 0
	// Locks are the modifiers that are locked, such as Caps Lock.
	Locks byte
}

// The modifiers of the locks, in the maps of xkeyboard-config.
const (
	CapsLock byte = xproto.ModMaskLock
	NumLock  byte = xproto.ModMask2
)

// String is short: "us dvorak", "us,ru group 1 Caps Lock".
func (k Keyboard) String() string {
	words := strings.Fields(k.Layout + " " + k.Variant)
	if k.Group != 0 {
		words = append(words, fmt.Sprintf("group %d", k.Group))
	}
	if k.Locks&CapsLock != 0 {
		words = append(words, "Caps Lock")
	}
	if k.Locks&NumLock != 0 {
		words = append(words, "Num Lock")
	}
	return strings.Join(words, " ")
}

// SetKeyboard puts a keyboard map in force. It needs setxkbmap.
func (d *Desktop) SetKeyboard(t testing.TB, k Keyboard) {
	t.Helper()
	argv := []string{find(t, "setxkbmap"), "-display", d.Display(), "-model", "pc105", "-layout", k.Layout, "-variant", k.Variant, "-option", ""}
	if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", run.Quote(argv), err, out)
	}
	const all, lockGroup = 0xff, 1
	d.request(t, 5, false, coreKeyboard, all, k.Locks, lockGroup, k.Group, 0, 0, 0, 0, 0) // LatchLockState
}

// Keymap is the keyboard map as two programs show it, and the locks and the group: whatever a driver may have changed.
// It needs xkbcomp and xmodmap.
func (d *Desktop) Keymap(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, argv := range [][]string{
		{find(t, "xkbcomp"), "-xkb", d.Display(), "-"},
		{find(t, "xmodmap"), "-display", d.Display(), "-pke"},
	} {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Stdout = &all
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", run.Quote(argv), err)
		}
	}
	// The reply of GetState, after the header: what is in force, then what is latched and locked.
	all.Write(d.request(t, 4, true, coreKeyboard, 0)[8:])
	return all.String()
}

// coreKeyboard is the device that requests of XKB are about.
const coreKeyboard = 0x100

func (d *Desktop) initXKB(t testing.TB) {
	t.Helper()
	const name = "XKEYBOARD"
	extension, err := xproto.QueryExtension(d.x, uint16(len(name)), name).Reply()
	if err != nil || !extension.Present {
		t.Fatalf("no XKB extension: %v", err)
	}
	d.xkb = extension.MajorOpcode
	const major, minor = 1, 0
	d.request(t, 0, true, major, minor, 0) // UseExtension
}

// request makes a request of the XKB protocol, which xgb does not have: a first field of 16 bits, then bytes.
func (d *Desktop) request(t testing.TB, minor byte, hasReply bool, first uint16, rest ...byte) []byte {
	t.Helper()
	buf := append([]byte{d.xkb, minor, 0, 0, byte(first), byte(first >> 8)}, rest...)
	for len(buf)%4 != 0 {
		buf = append(buf, 0)
	}
	xgb.Put16(buf[2:], uint16(len(buf)/4))
	cookie := d.x.NewCookie(true, hasReply)
	d.x.NewRequest(buf, cookie)
	var reply []byte
	var err error
	if hasReply {
		reply, err = cookie.Reply()
	} else {
		err = cookie.Check()
	}
	if err != nil {
		t.Fatalf("XKB request %d: %v", minor, err)
	}
	return reply
}
