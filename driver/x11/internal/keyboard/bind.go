package keyboard

import (
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// Unbind makes keycodes empty again, as they were before they were given a meaning.
func Unbind(conn *display.Conn, codes []xproto.Keycode) error {
	for _, code := range codes {
		err := xproto.ChangeKeyboardMappingChecked(conn.X, 1, code, 1, []xproto.Keysym{0}).Check()
		if err != nil {
			return display.Err(err)
		}
	}
	return nil
}
