package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// defaultPort is that of a rule without one, HTTPS.
const defaultPort = 443

// A Rule is one place that may be reached: exactly this host at exactly this port.
type Rule struct {
	Host string // a name in lower case, or an IP address in its canonical form
	Port uint16
}

// ParseRule reads HOST or HOST:PORT; the port without one is 443. HOST is a name in ASCII or an IP address, IPv6 in
// brackets when a port follows. There are no patterns: one that is a little too wide lets everything out.
func ParseRule(s string) (Rule, error) {
	r := Rule{Port: defaultPort}
	host := s
	if name, port, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Rule{}, fmt.Errorf("allowed host %q: port %q: want 1 to 65535", s, port)
		}
		host, r.Port = name, uint16(n)
	}
	var err error
	if r.Host, err = normalHost(host); err != nil {
		return Rule{}, fmt.Errorf("allowed host %q: %w", s, err)
	}
	return r, nil
}

func (r Rule) String() string { return net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port))) }

// normalHost brings the ways to write a host to one: case, the dot at the end, forms of an address.
func normalHost(host string) (string, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && addr.Zone() == "" {
		return addr.Unmap().String(), nil
	}
	if host == "" || len(host) > 253 {
		return "", fmt.Errorf("a name has 1 to 253 characters, not %d", len(host))
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", fmt.Errorf("%q is no part of a name (patterns are not offered, names beyond ASCII go by their xn-- form)", label)
		}
	}
	// Resolvers take 127.1, 0x7f000001 and the like for addresses, and no top-level domain looks like a number.
	if last := host[strings.LastIndexByte(host, '.')+1:]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", fmt.Errorf("neither a name nor an IP address")
	}
	return host, nil
}

// special are the blocks where something of the surroundings lives rather than the internet: of the Internet Assigned
// Numbers Authority's registries of special-purpose addresses, those that netip has no method for.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),         // "this network"; some systems take it for loopback
	netip.MustParsePrefix("100.64.0.0/10"),     // carriers' and clouds' inside, with metadata servers
	netip.MustParsePrefix("192.0.0.0/24"),      // protocol assignments
	netip.MustParsePrefix("198.18.0.0/15"),     // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),       // reserved, and broadcast
	netip.MustParsePrefix("::/96"),             // IPv4-compatible
	netip.MustParsePrefix("64:ff9b::/96"),      // NAT64, leads to any IPv4 address
	netip.MustParsePrefix("64:ff9b:1::/48"),    // NAT64
	netip.MustParsePrefix("2001::/32"),         // Teredo, leads to any IPv4 address
	netip.MustParsePrefix("2002::/16"),         // 6to4, leads to any IPv4 address
	netip.MustParsePrefix("fec0::/10"),         // site-local, deprecated
	netip.MustParsePrefix("fd00:ec2::254/128"), // a cloud's metadata server; private anyway
	netip.MustParsePrefix("168.63.129.16/32"),  // a cloud's metadata and DNS server, with a public address
}

// public tells whether an address is one of the internet at large.
func public(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Zone() != "" {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}
