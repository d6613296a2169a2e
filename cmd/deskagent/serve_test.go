package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/draw"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/encode"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// BenchmarkServe compares a driver with the same one through another process that serves it, a child and one in a sandbox,
// in turns: the medians, and what lies between them.
//
//	go test ./cmd/deskagent -run '^$' -bench Serve -benchtime 100x
func BenchmarkServe(b *testing.B) {
	b.Run("child", func(b *testing.B) {
		display := xvfb.ForTest(b, 1280, 800).Display()
		benchServe(b, display, []string{"deskagent", "serve", "--display", display, "--approve", "allow", "--allow-host"})
	})
	b.Run("docker", func(b *testing.B) {
		program := staticProgram(b)
		name := sandboxUp(b, program, "bench")
		benchServe(b, displayOf(b, name), []string{"docker", "exec", "--interactive", "deskagent-" + name, "deskagent", "serve", "--approve", "allow"})
	})
}

// displayOf makes the display of a sandbox one of this machine, which needs root, and the engine here.
func displayOf(b *testing.B, name string) string {
	b.Helper()
	pid, err := exec.Command("docker", "inspect", "--format", "{{.State.Pid}}", "deskagent-"+name).Output()
	if err != nil {
		b.Fatal(err)
	}
	const number = 4321 // that nobody has
	link := fmt.Sprintf("/tmp/.X11-unix/X%d", number)
	if err := os.Symlink(filepath.Join("/proc", strings.TrimSpace(string(pid)), "root/tmp/.X11-unix/X0"), link); err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { os.Remove(link) })
	return fmt.Sprintf(":%d", number)
}

func benchServe(b *testing.B, display string, argv []string) {
	window := witness.ForTest(b, display)
	local, err := x11.Open(b.Context(), &x11.Options{Display: display})
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close()
	far, err := remote.Start(b.Context(), argv, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()

	compare := func(b *testing.B, before func(), here, there func(context.Context) error) {
		var times [2][]time.Duration
		for b.Loop() {
			for i, do := range []func(context.Context) error{here, there} {
				before()
				start := time.Now()
				if err := do(b.Context()); err != nil {
					b.Fatal(err)
				}
				times[i] = append(times[i], time.Since(start))
			}
		}
		var p50 [2]float64
		for i, t := range times {
			slices.Sort(t)
			p50[i] = float64(t[len(t)/2]) / float64(time.Millisecond)
		}
		b.ReportMetric(p50[0], "ms-here")
		b.ReportMetric(p50[1], "ms-there")
		b.ReportMetric(p50[1]-p50[0], "ms-more")
		b.ReportMetric(p50[1]/p50[0], "ratio")
	}
	b.Run("click", func(b *testing.B) {
		click := driver.Click{X: 640, Y: 400, Button: driver.ButtonLeft}
		compare(b, func() {}, func(ctx context.Context) error { return local.Click(ctx, click) }, func(ctx context.Context) error { return far.Click(ctx, click) })
	})
	b.Run("picture", func(b *testing.B) {
		encoder, err := encode.New(nil)
		if err != nil {
			b.Fatal(err)
		}
		desktop := busy(b, image.Rect(0, 0, 1280, 800))
		all := func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, s.Screen.Size(), nil }
		compare(b, func() {
			desktop.Pix[0]++ // lest it be the picture of before, which is not encoded again
			if err := window.Show(desktop); err != nil {
				b.Fatal(err)
			}
		}, func(ctx context.Context) error {
			frame, err := local.View(ctx, all)
			if err == nil {
				_, err = encoder.DataURL(frame.Image)
			}
			return err
		}, func(ctx context.Context) error {
			_, err := far.View(ctx, all)
			return err
		})
	})
}

// A servant is a "deskagent serve" that the test has started, and its client.
type servant struct {
	*remote.Driver
	process            *exec.Cmd
	toServer, toClient *os.File
	stderr             bytes.Buffer
}

func startServant(t *testing.T, display string) *servant {
	t.Helper()
	return connect(t, deskagent(t, display, "", "serve", "--approve", "allow", "--allow-host"))
}

// connect starts a command that serves.
func connect(t *testing.T, serve *exec.Cmd) *servant {
	t.Helper()
	s := &servant{process: serve}
	in, toServer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromServer, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.toServer, s.toClient = toServer, fromServer
	s.process.Stdin, s.process.Stdout, s.process.Stderr = in, out, &s.stderr
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	if s.Driver, err = remote.New(t.Context(), fromServer, toServer); err != nil {
		t.Fatal(err, s.stderr.String())
	}
	t.Cleanup(func() {
		s.process.Process.Kill()
		s.Close()
	})
	return s
}

// longDrag takes some seconds.
func longDrag() driver.Drag {
	a := driver.Drag{Path: make([]image.Point, 100), Keys: []string{"SHIFT"}}
	for i := range a.Path {
		a.Path[i] = image.Pt(10+i%2*600, 10)
	}
	return a
}

// TestServeKilled kills the server in the middle of calls: each fails within a second, and what was down is released, by
// the watchdog.
func TestServeKilled(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	window := witness.ForTest(t, server.Display())
	all := func(s driver.Scene) (image.Rectangle, image.Point, error) { return s.Screen, s.Screen.Size(), nil }
	for _, test := range []struct {
		name string
		call func(ctx context.Context, d *remote.Driver) error
		wait func() error // for the moment
	}{
		{"between calls", nil, nil},
		{"in a drag", func(ctx context.Context, d *remote.Driver) error { return d.Drag(ctx, longDrag()) }, func() error {
			return window.WaitFor(witness.ButtonDown, 20*time.Second)
		}},
		{"in a wait", func(ctx context.Context, d *remote.Driver) error { return d.Wait(ctx, driver.Wait{}) }, nil},
		{"in pictures", func(ctx context.Context, d *remote.Driver) error {
			for {
				if _, err := d.View(ctx, all); err != nil {
					return err
				}
			}
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startServant(t, server.Display())
			if _, err := window.Events(); err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			if test.call != nil {
				go func() { failed <- test.call(t.Context(), s.Driver) }()
			}
			if test.wait != nil {
				if err := test.wait(); err != nil {
					t.Fatal(err)
				}
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			if err := s.process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			if test.call == nil {
				failed <- s.Move(t.Context(), driver.Move{X: 1, Y: 1})
			}
			if err := <-failed; !errors.Is(err, driver.ErrDisplayLost) || time.Since(killed) > time.Second {
				t.Errorf("got %v after %v, want %v within a second", err, time.Since(killed), driver.ErrDisplayLost)
			}
			s.process.Wait()
			released(t, window)
		})
	}
}

// released waits until nothing is down.
func released(t *testing.T, window *witness.Window) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		held, err := window.Held()
		if err != nil {
			t.Fatal(err)
		}
		if len(held) == 0 {
			return
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("%v down", held)
		}
	}
}

// TestServeLeft ends the client's side of the streams in the middle of a drag, as the kernel does when the client is
// killed: the server releases everything and ends by itself, neither killed nor with an error of its own making.
func TestServeLeft(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	window := witness.ForTest(t, server.Display())
	for _, test := range []struct {
		name  string
		leave func(s *servant)
	}{
		{"both", func(s *servant) { s.toServer.Close(); s.toClient.Close() }},
		{"what it writes", func(s *servant) { s.toServer.Close() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startServant(t, server.Display())
			if _, err := window.Events(); err != nil {
				t.Fatal(err)
			}
			go s.Drag(t.Context(), longDrag())
			if err := window.WaitFor(witness.ButtonDown, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			test.leave(s)
			begin := time.Now()
			if err := s.process.Wait(); err != nil || time.Since(begin) > 2*time.Second {
				t.Errorf("got %v after %v, want a good end soon:\n%s", err, time.Since(begin), s.stderr.String())
			}
			if held, err := window.Held(); err != nil || len(held) > 0 {
				t.Errorf("got %v, %v, want nothing down", held, err)
			}
		})
	}
}

// TestServeBrokenPipe is about a client that reads no more, which is noticed when there is something to say. It is no
// reason to die of SIGPIPE, with all that is down.
func TestServeBrokenPipe(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	window := witness.ForTest(t, server.Display())
	serve := deskagent(t, server.Display(), "", "serve", "--approve", "allow", "--allow-host")
	toServer, err := serve.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	fromServer, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	drag := longDrag()
	path := make([]map[string]int, len(drag.Path))
	for i, p := range drag.Path {
		path[i] = map[string]int{"x": p.X, "y": p.Y}
	}
	arguments, err := json.Marshal(path)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(toServer, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	fmt.Fprintln(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintf(toServer, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"drag","arguments":{"path":%s}}}`+"\n", arguments)
	if err := window.WaitFor(witness.ButtonDown, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	fromServer.Close()
	fmt.Fprintln(toServer, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	begin := time.Now()
	err = serve.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFailed || time.Since(begin) > 2*time.Second {
		t.Errorf("got %v after %v, want exit code %d soon", err, time.Since(begin), exitFailed)
	}
	if held, err := window.Held(); err != nil || len(held) > 0 {
		t.Errorf("got %v, %v, want nothing down", held, err)
	}
}

// TestClientKilled kills a client that is a process of its own, with SIGKILL, in a drag. Between it and the server stands
// a program that is not killed with it, as the engine of a container does.
func TestClientKilled(t *testing.T) {
	server, window := guest(t)
	dir := t.TempDir()
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ended := filepath.Join(dir, "ended")
	inner := script("inner", "deskagent serve --approve allow\necho $? >"+ended+".new\nmv "+ended+".new "+ended+"\n")
	outer := script("outer", "sh "+inner+"\n:\n")
	drag, err := json.Marshal(longDrag())
	if err != nil {
		t.Fatal(err)
	}
	client := deskagent(t, server.Display(), "", "act", "--remote", "sh "+outer, string(drag))
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	if err := window.WaitFor(witness.ButtonDown, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := client.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	client.Wait()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if code, err := os.ReadFile(ended); err == nil {
			if got := strings.TrimSpace(string(code)); got != "0" {
				t.Errorf("the server ended with exit code %s, want 0", got)
			}
			break
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatal("the server goes on")
		}
	}
	if held, err := window.Held(); err != nil || len(held) > 0 {
		t.Errorf("got %v, %v, want nothing down", held, err)
	}
}

// busy is a part of the picture of a busy desktop.
func busy(t testing.TB, r image.Rectangle) *image.RGBA {
	t.Helper()
	f, err := os.Open("../../testdata/desktop.png")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whole, _, err := image.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	part := image.NewRGBA(r)
	draw.Draw(part, r, whole, r.Min, draw.Src)
	return part
}
