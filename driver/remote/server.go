package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/encode"
	"github.com/deskagent/deskagent/scaling"
)

// ServerOptions are the choices of a Server. The zero value serves nobody: all is declined.
type ServerOptions struct {
	// Approve is asked before every action and every picture, a picture being a [driver.Screenshot], with the very value
	// that is executed then. Its error declines it, and is what the client is told. Calls come one at a time, and ctx
	// ends when the client gives up. Nil declines everything; [Allow] lets everything pass.
	Approve func(ctx context.Context, a driver.Action) error
	// Version is what clients are told about the version of this program.
	Version string
	// Logger is told of calls, at debug level. Nil discards.
	Logger *slog.Logger
}

// Allow is an Approve for servers whose client asks for itself.
func Allow(context.Context, driver.Action) error { return nil }

// ErrBusy is about a second client.
var ErrBusy = errors.New("busy with another client")

// A Server offers a driver to one client at a time. It neither opens nor closes the driver.
type Server struct {
	driver  driver.Driver
	opts    ServerOptions
	encoder *encode.Encoder
	turn    chan struct{} // holds a token while a call is approved and executed

	serving atomic.Bool
}

// NewServer returns a Server for d. Options may be nil and are copied.
func NewServer(d driver.Driver, opts *ServerOptions) (*Server, error) {
	if d == nil {
		return nil, errors.New("making a server: no driver")
	}
	s := &Server{driver: d, turn: make(chan struct{}, 1)}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Approve == nil {
		s.opts.Approve = func(context.Context, driver.Action) error { return errors.New("there is nobody to ask") }
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.encoder, err = encode.New(nil); err != nil {
		return nil, fmt.Errorf("making a server: %w", err)
	}
	return s, nil
}

// Serve serves one client over two streams, which it closes: MCP, a message per line. It returns when the client is
// gone, without an error when that closed its stream at the end of a message; or when ctx is done. Calls that are
// being executed then are cut short, and have let go of all that they held when Serve returns.
//
// While one client is served, another is told [ErrBusy], which is then also the error here.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	w := newWire(in, out)
	defer w.Close()
	if !s.serving.CompareAndSwap(false, true) {
		return refuse(ctx, w)
	}
	defer s.serving.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	session, err := s.offer(ctx, w).Connect(ctx, w, nil)
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- session.Wait() }()
	select {
	case err := <-gone:
		if err != nil {
			return fmt.Errorf("serving: %w", err)
		}
		return nil
	case <-ctx.Done():
	}
	go session.Close()
	select {
	case <-gone: // all calls have been answered
	case <-time.After(grace):
		// The client does not read. Closing the streams ends the wait, unless they are such that it does not.
		w.Close()
		select {
		case <-gone:
		case <-time.After(grace):
		}
	}
	return context.Cause(ctx)
}

// grace is how long the other side may take for what it does at once unless it is stuck.
const grace = time.Second

// refuse tells a client that there is another.
func refuse(ctx context.Context, w *wire) error {
	if _, err := w.Connect(ctx); err != nil {
		return err
	}
	for {
		m, err := w.Read(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBusy, err)
		}
		if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
			const serverError = -32000 // the first of those that JSON-RPC leaves to servers
			w.Write(ctx, &jsonrpc.Response{ID: r.ID, Error: &jsonrpc.Error{Code: serverError, Message: ErrBusy.Error()}})
			return ErrBusy
		}
	}
}

// offer makes the MCP server for one client.
func (s *Server) offer(ctx context.Context, w *wire) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "deskagent", Version: cmp.Or(s.opts.Version, "unknown")}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // and no logging, which is on by default
	})
	add := func(spec *toolSpec, call func(context.Context, json.RawMessage) (*mcp.CallToolResult, error)) {
		server.AddTool(spec.tool(), func(request context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			request, cancel := context.WithCancelCause(request)
			defer cancel(nil)
			defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
			return s.call(request, spec.name, r.Params.Arguments, call), nil
		})
	}
	for _, spec := range actionTools {
		add(spec, func(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
			a, err := spec.decodeAction(arguments)
			if err != nil {
				return nil, err
			}
			return s.act(ctx, w, a)
		})
	}
	add(viewTools[toolBounds], s.bounds)
	add(viewTools[toolScene], s.scene)
	add(viewTools[toolView], func(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
		return s.view(ctx, w, arguments)
	})
	add(viewTools[toolHolds], s.holds)
	return server
}

// call has one call made in its turn. Its fault, be it a panic, is the result.
func (s *Server) call(ctx context.Context, name string, arguments json.RawMessage, call func(context.Context, json.RawMessage) (*mcp.CallToolResult, error)) (r *mcp.CallToolResult) {
	start := time.Now()
	var err error
	defer func() {
		if fault := recover(); fault != nil {
			s.opts.Logger.Error(name, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: panic: %v", name, fault)
		}
		if err != nil {
			r = failure(err)
		}
		s.opts.Logger.Debug(name, "took", time.Since(start), "err", err)
	}()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		err = fmt.Errorf("%s: %w", name, context.Cause(ctx))
		return nil
	}
	if r, err = call(ctx, arguments); err == nil && r == nil {
		r = result(done{milliseconds(time.Since(start))})
	}
	return r
}

// result is what a tool gives, as JSON for programs, and as text for clients that know of nothing else.
func result(value any) *mcp.CallToolResult {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // all of them are of this package, and can be written
	}
	return &mcp.CallToolResult{StructuredContent: json.RawMessage(data), Content: []mcp.Content{&mcp.TextContent{Text: string(data)}}}
}

// approve asks about an action.
func (s *Server) approve(ctx context.Context, a driver.Action) error {
	if err := s.opts.Approve(ctx, driver.Clone(a)); err != nil {
		return fmt.Errorf("%s: %w: %w", a.Kind(), ErrDeclined, err)
	}
	return nil
}

func (s *Server) act(ctx context.Context, w *wire, a driver.Action) (*mcp.CallToolResult, error) {
	if err := s.approve(ctx, a); err != nil {
		return nil, err
	}
	frame, err := driver.Do(ctx, s.driver, a)
	if err != nil || a.Kind() != driver.KindScreenshot {
		return nil, err
	}
	return s.picture(w, frame)
}

// picture is a frame as a result. Its file goes past the JSON.
func (s *Server) picture(w *wire, f *driver.Frame) (*mcp.CallToolResult, error) {
	if f == nil || f.Image == nil {
		return nil, errors.New("the driver returned no picture")
	}
	url, err := s.encoder.DataURL(f.Image)
	if err != nil {
		return nil, err
	}
	out := frameOf(f)
	if f.Area.Empty() { // of drivers that do not say
		out.Area = areaOf(f.Image.Rect)
	}
	r := result(out)
	_, file, _ := strings.Cut(url, ",")
	r.Content = append([]mcp.Content{&mcp.ImageContent{MIMEType: "image/png", Data: w.store(file)}}, r.Content...)
	return r, nil
}

func (s *Server) bounds(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	if err := viewTools[toolBounds].decode(arguments, &nothing{}); err != nil {
		return nil, err
	}
	sizer, ok := s.driver.(driver.Sizer)
	if !ok {
		return nil, fmt.Errorf("the size of the screen without a picture: %w by this driver", driver.ErrUnsupported)
	}
	bounds, err := sizer.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	return result(boundsOut{areaOf(bounds)}), nil
}

// otherScene says that the scene is not the one that was expected. It ends the taking of a picture before anything
// has been looked at.
type otherScene struct{ now driver.Scene }

func (otherScene) Error() string {
	return "the scene is another by now: ask again, for a picture of the new one"
}

// Unwrap makes it one of those that a caller may know.
func (otherScene) Unwrap() error { return driver.ErrStale }

func (s *Server) scene(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	if err := viewTools[toolScene].decode(arguments, &nothing{}); err != nil {
		return nil, err
	}
	_, err := s.look(ctx, func(now driver.Scene) (image.Rectangle, image.Point, error) {
		return image.Rectangle{}, image.Point{}, otherScene{now}
	})
	var other otherScene
	if !errors.As(err, &other) {
		return nil, cmp.Or(err, errors.New("the driver did not say what there is to show"))
	}
	return result(sceneOf(other.now)), nil
}

func (s *Server) view(ctx context.Context, w *wire, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	var in viewIn
	if err := viewTools[toolView].decode(arguments, &in); err != nil {
		return nil, err
	}
	const most = 1 << 26 // pixels, twice those of a screen of 8K: what is asked for is allocated
	if in.Size.Width > most || in.Size.Height > most || in.Size.Width*in.Size.Height > most {
		return nil, fmt.Errorf("%w: a picture of %dx%d, want at most %d pixels", driver.ErrInvalidAction, in.Size.Width, in.Size.Height, most)
	}
	if err := s.approve(ctx, driver.Screenshot{}); err != nil {
		return nil, err
	}
	wanted := in.Scene.scene()
	frame, err := s.look(ctx, func(now driver.Scene) (image.Rectangle, image.Point, error) {
		if now != wanted {
			return image.Rectangle{}, image.Point{}, otherScene{now}
		}
		return in.Area.rectangle(), image.Pt(in.Size.Width, in.Size.Height), nil
	})
	if other := (otherScene{}); errors.As(err, &other) {
		r := failure(err)
		r.Meta[metaScene] = sceneOf(other.now)
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return s.picture(w, frame)
}

// look takes a picture as [driver.Viewer] says. For drivers that are none it is made of a screenshot, which is all
// of the scene then.
func (s *Server) look(ctx context.Context, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (*driver.Frame, error) {
	if v, ok := s.driver.(driver.Viewer); ok {
		return v.View(ctx, choose)
	}
	screenshot, err := s.driver.Screenshot(ctx)
	if err != nil {
		return nil, err
	}
	scene := driver.Scene{Screen: screenshot.Image.Rect}
	area, size, err := choose(scene)
	if err != nil {
		return nil, err
	}
	mapping, err := scaling.New(area, size)
	if err != nil {
		return nil, err
	}
	frame := *screenshot
	frame.Area, frame.Scene = area, scene
	frame.Image, err = mapping.Picture(screenshot.Image)
	return &frame, err
}

func (s *Server) holds(ctx context.Context, arguments json.RawMessage) (*mcp.CallToolResult, error) {
	var in holdsIn
	if err := viewTools[toolHolds].decode(arguments, &in); err != nil {
		return nil, err
	}
	if holder, ok := s.driver.(driver.Holder); ok {
		return nil, holder.Holds(ctx, in.Scene.scene())
	}
	return nil, nil // Where it cannot be told, points are taken as they are.
}
