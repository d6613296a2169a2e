// Package remote is the driver over a wire: a [Server] offers a [driver.Driver] to a client in another process, on another
// machine or in a container, and [Driver] is that client, a driver again.
//
//	d, err := remote.Start(ctx, []string{"docker", "exec", "-i", "desktop", "deskagent", "serve", "--approve", "allow"}, nil)
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	err = d.Click(ctx, driver.Click{X: 640, Y: 400, Button: driver.ButtonLeft})
//
// # The wire
//
// It is MCP, the Model Context Protocol (revision 2025-11-25), on two streams: JSON-RPC messages with newlines between them.
// The nine actions are tools, with schemas and with descriptions for models, so that any MCP client can use a Server as
// it is. Four more tools serve [driver.Sizer], [driver.Viewer] and [driver.Holder]. A picture is the image content
// of a result, a PNG; what is known about it is the structured content. Arguments are decoded as strictly as
// [driver.DecodeAction] does, and unknown fields are refused.
//
// # Errors
//
// The errors of the driver keep their words and the sentinels of package driver, for errors.Is. What else is in their
// chain stays on the other side. What a Server's Approve does not let pass wraps [ErrDeclined].
//
// # Ends
//
// A client whose context is done has the call cancelled on the server (notifications/cancelled), and waits until that has
// let go of everything. When the connection ends in whatever way the server cuts short what it is doing, and lets go; the
// client's calls fail at once, with [driver.ErrDisplayLost].
//
// # Pictures
//
// A frame is encoded once, by the server, and not at all while it does not change. [Driver.View] does not decode it:
// [driver.Frame.Pixels] does when somebody wants to see, and who wants to send it on takes [driver.Frame].DataURL.
//
// A callback that chooses what to show cannot go over the wire. So the client chooses for the scene of its last picture,
// and asks for that part of this scene; when the scene is another by then the server takes no picture but tells the
// new one, and the client chooses again. A picture is one round trip as long as no window moves.
package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/run"
)

// ErrClosed is wrapped by the errors of a Driver after Close, and of a call that Close cut short.
var ErrClosed = errors.New("driver is closed")

// A Driver drives the desktop of a [Server]. It is a [driver.Driver], [driver.Sizer], [driver.Viewer] and
// [driver.Holder]; where the server's driver is no Viewer or Holder, the server stands in for it, and where it is no
// Sizer, Bounds is an error. Its methods may be called from any goroutine.
type Driver struct {
	wire    *wire
	session *mcp.ClientSession
	// lost ends when the connection does; its cause says why.
	lost context.Context
	lose context.CancelCauseFunc
	// why says more about the end of a connection that was not closed; nil when nobody can.
	why func() error
	// process is the child that Start has started, nil with New.
	process   *run.Process
	heartbeat time.Duration // the constant, but in tests
	// ended is closed when nothing of the connection is left.
	ended chan struct{}

	mu      sync.Mutex
	scene   *driver.Scene  // of the last picture, nil before
	running sync.WaitGroup // begun under mu as long as the connection has not ended
}

var (
	_ driver.Driver = (*Driver)(nil)
	_ driver.Sizer  = (*Driver)(nil)
	_ driver.Viewer = (*Driver)(nil)
	_ driver.Holder = (*Driver)(nil)
)

// handshakeTime bounds how long a server may take to come up.
const handshakeTime = 30 * time.Second

// heartbeat is how long a call may take before it is asked whether the server is still there, and how long the server
// may take to say so. A server that is alive answers while it works.
const heartbeat = 10 * time.Second

// New begins a conversation with a server: in is what the server writes, out is what it reads. Both are closed by
// Close, and when New fails. Closing in has to end a Read of it.
func New(ctx context.Context, in io.ReadCloser, out io.WriteCloser) (*Driver, error) {
	d, err := open(ctx, newWire(in, out), nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to a desktop: %w", err)
	}
	return d, nil
}

func open(ctx context.Context, w *wire, why func() error) (*Driver, error) {
	d := &Driver{wire: w, why: why, heartbeat: heartbeat, ended: make(chan struct{})}
	d.lost, d.lose = context.WithCancelCause(context.Background())
	client := mcp.NewClient(&mcp.Implementation{Name: "deskagent", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	handshake, cancel := context.WithTimeoutCause(ctx, handshakeTime, fmt.Errorf("no answer within %v", handshakeTime))
	defer cancel()
	stop := context.AfterFunc(handshake, func() { w.Close() }) // also out of a write that nobody reads
	// Later revisions have no sessions: every request says anew who asks.
	session, err := client.Connect(handshake, w, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if !stop() && err == nil {
		err = context.Cause(handshake)
	}
	if err != nil {
		w.Close()
		if cause := context.Cause(handshake); cause != nil {
			err = cause
		} else {
			err = d.explain(err)
		}
		return nil, err
	}
	d.session = session
	go func() {
		defer close(d.ended)
		err := session.Wait()
		d.lose(d.explain(err))
	}()
	return d, nil
}

// explain is why a connection ended by itself.
func (d *Driver) explain(err error) error {
	var more error
	if d.why != nil {
		more = d.why()
	}
	var wire *jsonrpc.Error
	switch {
	case more != nil:
		return fmt.Errorf("%w: %w", driver.ErrDisplayLost, more)
	case errors.As(err, &wire):
		return fmt.Errorf("%w: %s", driver.ErrDisplayLost, plain(err.Error()))
	}
	return fmt.Errorf("%w: the connection has ended", driver.ErrDisplayLost)
}

// Close ends the connection, and with it the server's part of it: calls are cut short. It waits until the server has
// closed its side, which it does when it has let go of everything, for a second at most. Closing a closed Driver
// does nothing.
func (d *Driver) Close() error {
	d.mu.Lock() // whatever is started was started before
	d.lose(ErrClosed)
	d.mu.Unlock()
	d.wire.out.Close()
	select {
	case <-d.ended:
	case <-time.After(grace):
		d.wire.Close()
		<-d.ended
	}
	d.running.Wait()
	if d.process == nil {
		return nil
	}
	select {
	case <-d.process.Done():
	case <-time.After(grace):
		d.process.Stop()
	}
	if err := d.process.Err(); err != nil {
		return fmt.Errorf("closing the connection to a desktop: %w", err)
	}
	return nil
}

// call has the server do something. Its error says what was being done.
func (d *Driver) call(ctx context.Context, name string, arguments any) (*mcp.CallToolResult, error) {
	r, err := d.wait(ctx, name, arguments)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, failed(r) // which says so itself
}

type answer struct {
	result *mcp.CallToolResult
	err    error
}

func (d *Driver) wait(ctx context.Context, name string, arguments any) (*mcp.CallToolResult, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := context.Cause(d.lost); err != nil {
		return nil, err
	}
	// The SDK gives a call up when its context ends. But then nobody would know when the server has let go of what it
	// held; so the call goes on, and is cancelled here.
	request, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	request, sent := withID(request)
	answers := make(chan answer, 1)
	d.start(func() {
		r, err := d.session.CallTool(request, &mcp.CallToolParams{Name: name, Arguments: arguments})
		answers <- answer{r, err}
	})
	beat := time.NewTicker(d.heartbeat)
	defer beat.Stop()
	for {
		select {
		case a := <-answers:
			return d.answered(a)
		case <-d.lost.Done():
			return nil, context.Cause(d.lost)
		case <-ctx.Done():
			return d.cancel(ctx, sent, answers)
		case <-beat.C:
			d.start(d.ping)
		}
	}
}

// answered is the answer to a call. A call that got none has lost the connection, which says why in a moment.
func (d *Driver) answered(a answer) (*mcp.CallToolResult, error) {
	var refused *jsonrpc.Error
	switch {
	case a.err == nil:
		return a.result, nil
	case errors.As(a.err, &refused) && d.lost.Err() == nil:
		return nil, errors.New(plain(a.err.Error()))
	}
	select {
	case <-d.lost.Done():
		return nil, context.Cause(d.lost)
	case <-time.After(grace):
		return nil, fmt.Errorf("%w: %w", driver.ErrDisplayLost, a.err)
	}
}

// cancel cancels a call and waits for its end.
func (d *Driver) cancel(ctx context.Context, sent <-chan jsonrpc.ID, answers <-chan answer) (*mcp.CallToolResult, error) {
	late := time.After(grace)
	for {
		select {
		case id := <-sent:
			params, err := json.Marshal(&mcp.CancelledParams{RequestID: id.Raw(), Reason: "no longer wanted"})
			if err != nil {
				return nil, err
			}
			d.start(func() {
				d.wire.Write(context.WithoutCancel(ctx), &jsonrpc.Request{Method: "notifications/cancelled", Params: params})
			})
		case <-answers: // That it was done in time after all is of no interest: a driver stops when it is told.
			return nil, context.Cause(ctx)
		case <-d.lost.Done():
			return nil, fmt.Errorf("%w; and %w", context.Cause(ctx), context.Cause(d.lost))
		case <-late:
			return nil, fmt.Errorf("%w: the other side has not answered for %v, and keys and buttons may be down", context.Cause(ctx), grace)
		}
	}
}

// ping ends the connection when the server does not answer: it has been stopped, say, or the network is gone.
func (d *Driver) ping() {
	late := time.AfterFunc(d.heartbeat, func() {
		d.lose(fmt.Errorf("%w: the other side has not answered for %v", driver.ErrDisplayLost, 2*d.heartbeat))
		d.wire.Close() // also out of a write that nobody reads
	})
	defer late.Stop()
	d.session.Ping(d.lost, nil) // an error is a sign of life too
}

// start runs f in a goroutine that Close waits for, unless the connection has ended.
func (d *Driver) start(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost.Err() == nil {
		d.running.Go(f)
	}
}

// act performs an action, without the fields that the server does not know.
func (d *Driver) act(ctx context.Context, a driver.Action) error {
	_, err := d.perform(ctx, a)
	return err
}

func (d *Driver) perform(ctx context.Context, a driver.Action) (*mcp.CallToolResult, error) {
	arguments, err := encodeAction(a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Kind(), err)
	}
	return d.call(ctx, string(a.Kind()), arguments)
}

// encodeAction is the arguments of an action's tool.
func encodeAction(a driver.Action) (map[string]json.RawMessage, error) {
	data, err := a.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	err = json.Unmarshal(data, &fields)
	delete(fields, "type")
	return fields, err
}

// Click is [driver.Driver]'s.
func (d *Driver) Click(ctx context.Context, a driver.Click) error {
	a.Extra = nil
	return d.act(ctx, a)
}

// DoubleClick is [driver.Driver]'s.
func (d *Driver) DoubleClick(ctx context.Context, a driver.DoubleClick) error {
	a.Extra = nil
	return d.act(ctx, a)
}

// Drag is [driver.Driver]'s.
func (d *Driver) Drag(ctx context.Context, a driver.Drag) error {
	a.Extra, a.PathExtra = nil, nil
	return d.act(ctx, a)
}

// Keypress is [driver.Driver]'s.
func (d *Driver) Keypress(ctx context.Context, a driver.Keypress) error {
	a.Extra = nil
	return d.act(ctx, a)
}

// Move is [driver.Driver]'s.
func (d *Driver) Move(ctx context.Context, a driver.Move) error {
	a.Extra = nil
	return d.act(ctx, a)
}

// Scroll is [driver.Driver]'s.
func (d *Driver) Scroll(ctx context.Context, a driver.Scroll) error {
	a.Extra = nil
	return d.act(ctx, a)
}

// Type is [driver.Driver]'s. What is not UTF-8 cannot be sent, and is refused.
func (d *Driver) Type(ctx context.Context, a driver.Type) error {
	if !utf8.ValidString(a.Text) {
		return fmt.Errorf("type: %w: the text is not UTF-8", driver.ErrInvalidAction)
	}
	a.Extra = nil
	return d.act(ctx, a)
}

// Wait is [driver.Driver]'s.
func (d *Driver) Wait(ctx context.Context, _ driver.Wait) error {
	return d.act(ctx, driver.Wait{})
}

// Screenshot is [driver.Driver]'s. The picture has been decoded.
func (d *Driver) Screenshot(ctx context.Context) (*driver.Frame, error) {
	defer d.wire.expect()()
	r, err := d.perform(ctx, driver.Screenshot{})
	if err != nil {
		return nil, err
	}
	f, err := d.picture(r)
	if err == nil {
		_, err = f.Pixels()
	}
	if err != nil {
		return nil, fmt.Errorf("screenshot: %w", err)
	}
	if f.Area.Size() == f.Image.Rect.Size() {
		f.Image.Rect = f.Area
	}
	return f, nil
}

// picture reads the frame in a result.
func (d *Driver) picture(r *mcp.CallToolResult) (*driver.Frame, error) {
	var form frame
	if err := structured(r, &form); err != nil {
		return nil, err
	}
	f := form.frame()
	for _, c := range r.Content {
		content, ok := c.(*mcp.ImageContent)
		if !ok {
			continue
		}
		file, ok := d.wire.take(content.Data)
		if !ok { // It was too small to be worth it.
			file = base64.StdEncoding.EncodeToString(content.Data)
		}
		config, err := png.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(file)))
		if err != nil {
			return nil, fmt.Errorf("reading a picture: %w", err)
		}
		if got, want := image.Pt(config.Width, config.Height), image.Pt(form.Size.Width, form.Size.Height); got != want {
			return nil, fmt.Errorf("reading a picture: it is of %v, and was said to be of %v", got, want)
		}
		f.DataURL = "data:image/png;base64," + file
		return f, nil
	}
	return nil, errors.New("there is no picture in the result")
}

// structured reads the structured content of a result.
func structured(r *mcp.CallToolResult, to any) error {
	data, err := json.Marshal(r.StructuredContent) // what the SDK made of it: maps and lists
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		return fmt.Errorf("reading a result: %w", err)
	}
	return nil
}

// Bounds is [driver.Sizer]'s.
func (d *Driver) Bounds(ctx context.Context) (image.Rectangle, error) {
	r, err := d.call(ctx, toolBounds, nothing{})
	if err != nil {
		return image.Rectangle{}, err
	}
	var out boundsOut
	if err := structured(r, &out); err != nil {
		return image.Rectangle{}, fmt.Errorf("%s: %w", toolBounds, err)
	}
	return out.Screen.rectangle(), nil
}

// View is [driver.Viewer]'s. choose may be called several times, as the package comment says. The frame has a DataURL
// and no Image yet.
func (d *Driver) View(ctx context.Context, choose func(driver.Scene) (area image.Rectangle, size image.Point, err error)) (*driver.Frame, error) {
	const attempts = 10
	d.mu.Lock()
	seen := d.scene
	d.mu.Unlock()
	fresh := false // whether the scene has been told just now
	for range attempts {
		if seen == nil {
			now, err := d.askScene(ctx)
			if err != nil {
				return nil, err
			}
			seen, fresh = now, true
		}
		part, size, err := choose(*seen)
		if err != nil && !fresh {
			seen = nil // It need not be so for the scene of today.
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", toolView, err)
		}
		f, other, err := d.view(ctx, *seen, part, size)
		if err != nil {
			return nil, err
		}
		if other != nil {
			seen, fresh = other, true
			continue
		}
		d.mu.Lock()
		d.scene = seen
		d.mu.Unlock()
		return f, nil
	}
	return nil, fmt.Errorf("%s: the screen, or its active window, was another each of %d times", toolView, attempts)
}

// view takes one picture of a part of a scene, or returns the scene that there is instead.
func (d *Driver) view(ctx context.Context, s driver.Scene, part image.Rectangle, in image.Point) (*driver.Frame, *driver.Scene, error) {
	defer d.wire.expect()()
	r, err := d.call(ctx, toolView, viewIn{sceneOf(s), areaOf(part), size{in.X, in.Y}})
	if r != nil {
		if other, ok := r.Meta[metaScene]; ok && r.IsError {
			var now scene
			if err := structured(&mcp.CallToolResult{StructuredContent: other}, &now); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", toolView, err)
			}
			s := now.scene()
			return nil, &s, nil
		}
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := d.picture(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", toolView, err)
	}
	return f, nil, nil
}

func (d *Driver) askScene(ctx context.Context) (*driver.Scene, error) {
	r, err := d.call(ctx, toolScene, nothing{})
	if err != nil {
		return nil, err
	}
	var out scene
	if err := structured(r, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", toolScene, err)
	}
	s := out.scene()
	return &s, nil
}

// Holds is [driver.Holder]'s.
func (d *Driver) Holds(ctx context.Context, s driver.Scene) error {
	_, err := d.call(ctx, toolHolds, holdsIn{sceneOf(s)})
	return err
}
