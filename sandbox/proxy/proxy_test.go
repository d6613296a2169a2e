package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestParseRule(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"example.com", "example.com:443"},
		{"example.com:80", "example.com:80"},
		{"EXAMPLE.com.", "example.com:443"},
		{"xn--bcher-kva.example:8443", "xn--bcher-kva.example:8443"},
		{"_srv.example.com:1", "_srv.example.com:1"},
		{"192.0.2.1", "192.0.2.1:443"},
		{"192.0.2.1:65535", "192.0.2.1:65535"},
		{"[2001:DB8::1]:80", "[2001:db8::1]:80"},
		{"2001:db8::1", "[2001:db8::1]:443"},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1:80"},
	} {
		got, err := ParseRule(tt.in)
		if err != nil || got.String() != tt.want {
			t.Errorf("%q: got %v, %v, want %s", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", ":443", "*", "*.example.com", "example.com:0", "example.com:65536", "example.com:http", "example..com",
		"bücher.example", "http://example.com", "example.com/path", "user@example.com", "a b", "127.1", "0x7f000001", "2130706433", "0x7f.1",
		"fe80::1%eth0", "1.2.3.4.5", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "com"} {
		if got, err := ParseRule(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, got)
		}
	}
}

func TestPublic(t *testing.T) {
	for _, addr := range []string{"1.1.1.1", "203.0.113.7", "2606:4700:4700::1111", "::ffff:1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1"} {
		if !public(netip.MustParseAddr(addr)) {
			t.Errorf("%s is refused", addr)
		}
	}
	for _, addr := range []string{"127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1",
		"240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "fe80::1", "fc00::1",
		"fd00:ec2::254", "fec0::1", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1::", "fe80::1%eth0"} {
		if public(netip.MustParseAddr(addr)) {
			t.Errorf("%s is let through", addr)
		}
	}
}

// here is where the clients of tests come from.
var here = netip.MustParsePrefix("127.0.0.0/8")

// start serves a proxy on loopback, for rules. What it may connect to is widened to addresses of permitted servers.
func start(t *testing.T, from netip.Prefix, permitted []string, rules ...string) (addr string, audit func() string) {
	t.Helper()
	log := &lockedBuffer{}
	opts := &Options{From: from, Audit: slog.New(slog.NewTextHandler(log, nil))}
	for _, text := range rules {
		rule, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		opts.Allow = append(opts.Allow, rule)
	}
	p := New(opts)
	refuse := p.dialer.Control
	p.dialer.Control = func(network, address string, conn syscall.RawConn) error {
		for _, server := range permitted {
			if address == server {
				return nil
			}
		}
		return refuse(network, address, conn)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String(), log.String
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// ask sends a request as it stands and returns the status and the connection.
func ask(t *testing.T, addr, request string) (int, net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conn, request)
	r := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return response.StatusCode, conn, r
}

// echo is a server that sends back all that it gets, and then the end.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(conn, conn)
				conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func TestTunnel(t *testing.T) {
	server := echo(t)
	addr, audit := start(t, here, []string{server}, server)
	// The first words may come with the request.
	status, conn, r := ask(t, addr, "CONNECT "+server+" HTTP/1.1\r\nHost: "+server+"\r\n\r\nearly ")
	if status != http.StatusOK {
		t.Fatalf("got %d, want 200:\n%s", status, audit())
	}
	io.WriteString(conn, "late")
	conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(r); err != nil || string(got) != "early late" {
		t.Errorf("got %q, %v, want all of it and the end", got, err)
	}
	for range 100 {
		if strings.Contains(audit(), "up=10 down=10") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("got the audit log\n%s\nwant the bytes in it", audit())
}

// TestRefuses asks for everything but what the rule names.
func TestRefuses(t *testing.T) {
	server := echo(t)
	_, port, _ := net.SplitHostPort(server)
	addr, audit := start(t, here, []string{server}, server, "localhost:"+port, "private.test:443", "169.254.169.254:80", "192.0.2.9:80")
	for _, tt := range []struct{ name, request string }{
		{"another port", "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n"},
		{"another host", "CONNECT example.com:" + port + " HTTP/1.1\r\n\r\n"},
		{"no port", "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n"},
		{"another form of the address", "CONNECT 127.1:" + port + " HTTP/1.1\r\n\r\n"},
		{"address as a number", "CONNECT 2130706433:" + port + " HTTP/1.1\r\n\r\n"},
		{"a host that contains an allowed one", "CONNECT localhost.example.com:" + port + " HTTP/1.1\r\n\r\n"},
		{"allowed, and leads to a metadata server", "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n"},
		{"allowed, and leads to loopback on IPv6 or nowhere", "GET http://localhost:1/ HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		{"the host in the header", "CONNECT example.com:443 HTTP/1.1\r\nHost: " + server + "\r\n\r\n"},
		{"plain HTTP to another host", "GET http://example.com/ HTTP/1.1\r\nHost: " + server + "\r\n\r\n"},
		{"plain HTTP to a metadata server", "GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"credentials in the address", "GET http://" + server + "@example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"https without a tunnel", "GET https://" + server + "/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"another scheme", "GET ftp://" + server + "/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		{"not a request to a proxy", "GET / HTTP/1.1\r\nHost: " + server + "\r\n\r\n"},
	} {
		if status, _, _ := ask(t, addr, tt.request); status != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403", tt.name, status)
		}
	}
	if got := strings.Count(audit(), "msg=deny"); got != 15 {
		t.Errorf("got %d refusals in the audit log, want 15:\n%s", got, audit())
	}
	if strings.Contains(audit(), "msg=allow") {
		t.Errorf("something was let through:\n%s", audit())
	}
}

// TestNameThatLeadsInside allows a name whose addresses are loopback.
func TestNameThatLeadsInside(t *testing.T) {
	server := echo(t)
	_, port, _ := net.SplitHostPort(server)
	addr, audit := start(t, here, nil, "localhost:"+port)
	for _, request := range []string{"CONNECT localhost:" + port + " HTTP/1.1\r\n\r\n", "GET http://localhost:" + port + "/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if status, _, _ := ask(t, addr, request); status != http.StatusForbidden || !strings.Contains(audit(), errNotPublic.Error()) {
			t.Errorf("%q: got %d, want 403 for the address:\n%s", request, status, audit())
		}
	}
	// With the address permitted the same request passes.
	addr, audit = start(t, here, []string{server}, "localhost:"+port)
	if status, _, _ := ask(t, addr, "CONNECT localhost:"+port+" HTTP/1.1\r\n\r\n"); status != http.StatusOK {
		t.Errorf("got %d, want 200:\n%s", status, audit())
	}
}

func TestOtherNetworksClients(t *testing.T) {
	server := echo(t)
	addr, _ := start(t, netip.MustParsePrefix("10.0.0.0/8"), []string{server}, server)
	if status, _, _ := ask(t, addr, "CONNECT "+server+" HTTP/1.1\r\n\r\n"); status != http.StatusForbidden {
		t.Errorf("got %d, want 403", status)
	}
}

func TestPlainHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://example.com/", http.StatusFound)
			return
		}
		for _, name := range []string{"X-Forwarded-For", "Proxy-Authorization", "Proxy-Connection", "Via", "Forwarded"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the server sees %s", name)
			}
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.URL.RequestURI())
	}))
	defer server.Close()
	host := server.Listener.Addr().String()
	addr, audit := start(t, here, []string{host}, host)
	client := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr, User: url.UserPassword("a", "b")})},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	response, err := client.Get(server.URL + "/path?q=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != "GET "+host+" /path?q=1" {
		t.Errorf("got %q, %v:\n%s", got, err, audit())
	}
	// A redirect is the client's to follow, and its next request is looked at like the first.
	response, err = client.Get(server.URL + "/away")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusFound {
		t.Errorf("got %s, want the redirect", response.Status)
	}
}

// TestEndOfProxy checks that tunnels end with the proxy; start waits for that.
func TestEndOfProxy(t *testing.T) {
	server := echo(t)
	var r *bufio.Reader
	t.Run("serve", func(t *testing.T) {
		addr, _ := start(t, here, []string{server}, server)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, "CONNECT "+server+" HTTP/1.1\r\n\r\n")
		r = bufio.NewReader(conn)
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("got %q, %v", line, err)
		}
	})
	if _, err := io.ReadAll(r); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the tunnel is open although the proxy has ended: %v", err)
	}
}

func TestLimit(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := limit(inner, 1)
	for range 2 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
		second <- err
	}()
	select {
	case err := <-second:
		t.Fatalf("got a second connection (%v), want it to wait", err)
	case <-time.After(50 * time.Millisecond):
	}
	first.Close()
	first.Close() // once more gives no second place
	if err := <-second; err != nil {
		t.Error(err)
	}
}
