package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/sandbox/selftest"
)

// An outsideNetwork is what stands for the internet in tests: a network of its own with one web server on it, which has
// two names. Its addresses are of a block for documentation, so no real place is hidden by it, and count as public.
type outsideNetwork struct {
	name    string
	server  netip.Addr
	gateway string // the host's address on it
}

const (
	allowedHost = "allowed.test"
	otherHost   = "other.test"
	serverPort  = 8080
)

// webServer answers every request with a page that names the host asked for.
const webServer = `use IO::Socket::INET; $SIG{CHLD} = "IGNORE";
$s = IO::Socket::INET->new(LocalPort => 8080, Listen => 50, ReuseAddr => 1) or die $!;
while ($c = $s->accept) { if (fork) { close $c; next } $r = ""; while (<$c>) { $r .= $_; last if /^\r?$/ }
	($h) = $r =~ /^Host: ([^:\r]*)/mi; print $c "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page of $h</p>\n"; exit }`

func startOutside(t *testing.T, image string) outsideNetwork {
	t.Helper()
	o := outsideNetwork{name: fmt.Sprintf("deskagent-test-%d-%s", os.Getpid(), strings.ToLower(t.Name()))}
	// Other runs on this engine have outsides too: the first block that is free.
	made := false
	for i := 0; i < 14 && !made; i++ {
		_, err := tryDocker("network", "create", "--subnet", fmt.Sprintf("198.51.100.%d/28", 16*(i+1)), o.name)
		made = err == nil
	}
	if !made {
		t.Fatal("no free block of addresses for the outside")
	}
	t.Cleanup(func() { docker(t, "network", "rm", o.name) })
	id := docker(t, "run", "--detach", "--pull", "never", "--network", o.name, "--network-alias", allowedHost, "--network-alias", otherHost,
		"--entrypoint", "perl", image, "-e", webServer)
	t.Cleanup(func() { docker(t, "rm", "--force", id) })
	var err error
	if o.server, err = netip.ParseAddr(inspect(t, id, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")); err != nil {
		t.Fatal(err)
	}
	o.gateway = inspect(t, id, "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}")
	waitFor(t, "the web server", func() bool {
		out, err := tryDocker("exec", id, "perl", "-e", fetch, "127.0.0.1", "8080", "GET / HTTP/1.0\r\nHost: self\r\n\r\n")
		return err == nil && strings.Contains(out, "page of self")
	})
	return o
}

// fetch is a client that shares nothing with ours: it connects, sends what it is given, and prints the answer.
const fetch = `use IO::Socket::INET; $c = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1], Timeout => 3) or die "connect: $!\n";
$ARGV[2] =~ s/\\r\\n/\r\n/g; print $c $ARGV[2]; local $/; print <$c>`

// ask has the client in a container fetch something.
func ask(container, host string, port int, request string) (string, error) {
	return tryDocker("exec", container, "perl", "-e", fetch, host, strconv.Itoa(port), request)
}

// leaky starts a container of the image with nothing but the engine's own limits, on a network, as root: what is blocked
// in a sandbox is open there.
func leaky(t *testing.T, image, network string, flags ...string) string {
	t.Helper()
	id := plain(t, image, append([]string{"--network", network, "--user", "root"}, flags...)...)
	docker(t, "start", id)
	return id
}

// TestN3 is row N3 of the field cases, the mode without a network: names, addresses and questions to name servers all
// fail, tried by clients that share nothing with the self-test. The control is a container with a network.
func TestN3(t *testing.T) {
	e, image := engineForTest(t)
	outside := startOutside(t, image)
	s := up(t, e, Options{Image: image})
	control := leaky(t, image, outside.name)
	server := outside.server.String()
	for _, tt := range []struct {
		name string
		argv []string
		want string // in the control
	}{
		{"name", []string{"getent", "hosts", allowedHost}, server},
		{"raw IP", []string{"perl", "-e", fetch, server, "8080", "GET / HTTP/1.0\r\nHost: x\r\n\r\n"}, "page of x"},
		{"DNS TXT", []string{"perl", "-e", askTXT, "127.0.0.11"}, "answered"},
		{"interfaces", []string{"sh", "-c", "cat /proc/net/route | grep eth0"}, "eth0"},
	} {
		if out, err := tryDocker(slices.Concat([]string{"exec", control}, tt.argv)...); err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: got %q, %v with a network, so this test shows nothing", tt.name, out, err)
		}
		if out, err := s.Exec(t.Context(), tt.argv...); err == nil {
			t.Errorf("%s: got %q, want it to fail", tt.name, out)
		}
	}
	if failed := s.Report.Failed(); len(failed) > 0 {
		t.Errorf("got %v of the self-test", failed)
	}
}

// askTXT asks a name server for a text; whatever comes back is an answer.
const askTXT = `use IO::Socket::INET; $c = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => 53, Proto => "udp") or die;
send($c, "\x2a\x2a\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07allowed\x04test\x00\x00\x10\x00\x01", 0);
local $SIG{ALRM} = sub { die "no answer\n" }; alarm 3; defined recv($c, $b, 512, 0) or die "$!\n"; print "answered\n"`

// TestN4 is row N4 of the field cases, the mode with an allow-list: the allowed host is reached, by a client of its own
// and by the browser, and nothing else is, whichever way is tried. The log of the proxy tells of all of it.
func TestN4(t *testing.T) {
	e, image := engineForTest(t)
	outside := startOutside(t, image)
	s := up(t, e, Options{Image: image, Egress: outside.name, Net: mustParseNet(t, fmt.Sprintf("allow=%s:%d", allowedHost, serverPort))})
	request := func(host string) string {
		return fmt.Sprintf("GET http://%[1]s:%[2]d/ HTTP/1.0\r\nHost: %[1]s\r\n\r\n", host, serverPort)
	}
	if out, err := ask(s.Container(), proxyAlias, 3128, request(allowedHost)); err != nil || !strings.Contains(out, "page of "+allowedHost) {
		t.Errorf("allowed host: got %q, %v, want its page", out, err)
	}
	for _, host := range []string{otherHost, outside.server.String(), "169.254.169.254", "127.0.0.1", "localhost", "example.com"} {
		if out, err := ask(s.Container(), proxyAlias, 3128, request(host)); err != nil || !strings.Contains(out, "403 Forbidden") {
			t.Errorf("%s: got %q, %v, want 403", host, out, err)
		}
	}
	// Around the proxy. The control is a container beside the server, which gets through.
	control := leaky(t, image, outside.name)
	for _, addr := range []string{outside.server.String(), allowedHost, outside.gateway} {
		port := serverPort
		if addr == outside.gateway {
			port = listenOnHost(t, addr)
		}
		if out, err := ask(control, addr, port, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"); err != nil {
			t.Errorf("%s: got %q, %v beside the server, so this test shows nothing", addr, out, err)
		}
		if out, err := ask(s.Container(), addr, port, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"); err == nil {
			t.Errorf("%s: got %q, want it out of reach", addr, out)
		}
	}
	// The browser takes the proxy by itself.
	for host, want := range map[string]bool{allowedHost: true, otherHost: false} {
		page, err := s.Exec(t.Context(), "chromium", "--headless", "--disable-gpu", "--dump-dom", fmt.Sprintf("http://%s:%d/", host, serverPort))
		if got := strings.Contains(string(page), "page of "+host); got != want {
			t.Errorf("browser: got the page of %s: %v, %v, want %v: %s", host, got, err, want, page)
		}
	}
	var audit lockedBuffer
	if err := s.Audit(t.Context(), &audit); err != nil {
		t.Fatal(err)
	}
	allowed, denied := 0, 0
	for line := range strings.Lines(audit.String()) {
		var entry struct{ Msg, Target, Address, Reason string }
		unmarshal(t, line, &entry)
		switch entry.Msg {
		case "allow":
			if allowed++; entry.Target != fmt.Sprintf("%s:%d", allowedHost, serverPort) || !strings.HasPrefix(entry.Address, outside.server.String()) {
				t.Errorf("got %s let through", line)
			}
		case "deny":
			denied++
		}
	}
	if allowed < 3 || denied < 8 {
		t.Errorf("got %d allowed and %d denied in the audit log:\n%s", allowed, denied, audit.String())
	}
}

// listenOnHost listens on an address of the host, as a service there would, and returns the port.
func listenOnHost(t *testing.T, addr string) int {
	t.Helper()
	cmd := exec.Command("perl", "-e", `use IO::Socket::INET; $s = IO::Socket::INET->new(LocalAddr => $ARGV[0], Listen => 5) or die; $| = 1;
		print $s->sockport, "\n"; while ($c = $s->accept) { print $c "hello\n"; close $c }`, addr)
	var out lockedBuffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	waitFor(t, "a service on the host", func() bool { return strings.HasSuffix(out.String(), "\n") })
	port, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestSelfTestNotices is the positive control of the self-test: its own plan, in a container where nothing is limited,
// finds every kind of leak.
func TestSelfTestNotices(t *testing.T) {
	e, image := engineForTest(t)
	outside := startOutside(t, image)
	six := fmt.Sprintf("deskagent-test-six-%d", os.Getpid())
	docker(t, "network", "create", "--ipv6", "--subnet", "fd2a:de5c::/64", six)
	t.Cleanup(func() { docker(t, "network", "rm", six) })
	// The engine's name server answers for names of its own network; to it this one is as good as outside.
	control := leaky(t, image, outside.name, "--volume", "/var/run/docker.sock:/var/run/docker.sock")
	docker(t, "network", "connect", six, control)
	c, err := (&Options{Net: mustParseNet(t, "allow=example.com")}).container()
	if err != nil {
		t.Fatal(err)
	}
	networks, err := e.networks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan := selftest.Plan{
		Outside:  []string{netip.AddrPortFrom(outside.server, serverPort).String(), "[fd2a:de5c::1]:22"},
		Question: allowedHost, // its A is known
		Names:    []string{otherHost},
		Proxy:    netip.AddrPortFrom(outside.server, serverPort).String(), // a server that lets everything through
		Denied:   []string{"127.0.0.1:22"},
		Allowed:  "example.com:443",
	}
	plan.Neighbours, _ = neighbours(networks, c)
	input, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker", checkArgs(control)...)
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var report selftest.Report
	unmarshal(t, string(out), &report)
	found := map[string]bool{}
	for _, f := range report.Failed() {
		found[f.Name] = true
	}
	for _, name := range []string{"tcp to a neighbour", "udp to a neighbour", "tcp to outside", "name", "dns A", "dns TXT", "denied by proxy",
		"no IPv6", "no way out", "raw socket", "packet socket", "privileges", "root file system", "engine's socket"} {
		if !found[name] {
			t.Errorf("%s: not noticed", name)
		}
	}
	if found["control, open port"] || found["control, closed port"] {
		t.Errorf("the controls failed: %v", report.Failed())
	}
}

// TestN5 is row N5 of the field cases: a limit that is not in effect stops the start, and nothing stays behind. The
// docker command leaves out, or changes, one flag at a time.
func TestN5(t *testing.T) {
	_, image := engineForTest(t)
	outside := startOutside(t, image)
	allow := fmt.Sprintf("allow=%s:%d", allowedHost, serverPort)
	for _, tt := range []struct {
		name, net string
		changes   []string
		want      string
	}{
		{"nothing left out", allow, nil, ""},
		{"a network after all", "none", []string{"none=>" + outside.name}, "to a neighbour"},
		{"network not internal, the host on the bridge", allow, []string{"--internal=>",
			"com.docker.network.bridge.inhibit_ipv4=true=>com.docker.network.bridge.inhibit_ipv4=false"}, "no way out"},
		{"the host on the bridge", allow, []string{"com.docker.network.bridge.inhibit_ipv4=true=>com.docker.network.bridge.inhibit_ipv4=false"}, "to a neighbour"},
		{"capabilities", "none", []string{"--cap-drop=>--cap-add", "ALL=>NET_RAW"}, "CapBnd"},
		{"rights to gain", "none", []string{"no-new-privileges=>no-new-privileges=false"}, "NoNewPrivs 0"},
		{"root", "none", []string{"1000:1000=>0:0"}, "Uid 0"},
		{"writable root", "none", []string{"--read-only=>"}, "root file system"},
		{"no filter of system calls", "none", []string{"seccomp=*=>seccomp=unconfined"}, "Seccomp 0"},
		{"the engine's socket", "none", []string{"--read-only=>--read-only --volume /var/run/docker.sock:/var/run/docker.sock"}, "engine's socket"},
		{"allowed host does not answer", fmt.Sprintf("allow=%s:1", allowedHost), nil, "allowed by proxy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := New(&Config{Docker: append(append([]string{os.Args[0], "docker-without"}, tt.changes...), "docker")})
			opts := &Options{Name: fmt.Sprintf("test-n5-%d", os.Getpid()), Image: image, Egress: outside.name, Net: mustParseNet(t, tt.net)}
			s, err := e.Up(t.Context(), opts)
			if err == nil {
				s.Close()
			}
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, ErrSelfTest) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want the self-test to stop the start with %q", err, tt.want)
			}
			if rest := left(t, opts.Name); rest != "" {
				t.Errorf("got %s left", rest)
			}
		})
	}
}

// listeners are the TCP ports that somebody listens on in a container, with their addresses as the kernel writes them.
func listeners(t *testing.T, container string) []string {
	t.Helper()
	var ports []string
	for line := range strings.Lines(docker(t, "exec", container, "cat", "/proc/net/tcp", "/proc/net/tcp6")) {
		const listening = "0A"
		// The engine's name server listens in every container of a network, on 127.0.0.11.
		if f := strings.Fields(line); len(f) > 3 && f[3] == listening && !strings.HasPrefix(f[1], "0B00007F") {
			ports = append(ports, f[1])
		}
	}
	return ports
}

// TestZ1Z3 is rows Z1 and Z3 of the field cases: nothing listens in a guest, nothing of it is published, and the one
// thing that listens beside it, the proxy, serves the guest's network only, and only as a proxy.
func TestZ1Z3(t *testing.T) {
	e, image := engineForTest(t)
	outside := startOutside(t, image)
	s := up(t, e, Options{Image: image, Egress: outside.name, Net: mustParseNet(t, fmt.Sprintf("allow=%s:%d", allowedHost, serverPort))})
	if got := listeners(t, s.Container()); len(got) > 0 {
		t.Errorf("got %v listening in the guest", got)
	}
	proxy := proxyName(s.Name)
	addrs := strings.Fields(inspect(t, proxy, "{{range $name, $n := .NetworkSettings.Networks}}{{$name}}={{$n.IPAddress}} {{end}}"))
	var inner, outer string
	for _, addr := range addrs {
		name, ip, _ := strings.Cut(addr, "=")
		if name == outside.name {
			outer = ip
		} else {
			inner = ip
		}
	}
	ip := netip.MustParseAddr(inner).As4()
	want := fmt.Sprintf("%02X%02X%02X%02X:0C38", ip[3], ip[2], ip[1], ip[0])
	if got := listeners(t, proxy); !slices.Equal(got, []string{want}) {
		t.Errorf("got %v listening in the proxy's container, want only %s", got, want)
	}
	for _, container := range []string{s.Container(), proxy} {
		if got := inspect(t, container, "{{.HostConfig.PublishAllPorts}} {{.HostConfig.PortBindings}} {{.NetworkSettings.Ports}}"); got != "false map[] map[]" {
			t.Errorf("got ports of %s: %s", container, got)
		}
	}
	// From the way out the proxy is not to be had; the guest has it. Without a proxy request it says nothing but no.
	control := leaky(t, image, outside.name)
	if out, err := ask(control, outer, 3128, "GET / HTTP/1.0\r\n\r\n"); err == nil {
		t.Errorf("got %q of the proxy from outside", out)
	}
	if out, err := ask(control, outside.server.String(), serverPort, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"); err != nil {
		t.Errorf("got %q, %v of the server, so the test above shows nothing", out, err)
	}
	for _, path := range []string{"/", "/tasks", "/computer-use", "/v1/responses"} {
		if out, err := ask(s.Container(), proxyAlias, 3128, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil || !strings.Contains(out, "403 Forbidden") {
			t.Errorf("%s: got %q, %v, want 403", path, out, err)
		}
	}
}

// TestZ2 is row Z2 of the field cases: the guest's user is an ordinary one and cannot become another.
func TestZ2(t *testing.T) {
	e, image := engineForTest(t)
	s := up(t, e, Options{Image: image})
	if out, err := s.Exec(t.Context(), "id"); err != nil || strings.TrimSpace(string(out)) != "uid=1000(desk) gid=1000(desk) groups=1000(desk)" {
		t.Errorf("got %s, %v", out, err)
	}
	for _, argv := range [][]string{{"sudo", "-n", "true"}, {"su", "-c", "true"}, {"unshare", "--mount", "mount", "-t", "tmpfs", "x", "/mnt"},
		{"mount", "-o", "remount,rw", "/"}, {"chroot", "/", "true"}, {"setpriv", "--reuid", "0", "true"}} {
		if out, err := s.Exec(t.Context(), argv...); err == nil {
			t.Errorf("%q: got %q, want it to fail", argv, out)
		}
	}
	setuid := []string{"sh", "-c", "find / -xdev -type f -perm /6000; find /tmp -type f -perm /6000"}
	if out, err := s.Exec(t.Context(), setuid...); err != nil || len(out) > 0 {
		t.Errorf("got programs with another's rights %q, %v", out, err)
	}
	if out, err := s.Exec(t.Context(), "sh", "-c", "cp /bin/true /tmp/x && chmod 4755 /tmp/x && "+setuid[2]); err != nil || strings.TrimSpace(string(out)) != "/tmp/x" {
		t.Errorf("got %q, %v, want the search to find what is there", out, err)
	}
}

// TestD8 is row D8 of the field cases, and more: the flags are in effect, as the engine and as programs in the guest
// find them.
func TestD8(t *testing.T) {
	e, image := engineForTest(t)
	s := up(t, e, Options{Image: image, Limits: Limits{Memory: "512m", PIDs: 60, Temp: "64m", CPUs: 0.5}})
	format := "{{.HostConfig.Privileged}} {{.HostConfig.CapDrop}} {{.HostConfig.CapAdd}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Binds}} {{.Mounts}} " +
		"{{.HostConfig.NetworkMode}} {{.HostConfig.ShmSize}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} {{.Config.User}}"
	got := strings.ReplaceAll(inspect(t, s.Container(), format), "<no value>", "[]") // the classic client's word for none
	if want := "false [ALL] [] true [] [] none 268435456 536870912 536870912 500000000 60 1000:1000"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := inspect(t, s.Container(), "{{range .HostConfig.SecurityOpt}}{{.}} {{end}}"); !strings.HasPrefix(got, "no-new-privileges seccomp={") {
		t.Errorf("got security options %.80s", got)
	}
	for _, tt := range []struct{ name, possible, impossible, want string }{
		{"root", "echo >/tmp/x", "echo >/x", "Read-only"},
		{"system", "echo >/run/x", "echo >/usr/bin/x", "Read-only"},
		{"space", "head -c 30m /dev/zero >/home/desk/x; rm /home/desk/x", "head -c 80m /dev/zero >/home/desk/x", "No space"},
		{"memory", `perl -e '$x = "a" x (100<<20)'`, `perl -e '$x = "a" x (700<<20)' || echo killed >&2; exit 1`, "killed"},
		{"devices", "true >/dev/null", "mknod /tmp/sda b 8 0", "not permitted"},
		{"kernel settings", "cat /proc/sys/kernel/core_pattern", "echo x >/proc/sys/kernel/core_pattern", "Read-only"},
		// The last one, as its processes take a while to end.
		{"processes", "sh -c true", "for i in $(seq 200); do sleep 5 & done", "Cannot fork"},
	} {
		if out, err := tryDocker("exec", s.Container(), "sh", "-c", tt.possible); err != nil {
			t.Errorf("%s: got %q, %v of what is possible", tt.name, out, err)
		}
		if out, _ := tryDocker("exec", s.Container(), "sh", "-c", tt.impossible); !strings.Contains(out, tt.want) {
			t.Errorf("%s: got %q of %s, want %q", tt.name, out, tt.impossible, tt.want)
		}
	}
}

// TestChromium starts the browser in a guest and checks from outside that it confines its pages. The control is a
// container with the engine's own filter of system calls, where it cannot.
func TestChromium(t *testing.T) {
	e, image := engineForTest(t)
	s := up(t, e, Options{Image: image})
	if _, err := os.ReadFile("/proc/" + inspect(t, s.Container(), "{{.State.Pid}}") + "/status"); err != nil {
		t.Skip("needs to see the guest's processes in /proc")
	}
	docker(t, "exec", "--detach", s.Container(), "chromium", "--no-first-run", "data:text/html,<title>hello</title>")
	var renderer string
	var lines map[string][]string
	waitFor(t, "a page's process with a filter of its own", func() bool {
		top, err := tryDocker("top", s.Container(), "-eo", "pid,args")
		if err != nil {
			return false
		}
		for line := range strings.Lines(top) {
			if f := strings.Fields(line); len(f) > 2 && strings.Contains(line, "--type=renderer") {
				renderer = f[0]
				lines = statusLines(renderer)
			}
		}
		return slices.Equal(lines["Seccomp_filters:"], []string{"2"})
	})
	// Our name for it, the container's, and those of two spaces of its own.
	if got := lines["NSpid:"]; len(got) != 4 {
		t.Errorf("got a process in %d spaces of process numbers, want 4", len(got))
	}
	if got := lines["CapEff:"]; len(got) != 1 || strings.Trim(got[0], "0") != "" {
		t.Errorf("got capabilities %v", got)
	}
	guest := inspect(t, s.Container(), "{{.State.Pid}}")
	for _, space := range []string{"user", "pid", "net"} {
		of := func(pid string) string {
			link, err := os.Readlink(filepath.Join("/proc", pid, "ns", space))
			if err != nil {
				t.Fatal(err)
			}
			return link
		}
		if of(renderer) == of(guest) {
			t.Errorf("the page's process shares the guest's %s space", space)
		}
	}
	if root, err := os.Readlink("/proc/" + renderer + "/root"); err != nil || root == "/" {
		t.Errorf("got root %q, %v of the page's process, want an empty place", root, err)
	}
	control := plain(t, image, "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
	docker(t, "start", control)
	waitFor(t, "the control", func() bool { ok, _ := marked(control); return ok })
	if out, err := tryDocker("exec", control, "chromium", "--headless", "--dump-dom", "data:text/html,hello"); err == nil || strings.Contains(out, "<html>") {
		t.Errorf("got %q, %v with the engine's own filter, so the three calls more are not needed", out, err)
	}
}

// statusLines is what the kernel says of a process, by the word that a line begins with.
func statusLines(pid string) map[string][]string {
	lines := map[string][]string{}
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 0 {
			lines[f[0]] = f[1:]
		}
	}
	return lines
}

// TestZ5 is row Z5 of the field cases: keys and passwords of the host's environment, and those for proxies in docker's
// configuration, are nowhere in a guest. The control is one that was put there.
func TestZ5(t *testing.T) {
	e, image := engineForTest(t)
	const key, password = "sk-test-KEY0123456789", "PROXYPASSWORD0123456789"
	t.Setenv("OPENAI_API_KEY", key)
	t.Setenv("HTTPS_PROXY", "http://user:"+password+"@proxy.invalid:1")
	config := t.TempDir()
	proxies := fmt.Sprintf(`{"proxies":{"default":{"httpProxy":"http://u:%[1]s@p.invalid:1","httpsProxy":"http://u:%[1]s@p.invalid:1","allProxy":"http://u:%[1]s@p.invalid:1","noProxy":"%[1]s"}}}`, password)
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(proxies), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", config)
	s := up(t, e, Options{Image: image})
	scan := func(container string) string {
		// Environments and arguments of all processes, every file that can be read, and what the engine knows.
		out, _ := tryDocker("exec", container, "sh", "-c", `for p in /proc/[0-9]*; do tr '\0' '\n' <$p/environ; tr '\0' '\n' <$p/cmdline; done 2>/dev/null | grep -v grep
			grep -raE 'sk-test-[A-Z]|PROXYPASS[W]' /tmp /run /home /etc /var 2>/dev/null`)
		return out + docker(t, "inspect", container)
	}
	for _, secret := range []string{key, password} {
		if strings.Contains(scan(s.Container()), secret) {
			t.Errorf("%s is in the guest", secret)
		}
	}
	docker(t, "exec", s.Container(), "sh", "-c", "echo "+key+" >/tmp/note")
	docker(t, "exec", "--detach", s.Container(), "env", "P="+password, "sleep", "30")
	for _, secret := range []string{key, password} {
		waitFor(t, "the scan to find what was put there", func() bool { return strings.Contains(scan(s.Container()), secret) })
	}
	// Docker does hand proxies to containers where nothing is said against it.
	naive := plain(t, image)
	if !strings.Contains(docker(t, "inspect", naive), password) {
		t.Error("docker's configuration is not in effect, so this test shows less than it could")
	}
}

// TestExecEnds is about the seam for the driver: a command in the guest ends within a second when its docker process is
// killed, and its exit code comes through.
func TestExecEnds(t *testing.T) {
	e, image := engineForTest(t)
	s := up(t, e, Options{Image: image})
	argv := s.ExecArgv(ExecOptions{Input: true}, "cat")
	cmd := exec.Command(argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := func() bool {
		_, err := s.Exec(context.Background(), "pidof", "cat")
		return err == nil
	}
	waitFor(t, "the command", running)
	cmd.Process.Kill()
	cmd.Wait()
	waitFor(t, "its end", func() bool { return !running() })
	argv = s.ExecArgv(ExecOptions{}, "sh", "-c", "exit 37")
	var exit *exec.ExitError
	if err := exec.Command(argv[0], argv[1:]...).Run(); !errors.As(err, &exit) || exit.ExitCode() != 37 {
		t.Errorf("got %v, want exit code 37", err)
	}
}
