package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is how long a message may be, in bytes: far more than a picture of 8K, and less than what hurts.
const maxLine = 64 << 20

// A wire is one end of a connection, as a transport of the SDK: messages with newlines between them, as the stdio
// transport of MCP has them.
//
// The SDK's own transport would do. But it and what is above it go over each byte of a message about eight times on the
// way from one program to the other, parsing and copying JSON. With that a picture of 1280x800 took 2.4 times as long as
// without a wire; now it takes 1.2 times as long (BenchmarkServe in cmd/deskagent). So pictures go around all that, as
// [parcels]: what is on the wire is the same.
type wire struct {
	in  io.ReadCloser
	out io.WriteCloser
	*parcels

	messages chan message
	closing  sync.Once
	closed   chan struct{}

	writing sync.Mutex // guards out
}

type message struct {
	message jsonrpc.Message
	err     error
}

// newWire takes both streams over. Closing in has to end a Read of it.
func newWire(in io.ReadCloser, out io.WriteCloser) *wire {
	return &wire{in: in, out: out, parcels: newParcels(), messages: make(chan message), closed: make(chan struct{})}
}

// Connect is [mcp.Transport]'s.
func (w *wire) Connect(context.Context) (mcp.Connection, error) {
	go w.read()
	return w, nil
}

// SessionID is [mcp.Connection]'s; only connections over HTTP have one.
func (w *wire) SessionID() string { return "" }

// read reads until the stream ends. It is a goroutine of its own, as standard input goes on waiting when it is closed.
func (w *wire) read() {
	lines := bufio.NewReaderSize(w.in, 64<<10)
	var line []byte // kept from message to message, as those with pictures are large
	for {
		var m message
		if line, m.err = readLine(lines, line[:0]); m.err == nil {
			m.message, m.err = jsonrpc.DecodeMessage(w.unpack(line))
		}
		select {
		case w.messages <- m:
		case <-w.closed:
			return
		}
		if m.err != nil {
			return
		}
	}
}

// readLine appends the next line that is not empty to dst. A last line without an end is a message cut short.
func readLine(r *bufio.Reader, dst []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		dst = append(dst, part...)
		switch {
		case len(dst) > maxLine:
			return dst, fmt.Errorf("message of more than %d bytes", maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(dst) > 0:
			return dst, io.ErrUnexpectedEOF
		case err != nil:
			return dst, err
		case len(bytes.TrimSpace(dst)) > 0:
			return dst, nil
		default:
			dst = dst[:0]
		}
	}
}

// Read is [mcp.Connection]'s.
func (w *wire) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-w.messages:
		return m.message, m.err
	case <-w.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write is [mcp.Connection]'s. A call that began with [withID] learns which number it has got.
func (w *wire) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	before, picture, after := w.pack(append(data, '\n'))
	w.writing.Lock()
	defer w.writing.Unlock()
	for _, part := range []string{before, picture, after} {
		if part == "" {
			continue
		}
		if _, err := io.WriteString(w.out, part); err != nil {
			return err
		}
	}
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		if sent, ok := ctx.Value(idKey{}).(chan jsonrpc.ID); ok {
			select {
			case sent <- r.ID:
			default: // a second one, for which nobody waits
			}
		}
	}
	return nil
}

type idKey struct{}

// withID has the number of the one call that is made with the context sent to a channel, once the call is on its way.
func withID(ctx context.Context) (context.Context, <-chan jsonrpc.ID) {
	sent := make(chan jsonrpc.ID, 1)
	return context.WithValue(ctx, idKey{}, sent), sent
}

// Close is [mcp.Connection]'s.
func (w *wire) Close() error {
	var err error
	w.closing.Do(func() {
		close(w.closed)
		err = errors.Join(w.out.Close(), w.in.Close())
	})
	return err
}

// parcels are pictures, as base64, on their way past the JSON of the messages that they belong to. There a receipt of
// twelve bytes stands for each, in base64 too: nine random ones, by which it is found, and a number.
type parcels struct {
	label string // the first nine bytes, as base64

	mu       sync.Mutex
	last     uint32
	stored   map[[receiptSize]byte]string
	expected int // calls that wait for a picture
}

const receiptSize = 12

func newParcels() *parcels {
	label := make([]byte, receiptSize-3)
	rand.Read(label) // never fails
	return &parcels{label: base64.StdEncoding.EncodeToString(label), stored: map[[receiptSize]byte]string{}}
}

// store keeps a picture for a receipt.
func (p *parcels) store(picture string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	receipt := p.receipt()
	p.stored[receipt] = picture
	return receipt[:]
}

// receipt is a new one.
func (p *parcels) receipt() (r [receiptSize]byte) {
	p.last++
	base64.StdEncoding.Decode(r[:], []byte(p.label))
	number := binary.BigEndian.AppendUint32(nil, p.last)
	copy(r[receiptSize-3:], number[1:])
	return r
}

// take gives a picture away for its receipt.
func (p *parcels) take(receipt []byte) (picture string, ok bool) {
	if len(receipt) != receiptSize {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := [receiptSize]byte(receipt)
	picture, ok = p.stored[key]
	delete(p.stored, key)
	return picture, ok
}

// pack finds the receipt in a message that is to be sent, and gives the picture in its place.
func (p *parcels) pack(data []byte) (before, picture, after string) {
	text := string(data)
	i := bytes.Index(data, []byte(p.label))
	if i < 0 || len(data) < i+receiptText {
		return text, "", ""
	}
	receipt, err := base64.StdEncoding.DecodeString(text[i : i+receiptText])
	if err != nil {
		return text, "", ""
	}
	picture, ok := p.take(receipt)
	if !ok {
		return text, "", ""
	}
	return text[:i], picture, text[i+receiptText:]
}

// receiptText is the length of a receipt as base64.
const receiptText = receiptSize / 3 * 4

// unpack takes the picture out of a message that has come, if it is worth it, and puts a receipt in its place. Pictures
// that nobody waits for any more are dropped.
func (p *parcels) unpack(data []byte) []byte {
	const worthIt = 4 << 10
	name := []byte(`"data":"`) // as quotes in strings have a backslash before them, this is the name of a field
	i := bytes.Index(data, name)
	if i < 0 {
		return data
	}
	i += len(name)
	n := bytes.IndexByte(data[i:], '"')
	if n < worthIt || bytes.IndexByte(data[i:i+n], '\\') >= 0 {
		return data
	}
	p.mu.Lock()
	receipt := p.receipt()
	if p.expected > 0 {
		p.stored[receipt] = string(data[i : i+n])
	}
	p.mu.Unlock()
	short := base64.StdEncoding.AppendEncode(bytes.Clone(data[:i]), receipt[:])
	return append(short, data[i+n:]...)
}

// expect comes before a call that is answered with a picture, and done after it.
func (p *parcels) expect() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.expected--; p.expected == 0 {
			clear(p.stored) // the answers to calls that were given up
		}
	}
}
