package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// endAtOnce is for $GORACE: with the race detector a program takes a second to end otherwise, and a watchdog with it.
const endAtOnce = "atexit_sleep_ms=0"

// TestMain lets the test binary be the deskagent command, for scripts and for tests that start it.
func TestMain(m *testing.M) {
	testscript.Main(m, programs)
}

// programs are what the test binary can be.
var programs = map[string]func(){"deskagent": main}

// TestScripts runs the scripts in testdata. Beside the usual commands they have those below.
func TestScripts(t *testing.T) {
	xvfb.ForTest(t, 64, 64) // skips where there is no Xvfb
	program, err := exec.LookPath("deskagent")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", endAtOnce)
			env.Setenv("DESKAGENT", program) // for scripts that change PATH
			env.Values[witnessKey{}] = new(*witness.Window)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"display": startDisplay,
			"mark":    markGuest,
			"events":  checkEvents,
			"exits":   checkExit,
			"api":     startAPI,
			"picture": checkPicture,
		},
	})
}

// witnessKey is where a script keeps its witness.
type witnessKey struct{}

// startDisplay is "display WxH": a virtual display in $DISPLAY, with a witness.
func startDisplay(ts *testscript.TestScript, _ bool, args []string) {
	var size sizeFlag
	ts.Check(size.Set(args[0]))
	server, err := xvfb.Start(context.Background(), &xvfb.Options{Width: size.X, Height: size.Y})
	ts.Check(err)
	ts.Defer(func() { server.Close() })
	window, err := witness.Open(server.Display())
	ts.Check(err)
	ts.Defer(window.Close)
	*ts.Value(witnessKey{}).(**witness.Window) = window
	ts.Setenv("DISPLAY", server.Display())
}

// markGuest is "mark": it does to $DISPLAY what the help of run says.
func markGuest(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(ts.Exec("xprop", "-display", ts.Getenv("DISPLAY"), "-root", "-f", guestProperty, "8s", "-set", guestProperty, "1"))
}

// checkEvents is "events FILE": what the witness saw since the last time, motion left out, is what the file says,
// and nothing is held.
func checkEvents(ts *testscript.TestScript, _ bool, args []string) {
	window := *ts.Value(witnessKey{}).(**witness.Window)
	events, err := window.Events()
	ts.Check(err)
	var got strings.Builder
	for _, e := range events {
		if e.Kind != witness.Motion {
			fmt.Fprintln(&got, e)
		}
	}
	if want := ts.ReadFile(args[0]); strings.TrimSpace(got.String()) != strings.TrimSpace(want) {
		ts.Fatalf("the witness saw\n%swant\n%s", got.String(), want)
	}
	held, err := window.Held()
	ts.Check(err)
	if len(held) > 0 {
		ts.Fatalf("still held: %v", held)
	}
}

// checkExit is "exits CODE COMMAND...".
func checkExit(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want, err := strconv.Atoi(args[0]); err != nil || code != want {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// startAPI is "api FILE": a Responses API on loopback in $OPENAI_BASE_URL that answers with one line of the file
// after the other, and a key in $OPENAI_API_KEY. A line that begins with a number is a status and its body.
func startAPI(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	ts.Setenv("OPENAI_BASE_URL", serveAPI(ts.Defer, lines).URL+"/v1")
	ts.Setenv(keyVariable, testKey)
}

// testKey must never be seen in anything that is printed.
const testKey = "sk-test-0123456789"

func serveAPI(cleanup func(func()), lines []string) *httptest.Server {
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(body) || r.URL.Path != "/v1/responses" || r.Header.Get("Authorization") != "Bearer "+testKey || len(lines) == 0 {
			http.Error(w, fmt.Sprintf("unexpected %s %s", r.Method, r.URL), http.StatusTeapot)
			return
		}
		line := lines[0]
		lines = lines[1:]
		w.Header().Set("Content-Type", "application/json")
		status, said, _ := strings.Cut(line, " ")
		if status, err := strconv.Atoi(status); err == nil {
			w.WriteHeader(status)
			io.WriteString(w, said)
			return
		}
		io.WriteString(w, line)
	}))
	cleanup(server.Close)
	return server
}

// checkPicture is "picture FILE FORMAT WxH [X,Y RRGGBB]...": its size, and the colours of some of its pixels.
func checkPicture(ts *testscript.TestScript, _ bool, args []string) {
	picture, format, err := image.Decode(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	size := picture.Bounds().Size()
	if got, want := fmt.Sprintf("%s %dx%d", format, size.X, size.Y), args[1]+" "+args[2]; got != want {
		ts.Fatalf("%s: got %s, want %s", args[0], got, want)
	}
	for i := 3; i < len(args); i += 2 {
		at, err := numbers(args[i], ",", 2)
		ts.Check(err)
		r, g, b, _ := picture.At(at[0], at[1]).RGBA()
		if got := fmt.Sprintf("%02x%02x%02x", r>>8, g>>8, b>>8); got != args[i+1] {
			ts.Fatalf("%s: got %s at %s, want %s", args[0], got, args[i], args[i+1])
		}
	}
}

const (
	clickCall = `{"id":"r1","object":"response","status":"completed","output":[{"type":"computer_call","id":"cu_1","call_id":"call_1",` +
		`"status":"completed","actions":[{"type":"click","button":"left","x":10,"y":20}]}]}`
	dragCall = `{"id":"r1","object":"response","status":"completed","output":[{"type":"computer_call","id":"cu_1","call_id":"call_1",` +
		`"status":"completed","actions":[{"type":"drag","keys":["SHIFT"],"path":[{"x":0,"y":0},{"x":600,"y":400},{"x":0,"y":0},{"x":600,"y":400},` +
		`{"x":0,"y":0},{"x":600,"y":400},{"x":0,"y":0},{"x":600,"y":400},{"x":0,"y":0},{"x":600,"y":400},{"x":0,"y":0}]}]}]}`
	doneMessage = `{"id":"r2","object":"response","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant",` +
		`"status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}]}`
)

// guest starts a marked display with a witness.
func guest(t *testing.T) (*xvfb.Server, *witness.Window) {
	t.Helper()
	return guestOf(t, 640, 480)
}

func guestOf(t *testing.T, width, height int) (*xvfb.Server, *witness.Window) {
	t.Helper()
	server := xvfb.ForTest(t, width, height)
	window := witness.ForTest(t, server.Display())
	mark := exec.Command("xprop", "-display", server.Display(), "-root", "-f", guestProperty, "8s", "-set", guestProperty, "1")
	if out, err := mark.CombinedOutput(); err != nil {
		t.Skipf("needs xprop: %v %s", err, out)
	}
	return server, window
}

func deskagent(t *testing.T, display, api string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "deskagent", args...)
	cmd.Env = append(os.Environ(), "GORACE="+endAtOnce, "XDG_STATE_HOME="+t.TempDir(), "DISPLAY="+display, keyVariable+"="+testKey, "OPENAI_BASE_URL="+api+"/v1")
	return cmd
}

// TestInterrupt is row L2 of the field cases: Ctrl-C in the middle of an action stops it at once, with nothing left
// down.
func TestInterrupt(t *testing.T) {
	server, window := guest(t)
	api := serveAPI(t.Cleanup, []string{dragCall, doneMessage})
	cmd := deskagent(t, server.Display(), api.URL, "run", "--approve", "allow", "drag for a long time")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := window.WaitFor(witness.ButtonDown, 20*time.Second); err != nil {
		t.Fatal(err, output.String())
	}
	begin := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	took := time.Since(begin)
	t.Logf("stopped after %v", took)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFailed || took > 2*time.Second {
		t.Errorf("got %v after %v, want exit code %d soon:\n%s", err, took, exitFailed, output.String())
	}
	if !strings.Contains(output.String(), "error: interrupted") {
		t.Errorf("got %s, want it to say that it was interrupted", output.String())
	}
	if held, err := window.Held(); err != nil || len(held) > 0 {
		t.Errorf("got %v, %v, want nothing held", held, err)
	}
}
