package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/deskagent/deskagent/internal/filesapi"
)

const lookCall = `{"id":"r1","object":"response","status":"completed","output":[{"type":"computer_call","id":"cu_1","call_id":"call_1",` +
	`"status":"completed","actions":[{"type":"screenshot"}]}]}`

// A pictureAPI is an API whose model looks once, and then has its answer. It knows how far a run is by its input.
type pictureAPI struct {
	files    filesapi.Server
	inline   atomic.Bool                                    // a picture came inline
	referred atomic.Int32                                   // pictures that came by reference
	looked   atomic.Pointer[func(http.ResponseWriter) bool] // called when the picture came; true: it has answered
}

// servePictureAPI serves one. stored, unless nil, is called when a picture has been stored.
func servePictureAPI(t *testing.T, stored func()) (*pictureAPI, string) {
	g := &pictureAPI{files: filesapi.Server{Stored: stored}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/responses" {
			g.files.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		n, missing := g.files.Check(body)
		if err != nil || missing != nil {
			t.Errorf("a request that refers to nothing: %v, %v", err, missing)
		}
		g.referred.Add(int32(n))
		g.inline.Store(g.inline.Load() || bytes.Contains(body, []byte("data:image/")))
		answer := lookCall
		if bytes.Contains(body, []byte("computer_call_output")) {
			if f := g.looked.Load(); f != nil && (*f)(w) {
				return
			}
			answer = doneMessage
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return g, server.URL
}

// TestPicturesAreDeleted runs the real command to all kinds of ends. Nothing stays on the server, at the latest after the
// next run, whatever that does with its own pictures.
func TestPicturesAreDeleted(t *testing.T) {
	server, _ := guest(t)
	type ending struct {
		signal syscall.Signal // when the model has the picture; 0 for none
		upload bool           // the signal comes in the middle of the upload instead
		fails  bool           // the request with the picture
		exit   int            // -1: killed
		left   int            // files, before the next run
		next   []string
		lists  int // after the next run
	}
	next := []string{"run", "--approve", "allow", "--pictures", "inline", "look"}
	for name, tt := range map[string]ending{
		"done":      {exit: exitDone},
		"refused":   {fails: true, exit: exitFailed},
		"Ctrl-C":    {signal: syscall.SIGINT, exit: exitFailed},
		"kill -9":   {signal: syscall.SIGKILL, exit: -1, left: 1},
		"by hand":   {signal: syscall.SIGKILL, exit: -1, left: 1, next: []string{"pictures", "clean"}},
		"uploading": {signal: syscall.SIGKILL, upload: true, exit: -1, left: 1, lists: 1}, // for a minute
	} {
		t.Run(name, func(t *testing.T) {
			arrived, proceed := make(chan bool, 1), make(chan bool)
			meet := func() {
				if tt.signal != 0 {
					arrived <- true
					<-proceed
				}
			}
			stored := meet
			if !tt.upload {
				stored = nil
			}
			api, address := servePictureAPI(t, stored)
			state := t.TempDir()
			start := func(args ...string) (*exec.Cmd, *bytes.Buffer) {
				cmd := deskagent(t, server.Display(), address, args...)
				cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+state)
				output := new(bytes.Buffer)
				cmd.Stdout, cmd.Stderr = output, output
				return cmd, output
			}
			cmd, output := start("run", "--approve", "allow", "--pictures", "upload", "look")
			if !tt.upload {
				looked := func(w http.ResponseWriter) bool {
					meet()
					if tt.fails {
						filesapi.Fail(w, http.StatusBadRequest, "no")
					}
					return tt.fails
				}
				api.looked.Store(&looked)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if tt.signal != 0 {
				select {
				case <-arrived:
				case <-time.After(20 * time.Second):
					t.Fatalf("the picture never came:\n%s", output)
				}
				if err := cmd.Process.Signal(tt.signal); err != nil {
					t.Fatal(err)
				}
			}
			cmd.Wait()
			close(proceed)
			if got := cmd.ProcessState.ExitCode(); got != tt.exit {
				t.Errorf("got exit code %d, want %d:\n%s", got, tt.exit, output)
			}
			if got := api.files.Len(); got != tt.left || api.files.Uploaded() != 1 {
				t.Errorf("got %d files of %d on the server, want %d of 1:\n%s", got, api.files.Uploaded(), tt.left, output)
			}
			if api.inline.Load() || api.referred.Load() == 0 && !tt.upload {
				t.Errorf("got a picture inline: %t, and %d by reference", api.inline.Load(), api.referred.Load())
			}
			if strings.Contains(output.String(), "file-") || strings.Contains(output.String(), testKey) {
				t.Errorf("got %s, want neither ids nor keys", output)
			}

			api.looked.Store(nil)
			args := next
			if tt.next != nil {
				args = tt.next
			}
			cmd, output = start(args...)
			if err := cmd.Run(); err != nil || api.files.Len() != 0 {
				t.Errorf("got %v and %d files after the next run, want none:\n%s", err, api.files.Len(), output)
			}
			lists, err := filepath.Glob(filepath.Join(state, "deskagent", "pictures", "*"))
			if err != nil || len(lists) != tt.lists {
				t.Errorf("got the lists %q, %v, want %d", lists, err, tt.lists)
			}
		})
	}
}

// TestPicturesOfALedger is a run that fails and is resumed: the model sees its pictures again, and they are deleted at the
// end of it all, or by hand.
func TestPicturesOfALedger(t *testing.T) {
	server, _ := guest(t)
	for _, resumed := range []bool{true, false} {
		t.Run(fmt.Sprint("resumed ", resumed), func(t *testing.T) {
			api, address := servePictureAPI(t, nil)
			dir := filepath.Join(t.TempDir(), "run")
			fails := func(w http.ResponseWriter) bool {
				filesapi.Fail(w, http.StatusBadRequest, "no")
				return true
			}
			api.looked.Store(&fails)
			do := func(want int, args ...string) {
				t.Helper()
				cmd := deskagent(t, server.Display(), address, args...)
				cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+t.TempDir())
				output, _ := cmd.CombinedOutput()
				if got := cmd.ProcessState.ExitCode(); got != want {
					t.Fatalf("%q: got exit code %d, want %d:\n%s", args, got, want, output)
				}
			}
			do(exitFailed, "run", "--approve", "allow", "--pictures", "upload", "--ledger", dir, "look")
			if got := api.files.Len(); got != 1 {
				t.Errorf("got %d files, want the one that resuming needs", got)
			}
			api.looked.Store(nil)
			if resumed {
				before := api.referred.Load()
				do(exitDone, "resume", "--approve", "allow", "--looked", dir, "Go on.")
				if api.referred.Load() == before {
					t.Error("got no picture by reference in the resumed run")
				}
			} else {
				do(exitDone, "pictures", "clean", dir)
			}
			if got := api.files.Len(); got != 0 {
				t.Errorf("got %d files at the end, want none", got)
			}
			if _, err := os.Stat(filepath.Join(dir, picturesFile)); !os.IsNotExist(err) {
				t.Errorf("got %v for the list, want none", err)
			}
		})
	}
}
