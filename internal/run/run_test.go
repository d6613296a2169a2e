package run_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/deskagent/deskagent/internal/run"
)

// The children are this test binary again, told by a variable what to do.
func TestMain(m *testing.M) {
	switch os.Getenv("RUN_TEST_CHILD") {
	case "":
		os.Exit(m.Run())
	case "fail":
		os.Stdout.WriteString("about to fail\n")
		os.Exit(3)
	case "copy":
		os.Stderr.WriteString("about to copy\n")
		io.Copy(os.Stdout, os.Stdin)
	case "echo and fail":
		io.Copy(os.Stdout, os.Stdin)
		os.Stderr.WriteString("alas\n")
		os.Exit(3)
	case "sleep":
		time.Sleep(time.Minute)
	case "parent", "parent that is outlived":
		outlives := os.Getenv("RUN_TEST_CHILD") == "parent that is outlived"
		p, err := run.Start(context.Background(), []string{"sleep", "60"}, &run.Options{Outlives: outlives})
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(p.PID()) + "\n")
		time.Sleep(time.Minute)
	}
}

func start(t *testing.T, ctx context.Context, role string, opts run.Options) *run.Process {
	t.Helper()
	opts.Env = append(os.Environ(), "RUN_TEST_CHILD="+role)
	p, err := run.Start(ctx, []string{os.Args[0]}, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestErrorShowsCommandAndLastWords(t *testing.T) {
	err := start(t, t.Context(), "fail", run.Options{}).Err()
	var e *run.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), os.Args[0]) || e.Output != "about to fail" {
		t.Errorf("got %v, want the command and what it wrote", err)
	}
	_, err = run.Start(t.Context(), []string{"/nonexistent", "a b"}, nil)
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "/nonexistent 'a b'") {
		t.Errorf("got %v, want a quoted command", err)
	}
}

func TestResultIsApart(t *testing.T) {
	var result, output strings.Builder
	p := start(t, t.Context(), "copy", run.Options{Input: strings.NewReader("data"), Output: &output, Result: &result})
	if err := p.Err(); err != nil || result.String() != "data" || output.String() != "about to copy\n" {
		t.Errorf("got result %q, output %q, %v, want the data apart from the talk", result.String(), output.String(), err)
	}
}

func TestStop(t *testing.T) {
	p := start(t, t.Context(), "sleep", run.Options{})
	p.Stop()
	if p.Err() == nil {
		t.Error("got no error of an interrupted child")
	}
	p.Stop() // again is fine
}

func TestContextEndsChild(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := start(t, ctx, "sleep", run.Options{})
	cancel()
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the child outlived its context")
	}
}

func TestChildDiesWithParent(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux ties a child to its parent's life")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := start(t, t.Context(), "parent", run.Options{Output: w})
	line := make([]byte, 32)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid := string(bytes.TrimSpace(line[:n]))
	p.Kill()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s outlived its killed parent", pid)
		}
	}
}

// TestChildOutlivesParent checks that a child which is to outlive its parent is there when that has been killed.
func TestChildOutlivesParent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := start(t, t.Context(), "parent that is outlived", run.Options{Output: w})
	line := make([]byte, 32)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	child, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Kill()
	p.Kill()
	time.Sleep(50 * time.Millisecond)
	if err := child.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the child is gone with its parent: %v", err)
	}
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && bytes.Contains(stat, []byte(") Z ")) {
		t.Error("the child has died with its parent")
	}
}

// TestStreams checks that a child has the streams that it is given, and that its last words are of standard error.
func TestStreams(t *testing.T) {
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	p := start(t, t.Context(), "echo and fail", run.Options{Input: in, Result: out})
	in.Close()
	out.Close()
	if _, err := to.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	to.Close()
	if got, err := io.ReadAll(from); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v, want hello", got, err)
	}
	var failed *run.Error
	if err := p.Err(); !errors.As(err, &failed) || failed.Output != "alas" {
		t.Errorf("got %v, want its last words", err)
	}
}

func TestQuote(t *testing.T) {
	for want, argv := range map[string][]string{
		"a -b /c:d=e":    {"a", "-b", "/c:d=e"},
		"a 'b c' ''":     {"a", "b c", ""},
		`a 'it'\''s $x'`: {"a", "it's $x"},
	} {
		if got := run.Quote(argv); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
