package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"image"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestOptionsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts Options
		want string
	}{
		{"capitals", Options{Name: "Box"}, "name"},
		{"an option for a name", Options{Name: "-v"}, "name"},
		{"a dot", Options{Name: "a.proxy"}, "name"},
		{"long", Options{Name: strings.Repeat("a", 41)}, "name"},
		{"small screen", Options{Screen: image.Pt(10, 10)}, "screen"},
		{"huge screen", Options{Screen: image.Pt(100000, 800)}, "screen"},
		{"memory", Options{Limits: Limits{Memory: "lots"}}, "size"},
		{"options in a size", Options{Limits: Limits{Temp: "1m,exec"}}, "size"},
		{"processors", Options{Limits: Limits{CPUs: -1}}, "limits"},
		{"processes", Options{Limits: Limits{PIDs: -1}}, "limits"},
	} {
		if _, err := tt.opts.container(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error about the %s", tt.name, err, tt.want)
		}
	}
	one, err := new(Options).container()
	if err != nil {
		t.Fatal(err)
	}
	two, err := new(Options).container()
	if err != nil || one.name == two.name {
		t.Errorf("got names %s and %s by chance, %v", one.name, two.name, err)
	}
}

// TestAbandoned makes sure that only what nobody will take down counts as left behind.
func TestAbandoned(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	dead := me
	dead.start += "0"
	elsewhere := dead
	elsewhere.host = "elsewhere"
	for _, tt := range []struct {
		name  string
		part  part
		state string
		want  bool
	}{
		{"running, its owner at work", part{name: "deskagent-a", state: "running", owner: me}, StateRunning, false},
		{"running, its owner dead", part{name: "deskagent-a", state: "running", owner: dead}, StateRunning, true},
		{"running, its owner on another machine", part{name: "deskagent-a", state: "running", owner: elsewhere}, StateRunning, false},
		{"stays", part{name: "deskagent-a", state: "running", owner: dead, stays: true}, StateRunning, false},
		{"stays, stopped", part{name: "deskagent-a", state: "exited", owner: dead, stays: true}, StateStopped, false},
		{"would have stayed, its owner died at the start", part{name: "deskagent-a.starting", state: "running", owner: dead, stays: true}, StateStarting, true},
		{"being started", part{name: "deskagent-a.starting", state: "created", owner: me, stays: true}, StateStarting, false},
		{"kept for a look", part{name: "deskagent-a.failed", state: "running", owner: dead}, StateFailed, false},
	} {
		tt.part.sandbox, tt.part.role, tt.part.owned = "a", roleDesktop, true
		proxy := part{name: "deskagent-a.proxy", sandbox: "a", role: roleProxy, owner: dead, owned: true}
		for _, parts := range [][]part{{tt.part}, {tt.part, proxy}, {proxy, tt.part}} {
			got := infos(parts)
			if len(got) != 1 || got[0].Abandoned != tt.want || got[0].State != tt.state {
				t.Errorf("%s: got %+v, want %s, abandoned %v", tt.name, got, tt.state, tt.want)
			}
		}
	}
	if got := infos([]part{{name: "deskagent-a.net", sandbox: "a", role: roleNetwork, owner: dead, owned: true}}); len(got) != 1 || !got[0].Abandoned {
		t.Errorf("got %+v, want a network without a desktop to be abandoned", got)
	}
	if got := infos([]part{{name: "deskagent-a", sandbox: "a", role: roleDesktop}}); len(got) != 1 || got[0].Abandoned {
		t.Errorf("got %+v, want one without an owner's label left alone", got)
	}
}

func TestOwner(t *testing.T) {
	me, err := self()
	if err != nil {
		t.Fatal(err)
	}
	if me.dead() {
		t.Error("this process is said to be dead")
	}
	if got, err := parseOwner(me.String()); err != nil || got != me {
		t.Errorf("got %v, %v, want %v", got, err, me)
	}
	for _, s := range []string{"", "host", "host/pid/start", "host/1"} {
		if got, err := parseOwner(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		}
	}
	child := exec.Command(os.Args[0], "-test.run=^$")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	start, err := processStart(child.Process.Pid)
	if err != nil || start == me.start {
		t.Errorf("got start %q, %v, want another than %q", start, err, me.start)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := processStart(child.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want an ended process to be gone", err)
	}
	if ended := (owner{me.host, child.Process.Pid, start}); !ended.dead() {
		t.Error("an ended process is not said to be dead")
	}
}

func TestParseParts(t *testing.T) {
	parts, err := parseParts("id\tdeskagent-a\trunning\tUp 2 seconds\timg:1\ta\tdesktop\th/1/b.2\ttrue\tallow=x.example:443,y.example:80\tS\n"+
		"id\tdeskagent-b.proxy\tcreated\tCreated\timg:1\tb\tproxy\t\t\tnone\t\n", "deskagent-b.net\tb\th/1/b.2\tT\n")
	if err != nil || len(parts) != 3 {
		t.Fatalf("got %+v, %v, want three parts", parts, err)
	}
	if p := parts[0]; p.net != "allow=x.example:443,y.example:80" || !p.stays || p.owner != (owner{"h", 1, "b.2"}) || p.role != roleDesktop || p.start != "S" {
		t.Errorf("got %+v", p)
	}
	if p := parts[1]; p.owned || p.stays {
		t.Errorf("got %+v, want no owner", p)
	}
	if _, err := parseParts("id\tname\n", ""); err == nil {
		t.Error("got no error of a line that is too short")
	}
}

// TestNeighbours checks that all there is around a guest is tried, but for the proxy that it is to use.
func TestNeighbours(t *testing.T) {
	var networks []network
	unmarshal(t, `[
		{"Name": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}, "Containers": {
			"a": {"Name": "other", "IPv4Address": "172.17.0.5/16", "IPv6Address": "fd00::5/64"},
			"b": {"Name": "deskagent-box.proxy", "IPv4Address": "172.17.0.6/16"}}},
		{"Name": "deskagent-box.net", "IPAM": {"Config": [{"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.9"}]}, "Containers": {
			"b": {"Name": "deskagent-box.proxy", "IPv4Address": "172.18.0.2/16"},
			"c": {"Name": "deskagent-box.starting", "IPv4Address": "172.18.0.3/16"}}},
		{"Name": "host", "IPAM": {"Config": []}}, {"Name": "none", "IPAM": {}}]`, &networks)
	got, proxy := neighbours(networks, container{name: "box"})
	if proxy.String() != "172.18.0.2" {
		t.Errorf("got proxy %v, want its address on the common network", proxy)
	}
	for addr, want := range map[string]bool{
		"172.17.0.1": true, "172.17.0.5": true, "fd00::5": true, "172.17.0.6": true, "172.18.0.1": true, "172.18.0.9": true,
		"172.18.0.2": false, "172.18.0.3": false, "127.0.0.1": false,
	} {
		if slices.Contains(got, netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: got %v, want it among them %v", addr, !want, want)
		}
	}
}

// TestD2 is row D2 of the field cases: a checkout with CRLF line ends makes the same image.
func TestD2(t *testing.T) {
	unix, windows := fstest.MapFS{}, fstest.MapFS{}
	files, err := fs.ReadDir(imageFiles, "image")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := fs.ReadFile(imageFiles, "image/"+file.Name())
		if err != nil {
			t.Fatal(err)
		}
		lines := unixLines(data)
		unix["image/"+file.Name()] = &fstest.MapFile{Data: lines}
		windows["image/"+file.Name()] = &fstest.MapFile{Data: bytes.ReplaceAll(lines, []byte("\n"), []byte("\r\n"))}
	}
	want, err := buildContext(unix, []byte("program"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := buildContext(windows, []byte("program"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got another context of files with CRLF, %v", err)
	}
	contents := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(got)); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[header.Name] = string(data)
	}
	if contents["deskagent"] != "program" || !strings.Contains(contents["Dockerfile"], "FROM debian") || strings.Contains(contents["Dockerfile"], "\r") {
		t.Errorf("got a context of %q", contents)
	}
}

// TestDockerfileIsPlain keeps the Dockerfile to what the classic builder and BuildKit both take without fetching a
// frontend.
func TestDockerfileIsPlain(t *testing.T) {
	data, err := fs.ReadFile(imageFiles, "image/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"syntax=", "--mount", "--chmod", "<<", "|| true"} {
		if bytes.Contains(data, []byte(word)) {
			t.Errorf("the Dockerfile has %q", word)
		}
	}
}

// TestStaticFor is a part of row D6 of the field cases: the program in the image is of the engine's architecture.
func TestStaticFor(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(system, arch string) string {
		path := filepath.Join(dir, system+arch)
		cmd := exec.Command("go", "build", "-o", path, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("needs the go command: %v %s", err, out)
		}
		return path
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if _, err := guestBinary(build("linux", arch), arch); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct{ path, arch, want string }{
		{build("linux", "arm64"), "amd64", "AARCH64"},
		{build("windows", "amd64"), "amd64", "not a program for Linux"},
		{build("linux", "amd64"), "riscv64", "amd64 and arm64 only"},
		{filepath.Join(dir, "none"), "amd64", "no such file"},
	} {
		if _, err := guestBinary(tt.path, tt.arch); !errors.Is(err, ErrNoBinary) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s for %s: got %v, want %s", tt.path, tt.arch, err, tt.want)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	// A program with an interpreter is a dynamic one.
	if shell, err := os.Stat("/bin/sh"); err == nil && shell.Mode().IsRegular() {
		if _, err := staticFor("/bin/sh", runtime.GOARCH); err == nil || !strings.Contains(err.Error(), "not static") {
			t.Errorf("/bin/sh: got %v, want not static", err)
		}
	}
}

func TestNoEngine(t *testing.T) {
	for _, docker := range [][]string{{"/nonexistent/docker"}, {"false"}} {
		if _, err := New(&Config{Docker: docker}).Arch(t.Context()); !errors.Is(err, ErrNoEngine) {
			t.Errorf("%v: got %v, want it to say that no engine answers", docker, err)
		}
	}
}

// TestEngines reads what engines say of themselves: Docker 20.10, podman 4.3 and its server, and a Docker for Windows containers.
func TestEngines(t *testing.T) {
	const (
		dockerInfo = `{"ServerVersion":"20.10.24","SecurityOptions":["name=apparmor","name=seccomp,profile=default"],"MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":false}`
		podmanInfo = `{"version":{"Version":"4.3.1"},"host":{"cgroupControllers":["cpu","memory"],"security":{"seccompEnabled":true}}}`
	)
	for _, test := range []struct {
		version, info string
		want          Health
	}{
		{`{"Client":{"Os":"darwin","Arch":"arm64"},"Server":{"Os":"linux","Arch":"arm64"}}`, dockerInfo,
			Health{Version: "20.10.24", Arch: "arm64", Seccomp: true, MemoryLimit: true, CPULimit: true}},
		{`{"Client":{"OsArch":"linux/amd64","Os":"linux"}}`, podmanInfo,
			Health{Version: "4.3.1", Arch: "amd64", Podman: true, Seccomp: true, MemoryLimit: true, CPULimit: true}},
		{`{"Client":{"OsArch":"darwin/arm64"},"Server":{"OsArch":"linux/arm64"}}`, podmanInfo,
			Health{Version: "4.3.1", Arch: "arm64", Podman: true, Seccomp: true, MemoryLimit: true, CPULimit: true}},
	} {
		p, err := parsePlatform([]byte(test.version))
		if err != nil {
			t.Errorf("%s: %v", test.version, err)
			continue
		}
		if got, err := parseHealth(p, []byte(test.info)); err != nil || got != test.want {
			t.Errorf("%s: got %+v, %v, want %+v", test.version, got, err, test.want)
		}
	}
	for _, version := range []string{`{"Client":{"Os":"linux","Arch":"amd64"},"Server":{"Os":"windows","Arch":"amd64"}}`, `{}`, ``} {
		if got, err := parsePlatform([]byte(version)); err == nil {
			t.Errorf("%q: got %+v, want an error", version, got)
		}
	}
}

// TestSeccompFile has the profile written once, also beside a file that somebody has changed, and nothing else.
func TestSeccompFile(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // where caches are kept elsewhere
	t.Setenv("LocalAppData", cache)
	var path string
	for i, change := range []func(){func() {}, func() {}, func() { os.WriteFile(path, []byte("{}"), 0o600) }} {
		change()
		got, err := seccompFile()
		if err != nil || i > 0 && got != path {
			t.Fatalf("got %s, %v, want %s", got, err, path)
		}
		path = got
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, seccompProfile) {
			t.Errorf("got %.100s, %v, want the profile", data, err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("got %v, %v, want one file", files, err)
	}
}
