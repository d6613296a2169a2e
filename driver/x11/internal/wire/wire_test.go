package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/internal/xvfb"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		name string
		want address
	}{
		{":3", address{network: "tcp", number: 3}},
		{":3.1", address{network: "tcp", number: 3, screen: 1}},
		{"unix:3", address{network: "tcp", number: 3}},
		{"unix/:3", address{network: "unix", number: 3}},
		{"host:10.2", address{network: "tcp", host: "host", number: 10, screen: 2}},
		{"tcp/host:0", address{network: "tcp", host: "host"}},
		{"10.1.2.3:0", address{network: "tcp", host: "10.1.2.3"}},
		{"[::1]:4", address{network: "tcp", host: "::1", number: 4}},
		{"::1:4", address{network: "tcp", host: "::1", number: 4}},
		{"/run/some/socket:0", address{network: "tcp", path: "/run/some/socket:0"}},
		{"/run/some/socket:0.1", address{network: "tcp", path: "/run/some/socket:0", screen: 1}},
	} {
		got, err := parse(test.name)
		if err != nil || got != test.want {
			t.Errorf("%q: got %+v, %v, want %+v", test.name, got, err, test.want)
		}
	}
	for _, name := range []string{"", "3", ":", "host:", ":a", ":-1", ":3.", ":3.x", ":99999", ":+1"} {
		if got, err := parse(name); err == nil {
			t.Errorf("%q: got %+v, want an error", name, got)
		}
	}
}

// entry is one of an authority file.
func entry(family uint16, fields ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, family)
	for _, field := range fields {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(field))), field...)
	}
	return b
}

func TestFind(t *testing.T) {
	file := func(entries ...[]byte) (all []byte) {
		for _, e := range entries {
			all = append(all, e...)
		}
		return all
	}
	right := entry(familyLocal, "me", "3", protocol, "right")
	for _, test := range []struct {
		name string
		file []byte
		want string
	}{
		{"it", file(right), "right"},
		{"after others", file(entry(familyLocal, "you", "3", protocol, "1"), entry(familyLocal, "me", "4", protocol, "2"),
			entry(familyInternet, "me", "3", protocol, "3"), entry(familyLocal, "me", "3", "XDM-AUTHORIZATION-1", "4"), right), "right"},
		{"any number", file(entry(familyLocal, "me", "", protocol, "right")), "right"},
		{"anybody", file(entry(familyWild, "", "3", protocol, "right")), "right"},
		{"the first", file(right, entry(familyLocal, "me", "3", protocol, "second")), "right"},
		{"none", nil, ""},
		{"cut off", right[:len(right)-1], ""},
		{"cut off in a length", right[:3], ""},
		{"noise after it", append(file(right), 1), "right"},
		{"noise before it", append([]byte{0xff, 0xff, 0xff, 0xff, 1}, right...), ""},
	} {
		if got := string(find(test.file, familyLocal, "me", "3")); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		remote net.Addr
		family uint16
		host   string
	}{
		{&net.UnixAddr{Net: "unix", Name: "/tmp/.X11-unix/X3"}, familyLocal, host},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, familyLocal, host},
		{&net.TCPAddr{IP: net.IPv6loopback}, familyLocal, host},
		{&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}, familyInternet, "\x0a\x01\x02\x03"},
		{&net.TCPAddr{IP: net.ParseIP("fd00::1")}, familyInternet6, "\xfd" + strings.Repeat("\x00", 14) + "\x01"},
	} {
		if family, host := identity(test.remote); family != test.family || host != test.host {
			t.Errorf("%v: got %d %q, want %d %q", test.remote, family, host, test.family, test.host)
		}
	}
}

// TestAuthority connects to a server that asks for a cookie, which the program xauth has put into a file.
func TestAuthority(t *testing.T) {
	if _, err := exec.LookPath("xauth"); err != nil {
		t.Skip("needs xauth")
	}
	const cookie, other = "00112233445566778899aabbccddeeff", "ffeeddccbbaa99887766554433221100"
	file := func(name, display, cookie string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command("xauth", "-q", "-f", path, "add", display, ".", cookie).CombinedOutput(); err != nil {
			t.Fatalf("xauth: %v: %s", err, out)
		}
		return path
	}
	server := xvfb.ForTest(t, 320, 240, "-listen", "tcp", "-auth", file("server", ":0", cookie))
	home := filepath.Dir(file(".Xauthority", server.Display(), cookie))
	number, err := strconv.Atoi(server.Display()[1:])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, xauthority, home, host string
		refused                      bool
	}{
		{name: "right", xauthority: file("right", server.Display(), cookie)},
		{name: "right, over TCP", xauthority: file("right", server.Display(), cookie), host: "127.0.0.1"},
		{name: "in the home", home: home},
		{name: "wrong", xauthority: file("wrong", server.Display(), other), home: home, refused: true},
		{name: "of another display", xauthority: file("another", fmt.Sprintf(":%d", number+1), cookie), refused: true},
		{name: "no file", xauthority: "/nonexistent", refused: true},
		{name: "no file in the home", home: t.TempDir(), refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("XAUTHORITY", test.xauthority)
			t.Setenv("HOME", test.home)
			conn, err := Dial(t.Context(), test.host+server.Display())
			if err == nil {
				conn.Close()
			}
			if refused := errors.Is(err, driver.ErrNoDisplay) && strings.Contains(err.Error(), "refuses"); refused != test.refused || !refused && err != nil {
				t.Errorf("got %v, want it refused: %v", err, test.refused)
			}
		})
	}
}

func dial(t *testing.T, name string) *Conn {
	t.Helper()
	conn, err := Dial(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

const (
	getInputFocus = 43
	getAtomName   = 17
)

func TestDial(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480, "-screen", "1", "320x240x24")
	if got := dial(t, server.Display()).Screen; got.WidthInPixels != 640 || got.HeightInPixels != 480 || got.RootDepth != 24 {
		t.Errorf("got %+v, want a screen of 640x480, depth 24", got)
	}
	if got := dial(t, server.Display()+".1").Screen.WidthInPixels; got != 320 {
		t.Errorf("got screen 1 with a width of %d, want 320", got)
	}
	if _, err := Dial(t.Context(), server.Display()+".2"); !errors.Is(err, driver.ErrNoDisplay) || !strings.Contains(err.Error(), "2 screens") {
		t.Errorf("got %v, want an error about screen 2 of 2", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer wanted")
	cancel(why)
	if _, err := Dial(ctx, server.Display()); !errors.Is(err, why) {
		t.Errorf("got %v with a context that is done, want %v", err, why)
	}

	// Who has another /tmp finds the abstract socket.
	if err := os.Remove("/tmp/.X11-unix/X" + server.Display()[1:]); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, server.Display())
	conn.Add(getInputFocus, 0)
	if err := conn.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Reply(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAnswers mixes what a server can send: replies, errors of requests with and without a reply, events, and what
// is left of an answer that nobody read.
func TestAnswers(t *testing.T) {
	server := xvfb.ForTest(t, 320, 240)
	conn := dial(t, server.Display())
	ctx := t.Context()
	other, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for round := range 70_000 { // numbers of requests wrap at 65,536
		conn.Add(getInputFocus, 0)
		if err := conn.Send(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Reply(ctx); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round%10_000 != 0 {
			continue
		}
		// Every client is told of a change to the keyboard map.
		if err := xproto.ChangeKeyboardMappingChecked(other.X, 1, 255, 1, []xproto.Keysym{0}).Check(); err != nil {
			t.Fatal(err)
		}
		const unmapWindow, predefined, length = 10, 1, 7 // atom 1 is PRIMARY
		first := conn.Add(unmapWindow, 0, 0x123)
		second := conn.Add(getAtomName, 0, predefined)
		third := conn.Add(getAtomName, 0, predefined)
		if err := conn.Send(ctx); err != nil {
			t.Fatal(err)
		}
		var fault Fault
		if a, err := conn.Receive(ctx); err != nil || a.Request() != first || !errors.As(a.Err(), &fault) || fault != (Fault{Code: 3, Value: 0x123, Major: unmapWindow}) {
			t.Fatalf("got %v, %v, want BadWindow for request %d", a, err, first)
		}
		if a, err := conn.Receive(ctx); err != nil || a.Request() != second || a.Err() != nil || a.Uint16(8) != length || conn.Rest() != 8 {
			t.Fatalf("got %v, %v with %d more bytes, want the reply to %d", a, err, conn.Rest(), second)
		}
		if a, err := conn.Receive(ctx); err != nil || a.Request() != third {
			t.Fatalf("got %v, %v, want the reply to %d", a, err, third)
		}
		var name [length]byte
		if _, err := conn.Read(ctx, name[:]); err != nil || string(name[:]) != "PRIMARY" {
			t.Fatalf("got %q, %v, want PRIMARY", name, err)
		}
	}
	if got := fmt.Sprint(Fault{Code: 3, Value: 0x123, Major: 10}); got != "X error: BadWindow (3) of request 10.0 for 0x123" {
		t.Errorf("got %s", got)
	}
}

// TestFiles checks that files go over a socket of this machine only, and that a batch that is not sent leaves no trace.
func TestFiles(t *testing.T) {
	server := xvfb.ForTest(t, 320, 240, "-listen", "tcp")
	conn := dial(t, "127.0.0.1"+server.Display())
	conn.Add(getInputFocus, 0)
	if err := conn.SendRights(t.Context(), nil); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("got %v over TCP, want it not supported", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	conn.Add(getInputFocus, 0)
	if err := conn.Send(done); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
	number := conn.Add(getAtomName, 0, 1)
	if err := conn.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, err := conn.Reply(t.Context()); err != nil || a.Request() != number || conn.Rest() != 8 {
		t.Errorf("got %v, %v, want the reply to %d", a, err, number)
	}
}

func TestExtension(t *testing.T) {
	server := xvfb.ForTest(t, 320, 240, "-extension", "MIT-SHM")
	conn := dial(t, server.Display())
	other, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, name := range []string{"RANDR", "XTEST", "BIG-REQUESTS"} { // lengths that fill words and do not
		want, err := xproto.QueryExtension(other.X, uint16(len(name)), name).Reply()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := conn.Extension(t.Context(), name); err != nil || got != want.MajorOpcode {
			t.Errorf("%s: got %d, %v, want %d", name, got, err, want.MajorOpcode)
		}
	}
	if _, err := conn.Extension(t.Context(), "MIT-SHM"); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "MIT-SHM") {
		t.Errorf("got %v, want it not supported", err)
	}
}

// TestSilence dials something that accepts and says nothing.
func TestSilence(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "silent:0")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := Dial(ctx, socket); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrNoDisplay) {
		t.Errorf("got %v, want the deadline exceeded", err)
	}
	if took := time.Since(begin); took > 500*time.Millisecond {
		t.Errorf("a context that was done after 50ms was heeded after %v", took)
	}
}

// TestStream gives a Conn what a server may send, in two parts, between which the context ends.
func TestStream(t *testing.T) {
	packet := func(kind, detail byte, request uint16, rest int) []byte {
		p := make([]byte, 32+rest)
		p[0], p[1] = kind, detail
		binary.LittleEndian.PutUint16(p[2:], request)
		binary.LittleEndian.PutUint32(p[4:], uint32(rest/4))
		return p
	}
	const mappingNotify, sent = 34, 0x80
	var stream []byte
	for _, p := range [][]byte{
		packet(kindReply, 1, 0xffff, 8), packet(kindError, 2, 1, 0), // of a batch before
		packet(mappingNotify, 3, 2, 0), packet(kindGeneric, 4, 2, 8), packet(kindGeneric|sent, 5, 3, 4),
		packet(kindReply, 7, 2, 4),
		packet(mappingNotify, 6, 3, 0), packet(kindError, 8, 3, 0),
	} {
		stream = append(stream, p...)
	}
	const wanted = 40 + 32 + 32 + 40 + 36 // where the first answer of this batch is
	for cut := 4; cut < wanted+32; cut += 4 {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			conn := &Conn{socket: ours, patience: 10 * time.Second, first: 2}
			ctx, cancel := context.WithCancel(t.Context())
			given := make(chan struct{})
			go func() {
				theirs.Write(stream[:cut])
				cancel()
				<-given
				theirs.Write(stream[cut:])
			}()
			if _, err := conn.Receive(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("cut at %d: got %v, want it cancelled", cut, err)
			}
			close(given)
			answer, err := conn.Receive(t.Context())
			if err != nil || answer[1] != 7 || answer.Err() != nil {
				t.Errorf("cut at %d: got %v, %v, want the reply to request 2", cut, answer, err)
			}
			if answer, err = conn.Receive(t.Context()); err != nil || answer.Err() != (Fault{Code: 8, Value: 0}) {
				t.Errorf("cut at %d: got %v, %v, want the error of request 3", cut, answer, err)
			}
			ours.Close()
			theirs.Close()
		})
	}
}

// TestSlow has the other end send little by little: that is no silence, however long it takes.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		const pieces, interval = 8, 50 * time.Millisecond
		go func() {
			for range pieces {
				time.Sleep(interval)
				if _, err := theirs.Write([]byte{1, 2}); err != nil {
					return
				}
			}
		}()
		conn := &Conn{socket: ours, patience: pieces / 2 * interval}
		var got [2 * pieces]byte
		if _, err := conn.Read(t.Context(), got[:]); err != nil {
			t.Errorf("got %v for what took twice the patience, want no error", err)
		}
		if _, err := conn.Read(t.Context(), got[:]); !errors.Is(err, driver.ErrDisplayLost) {
			t.Errorf("got %v for silence, want the display lost", err)
		}
	})
}
