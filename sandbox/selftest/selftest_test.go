package selftest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestJudge checks what counts as blocked. What is not known counts as through.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{syscall.ENETUNREACH, true},
		{syscall.EHOSTUNREACH, true},
		{syscall.EADDRNOTAVAIL, true},
		{syscall.EAFNOSUPPORT, true},
		{os.ErrDeadlineExceeded, true},
		{syscall.ECONNREFUSED, false},
		{syscall.ECONNRESET, false},
		{io.EOF, false},
		{syscall.EMFILE, false},
	} {
		if got, detail := judge(fmt.Errorf("dialing: %w", tt.err)); got != tt.want {
			t.Errorf("%v: got %v (%s), want %v", tt.err, got, detail, tt.want)
		}
	}
}

func TestControls(t *testing.T) {
	for _, control := range []func() Finding{controlOpen, controlClosed} {
		if f := control(); !f.OK {
			t.Error(f)
		}
	}
}

// nameServer answers every question with a response code, and keeps the last one.
func nameServer(t *testing.T, code byte) (addr string, last func() []byte) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	questions := make(chan []byte, 1)
	go func() {
		for {
			b := make([]byte, 512)
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				close(questions)
				return
			}
			questions <- append([]byte(nil), b[:n]...)
			b[2], b[3] = 0x81, 0x80|code
			conn.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String(), func() []byte { return <-questions }
}

func TestBlockedDNS(t *testing.T) {
	for code, want := range map[byte]bool{0: false, 2: true, 3: false, 5: true} {
		addr, last := nameServer(t, code)
		got, detail := blockedDNS(context.Background(), addr, "example.com", dnsTXT)
		if got != want {
			t.Errorf("code %d: got %v (%s), want %v", code, got, detail, want)
		}
		const question = "\x2a\x2a\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x10\x00\x01"
		if q := last(); string(q) != question {
			t.Errorf("got question %q, want %q", q, question)
		}
	}
	// On loopback, where nobody listens is nobody.
	if got, detail := blockedDNS(context.Background(), "127.0.0.1:9", "example.com", dnsA); !got {
		t.Errorf("got %v (%s), want blocked", got, detail)
	}
	if got := rcode([]byte("short")); got != -1 {
		t.Errorf("got code %d of what is no answer, want -1", got)
	}
}

func TestNoIPv6(t *testing.T) {
	for _, tt := range []struct {
		addrs string
		want  bool
	}{
		{"127.0.0.1/8", true},
		{"127.0.0.1/8 ::1/128 172.18.0.3/16", true},
		{"127.0.0.1/8 fe80::42:acff:fe12:3/64", false},
		{"2001:db8::1/64", false},
	} {
		var addrs []net.Addr
		for addr := range strings.FieldsSeq(tt.addrs) {
			prefix := netip.MustParsePrefix(addr)
			addrs = append(addrs, &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())})
		}
		if got, detail := noIPv6(addrs); got != tt.want {
			t.Errorf("%s: got %v (%s), want %v", tt.addrs, got, detail, tt.want)
		}
	}
}

func TestNoWayOut(t *testing.T) {
	const (
		header  = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
		network = "eth0\t000012AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
		gateway = "eth0\t00000000\t010012AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
		direct  = "eth0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n"
		arp     = "IP address       HW type     Flags       HW address            Mask     Device\n"
		absent  = "172.18.0.1       0x1         0x0         00:00:00:00:00:00     *        eth0\n"
		present = "172.18.0.1       0x1         0x2         02:42:5d:2b:11:3a     *        eth0\n"
		another = "172.18.0.11      0x1         0x2         02:42:ac:12:00:0b     *        eth0\n"
	)
	for _, tt := range []struct {
		name, routes, arp string
		want              bool
	}{
		{"no network", header, arp, true},
		{"no default route", header + network, arp, true},
		{"a gateway that is not there", header + gateway + network, arp + another + absent, true},
		{"a gateway that is there", header + gateway + network, arp + present, false},
		{"a gateway that was not looked for", header + gateway + network, arp + another, false},
		{"a route without gateway", header + direct, arp + absent, false},
		{"one of two is there", header + gateway + direct, arp + absent, false},
	} {
		if got, detail := noWayOut(tt.routes, tt.arp); got != tt.want {
			t.Errorf("%s: got %v (%s), want %v", tt.name, got, detail, tt.want)
		}
	}
}

func TestFailed(t *testing.T) {
	good, bad := Finding{Name: "a", OK: true}, Finding{Name: "b"}
	for _, tt := range []struct {
		report Report
		want   int
	}{
		{nil, 1},
		{Report{good}, 0},
		{Report{good, bad, bad}, 2},
	} {
		if got := tt.report.Failed(); len(got) != tt.want {
			t.Errorf("%v: got %v, want %d", tt.report, got, tt.want)
		}
	}
}

// TestRunNotices runs a plan on this machine, where much of it is not blocked.
func TestRunNotices(t *testing.T) {
	server, last := nameServer(t, 3)
	go func() {
		for last() != nil {
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	report := Run(t.Context(), Plan{
		Neighbours: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Outside:    []string{listener.Addr().String()},
		Resolvers:  []string{server},
		Question:   "localhost",
		Proxy:      listener.Addr().String(), // says nothing
		Allowed:    "example.com:443",
		Denied:     []string{"example.com:80"},
	})
	failed := map[string]bool{}
	for _, f := range report.Failed() {
		failed[f.Name] = true
	}
	for _, name := range []string{"tcp to a neighbour", "udp to a neighbour", "tcp to outside", "name", "dns A", "dns TXT", "denied by proxy", "allowed by proxy"} {
		if !failed[name] {
			t.Errorf("%s: not noticed", name)
		}
	}
}
