package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/runner"
)

// killAt is where a command ends by its own hand: "REVISION before" or "REVISION after" a save.
const killAt = "DESKAGENT_TEST_KILL_AT"

func init() { programs["deskagent-killed"] = mainKilled }

// mainKilled is the command, killed in the middle of a save as kill -9 does it: no code of ours runs after that.
func mainKilled() {
	saving = func(save func(context.Context, runner.Checkpoint) error) func(context.Context, runner.Checkpoint) error {
		kill := func(c runner.Checkpoint, moment string) {
			if os.Getenv(killAt) == fmt.Sprint(c.Revision, " ", moment) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		return func(ctx context.Context, c runner.Checkpoint) error {
			kill(c, "before")
			err := save(ctx, c)
			kill(c, "after")
			return err
		}
	}
	main()
}

// twoClicks answers by what the input holds, so that it has to know nothing of kills: a click at (10,20), one at
// (30,40), then the answer. Told that the program was stopped, it answers at once.
func twoClicks(t *testing.T) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // killed while it was sending
		}
		w.Header().Set("Content-Type", "application/json")
		done := bytes.Count(body, []byte(`"computer_call_output"`))
		if done == 2 || bytes.Contains(body, []byte("was stopped in the middle of a turn")) {
			io.WriteString(w, doneMessage)
			return
		}
		fmt.Fprintf(w, `{"id":"r%d","object":"response","status":"completed","output":[{"type":"computer_call","id":"cu_%[1]d","call_id":"call_%[1]d",`+
			`"status":"completed","actions":[{"type":"click","button":"left","x":%d,"y":%d}]}]}`, done+1, 10+20*done, 20+20*done)
	}))
	t.Cleanup(server.Close)
	return server
}

// presses counts the presses that a window has got since the last time, of both clicks.
func presses(t *testing.T, window *witness.Window) (n [2]int) {
	t.Helper()
	events, err := window.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == witness.ButtonDown {
			n[e.At.X/20]++ // 10 or 30
		}
	}
	return n
}

// TestKillNeverRepeats kills the real command before and after each save of a run, and goes on with what is left. An
// effect is never had twice, whatever the record says; a record between two turns leads to the end of the task, and
// any other is refused until the user says that he has looked.
func TestKillNeverRepeats(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	const saves = 12 // of a run with two turns and an answer: five a turn, and two
	server, window := guest(t)
	api := twoClicks(t)
	var matrix strings.Builder
	table := tabwriter.NewWriter(&matrix, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "killed\trecord\tclicks before\tresume\tclicks in all")
	for revision := 1; revision <= saves; revision++ {
		for _, moment := range []string{"before", "after"} {
			point := fmt.Sprint(revision, " ", moment)
			dir := filepath.Join(t.TempDir(), "run")
			killed := deskagent(t, server.Display(), api.URL, "run", "--approve", "allow", "--settle", "50ms,20ms,1s", "--ledger", dir, "click twice")
			killed.Path, killed.Err = exec.LookPath("deskagent-killed")
			killed.Args[0] = "deskagent-killed"
			killed.Env = append(killed.Env, killAt+"="+point)
			if output, err := killed.CombinedOutput(); killed.ProcessState == nil || killed.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s: got %v, want it killed:\n%s", point, err, output)
			}
			before := presses(t, window)
			record, err := readLedger(dir)
			phase := runner.Phase("none")
			if err == nil {
				phase = record.Phase
			}
			resume := deskagent(t, server.Display(), api.URL, "resume", "--approve", "allow", "--settle", "50ms,20ms,1s", dir)
			output, _ := resume.CombinedOutput() // its exit code is looked at
			after := presses(t, window)
			code := resume.ProcessState.ExitCode()
			fmt.Fprintf(table, "%s save %d\t%s\t%v\texit %d\t%v\n", moment, revision, cmp.Or(phase, "none"), before, code, [2]int{before[0] + after[0], before[1] + after[1]})
			for i := range before {
				if before[i]+after[i] > 1 {
					t.Errorf("%s: click %d came %d times:\n%s", point, i+1, before[i]+after[i], output)
				}
			}
			want, says := exitFailed, map[runner.Phase]string{
				"none": "holds no record", runner.PhasePending: "in the middle of a turn", runner.PhaseFinal: "has its answer",
			}[phase]
			if phase == runner.PhaseBoundary {
				want, says = exitDone, "Done."
			}
			if code != want || !strings.Contains(string(output), says) {
				t.Errorf("%s: got exit code %d, want %d and %q:\n%s", point, code, want, says, output)
			}
			if phase == runner.PhaseBoundary && (before[0]+after[0] != 1 || before[1]+after[1] != 1) {
				t.Errorf("%s: got clicks %v and %v, want each once in all", point, before, after)
			}
			if phase == runner.PhasePending && after != [2]int{} {
				t.Errorf("%s: got clicks %v, want none while it is not known what has happened", point, after)
			}
			if len(uncertainIDs(record)) > 0 && !strings.Contains(string(output), "may or may not have happened: computer call") {
				t.Errorf("%s: got %s, want the call named", point, output)
			}
		}
	}
	table.Flush()
	t.Logf("kill points:\n%s", matrix.String())
}

func uncertainIDs(c *runner.Checkpoint) []string {
	if c == nil {
		return nil
	}
	return c.Uncertain()
}

// TestKillInAnAction kills the command from outside while a button is down: resuming is refused until the user has
// looked, and then the model is told, and nothing is repeated.
func TestKillInAnAction(t *testing.T) {
	server, window := guest(t)
	dir := filepath.Join(t.TempDir(), "run")
	api := serveAPI(t.Cleanup, []string{dragCall})
	cmd := deskagent(t, server.Display(), api.URL, "run", "--approve", "allow", "--ledger", dir, "drag for a long time")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := window.WaitFor(witness.ButtonDown, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // the watchdog's time
		held, err := window.Held()
		if err == nil && len(held) == 0 {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("got %v, %v held, want nothing", held, err)
		}
	}
	if _, err := window.Events(); err != nil {
		t.Fatal(err)
	}

	again := twoClicks(t)
	resume := func(args ...string) (string, int) {
		cmd := deskagent(t, server.Display(), again.URL, append([]string{"resume", "--approve", "allow"}, args...)...)
		output, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(output), cmd.ProcessState.ExitCode()
	}
	output, code := resume(dir)
	if want := "may or may not have happened: computer call \"call_1\": drag with the left button"; code != exitFailed || !strings.Contains(output, want) {
		t.Errorf("got exit code %d, want %d and %s:\n%s", code, exitFailed, want, output)
	}
	if output, code = resume("--looked", dir); code != exitUsage {
		t.Errorf("got exit code %d without a text, want %d:\n%s", code, exitUsage, output)
	}
	if output, code = resume("--looked", dir, "The file is in the folder."); code != exitDone || !strings.HasPrefix(output, "step 2") {
		t.Errorf("got exit code %d, want %d:\n%s", code, exitDone, output)
	}
	if n := presses(t, window); n != [2]int{} {
		t.Errorf("got presses %v, want none after the kill", n)
	}
	record, err := readLedger(dir)
	if err != nil || record.Phase != runner.PhaseFinal || len(record.Uncertain()) > 0 {
		t.Fatalf("got %+v, %v, want the run to be done", record, err)
	}
	if history, err := json.Marshal(record.History); err != nil || !bytes.Contains(history, []byte(`"The file is in the folder."`)) {
		t.Errorf("got %s, %v, want the text of the user in it", history, err)
	}
}
