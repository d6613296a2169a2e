package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deskagent/deskagent/exercise"
	"github.com/deskagent/deskagent/sandbox"
)

func TestBuildSteps(t *testing.T) {
	var out bytes.Buffer
	steps := &buildSteps{out: &out}
	for _, chunk := range []string{"Sending build context\nSte", "p 2/9 : RUN apt-get update\n ---> 1234\n", "#6 [2/6] RUN make\n#6 0.412 Step 3/9 : no\n", "Step 4/9 : never ended"} {
		if n, err := steps.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Errorf("got %d, %v, want all of %q taken", n, err, chunk)
		}
	}
	if got, want := out.String(), "  Step 2/9 : RUN apt-get update\n  #6 [2/6] RUN make\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// staticProgram is a program that puts itself into the image of a sandbox.
func staticProgram(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: starts containers")
	}
	for _, needed := range [][]string{{"docker", "version"}, {"docker", "image", "inspect", "debian:bookworm-slim"}} {
		if out, err := exec.Command(needed[0], needed[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs a Docker engine and the base image that scripts/base-image makes: %v %.200s", err, out)
		}
	}
	program := filepath.Join(t.TempDir(), "deskagent")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("needs the go command: %v %.500s", err, out)
	}
	return program
}

// sandboxUp brings up a sandbox that stays, for as long as the test, and returns its name.
func sandboxUp(t testing.TB, program, name string) string {
	t.Helper()
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	if out, err := exec.Command(program, "sandbox", "up", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command(program, "sandbox", "down", name).Run() })
	return name
}

// TestRunInDocker lets a model click in a sandbox. What it sees is the guest's screen, and nothing is left of it.
func TestRunInDocker(t *testing.T) {
	program := staticProgram(t)
	var mu sync.Mutex
	var sizes []image.Point // of the pictures that were sent
	lines := []string{clickCall, doneMessage}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil || len(lines) == 0 {
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		for _, found := range regexp.MustCompile(`data:image/png;base64,([^"]+)`).FindAllSubmatch(body, -1) {
			config, err := png.DecodeConfig(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(found[1])))
			if err != nil {
				t.Error(err)
			}
			sizes = append(sizes, image.Pt(config.Width, config.Height))
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, lines[0])
		lines = lines[1:]
	}))
	defer api.Close()
	cmd := exec.Command(program, "run", "--in", "docker", "--approve", "allow", "-v", "Click it")
	cmd.Env = append(os.Environ(), "DISPLAY=", keyVariable+"="+testKey, "OPENAI_BASE_URL="+api.URL+"/v1")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil || string(out) != "Done.\n" {
		t.Fatalf("got %q, %v: %s", out, err, talk.String())
	}
	if want := []image.Point{{X: 1280, Y: 800}}; !slices.Equal(sizes, want) {
		t.Errorf("got pictures of %v, want %v", sizes, want)
	}
	left, err := exec.Command("docker", "ps", "--all", "--format", "{{.Names}}").Output()
	if name := fmt.Sprintf("run-%d", cmd.Process.Pid); err != nil || strings.Contains(string(left), name) {
		t.Errorf("got %v and the containers %s, want none of %s", err, left, name)
	}
}

// TestSandboxCommands is the life of a sandbox as a person goes through it, with a static program that puts itself into
// the image.
func TestSandboxCommands(t *testing.T) {
	program := staticProgram(t)
	do := func(wantCode int, args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.Command(program, append([]string{"sandbox"}, args...)...)
		var out, talk bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &talk
		code := 0
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != wantCode {
			t.Errorf("%q: got exit code %d, want %d: %s%s", args, code, wantCode, out.String(), talk.String())
		}
		return out.String(), talk.String()
	}
	name := fmt.Sprintf("test-cmd-%d", os.Getpid())
	defer exec.Command(program, "sandbox", "down", name).Run()

	image, _ := do(0, "build")
	if !strings.HasPrefix(image, sandbox.Repository+":") || strings.Count(image, "\n") != 1 {
		t.Errorf("build: got %q, want the image's name", image)
	}
	out, talk := do(0, "up", name, "--screen", "800x600", "--json")
	var s sandbox.Sandbox
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Name != name || s.Image != strings.TrimSpace(image) || len(s.Report) < 10 || len(s.Report.Failed()) > 0 {
		t.Errorf("up: got %+v, %v of %s", s, err, out)
	}
	if !strings.Contains(talk, "starting the desktop\n") {
		t.Errorf("up: got progress %q", talk)
	}
	if _, talk := do(1, "up", name); !strings.Contains(talk, "there is one of that name") {
		t.Errorf("up again: got %q", talk)
	}
	if out, _ := do(0, "ls"); !strings.Contains(out, name+"  running  none") {
		t.Errorf("ls: got %s", out)
	}
	picture, _ := do(0, "exec", name, "--", "deskagent", "screenshot", "-o", "-")
	if config, err := png.DecodeConfig(strings.NewReader(picture)); err != nil || config.Width != 800 || config.Height != 600 {
		t.Errorf("exec: got a picture of %dx%d, %v", config.Width, config.Height, err)
	}
	if out, talk := do(37, "exec", name, "sh", "-c", "echo said; exit 37"); out != "said\n" || talk != "" {
		t.Errorf("exec: got %q, %q, want only what the command said", out, talk)
	}
	if _, talk := do(0, "logs", name); !strings.Contains(talk, "the desktop is ready") {
		t.Errorf("logs: got %q", talk)
	}
	if _, talk := do(1, "logs", "--net", name); !strings.Contains(talk, "has no network") {
		t.Errorf("logs --net: got %q", talk)
	}
	if out, _ := do(0, "doctor"); strings.Contains(out, "FAIL") || !strings.Contains(out, "ok    image") {
		t.Errorf("doctor: got %s", out)
	}
	do(0, "down", name)
	if _, talk := do(1, "down", name); !strings.Contains(talk, "there is no such sandbox") {
		t.Errorf("down again: got %q", talk)
	}
	if out, _ := do(0, "ls", "--json"); strings.Contains(out, name) {
		t.Errorf("ls: got %s after down", out)
	}
}

// BenchmarkUp is how long it takes from nothing to a first picture of a sandbox whose limits have been tested.
//
//	go test ./cmd/deskagent -run '^$' -bench Up -benchtime 10x
func BenchmarkUp(b *testing.B) {
	program := staticProgram(b)
	name := fmt.Sprintf("bench-%d", os.Getpid())
	do := func(args ...string) {
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			b.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	do("sandbox", "build")
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		do("sandbox", "up", name)
		do("screenshot", "-o", filepath.Join(b.TempDir(), "picture.png"), "--remote", "docker exec --interactive deskagent-"+name+" deskagent serve --approve allow")
		took = append(took, time.Since(begin))
		do("sandbox", "down", name)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
	b.ReportMetric(took[len(took)-1].Seconds(), "max-s")
}

// TestExerciseInDocker has four guests side by side do the exercise and the errand at the same time.
func TestExerciseInDocker(t *testing.T) {
	program := staticProgram(t)
	if out, err := exec.Command(program, "sandbox", "build").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var guests sync.WaitGroup
	for range 4 {
		guests.Go(func() {
			cmd := exec.CommandContext(t.Context(), program, "exercise", "--in", "docker", "--json")
			cmd.Env = append(os.Environ(), "DISPLAY=")
			var talk bytes.Buffer
			cmd.Stderr = &talk
			out, err := cmd.Output()
			var report exercise.Report
			json.Unmarshal(out, &report)
			if err != nil || !report.Pass || report.Errand == nil || report.Errand.Note == "" {
				t.Errorf("got %s, %v: %s", out, err, talk.String())
				return
			}
			t.Logf("seed %d: %d steps in %v, the note %q", report.Seed, report.Steps, report.Duration, report.Errand.Note)
			if left, err := exec.Command("docker", "ps", "--all", "--format", "{{.Names}}").Output(); err != nil || strings.Contains(string(left), fmt.Sprintf("run-%d", cmd.Process.Pid)) {
				t.Errorf("got %v and the containers %s, want none of run-%d", err, left, cmd.Process.Pid)
			}
		})
	}
	guests.Wait()
}
