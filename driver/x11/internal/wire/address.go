package wire

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// An address is the name of a display, taken apart.
type address struct {
	network, host string // as for net.Dial; an empty host is this machine, by a socket of its file system
	path          string // of the socket, where the name is one
	number        int
	screen        int
}

// parse takes apart what X(7) calls a display name: [protocol/][host]:number[.screen], or the path of a socket with
// :number[.screen] behind it.
func parse(name string) (address, error) {
	a := address{network: "tcp"}
	colon := strings.LastIndexByte(name, ':')
	if colon < 0 {
		return a, fmt.Errorf("there is no colon in the name")
	}
	number, screen, several := strings.Cut(name[colon+1:], ".")
	var err error
	if a.number, err = natural(number); err == nil && several {
		a.screen, err = natural(screen)
	}
	if err != nil {
		return a, err
	}
	a.host = name[:colon]
	if strings.HasPrefix(name, "/") {
		a.path, a.host = a.host+":"+number, ""
		return a, nil
	}
	if network, host, found := strings.Cut(a.host, "/"); found {
		a.network, a.host = network, host
	}
	if a.host == "unix" || a.network == "unix" {
		a.host = ""
	}
	a.host = strings.Trim(a.host, "[]") // as an address of IPv6 may be written
	return a, nil
}

func natural(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 15)
	if err != nil {
		return 0, fmt.Errorf("%q is not the number of a display or a screen", s)
	}
	return int(n), nil
}

// dial connects. On this machine the socket in the file system comes first, as it is what a sandbox is given; the
// abstract one, which has the same name, is there for who has another /tmp.
func (a address) dial(ctx context.Context) (net.Conn, error) {
	const firstPort = 6000
	dialer := net.Dialer{Timeout: setupPatience}
	if a.host != "" {
		return dialer.DialContext(ctx, a.network, net.JoinHostPort(a.host, strconv.Itoa(firstPort+a.number)))
	}
	path := cmp.Or(a.path, "/tmp/.X11-unix/X"+strconv.Itoa(a.number))
	socket, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		if abstract, abstractErr := dialer.DialContext(ctx, "unix", "@"+path); abstractErr == nil {
			return abstract, nil
		}
	}
	return socket, err
}

// The families of addresses in an authority file, as X.h and Xauth.h number them.
const (
	familyInternet  = 0
	familyInternet6 = 6
	familyLocal     = 256
	familyWild      = 65535
)

// protocol is the way to show who one is that is understood here, as it is everywhere.
const protocol = "MIT-MAGIC-COOKIE-1"

// authority looks up what to show the server at the other end: the first entry for it in the file that
// $XAUTHORITY names, else ~/.Xauthority. Without one there is nothing to show, and it may well be that nothing is
// asked for.
func (a address) authority(remote net.Addr) (name string, cookie []byte) {
	file := os.Getenv("XAUTHORITY")
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", nil
		}
		file = filepath.Join(home, ".Xauthority")
	}
	entries, err := os.ReadFile(file)
	if err != nil {
		return "", nil
	}
	family, host := identity(remote)
	if cookie = find(entries, family, host, strconv.Itoa(a.number)); cookie == nil {
		return "", nil
	}
	return protocol, cookie
}

// identity is how an authority file names the other end. A server on this machine is named by the host's name, even
// over TCP; so that a forwarded one is, too.
func identity(remote net.Addr) (family uint16, host string) {
	tcp, ok := remote.(*net.TCPAddr)
	switch {
	case !ok || tcp.IP.IsLoopback():
		host, _ = os.Hostname()
		return familyLocal, host
	case tcp.IP.To4() != nil:
		return familyInternet, string(tcp.IP.To4())
	}
	return familyInternet6, string(tcp.IP)
}

// find returns the cookie of the first entry that fits, or nil. The file is a sequence of entries, each a family and
// four fields: address, number of the display, protocol, data; lengths come first and are big-endian. An empty
// number fits any.
func find(entries []byte, family uint16, host, number string) []byte {
	field := func() (value []byte, ok bool) {
		if len(entries) < 2 {
			return nil, false
		}
		n := 2 + int(binary.BigEndian.Uint16(entries))
		if len(entries) < n {
			return nil, false
		}
		value, entries = entries[2:n], entries[n:]
		return value, true
	}
	for len(entries) > 2 {
		of := binary.BigEndian.Uint16(entries)
		entries = entries[2:]
		var fields [4][]byte
		for i := range fields {
			var ok bool
			if fields[i], ok = field(); !ok {
				return nil
			}
		}
		here := of == familyWild || of == family && string(fields[0]) == host
		this := len(fields[1]) == 0 || string(fields[1]) == number
		if here && this && string(fields[2]) == protocol {
			return fields[3]
		}
	}
	return nil
}
