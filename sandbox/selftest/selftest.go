// Package selftest tries, from inside a sandbox, to do what must not be possible there, and says what came of it.
//
// # What counts as through
//
// Any sign of life of the other side does: a connection, and also its refusal, as only a host that was reached can
// refuse. What is blocked ends in "unreachable" or in silence. The same code is first tried on a listener and on a
// closed port of its own ([Report] begins with these controls), so that a probe that sees nothing anywhere is noticed.
// Where hosts are allowed, one of them has to be reached through the proxy, for the same reason.
//
// # What cannot be seen
//
// A filter that lets packets out but no answer in looks like one that blocks. So the last thing looked at is the
// default route: there has to be none, or one by a gateway that nobody answers for, so that no packet leaves.
package selftest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Plan says what to try. It is made on the host, which knows what there is around the guest.
type Plan struct {
	// Neighbours are addresses of networks' gateways, of the host and of other containers. Nothing may answer there.
	Neighbours []netip.Addr `json:"neighbours,omitempty"`
	// Outside are addresses outside, as IP:PORT, at which something is known to answer. It may not answer here.
	Outside []string `json:"outside,omitempty"`
	// Resolvers are name servers, as IP:PORT, beside those of /etc/resolv.conf. None may pass a question on.
	Resolvers []string `json:"resolvers,omitempty"`
	// Names are names that may not resolve, beside Question.
	Names []string `json:"names,omitempty"`
	// Question is a name outside with an address (A) and a text (TXT), to be asked for.
	Question string `json:"question,omitempty"`
	// Proxy is the way out, as IP:PORT, if there is one.
	Proxy string `json:"proxy,omitempty"`
	// Allowed is what the proxy has to let through, as HOST:PORT.
	Allowed string `json:"allowed,omitempty"`
	// Denied are what the proxy has to refuse, as HOST:PORT.
	Denied []string `json:"denied,omitempty"`
}

// A Finding is what came of one thing that was tried.
type Finding struct {
	Name   string `json:"name"`
	Target string `json:"target,omitempty"`
	OK     bool   `json:"ok"` // it is as it has to be
	Detail string `json:"detail"`
}

func (f Finding) String() string {
	state := "ok"
	if !f.OK {
		state = "FAIL"
	}
	return fmt.Sprintf("%-4s  %-18s  %s: %s", state, f.Name, f.Target, f.Detail)
}

// A Report is what came of a whole plan.
type Report []Finding

// Failed are the findings that are not as they have to be. A report without any finding has not been made, so it
// fails too.
func (r Report) Failed() []Finding {
	if len(r) == 0 {
		return []Finding{{Name: "self-test", Detail: "nothing was tried"}}
	}
	var failed []Finding
	for _, f := range r {
		if !f.OK {
			failed = append(failed, f)
		}
	}
	return failed
}

// silence is how long an answer may take before the other side counts as not reached. What is near answers within a
// millisecond, a name server outside within some hundred.
const silence = 750 * time.Millisecond

// ports are where the neighbours are tried. Which ones hardly matters, as refusals count; a firewall that drops the
// rest is likely to leave one of these open. 2375 is the Docker engine's.
var ports = []string{"22", "53", "80", "443", "2375"}

// Run tries all of the plan at once, and what needs no plan. It returns within a few seconds.
func Run(ctx context.Context, plan Plan) Report {
	tries := []func() Finding{controlOpen, controlClosed, interfaces}
	tries = append(tries, confinement()...)
	add := func(name, target string, try func(ctx context.Context, target string) (blocked bool, detail string)) {
		tries = append(tries, func() Finding {
			blocked, detail := try(ctx, target)
			return Finding{Name: name, Target: target, OK: blocked, Detail: detail}
		})
	}
	for _, addr := range plan.Neighbours {
		for _, port := range ports {
			add("tcp to a neighbour", net.JoinHostPort(addr.String(), port), blockedTCP)
		}
		add("udp to a neighbour", net.JoinHostPort(addr.String(), "53"), blockedUDP)
	}
	for _, target := range plan.Outside {
		add("tcp to outside", target, blockedTCP)
	}
	for _, name := range append([]string{plan.Question}, plan.Names...) {
		if name != "" {
			add("name", name, blockedName)
		}
	}
	if plan.Question != "" {
		for _, server := range append(nameServers(), plan.Resolvers...) {
			add("dns A", server, func(ctx context.Context, server string) (bool, string) {
				return blockedDNS(ctx, server, plan.Question, dnsA)
			})
			add("dns TXT", server, func(ctx context.Context, server string) (bool, string) {
				return blockedDNS(ctx, server, plan.Question, dnsTXT)
			})
		}
	}
	if plan.Proxy != "" {
		for _, target := range plan.Denied {
			add("denied by proxy", target, func(ctx context.Context, target string) (bool, string) {
				status, err := connect(ctx, plan.Proxy, target)
				return err == nil && status == http.StatusForbidden, outcome(status, err)
			})
		}
		add("allowed by proxy", plan.Allowed, func(ctx context.Context, target string) (bool, string) {
			status, err := connect(ctx, plan.Proxy, target)
			return err == nil && status == http.StatusOK, outcome(status, err)
		})
	}
	report := make(Report, len(tries))
	var all sync.WaitGroup
	for i, try := range tries {
		all.Go(func() { report[i] = try() })
	}
	all.Wait()
	return append(report, wayOut())
}

// controlOpen and controlClosed make sure that what can be reached is seen as that.
func controlOpen() Finding {
	f := Finding{Name: "control, open port"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	defer listener.Close()
	f.Target = listener.Addr().String()
	blocked, detail := blockedTCP(context.Background(), f.Target)
	f.OK, f.Detail = !blocked, detail
	return f
}

func controlClosed() Finding {
	f := Finding{Name: "control, closed port"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.Target = listener.Addr().String()
	listener.Close()
	tcpBlocked, tcp := blockedTCP(context.Background(), f.Target)
	udpBlocked, udp := blockedUDP(context.Background(), f.Target)
	f.OK, f.Detail = !tcpBlocked && !udpBlocked, "tcp: "+tcp+", udp: "+udp
	return f
}

// blockedTCP tells whether nothing answers at a TCP port.
func blockedTCP(ctx context.Context, target string) (bool, string) {
	conn, err := (&net.Dialer{Timeout: silence}).DialContext(ctx, "tcp", target)
	if err == nil {
		conn.Close()
		return false, "connected"
	}
	return judge(err)
}

// blockedUDP tells whether nothing answers at a UDP port. A closed one of a host that is reached says so.
func blockedUDP(ctx context.Context, target string) (bool, string) {
	conn, err := (&net.Dialer{Timeout: silence}).DialContext(ctx, "udp", target)
	if err != nil {
		return judge(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(silence))
	if _, err := conn.Write([]byte{0}); err != nil {
		return judge(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return judge(err)
	}
	return false, "answered"
}

// judge tells whether an error of a connection is none of the other side's. What is not known is not taken as blocked.
func judge(err error) (bool, string) {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ENETUNREACH):
		return true, "no route"
	case errors.Is(err, syscall.EHOSTUNREACH):
		return true, "unreachable"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return true, "no address to come from"
	case errors.Is(err, syscall.EAFNOSUPPORT):
		return true, "no such protocol"
	case errors.Is(err, syscall.ECONNREFUSED):
		return false, "refused, so it was reached"
	case errors.As(err, &timeout) && timeout.Timeout():
		return true, "no answer"
	}
	return false, err.Error()
}

func blockedName(ctx context.Context, name string) (bool, string) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	addrs, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, name)
	if err == nil {
		return false, fmt.Sprintf("resolved to %v", addrs)
	}
	return true, "not resolved"
}

// interfaces looks for IPv6 addresses, which the limits of an IPv4 network do not hold for.
func interfaces() Finding {
	f := Finding{Name: "no IPv6", Target: "own addresses"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = noIPv6(addrs)
	return f
}

func noIPv6(addrs []net.Addr) (bool, string) {
	ok, all := true, make([]string, len(addrs))
	for i, addr := range addrs {
		all[i] = addr.String()
		prefix, err := netip.ParsePrefix(all[i])
		if err != nil || prefix.Addr().Is6() && !prefix.Addr().IsLoopback() {
			ok = false
		}
	}
	return ok, strings.Join(all, " ")
}

// wayOut looks for a default route that leads anywhere. Engines give internal networks one, by a gateway that is not
// there; the kernel has looked for that one when the other tries are over.
func wayOut() Finding {
	f := Finding{Name: "no way out", Target: "default route"}
	routes, err := os.ReadFile("/proc/net/route")
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	neighbours, err := os.ReadFile("/proc/net/arp")
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = noWayOut(string(routes), string(neighbours))
	return f
}

// noWayOut reads the kernel's tables of routes and of neighbours (proc(5)).
func noWayOut(routes, neighbours string) (bool, string) {
	detail := "none"
	for line := range strings.Lines(routes) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "00000000" {
			continue
		}
		number, err := strconv.ParseUint(fields[2], 16, 32)
		if err != nil || number == 0 {
			return false, "by " + fields[0] + ", without a gateway"
		}
		var octets [4]byte
		binary.NativeEndian.PutUint32(octets[:], uint32(number)) // the table has network order, read as a number
		gateway := netip.AddrFrom4(octets).String()
		switch found, answers := neighbour(neighbours, gateway); {
		case !found:
			return false, "by " + gateway + ", of which the kernel knows nothing"
		case answers:
			return false, "by " + gateway + ", which is there"
		}
		detail = "by " + gateway + ", which is not there"
	}
	return true, detail
}

// neighbour tells whether the kernel has looked for the hardware address of addr, and whether it has found it.
func neighbour(table, addr string) (found, answers bool) {
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) >= 4 && fields[0] == addr {
			return true, fields[2] != "0x0"
		}
	}
	return false, false
}

// connect asks the proxy for a tunnel and returns the status of its answer. A proxy that has only just been started is
// given a moment to listen.
func connect(ctx context.Context, proxy, target string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := dialPatiently(ctx, proxy)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

func dialPatiently(ctx context.Context, addr string) (net.Conn, error) {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EHOSTUNREACH) {
			return conn, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func outcome(status int, err error) string {
	if err != nil {
		return err.Error()
	}
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

// Question types of the domain name system (RFC 1035, section 3.2.2).
const (
	dnsA   = 1
	dnsTXT = 16
)

// blockedDNS asks a name server. Every answer counts as through but those that say that the question was not passed
// on, SERVFAIL and REFUSED: that a name does not exist is also known only outside.
func blockedDNS(ctx context.Context, server, name string, kind uint16) (bool, string) {
	conn, err := (&net.Dialer{Timeout: silence}).DialContext(ctx, "udp", server)
	if err != nil {
		return judge(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(silence))
	if _, err := conn.Write(question(name, kind)); err != nil {
		return judge(err)
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	if errors.Is(err, syscall.ECONNREFUSED) && onLoopback(server) {
		return true, "nobody listens" // in the guest itself, so that leads nowhere
	}
	if err != nil {
		return judge(err)
	}
	const servfail, refused = 2, 5
	switch code := rcode(answer[:n]); code {
	case servfail, refused:
		return true, fmt.Sprintf("answered with code %d, not passed on", code)
	default:
		return false, fmt.Sprintf("answered with code %d", code)
	}
}

// question is a query for one name, recursion desired (RFC 1035, section 4.1).
func question(name string, kind uint16) []byte {
	q := []byte{0x2a, 0x2a, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	q = binary.BigEndian.AppendUint16(append(q, 0), kind)
	return binary.BigEndian.AppendUint16(q, 1) // class IN
}

// rcode is the response code of an answer, -1 of what is none.
func rcode(answer []byte) int {
	if len(answer) < 12 {
		return -1
	}
	return int(answer[3] & 0xf)
}

// nameServers are those of /etc/resolv.conf and the engine's own, which answers whatever the file says.
func nameServers() []string {
	servers := []string{"127.0.0.11:53"}
	conf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return servers
	}
	for line := range strings.Lines(string(conf)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "nameserver" {
			if server := net.JoinHostPort(fields[1], "53"); server != servers[0] {
				servers = append(servers, server)
			}
		}
	}
	return servers
}

func onLoopback(server string) bool {
	addr, err := netip.ParseAddrPort(server)
	return err == nil && addr.Addr().IsLoopback()
}
