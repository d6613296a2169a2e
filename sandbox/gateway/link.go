package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Between the two ends is HTTP/2: requests side by side, streams and their cancellation, over one connection.

const (
	// readyPath is where the guest's end says that it listens.
	readyPath = "/.ready"
	// lifePath is where the guest's end answers when the connection has ended.
	lifePath = "/.life"
)

// Host is the host of the guest's end in addresses.
const Host = "api.sandbox"

// ErrGone is the cause when the other end of the connection is gone.
var ErrGone = errors.New("the way to the API is gone")

// serve is an HTTP/2 server on one connection.
func serve(ctx context.Context, conn io.ReadWriteCloser, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newOnce(conn)
	server := &http.Server{
		Handler: handler, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	stop := context.AfterFunc(ctx, func() { server.Close(); l.Close() })
	defer stop()
	err := server.Serve(l)
	server.Close()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// Listen is the guest's end: it listens on a socket, which it makes, with its folder, for this user alone, and hands
// requests on over the connection until that or ctx ends. It leaves no socket behind.
func Listen(ctx context.Context, conn io.ReadWriteCloser, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer os.Remove(socket)
	defer listener.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	link := &link{Conn: newConn(conn), gone: func() { cancel(ErrGone) }}
	dialed := false
	transport := &http.Transport{
		Protocols: new(http.Protocols), DisableCompression: true,
		HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DialContext: func(context.Context, string, string) (net.Conn, error) { // called once, by the request that says ready
			if dialed {
				return nil, ErrGone
			}
			dialed = true
			return link, nil
		},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer link.Close()
	if err := sayReady(ctx, transport); err != nil {
		return err
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", Host },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != lifePath {
			forward.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	})}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err = server.Serve(listener)
	if cause := context.Cause(ctx); cause != nil && cause != ErrGone {
		return cause
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func sayReady(ctx context.Context, transport *http.Transport) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+Host+readyPath, nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("reaching the other end: %w", err)
	}
	return answer.Body.Close()
}

// Dial is a transport for the requests of an agent to the socket of [Listen].
func Dial(socket string) *http.Transport {
	return &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
}

// Watch returns a context that ends, with [ErrGone], when the way from the socket to the API does.
func Watch(ctx context.Context, socket string) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	transport := Dial(socket)
	end := func() { cancel(nil); transport.CloseIdleConnections() }
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+Host+lifePath, nil)
	if err != nil {
		end()
		return nil, nil, err
	}
	answer, err := transport.RoundTrip(r)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrGone
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("reaching the API through %s: %w", socket, err)
	}
	go func() {
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		cancel(ErrGone)
	}()
	return ctx, end, nil
}

// once is a listener with one connection. Accept fails with io.EOF when that has ended.
type once struct {
	first chan net.Conn
	ended chan struct{}
	end   func()
}

func newOnce(conn io.ReadWriteCloser) *once {
	o := &once{first: make(chan net.Conn, 1), ended: make(chan struct{})}
	c := newConn(conn)
	o.end = sync.OnceFunc(func() { c.Close(); close(o.ended) })
	o.first <- &link{c, o.end}
	return o
}

func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.first:
		return c, nil
	case <-o.ended:
		return nil, io.EOF
	}
}

func (o *once) Close() error   { o.end(); return nil }
func (o *once) Addr() net.Addr { return address{} }

// A link is a connection that says when it is over.
type link struct {
	net.Conn
	gone func()
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.gone()
	}
	return n, err
}

func (l *link) Close() error {
	defer l.gone()
	return l.Conn.Close()
}

// newConn makes a net.Conn of a stream that knows no deadlines: its ends are closed instead.
func newConn(stream io.ReadWriteCloser) net.Conn { return streamConn{stream} }

type streamConn struct{ io.ReadWriteCloser }

func (streamConn) LocalAddr() net.Addr              { return address{} }
func (streamConn) RemoteAddr() net.Addr             { return address{} }
func (streamConn) SetDeadline(time.Time) error      { return nil }
func (streamConn) SetReadDeadline(time.Time) error  { return nil }
func (streamConn) SetWriteDeadline(time.Time) error { return nil }

type address struct{}

func (address) Network() string { return "stream" }
func (address) String() string  { return Host }
