package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/exercise/app"
	"github.com/deskagent/deskagent/exercise/model"
	"github.com/deskagent/deskagent/internal/xvfb"
	"github.com/deskagent/deskagent/trace"
)

// practice starts the practice application on a display that its window fills, as an exercise with the seed does.
func practice(t *testing.T, seed uint64) (display, record string) {
	t.Helper()
	server := xvfb.ForTest(t, app.Size.X, app.Size.Y)
	record = filepath.Join(t.TempDir(), "record.json")
	a, err := app.Open(t.Context(), &app.Options{Display: server.Display(), Seed: seed, Record: record, Events: new(bytes.Buffer)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return server.Display(), record
}

// commandOutput runs deskagent and returns its exit code and all that it said.
func commandOutput(t *testing.T, display string, args ...string) (code int, output string) {
	t.Helper()
	said, err := deskagent(t, display, "http://127.0.0.1:1", args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return code, string(said)
}

// TestReplay records an exercise and does it once more: where the application demands the same it comes to the same record
// by the same pictures, and elsewhere it is noticed at once.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	dir := filepath.Join(t.TempDir(), "trace")
	first := xvfb.ForTest(t, app.Size.X, app.Size.Y)
	out := t.TempDir()
	if code, said := commandOutput(t, first.Display(), "exercise", "--display", first.Display(), "--seed", "5", "--size", "500x320", "--out", out, "--trace", dir); code != 0 {
		t.Fatalf("got exit code %d:\n%s", code, said)
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if end := tr.End(); end == nil || end.Error != "" {
		t.Errorf("got the end %+v, want a good one", end)
	}
	replay := func(display string, more ...string) (int, string) {
		return commandOutput(t, display, append([]string{"replay", dir, "--display", display, "--approve", "allow",
			"--acknowledge-checks", model.CodeReplaces + "," + model.CodePersonal}, more...)...)
	}
	display, record := practice(t, 5)
	if code, said := replay(display); code != exitFailed || !strings.Contains(said, "not marked as a guest's") {
		t.Errorf("got exit code %d of a display without the mark:\n%s", code, said)
	}
	if code, said := replay(display, "--allow-host", "--approve", "deny"); code != exitDeclined {
		t.Errorf("got exit code %d with everything declined:\n%s", code, said)
	}
	code, said := replay(display, "--allow-host")
	t.Log(said)
	if code != 0 || !strings.Contains(said, ", 0 different, 0 not compared") || strings.Contains(said, " 0 of ") {
		t.Errorf("got exit code %d for the same seed", code)
	}
	want, err := os.ReadFile(filepath.Join(out, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(record); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got the record %s (%v), want %s", got, err, want)
	}
	display, _ = practice(t, 6)
	code, said = replay(display, "--allow-host")
	t.Log(said)
	if code != exitFailed || !strings.Contains(said, "the replay diverges in step 1,") {
		t.Errorf("got exit code %d for another seed", code)
	}
}
