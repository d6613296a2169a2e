package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deskagent/deskagent/sandbox/selftest"
)

// The tests in this file and in limits_test.go start real containers. They need an engine that answers, the base image
// (scripts/base-image makes it) and the go command, and are skipped without; all of them are left out with -short.

// The tests start this binary again in two roles: as a docker command that leaves out what it is told to, and as an
// owner that is going to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "docker-without":
			dockerWithout(os.Args[2:])
		case "owner":
			beOwner(os.Args[2:])
		}
	}
	os.Exit(m.Run())
}

// testImage builds the image once for all tests, from a program that is built from this source. Without the version
// control's stamp the same source gives the same program, and so the same image, from run to run.
var testImage = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		return "", fmt.Errorf("needs a Docker engine: %w: %.200s", err, out)
	}
	if err := exec.Command("docker", "image", "inspect", "debian:bookworm-slim").Run(); err != nil {
		return "", fmt.Errorf("needs the base image, which scripts/base-image makes: %w", err)
	}
	dir, err := os.MkdirTemp("", "deskagent-test-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "deskagent")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../cmd/deskagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("needs the go command: %w: %.500s", err, out)
	}
	image, err := New(nil).Build(context.Background(), &BuildOptions{Binary: binary})
	if err != nil {
		return "", fatalError{err}
	}
	return image, nil
})

// fatalError is what no test may be skipped for.
type fatalError struct{ error }

func engineForTest(t *testing.T) (e *Engine, image string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: starts containers")
	}
	image, err := testImage()
	if errors.As(err, new(fatalError)) {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	return New(nil), image
}

// up starts a sandbox for a test and takes it down afterwards.
func up(t *testing.T, e *Engine, opts Options) *Sandbox {
	t.Helper()
	begin := time.Now()
	s, err := e.Up(t.Context(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s was up after %v", s.Name, time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// docker runs docker for a test, past the code that is tested.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryDocker(args...)
	if err != nil {
		t.Fatalf("docker %q: %v: %s", args, err, out)
	}
	return out
}

func tryDocker(args ...string) (string, error) {
	out, err := exec.Command("docker", args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func inspect(t *testing.T, what, format string) string {
	t.Helper()
	return docker(t, "inspect", "--format", format, what)
}

// left is what the engine has of a sandbox.
func left(t *testing.T, name string) string {
	t.Helper()
	filter := "label=" + labelSandbox + "=" + name
	return docker(t, "ps", "--all", "--quiet", "--filter", filter) + docker(t, "network", "ls", "--quiet", "--filter", filter)
}

// waitFor waits for something that happens soon.
func waitFor(t *testing.T, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !there(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: not there after 30 s", what)
		}
	}
}

// TestUp is the life of one sandbox, from nothing to a first picture to nothing. The times are logged, and bounded
// loosely, as the machine may be busy.
func TestUp(t *testing.T) {
	e, image := engineForTest(t)
	begin := time.Now()
	s := up(t, e, Options{Image: image})
	picture, err := s.Exec(t.Context(), "deskagent", "screenshot", "-o", "-")
	took := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	shot, err := png.Decode(bytes.NewReader(picture))
	if err != nil || shot.Bounds().Dx() != 1280 || shot.Bounds().Dy() != 800 {
		t.Fatalf("got a picture of %v, %v", shot.Bounds(), err)
	}
	if r, g, b, _ := shot.At(900, 700).RGBA(); fmt.Sprintf("%02x%02x%02x", r>>8, g>>8, b>>8) != "2e4a62" {
		t.Errorf("got a desktop of another colour, %v", shot.At(900, 700))
	}
	t.Logf("the first picture was there after %v", took.Round(time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("the first picture took %v", took)
	}
	usage := docker(t, "stats", "--no-stream", "--format", "{{.MemUsage}}", s.Container())
	t.Logf("idle memory: %s", usage)
	if used, err := strconv.ParseFloat(strings.Split(usage, "MiB")[0], 64); err != nil || used > 150 {
		t.Errorf("got %s in use, %v, want less than 150 MiB", usage, err)
	}
	// Another X client sees the mark and the window manager.
	if props := docker(t, "exec", s.Container(), "xprop", "-root", "_DESKAGENT_GUEST", "_NET_SUPPORTING_WM_CHECK"); !strings.Contains(props, `_DESKAGENT_GUEST(STRING) = "1"`) || !strings.Contains(props, "window id") {
		t.Errorf("got root properties %s", props)
	}
	list, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(list, func(info Info) bool { return info.Name == s.Name }); i < 0 || list[i].State != StateRunning || list[i].Abandoned || list[i].Net != "none" {
		t.Errorf("got list %+v, want %s running in it", list, s.Name)
	}
	again, err := e.Open(t.Context(), s.Name)
	if err != nil || again.Container() != s.Container() {
		t.Errorf("got %+v, %v, want the same sandbox", again, err)
	}
	if _, err := e.Up(t.Context(), &Options{Image: image, Name: s.Name}); err == nil || !strings.Contains(err.Error(), "one of that name") {
		t.Errorf("got %v, want a second sandbox of the name refused", err)
	}
	if err := e.Down(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	if rest := left(t, s.Name); rest != "" {
		t.Errorf("got %s left", rest)
	}
	if err := e.Down(t.Context(), s.Name); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want nothing to take down", err)
	}
}

// TestSideBySide has several sandboxes start at once; each is on its own.
func TestSideBySide(t *testing.T) {
	e, image := engineForTest(t)
	sandboxes := make([]*Sandbox, 3)
	var all sync.WaitGroup
	for i := range sandboxes {
		all.Go(func() {
			s, err := e.Up(t.Context(), &Options{Image: image, Limits: Limits{Memory: "1g"}})
			if err != nil {
				t.Error(err)
				return
			}
			sandboxes[i] = s
		})
	}
	all.Wait()
	for _, s := range sandboxes {
		if s == nil {
			continue
		}
		defer s.Close()
		if out, err := s.Exec(t.Context(), "hostname"); err != nil || strings.TrimSpace(string(out)) != s.Name {
			t.Errorf("got host name %q, %v, want %s", out, err, s.Name)
		}
		if got := inspect(t, s.Container(), "{{.HostConfig.Memory}}"); got != "1073741824" {
			t.Errorf("got memory %s, want 1 GiB", got)
		}
	}
}

// plain makes a container of the image without any of the sandbox's flags, and removes it after the test. It is not
// started yet.
func plain(t *testing.T, image string, flags ...string) (container string) {
	t.Helper()
	id := docker(t, slices.Concat([]string{"create", "--pull", "never"}, flags, []string{image})...)
	t.Cleanup(func() { docker(t, "rm", "--force", id) })
	return id
}

// marked asks another X client whether the desktop is said to be ready. It says what it saw.
func marked(container string) (bool, string) {
	out, err := tryDocker("exec", container, "xprop", "-root", "_DESKAGENT_GUEST", "_NET_SUPPORTING_WM_CHECK")
	return err == nil && strings.Contains(out, `_DESKAGENT_GUEST(STRING) = "1"`), out
}

// TestD1 is row D1 of the field cases: a guest starts again after being stopped and after being killed, twenty times,
// and where its root can be written, with a lock file there that names a process which is alive.
func TestD1(t *testing.T) {
	e, image := engineForTest(t)
	const cycles = 20
	ready := func(t *testing.T, container, what string) {
		t.Helper()
		var last string
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			ok, out := marked(container)
			if ok {
				return
			}
			if last = out; time.Now().After(deadline) {
				log, _ := tryDocker("logs", "--tail", "10", container)
				t.Fatalf("%s: not ready: %s; %s", what, last, log)
			}
		}
	}
	t.Run("sandbox", func(t *testing.T) {
		t.Parallel()
		s := up(t, e, Options{Image: image})
		for i := range cycles {
			docker(t, "stop", s.Container())
			if code := inspect(t, s.Container(), "{{.State.ExitCode}}"); code != "0" {
				t.Errorf("cycle %d: got exit code %s after stop, want 0", i, code)
			}
			docker(t, "start", s.Container())
			ready(t, s.Container(), fmt.Sprintf("cycle %d, after stop", i))
			docker(t, "kill", "--signal", "KILL", s.Container())
			docker(t, "start", s.Container())
			ready(t, s.Container(), fmt.Sprintf("cycle %d, after kill -9", i))
		}
	})
	t.Run("stale lock", func(t *testing.T) {
		t.Parallel()
		container := plain(t, image, "--network", "none")
		dir := t.TempDir()
		docker(t, "start", container)
		ready(t, container, "at first")
		// Number 1 is alive whenever a server starts.
		lock := filepath.Join(dir, "lock")
		if err := os.WriteFile(lock, []byte("         1\n"), 0o444); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			docker(t, "kill", "--signal", "KILL", container)
			for _, display := range []string{"0", "5"} {
				docker(t, "cp", lock, container+":/tmp/.X"+display+"-lock")
			}
			docker(t, "start", container)
			ready(t, container, fmt.Sprintf("cycle %d", i))
			if out, err := tryDocker("exec", container, "Xvfb", ":5"); err == nil || !strings.Contains(out, "already active") {
				t.Fatalf("got %q, %v of a server that believes the lock, so this test shows nothing", out, err)
			}
		}
	})
}

// TestD4 is row D4 of the field cases: there is no readiness before the X server, the window manager and a picture are
// there. The window manager is slow here, so the moment between can be seen.
func TestD4(t *testing.T) {
	_, image := engineForTest(t)
	container := plain(t, image, "--network", "none")
	slow := filepath.Join(t.TempDir(), "openbox")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nsleep 2\nexec /usr/bin/openbox \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	docker(t, "cp", slow, container+":/usr/local/bin/openbox")
	docker(t, "start", container)
	between := 0
	waitFor(t, "the desktop", func() bool {
		ok, out := marked(container)
		if strings.Contains(out, "_DESKAGENT_GUEST:") {
			between++ // the X server answers, and there is no mark
		}
		if ok && !strings.Contains(out, "window id") {
			t.Errorf("marked without a window manager: %s", out)
		}
		return ok
	})
	if between == 0 {
		t.Error("the desktop was never seen without its mark, so this test shows nothing")
	}
}

// TestL7 is row L7 of the field cases, and the host's side of D4: the self-test does not end before the desktop is ready,
// and a desktop that does not get there gives up and says how far it had come.
func TestL7(t *testing.T) {
	e, image := engineForTest(t)
	container := plain(t, image, "--network", "none")
	slow := filepath.Join(t.TempDir(), "openbox")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	docker(t, "cp", slow, container+":/usr/local/bin/openbox")
	docker(t, "start", container)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := e.check(ctx, container, selftest.Plan{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want it to wait for the window manager", err)
	}
	waitFor(t, "the end of the guest, which has to give up", func() bool {
		return inspect(t, container, "{{.State.Status}}") == "exited"
	})
	if log := docker(t, "logs", container); !strings.Contains(log, "waiting for the window manager: not there after") {
		t.Errorf("got log %s", log)
	}
}

// TestCrash kills the X server and the window manager: the guest ends, with an error that says which.
func TestCrash(t *testing.T) {
	e, image := engineForTest(t)
	for _, tt := range []struct{ program, want string }{
		{"Xvfb", "the X server has ended by itself: running /usr/bin/Xvfb"},
		{"openbox", "the window manager has ended by itself: running openbox"},
	} {
		t.Run(tt.program, func(t *testing.T) {
			s := up(t, e, Options{Image: image})
			docker(t, "exec", s.Container(), "sh", "-c", "kill -9 $(pidof "+tt.program+")")
			waitFor(t, "the end of the guest", func() bool { return inspect(t, s.Container(), "{{.State.Status}}") == "exited" })
			if code := inspect(t, s.Container(), "{{.State.ExitCode}}"); code != "1" {
				t.Errorf("got exit code %s, want 1", code)
			}
			if log := docker(t, "logs", s.Container()); !strings.Contains(log, tt.want) {
				t.Errorf("got log %s, want %q", log, tt.want)
			}
			if _, err := e.Open(t.Context(), s.Name); err == nil || !strings.Contains(err.Error(), StateStopped) {
				t.Errorf("got %v, want it to be stopped", err)
			}
		})
	}
}

// TestD5 is row D5 of the field cases: the build fails, and says why, when something is missing. The check that is a
// step of the Dockerfile runs again in the finished image, with something taken away or added.
func TestD5(t *testing.T) {
	_, image := engineForTest(t)
	data, err := imageFiles.ReadFile("image/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(data), "RUN set -e;")
	verify, _, ended := strings.Cut(after, "\n\n")
	if !found || !ended {
		t.Fatal("the Dockerfile has no check of its own")
	}
	for _, tt := range []struct{ name, change, want string }{
		{"as it is", "true", ""},
		{"no browser", "rm /usr/bin/chromium", "lacks chromium"},
		{"no editor", "rm /usr/bin/mousepad", "lacks mousepad"},
		{"no Chinese", "rm -r /usr/share/fonts/opentype/noto", "lacks a font for zh-cn"},
		{"a broken browser", "printf '#!/bin/sh\\necho broken; exit 1\\n' >/usr/bin/chromium", "broken"},
		{"sudo", "ln -s /bin/true /usr/bin/sudo", "a way to become root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := tryDocker("run", "--rm", "--pull", "never", "--network", "none", "--user", "root", "--entrypoint", "sh", image,
				"-c", tt.change+"\nset -e;"+verify)
			if failed := err != nil; failed != (tt.want != "") || !strings.Contains(out, tt.want) {
				t.Errorf("got %v, want %q:\n%s", err, tt.want, out)
			}
		})
	}
}

// TestD6 is row D6 of the field cases: the packages of the image are to be had for arm64 too, as apt sees it.
func TestD6(t *testing.T) {
	_, image := engineForTest(t)
	data, err := imageFiles.ReadFile("image/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(strings.ReplaceAll(string(data), "\\\n", " "), "--no-install-recommends")
	list, _, _ = strings.Cut(list, "&&")
	packages := strings.Fields(list)
	if !slices.Contains(packages, "chromium") {
		t.Fatalf("got packages %q of the Dockerfile", packages)
	}
	// In a container, from the image's own sources, with a state in which nothing is installed and all is for arm64.
	plan := docker(t, "run", "--rm", "--pull", "never", "--user", "root", "--entrypoint", "sh", image, "-c", `
		mkdir -p /tmp/apt/lists/partial /tmp/apt/archives/partial && : >/tmp/apt/status
		apt() { apt-get -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::Cache=/tmp/apt \
			-o Dir::State::status=/tmp/apt/status -o Dir::State::lists=/tmp/apt/lists "$@"; }
		apt update && apt install --simulate --no-install-recommends `+strings.Join(packages, " "))
	for _, name := range packages {
		if !strings.Contains(plan, "Inst "+name+" ") {
			t.Errorf("%s would not be installed on arm64", name)
		}
	}
	if !strings.Contains(plan, "[arm64]") {
		t.Errorf("got a plan that is not for arm64: %.300s", plan)
	}
}

// TestKeep checks that a start that fails leaves nothing, or with Keep the container and why.
func TestKeep(t *testing.T) {
	e, image := engineForTest(t)
	without := New(&Config{Docker: []string{os.Args[0], "docker-without", "--read-only", "docker"}})
	for _, keep := range []bool{false, true} {
		opts := &Options{Name: fmt.Sprintf("test-keep-%v-%d", keep, os.Getpid()), Image: image, Keep: keep}
		_, err := without.Up(t.Context(), opts)
		if !errors.Is(err, ErrSelfTest) || !strings.Contains(err.Error(), "the desktop is ready") {
			t.Errorf("got %v, want a failed self-test and the guest's own words", err)
		}
		if rest := left(t, opts.Name); (rest != "") != keep {
			t.Errorf("keep %v: got %q left", keep, rest)
		}
		if !keep {
			continue
		}
		if info, err := e.find(t.Context(), opts.Name); err != nil || info.State != StateFailed || info.Abandoned {
			t.Errorf("got %+v, %v, want it to be failed and kept", info, err)
		}
		if err := e.Down(t.Context(), opts.Name); err != nil {
			t.Error(err)
		}
		if rest := left(t, opts.Name); rest != "" {
			t.Errorf("got %q left after down", rest)
		}
	}
}

// TestSameName starts two sandboxes of one name at once: the one that is late goes without, and does no harm.
func TestSameName(t *testing.T) {
	e, image := engineForTest(t)
	opts := &Options{Name: fmt.Sprintf("test-same-%d", os.Getpid()), Image: image}
	sandboxes, errs := make([]*Sandbox, 2), make([]error, 2)
	var both sync.WaitGroup
	for i := range sandboxes {
		both.Go(func() { sandboxes[i], errs[i] = e.Up(t.Context(), opts) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("got %v and %v, want one of them to be up", errs[0], errs[1])
	}
	for _, s := range sandboxes {
		if s == nil {
			continue
		}
		if _, err := s.Exec(t.Context(), "true"); err != nil {
			t.Errorf("the one that is up has come to harm: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if rest := left(t, opts.Name); rest != "" {
		t.Errorf("got %s left", rest)
	}
}

// TestCancelled checks that nothing is left of a start that is interrupted.
func TestCancelled(t *testing.T) {
	_, image := engineForTest(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	opts := &Options{Name: fmt.Sprintf("test-cancelled-%d", os.Getpid()), Image: image, Net: mustParseNet(t, "allow=example.com")}
	e := New(&Config{Progress: func(step string) {
		if step == "testing its limits" {
			cancel(enough)
		}
	}})
	if _, err := e.Up(ctx, opts); !errors.Is(err, enough) {
		t.Errorf("got %v, want the cause of the interrupt", err)
	}
	if rest := left(t, opts.Name); rest != "" {
		t.Errorf("got %q left", rest)
	}
}

func mustParseNet(t *testing.T, s string) Net {
	t.Helper()
	n, err := ParseNet(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// beOwner starts a sandbox, says so, and waits to be killed. With "starting" it stops in the middle of the start.
func beOwner(args []string) {
	name, image, stage := args[0], args[1], args[2]
	e := New(&Config{Progress: func(step string) {
		if stage == "starting" && step == "testing its limits" {
			fmt.Println("there")
			select {}
		}
	}})
	if _, err := e.Up(context.Background(), &Options{Name: name, Image: image, Stays: stage != "up"}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("there")
	select {}
}

// TestReap kills owners in different moments; the next one to look removes what has nobody left, and nothing else.
func TestReap(t *testing.T) {
	e, image := engineForTest(t)
	for _, tt := range []struct {
		stage string // in which the owner is killed
		stays bool   // what the sandbox does then
	}{{"up", false}, {"starting", false}, {"stays", true}} {
		t.Run(tt.stage, func(t *testing.T) {
			name := fmt.Sprintf("test-reap-%s-%d", tt.stage, os.Getpid())
			t.Cleanup(func() { e.Down(context.Background(), name) })
			owner := exec.Command(os.Args[0], "owner", name, image, tt.stage)
			var said lockedBuffer
			owner.Stdout = &said
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			defer owner.Process.Kill()
			waitFor(t, "the owner", func() bool { return said.Len() > 0 })
			if got := said.String(); got != "there\n" {
				t.Fatalf("got %s of the owner", got)
			}
			// While it lives, nobody takes its sandbox away.
			if reaped, err := e.Reap(t.Context()); err != nil || slices.Contains(reaped, name) {
				t.Fatalf("got %v, %v, want the sandbox of a living owner left alone", reaped, err)
			}
			owner.Process.Signal(syscall.SIGKILL)
			owner.Wait()
			if left(t, name) == "" {
				t.Fatal("nothing was left by the killed owner, so this test shows nothing")
			}
			// Others that share the engine may be quicker, so what counts is that it is gone.
			if _, err := e.Reap(t.Context()); err != nil {
				t.Error(err)
			}
			if rest := left(t, name); (rest != "") != tt.stays {
				t.Errorf("got %q left, want that to be %v", rest, tt.stays)
			}
		})
	}
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

func (b *lockedBuffer) Len() int { return len(b.String()) }

// dockerWithout is "docker-without CHANGE... docker ARG...": docker, with arguments changed. A change is either an
// argument to leave out, or OLD=>NEW, where NEW may be several words and a star at the end of OLD stands for any.
func dockerWithout(args []string) {
	i := slices.Index(args, "docker")
	changes, args := args[:i], args[i:]
	var changed []string
	for _, arg := range args {
		words := []string{arg}
		for _, change := range changes {
			old, replacement, _ := strings.Cut(change, "=>")
			prefix, isPrefix := strings.CutSuffix(old, "*")
			if arg == old || isPrefix && strings.HasPrefix(arg, prefix) {
				words = strings.Fields(replacement)
			}
		}
		changed = append(changed, words...)
	}
	path, err := exec.LookPath("docker")
	if err == nil {
		err = syscall.Exec(path, changed, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// unmarshal reads JSON that docker wrote.
func unmarshal(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}
