package ward

import (
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// lastToldButton is the last button of whose state the server tells.
const lastToldButton = 5

// Down asks what is down on the display, whoever pressed it.
func Down(conn *display.Conn) (State, error) {
	keys := xproto.QueryKeymap(conn.X)
	pointer, err := xproto.QueryPointer(conn.X, conn.Screen.Root).Reply()
	if err != nil {
		return State{}, display.Err(err)
	}
	keymap, err := keys.Reply()
	if err != nil {
		return State{}, display.Err(err)
	}
	return downOf(keymap, pointer.Mask), nil
}

func downOf(keymap *xproto.QueryKeymapReply, mask uint16) (s State) {
	for code := firstKeycode; code < 256; code++ {
		if keymap.Keys[code/8]&(1<<(code%8)) != 0 {
			s.Keys = append(s.Keys, xproto.Keycode(code))
		}
	}
	for number := byte(1); number <= lastToldButton; number++ {
		if mask&(xproto.ButtonMask1<<(number-1)) != 0 {
			s.Buttons = append(s.Buttons, number)
		}
	}
	return s
}

// Release releases keys and buttons, with XTEST.
func Release(conn *display.Conn, s State) error {
	if len(s.Keys)+len(s.Buttons) == 0 {
		return nil
	}
	if err := xtest.Init(conn.X); err != nil {
		return display.Err(err)
	}
	for _, code := range s.Keys {
		fake(conn, xproto.KeyRelease, byte(code))
	}
	for _, number := range s.Buttons {
		fake(conn, xproto.ButtonRelease, number)
	}
	return conn.Sync()
}

func fake(conn *display.Conn, kind, detail byte) {
	xtest.FakeInput(conn.X, kind, detail, xproto.TimeCurrentTime, conn.Screen.Root, 0, 0, 0)
}
