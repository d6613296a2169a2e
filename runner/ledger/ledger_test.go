package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LEDGER_TEST_DIR"); dir != "" {
		run(dir)
		return
	}
	os.Exit(m.Run())
}

// picture is large enough for a file of its own.
var picture = strings.Repeat("x", 2*large)

// checkpoint is a record as a run would make it.
func checkpoint(revision int, history ...string) runner.Checkpoint {
	c := runner.Checkpoint{Version: 1, RunID: "run", Revision: revision, Phase: runner.PhaseBoundary, MaxSteps: 20,
		Tools: []json.RawMessage{}, OutputOverrideNames: []string{}, AttemptedCallIDs: []string{}, ReturnedCallIDs: []string{},
		PendingItems: []json.RawMessage{}, ReturnedOutputs: []json.RawMessage{}, FinalResponse: json.RawMessage("null")}
	for _, text := range history {
		c.History = append(c.History, json.RawMessage(fmt.Sprintf(`{"role":"user","content":%q}`, text)))
	}
	return c
}

func open(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*", "ledger")
	d := open(t, dir)
	if got, err := d.Latest(); got != nil || err != nil {
		t.Errorf("got %v, %v from a new ledger, want nothing", got, err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("opening it twice: got %v, want ErrInUse", err)
	}
	c := checkpoint(2, "Go.", picture, picture+"y")
	for _, step := range []struct {
		name string
		c    runner.Checkpoint
		ok   bool
	}{
		{"the first", c, true},
		{"the same again", c, false},
		{"an older one", checkpoint(1), false},
		{"another run", func() runner.Checkpoint { c := checkpoint(3); c.RunID = "other"; return c }(), false},
	} {
		if err := d.Save(t.Context(), step.c); (err == nil) != step.ok {
			t.Errorf("saving %s: got %v, want that it works: %t", step.name, err, step.ok)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(t.Context(), checkpoint(3)); err == nil {
		t.Error("saving in a closed ledger: got no error")
	}

	left := []string{filepath.Join(dir, recordName+newSuffix), filepath.Join(dir, itemsName, "abc"+newSuffix)}
	for _, name := range left { // by a process that was stopped
		if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d = open(t, dir)
	for _, name := range left {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v for %s, want that it is gone", err, name)
		}
	}
	got, err := d.Latest()
	if err != nil || !bytes.Equal(toJSON(t, got), toJSON(t, c)) {
		t.Errorf("got %s, %v, want %s", toJSON(t, got), err, toJSON(t, c))
	}
	if err := d.Save(t.Context(), checkpoint(2)); err == nil {
		t.Error("saving a revision that is there, in a ledger that was opened again: got no error")
	}
	raw, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil || len(raw) > large {
		t.Errorf("got a record of %d bytes, %v, want it without the large items", len(raw), err)
	}
}

// An item is written once, whatever the number of saves that hold it.
// TestRead reads while the folder is open, and neither makes a folder nor changes one.
func TestRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if got, err := Read(dir); got != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, %v, want an error about a folder that is not there", got, err)
	}
	d := open(t, dir)
	if got, err := Read(dir); got != nil || err != nil {
		t.Errorf("got %v, %v, want no record yet", got, err)
	}
	want := checkpoint(1, "a", strings.Repeat("b", 2*large))
	if err := d.Save(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil || !bytes.Equal(toJSON(t, got), toJSON(t, want)) {
		t.Errorf("got %s, %v, want %s", toJSON(t, got), err, toJSON(t, want))
	}
}

func TestItemsAreWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	if err := d.Save(t.Context(), checkpoint(1, picture)); err != nil {
		t.Fatal(err)
	}
	items, err := filepath.Glob(filepath.Join(dir, itemsName, "*"))
	if err != nil || len(items) != 1 {
		t.Fatalf("got the items %q, %v, want one", items, err)
	}
	before, err := os.Stat(items[0])
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = open(t, dir) // which has to find it again
	for revision := 2; revision < 5; revision++ {
		if err := d.Save(t.Context(), checkpoint(revision, picture, "More.")); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.Stat(items[0])
	if err != nil || !after.ModTime().Equal(before.ModTime()) || !os.SameFile(before, after) {
		t.Errorf("got %v, %v, want the file that was there", after, err)
	}
}

func TestPermissions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such permissions")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	if err := open(t, dir).Save(t.Context(), checkpoint(1, picture)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got permissions %o, want %o", path, got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"no record": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, recordName), []byte(`{"version":1}`), 0o600)
		},
		"half a record": func(dir string) error { return os.Truncate(filepath.Join(dir, recordName), 100) },
		"an item changed": func(dir string) error {
			items, err := filepath.Glob(filepath.Join(dir, itemsName, "*"))
			return errors.Join(err, os.WriteFile(items[0], []byte(picture), 0o600))
		},
		"an item gone": func(dir string) error { return os.RemoveAll(filepath.Join(dir, itemsName)) },
		"a path as an item": func(dir string) error {
			raw, err := os.ReadFile(filepath.Join(dir, recordName))
			i := bytes.Index(raw, []byte(digestPrefix))
			raw = append(append(raw[:i:i], digestPrefix+"../../../etc/passwd"...), raw[i+len(digestPrefix)+64:]...)
			return errors.Join(err, os.WriteFile(filepath.Join(dir, recordName), raw, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := open(t, dir)
			if err := d.Save(t.Context(), checkpoint(1, picture)); err != nil {
				t.Fatal(err)
			}
			d.Close()
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if d, err := Open(dir); err == nil {
				d.Close()
				t.Error("got no error")
			}
		})
	}
}

// The API of the killed run: two calls of one turn, then another, then an answer. It answers by what the input holds,
// so that it has to know nothing of kills.
func api(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	output := `{"type":"message","id":"m","role":"assistant","status":"completed","content":[]}`
	switch text := string(body); {
	case !strings.Contains(text, `"call_id":"a"`):
		output = call("a") + "," + call("b")
	case !strings.Contains(text, `"call_id":"c"`):
		output = call("c")
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"resp","status":"completed","output":[%s]}`, output)
}

func call(id string) string {
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%[1]q,"name":"act","arguments":"{}"}`, id)
}

// killedAt says where a run kills itself: in the save of the revision, before it, when the record was written, or after.
func killedAt(revision, moment string) func(d *Dir) func(context.Context, runner.Checkpoint) error {
	return func(d *Dir) func(context.Context, runner.Checkpoint) error {
		return func(ctx context.Context, c runner.Checkpoint) error {
			if fmt.Sprint(c.Revision) != revision {
				return d.Save(ctx, c)
			}
			switch moment {
			case "written":
				if err := d.write(c); err != nil {
					return err
				}
			case "after":
				if err := d.Save(ctx, c); err != nil {
					return err
				}
			}
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			self.Kill()
			select {}
		}
	}
}

// run is the process that is killed: a run whose function leaves a line in a file, with a record in the folder dir.
func run(dir string) {
	d, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer d.Close()
	act := runner.Function{Tool: responses.FunctionToolParam{Name: "act"}, Execute: func(ctx context.Context, _ map[string]any) (runner.Output, error) {
		f, err := os.OpenFile(os.Getenv("LEDGER_TEST_EFFECTS"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return runner.Output{}, err
		}
		defer f.Close()
		_, err = fmt.Fprintln(f, runner.CallID(ctx))
		return runner.Output{OfString: openai.String(picture)}, err
	}}
	r, err := runner.New(runner.Registration{Functions: []runner.Function{act}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ledger, err := d.Ledger("run")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	ledger.Save = killedAt(os.Getenv("LEDGER_TEST_REVISION"), os.Getenv("LEDGER_TEST_MOMENT"))(d)
	client := openai.NewClient(option.WithBaseURL(os.Getenv("LEDGER_TEST_API")), option.WithAPIKey("none"))
	_, err = r.Run(context.Background(), &client, responses.ResponseNewParams{Model: "m",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Go.")}}, runner.Options{Ledger: ledger})
	if _, refused := errors.AsType[*runner.ConfigError](err); refused {
		os.Exit(3)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// A run that is killed at any moment of any save leaves a folder from which no effect is ever repeated: what was
// attempted and may have happened keeps the run from being resumed, and what is resumed goes on behind it.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(api))
	defer server.Close()
	// start runs the test binary, and returns its exit code, -1 when it was killed, and what it has done so far.
	start := func(dir, revision, moment string) (code int, effects []string) {
		file := filepath.Join(dir, "effects")
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "LEDGER_TEST_DIR="+filepath.Join(dir, "ledger"), "LEDGER_TEST_EFFECTS="+file, "LEDGER_TEST_API="+server.URL,
			"LEDGER_TEST_REVISION="+revision, "LEDGER_TEST_MOMENT="+moment)
		out, err := cmd.CombinedOutput()
		if code = cmd.ProcessState.ExitCode(); code == 1 || code == 2 {
			t.Fatalf("the run failed: %v: %s", err, out)
		}
		raw, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return code, strings.Fields(string(raw))
	}

	const revisions = 14 // of the whole run: 7 of the first turn, 5 of the second, 2 of the answer
	boundary := map[int]bool{1: true, 7: true, 8: true, 12: true, 13: true}
	moments := []string{"before", "written", "after"}
	if testing.Short() {
		moments = moments[1:2]
	}
	for revision := 1; revision <= revisions; revision++ {
		for _, moment := range moments {
			dir := t.TempDir()
			if code, _ := start(dir, fmt.Sprint(revision), moment); code != -1 && runtime.GOOS != "windows" {
				t.Fatalf("revision %d, %s: got exit code %d, want a killed process", revision, moment, code)
			}
			latest := revision
			if moment != "after" {
				latest--
			}
			d := open(t, filepath.Join(dir, "ledger"))
			c, err := d.Latest()
			if err != nil || (c == nil) != (latest == 0) || c != nil && c.Revision != latest {
				t.Fatalf("revision %d, %s: got the record %v, %v, want revision %d", revision, moment, c, err, latest)
			}
			d.Close()

			code, effects := start(dir, "", "")
			seen := map[string]int{}
			for _, id := range effects {
				if seen[id]++; seen[id] > 1 {
					t.Errorf("revision %d, %s: got the effects %q, want none repeated", revision, moment, effects)
				}
			}
			want := 3 // refused
			if latest == 0 || boundary[latest] {
				want = 0
			}
			if code != want {
				t.Errorf("revision %d, %s: got exit code %d after revision %d, want %d", revision, moment, code, latest, want)
			}
			if want == 0 && len(effects) != 3 {
				t.Errorf("revision %d, %s: got the effects %q, want all three", revision, moment, effects)
			}
		}
	}
}
