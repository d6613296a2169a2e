// Package wire is a connection to an X server for the few requests that take pictures.
//
// It is not xgb, which the driver speaks otherwise, for three reasons. xgb makes new memory for every request and
// every reply, which at some tens of pictures a second, of 8 MB each where memory is not shared, is what the garbage
// collector would be busy with; here a request and its answer cost no allocation. xgb waits without an end for a server
// that hangs, and knows no context. And it cannot send a file descriptor, which is how memory is shared.
//
// What is parsed once, the set-up, is left to xgb's parser. The layouts are those of the X Window System Protocol,
// version 11, appendix B.
package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
)

// Patience is how long a server may send nothing while it owes something, before it counts as lost.
const Patience = 800 * time.Millisecond

const (
	// setupPatience is that for a server that is just coming up.
	setupPatience = 10 * time.Second
	// step is how soon a wait notices that its context is done. To look now and then costs no allocation, as
	// context.AfterFunc would, and in a wait for a picture nothing, as that is over sooner.
	step = 20 * time.Millisecond
)

// A Conn is a connection to one X server. It belongs to one goroutine, and has none itself.
//
// Its errors wrap [driver.ErrDisplayLost] when the server is gone or has been silent for [Patience], and
// context.Cause when the context is done. After a silence, and after a context, the Conn may be used again: answers
// that come late are skipped. Nothing is read between requests, so events that every client gets, 32 bytes each, wait
// at the server until then.
type Conn struct {
	Setup  xproto.SetupInfo
	Screen *xproto.ScreenInfo // the one that the display's name says

	socket   net.Conn
	patience time.Duration
	ids      uint32 // how many have been given away

	out         []byte // requests that have been added and not sent
	added, sent uint16 // the numbers of the last requests that were
	first       uint16 // the number of the first request of the last batch

	in   Answer
	have int // how much of in has come
	rest int // how much of what follows the last answer has not been read
	junk [4096]byte
}

// An Answer is the head of a reply, or an error. It is good until the next one.
type Answer [32]byte

// The kinds of what a server sends; what is neither of these is an event.
const (
	kindError   = 0
	kindReply   = 1
	kindGeneric = 35 // an event of any length
)

// Request is the number of the request that is answered, as [Conn.Add] returned it.
func (a *Answer) Request() uint16 { return a.Uint16(2) }

// Uint16 is the number at an offset in the reply, as the protocol counts them.
func (a *Answer) Uint16(at int) uint16 { return binary.LittleEndian.Uint16(a[at:]) }

// Uint32 is the number at an offset in the reply.
func (a *Answer) Uint32(at int) uint32 { return binary.LittleEndian.Uint32(a[at:]) }

// Err is a [Fault] if the request was not done, else nil.
func (a *Answer) Err() error {
	if a[0] != kindError {
		return nil
	}
	return Fault{Code: a[1], Value: a.Uint32(4), Major: a[10], Minor: a.Uint16(8)}
}

// length is how many bytes follow.
func (a *Answer) length() int {
	if kind := a[0] &^ 0x80; kind != kindReply && kind != kindGeneric {
		return 0
	}
	return 4 * int(a.Uint32(4))
}

// A Fault is an X error: what is wrong, with which value, in which request.
type Fault struct {
	Code  byte
	Value uint32
	Major byte
	Minor uint16
}

func (f Fault) Error() string {
	name := map[byte]string{1: "BadRequest", 2: "BadValue", 3: "BadWindow", 8: "BadMatch", 9: "BadDrawable", 10: "BadAccess", 11: "BadAlloc"}[f.Code]
	if name == "" {
		name = "error"
	}
	return fmt.Sprintf("X error: %s (%d) of request %d.%d for %#x", name, f.Code, f.Major, f.Minor, f.Value)
}

// Dial connects to the display of the given name, such as ":3" or "host:3.0". The error is one line and wraps
// [driver.ErrNoDisplay].
func Dial(ctx context.Context, name string) (_ *Conn, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: connecting to %q: %w", driver.ErrNoDisplay, name, err)
		}
	}()
	where, err := parse(name)
	if err != nil {
		return nil, err
	}
	socket, err := where.dial(ctx)
	if ctx.Err() != nil && err != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket, patience: setupPatience}
	if err := c.setUp(ctx, where); err != nil {
		socket.Close()
		return nil, err
	}
	c.patience = Patience
	return c, nil
}

// setUp exchanges the first words.
func (c *Conn) setUp(ctx context.Context, where address) error {
	protocol, cookie := where.authority(c.socket.RemoteAddr())
	hello := binary.LittleEndian.AppendUint16([]byte{'l', 0, 11, 0, 0, 0}, uint16(len(protocol)))
	hello = binary.LittleEndian.AppendUint16(hello, uint16(len(cookie)))
	hello = padded(append(padded(append(hello, 0, 0), protocol), cookie...), "")
	if err := c.write(hello); err != nil {
		return err
	}
	var head [8]byte
	if _, err := c.read(ctx, head[:]); err != nil {
		return err
	}
	const failed, succeeded = 0, 1
	words := int(binary.LittleEndian.Uint16(head[6:]))
	body := make([]byte, len(head)+4*words)
	if _, err := c.read(ctx, body[copy(body, head[:]):]); err != nil {
		return err
	}
	switch status := head[0]; {
	case status == failed:
		return fmt.Errorf("the server refuses: %q", body[len(head):len(head)+min(int(head[1]), 4*words)])
	case status != succeeded || head[2] != 11:
		return fmt.Errorf("the server answers %v, which is not X11 without further questions", head)
	}
	xproto.SetupInfoRead(body, &c.Setup)
	if where.screen >= len(c.Setup.Roots) {
		return fmt.Errorf("the server has %d screens, numbered from 0", len(c.Setup.Roots))
	}
	c.Screen = &c.Setup.Roots[where.screen]
	return nil
}

// Close ends the connection. It may be called again, and after the server has gone.
func (c *Conn) Close() error {
	if err := c.socket.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// NewID returns an identifier for something that is to be made.
func (c *Conn) NewID() uint32 {
	mask := c.Setup.ResourceIdMask
	c.ids++
	return c.Setup.ResourceIdBase | c.ids*(mask&-mask)
}

// Add adds a request to the batch that [Conn.Send] sends: its opcode, what goes into the byte beside that (the minor
// opcode of a request of an extension) and what follows its length. It returns the request's number.
func (c *Conn) Add(opcode, data byte, words ...uint32) uint16 {
	c.out = append(c.out, opcode, data)
	c.out = binary.LittleEndian.AppendUint16(c.out, uint16(1+len(words)))
	for _, word := range words {
		c.out = binary.LittleEndian.AppendUint32(c.out, word)
	}
	c.added++
	return c.added
}

// Send sends the batch, in one piece. What it wants to know is had with Receive, before the next Send.
func (c *Conn) Send(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	err := c.write(c.out)
	c.out = c.out[:0]
	return err
}

// SendRights is Send with control data, such as files, for the request in the batch that wants them. The error wraps
// [driver.ErrUnsupported] on a connection that takes none, and then nothing has been sent.
func (c *Conn) SendRights(ctx context.Context, rights []byte) error {
	socket, ok := c.socket.(*net.UnixConn)
	if !ok {
		c.forget()
		return fmt.Errorf("%w: sending a file to %v", driver.ErrUnsupported, c.socket.RemoteAddr())
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	socket.SetWriteDeadline(time.Now().Add(c.patience))
	_, _, err := socket.WriteMsgUnix(c.out, rights, nil)
	c.out = c.out[:0]
	return c.lost(err)
}

// begin counts a batch as sent, or forgets it if it is not to be.
func (c *Conn) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		c.forget()
		return context.Cause(ctx)
	}
	c.first, c.sent = c.sent+1, c.added
	return nil
}

func (c *Conn) forget() { c.out, c.added = c.out[:0], c.sent }

// Receive waits for the next answer to a request of the last batch. Requests without a reply are answered only by
// their errors. What of the answer before has not been read is skipped.
func (c *Conn) Receive(ctx context.Context) (*Answer, error) {
	for {
		for c.rest > 0 {
			if _, err := c.Read(ctx, c.junk[:min(c.rest, len(c.junk))]); err != nil {
				return nil, err
			}
		}
		n, err := c.read(ctx, c.in[c.have:])
		if c.have += n; err != nil {
			return nil, err
		}
		c.have, c.rest = 0, c.in.length()
		// Every client gets some events, such as that of a changed keyboard map. Numbers of requests wrap.
		event := c.in[0] != kindReply && c.in[0] != kindError
		late := int16(c.in.Request()-c.first) < 0
		if !event && !late {
			return &c.in, nil
		}
	}
}

// Reply is Receive where there is one request in the batch that has a reply: the first error is returned as such.
func (c *Conn) Reply(ctx context.Context) (*Answer, error) {
	a, err := c.Receive(ctx)
	if err == nil {
		err = a.Err()
	}
	return a, err
}

// Rest is how many bytes follow the last answer, and have not been read.
func (c *Conn) Rest() int { return c.rest }

// Read reads all of p from what follows the last answer.
func (c *Conn) Read(ctx context.Context, p []byte) (int, error) {
	n, err := c.read(ctx, p)
	c.rest -= n
	return n, err
}

// Extension asks for the major opcode of an extension. The error wraps [driver.ErrUnsupported] if there is none.
func (c *Conn) Extension(ctx context.Context, name string) (major byte, err error) {
	const queryExtension = 98
	c.Add(queryExtension, 0, words(name)...)
	if err := c.Send(ctx); err != nil {
		return 0, err
	}
	reply, err := c.Reply(ctx)
	if err != nil {
		return 0, err
	}
	if present := reply[8] != 0; !present {
		return 0, fmt.Errorf("%w: the X server has no %s extension", driver.ErrUnsupported, name)
	}
	return reply[9], nil
}

// words is a string as the protocol has it: its length, its bytes, and what fills the last word.
func words(s string) []uint32 {
	w := []uint32{uint32(len(s))}
	for b := padded(nil, s); len(b) > 0; b = b[4:] {
		w = append(w, binary.LittleEndian.Uint32(b))
	}
	return w
}

// padded appends s to b and then zeros to a multiple of 4.
func padded(b []byte, s string) []byte {
	b = append(b, s...)
	return append(b, make([]byte, xgb.Pad(len(b))-len(b))...)
}

// read fills p, and returns how much it could.
func (c *Conn) read(ctx context.Context, p []byte) (n int, err error) {
	for heard := time.Now(); n < len(p); {
		now := time.Now()
		c.socket.SetReadDeadline(now.Add(min(step, c.patience)))
		m, err := c.socket.Read(p[n:])
		switch n += m; {
		case m > 0:
			heard = now
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return n, c.lost(err)
		case ctx.Err() != nil:
			return n, context.Cause(ctx)
		case time.Since(heard) >= c.patience:
			return n, fmt.Errorf("%w: it has not answered for %v", driver.ErrDisplayLost, c.patience)
		}
	}
	return n, nil
}

// write sends all of p. A server that does not read what it is sent, and so got only a part, cannot be talked to any
// more.
func (c *Conn) write(p []byte) error {
	c.socket.SetWriteDeadline(time.Now().Add(c.patience))
	_, err := c.socket.Write(p)
	return c.lost(err)
}

// lost turns an error of the socket into one of package driver, and makes it last.
func (c *Conn) lost(err error) error {
	if err == nil {
		return nil
	}
	c.socket.Close()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return driver.ErrDisplayLost
	}
	return fmt.Errorf("%w: %w", driver.ErrDisplayLost, err)
}
