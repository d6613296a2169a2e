// Package proxy is a forward proxy that lets through what a list names and nothing else: tunnels (CONNECT) and plain
// HTTP requests to exactly the hosts and ports of its rules. Its log, a line for every decision, is the audit log of a
// sandbox.
//
// # What it holds against
//
//   - Another host, another port, an address instead of a name: the rule is compared after bringing both to one form,
//     and has to be equal.
//   - A name that leads inside: the address is looked at after resolving, in the moment of connecting, so no second
//     answer of a name server can come between. Loopback, private, link-local (with 169.254.169.254), shared,
//     multicast and reserved addresses are refused, and what carries an IPv4 address in an IPv6 one. That holds for
//     addresses that a rule names as well: a sandbox is no way into the host's surroundings.
//   - Questions to name servers as a way out: only names of rules are resolved.
//   - Other users of the proxy: it listens on the one network that it is given, and serves clients of that alone.
//
// It does not look into tunnels. Whoever runs an allowed host can relay what he likes, and where many names are served
// from one address, the name inside TLS may be another than that of the tunnel.
//
// # Why not a ready one
//
// github.com/stripe/smokescreen was the first choice. Its rules have no ports, and it brings twenty modules along, among
// them the clients of two monitoring systems and protobuf, into a program that also is on people's desktops.
// github.com/elazarl/goproxy is made for intercepting: by default it does not verify certificates, obeys the proxy
// variables of its environment and has a certificate authority built in, all of which would have to be switched off.
// What is left to do is what net/http and its ReverseProxy, which are kept as well as anything, do by themselves.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Port is where the proxy of a sandbox listens.
const Port = 3128

const (
	// maxConns bounds the connections at a time; further clients wait.
	maxConns = 128

	dialTime   = 10 * time.Second
	headerTime = 10 * time.Second
	maxHeader  = 64 << 10
)

// errNotPublic is the cause when an address is refused.
var errNotPublic = errors.New("not an address of the internet at large")

// Options describes a proxy.
type Options struct {
	// Allow is what may be reached. Without rules, nothing may.
	Allow []Rule
	// From is the network whose clients are served. The zero value serves none.
	From netip.Prefix
	// Audit gets a record for every decision; nil discards them.
	Audit *slog.Logger
}

// A Proxy is an http.Handler. It may be used from several goroutines.
type Proxy struct {
	allow   []Rule
	from    netip.Prefix
	audit   *slog.Logger
	dialer  net.Dialer
	forward httputil.ReverseProxy
}

// New makes a proxy.
func New(opts *Options) *Proxy {
	p := &Proxy{allow: slices.Clone(opts.Allow), from: opts.From, audit: opts.Audit}
	if p.audit == nil {
		p.audit = slog.New(slog.DiscardHandler)
	}
	p.dialer = net.Dialer{Timeout: dialTime, Control: func(_, address string, _ syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil || !public(addr.Addr()) {
			return fmt.Errorf("connecting to %s: %w", address, errNotPublic)
		}
		return nil
	}}
	p.forward = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.Host = r.In.URL.Host },
		Transport: &http.Transport{
			Proxy:                 nil, // not even that of the environment
			DialContext:           p.dialer.DialContext,
			DisableCompression:    true, // what the client asked for is what it gets
			ResponseHeaderTimeout: time.Minute,
			MaxIdleConns:          maxConns,
			IdleConnTimeout:       time.Minute,
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { p.refuse(w, r, r.URL.Host, err) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	return p
}

// Serve serves clients on the listener until ctx ends.
func (p *Proxy) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           p,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(limit(listener, maxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving proxy clients on %s: %w", listener.Addr(), err)
	}
	return nil
}

// ServeHTTP decides about one request and carries it out.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !p.from.Contains(client.Addr().Unmap()):
		p.deny(w, r, r.Host, "a client of another network")
	case r.Method == http.MethodConnect:
		if p.allowed(w, r, r.Host) {
			p.tunnel(w, r)
		}
	case r.URL.Scheme != "http" || r.URL.Host == "":
		p.deny(w, r, r.Host, "not a request to a proxy")
	default:
		target := r.URL.Host
		if r.URL.Port() == "" {
			target = net.JoinHostPort(r.URL.Hostname(), "80")
		}
		if p.allowed(w, r, target) {
			connected := func(info httptrace.GotConnInfo) {
				p.audit.Info("allow", "method", r.Method, "target", target, "address", info.Conn.RemoteAddr().String(), "client", r.RemoteAddr)
			}
			p.forward.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: connected})))
		}
	}
}

// allowed tells whether a rule names HOST:PORT, and refuses the request when none does.
func (p *Proxy) allowed(w http.ResponseWriter, r *http.Request, target string) bool {
	rule, err := exactly(target)
	if err == nil && slices.Contains(p.allow, rule) {
		return true
	}
	p.deny(w, r, target, "not on the list")
	return false
}

// exactly reads HOST:PORT, where unlike in a rule the port has to be there.
func exactly(target string) (Rule, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return Rule{}, err
	}
	return ParseRule(target)
}

func (p *Proxy) deny(w http.ResponseWriter, r *http.Request, target, reason string) {
	p.audit.Warn("deny", "method", r.Method, "target", target, "reason", reason, "client", r.RemoteAddr)
	http.Error(w, "deskagent: "+strconv.Quote(target)+": "+reason, http.StatusForbidden)
}

// refuse answers when an allowed target could not be reached, or not be permitted after its name was resolved.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, target string, err error) {
	if errors.Is(err, errNotPublic) {
		p.deny(w, r, target, err.Error())
		return
	}
	p.audit.Warn("fail", "method", r.Method, "target", target, "reason", err.Error(), "client", r.RemoteAddr)
	http.Error(w, "deskagent: "+strconv.Quote(target)+" could not be reached", http.StatusBadGateway)
}

// tunnel connects client and target until both have said all, or one of them is gone.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	rule, _ := exactly(r.Host) // its form of the host, not the client's, is what gets resolved
	outside, err := p.dialer.DialContext(r.Context(), "tcp", rule.String())
	if err != nil {
		p.refuse(w, r, r.Host, err)
		return
	}
	defer outside.Close()
	inside, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		p.refuse(w, r, r.Host, err)
		return
	}
	defer inside.Close()
	p.audit.Info("allow", "method", r.Method, "target", rule.String(), "address", outside.RemoteAddr().String(), "client", r.RemoteAddr)
	inside.SetDeadline(time.Time{})
	if _, err := io.WriteString(inside, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	// The end of the proxy closes both, which ends the copying. A hijacked connection is no longer the server's to close.
	stop := context.AfterFunc(r.Context(), func() {
		inside.Close()
		outside.Close()
	})
	defer stop()
	// The server has read the first words ahead, if they came early. Its reader is good for no more than those: at the
	// end of the input it would cancel the request's context.
	early := io.LimitReader(buffered, int64(buffered.Reader.Buffered()))
	var up, down int64
	var both sync.WaitGroup
	both.Go(func() { up = pass(outside, io.MultiReader(early, inside)) })
	both.Go(func() { down = pass(inside, outside) })
	both.Wait()
	p.audit.Info("end", "target", rule.String(), "client", r.RemoteAddr, "up", up, "down", down, "seconds", time.Since(begin).Seconds())
}

// pass copies until the source ends, and hands on the end. After an error in one direction nothing useful can happen
// in the other, so it is closed as well.
func pass(to net.Conn, from io.Reader) int64 {
	n, err := io.Copy(to, from)
	if closer, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		closer.CloseWrite()
	} else {
		to.Close()
	}
	return n
}

// limit bounds the connections of a listener.
func limit(listener net.Listener, n int) net.Listener {
	return &limited{listener, make(chan struct{}, n)}
}

type limited struct {
	net.Listener
	places chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.places <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite hands the end of one direction on, as the connection within can.
func (c *limitedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }
