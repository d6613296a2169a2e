package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// An extension is what is asked now and then, over the driver's own connection. xgb's packages for extensions are not
// used for that: to initialise one changes tables that all connections of the process read without a lock. The
// requests here have no errors but core ones, which xgb knows without.
type extension struct {
	conn  *display.Conn
	major byte
}

// use finds an extension. The error wraps [driver.ErrUnsupported] if there is none.
func use(conn *display.Conn, name string) (extension, error) {
	found, err := xproto.QueryExtension(conn.X, uint16(len(name)), name).Reply()
	if err != nil {
		return extension{}, display.Err(err)
	}
	if !found.Present {
		return extension{}, fmt.Errorf("%w: the X server has no %s extension", driver.ErrUnsupported, name)
	}
	return extension{conn, found.MajorOpcode}, nil
}

// ask sends a request, given its minor opcode and what follows its length, and waits for the reply.
func (e extension) ask(minor byte, words ...uint32) (reply, error) {
	request := binary.LittleEndian.AppendUint16([]byte{e.major, minor}, uint16(1+len(words)))
	for _, word := range words {
		request = binary.LittleEndian.AppendUint32(request, word)
	}
	cookie := e.conn.X.NewCookie(true, true)
	e.conn.X.NewRequest(request, cookie)
	r, err := cookie.Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	return r, nil
}

// A reply is read by offsets, as the protocol counts them.
type reply []byte

func (r reply) uint32(at int) uint32 { return xgb.Get32(r[at:]) }
func (r reply) uint16(at int) int    { return int(xgb.Get16(r[at:])) }
func (r reply) int16(at int) int     { return int(int16(xgb.Get16(r[at:]))) }
