package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// solid is a PNG file of one colour.
func solid(t *testing.T, w, h int, c color.RGBA) []byte {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, w, h))
	for i := 0; i < len(picture.Pix); i += 4 {
		picture.Pix[i], picture.Pix[i+1], picture.Pix[i+2], picture.Pix[i+3] = c.R, c.G, c.B, 255
	}
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func create(t *testing.T, opts *Options) (string, *Writer) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "trace")
	w, err := Create(dir, Start{Program: "test", Task: "a task", Settings: map[string]string{"model": "m"}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(nil) })
	return dir, w
}

func open(t *testing.T, dir string) *Trace {
	t.Helper()
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func call(id string, actions ...driver.Action) Call {
	return Call{ID: id, Shown: Actions(actions), Actions: Actions(actions)}
}

func TestRoundTrip(t *testing.T) {
	dir, w := create(t, nil)
	click := Action{driver.Click{X: 1, Y: 2, Button: driver.ButtonLeft}}
	area := Area(image.Rect(10, 20, 110, 70))
	red := solid(t, 4, 3, color.RGBA{R: 255})
	response := Response{Usage: &Usage{1, 2, 3}, Texts: []Text{{"message", "<hello>"}}}
	approval := Approval{CallID: "c1", Action: &click, Error: "no", Took: time.Second}
	stage := Stage{API: "computer", Stage: "action", Outcome: "completed", Member: "click", CallID: "c1", Took: time.Millisecond}
	picture := Picture{CallID: "c1", Frame: 7, Taken: time.Now().UTC(), Area: area, Width: 4, Height: 3,
		Settling: &Settling{driver.Settled, time.Second, area, Area{}}, Blank: "all black"}
	checked := Call{ID: "c1", Shown: []Action{click}, Actions: []Action{click}, Checks: []Check{{"s", "code", "message"}}}
	w.Response(response)
	w.Call(checked)
	w.Approval(approval)
	w.Stage(stage)
	w.Picture(picture, "png", red)
	w.Picture(picture, "png", red)
	if err := w.Close(errors.New("the cause")); err != nil {
		t.Fatal(err)
	}
	tr := open(t, dir)
	var got []any
	for _, r := range tr.Records {
		if r.At.IsZero() {
			t.Errorf("got no time in %+v", r)
		}
		for _, member := range []any{r.Start, r.Response, r.Call, r.Approval, r.Stage, r.Picture} {
			if v := reflect.ValueOf(member); !v.IsNil() {
				got = append(got, v.Elem().Interface())
			}
		}
	}
	kept := picture
	kept.SHA256, kept.Format, kept.Bytes, kept.Kept = got[5].(Picture).SHA256, "png", len(red), true
	want := []any{Start{Version, "test", "a task", map[string]string{"model": "m"}}, response, checked, approval, stage, kept, kept}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if end := tr.End(); end == nil || end.Error != "the cause" || end.Took <= 0 {
		t.Errorf("got the end %+v, want the cause and a time", end)
	}
	if files, _ := os.ReadDir(filepath.Join(dir, picturesFolder)); len(files) != 1 {
		t.Errorf("got %d files, want the same picture once", len(files))
	}
	if got, err := tr.File(tr.Turns()[0].Picture); err != nil || !bytes.Equal(got, red) {
		t.Errorf("got another picture (%v)", err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, recordsFile): 0o600, filepath.Join(dir, picturesFolder): 0o700,
		filepath.Join(dir, picturesFolder, kept.name()): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := Create(dir, Start{}, nil); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("got %v for a folder with a trace, want it refused", err)
	}
}

func TestReadResponse(t *testing.T) {
	got := ReadResponse(json.RawMessage(`{"usage":{"input_tokens":5,"output_tokens":6,"total_tokens":11},"output":[
		{"type":"reasoning","summary":[{"type":"summary_text","text":"think"}]},
		{"type":"computer_call","call_id":"c"},{"type":"function_call","arguments":"{}","output":7},
		{"type":"message","content":[{"type":"output_text","text":"say"},{"type":"refusal","refusal":"won't"}]}]}`))
	want := Response{Usage: &Usage{5, 6, 11}, Texts: []Text{{"reasoning", "think"}, {"message", "say"}, {"refusal", "won't"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := ReadResponse(json.RawMessage(`nonsense`)); !reflect.DeepEqual(got, Response{}) {
		t.Errorf("got %+v of nonsense", got)
	}
}

// TestCut reads a trace at every length that it had while it was written, as a kill may leave it.
func TestCut(t *testing.T) {
	dir, w := create(t, nil)
	w.Response(Response{})
	w.Call(call("c1", driver.Wait{}))
	w.Close(nil)
	path := filepath.Join(dir, recordsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := bytes.Count(whole[:n], []byte("\n"))
		tr, err := Open(dir)
		if want == 0 {
			if err == nil {
				t.Fatalf("got a trace of %q", whole[:n])
			}
			continue
		}
		if err != nil || len(tr.Records) != want || tr.End() != nil {
			t.Fatalf("%d bytes: got %v, want %d records and no end", n, err, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	const start = `{"start":{"version":1,"program":"p"}}` + "\n"
	picture := func(sum, format string) string {
		return start + fmt.Sprintf(`{"picture":{"call_id":"c","area":[0,0,1,1],"width":1,"height":1,"sha256":%q,"format":%q,"kept":true}}`, sum, format) + "\n"
	}
	sum := strings.Repeat("0", 64)
	for _, test := range []struct{ name, lines, want string }{
		{"no start", `{"note":"x"}` + "\n", "no start"},
		{"version", `{"start":{"version":2}}` + "\n", "version 2"},
		{"not JSON", start + "{\n" + start, "line 2"},
		{"unknown action", start + `{"call":{"shown":[{"type":"jump"}]}}` + "\n", "jump"},
		{"path", picture("../../etc/passwd", "png"), "want a SHA-256"},
		{"format", picture(sum, "/../x"), "want png or jpeg"},
		{"area", start + `{"picture":{"area":[1]}}` + "\n", "x, y, width, height"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, recordsFile), []byte(test.lines), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestOtherFile has another file in the place of a picture.
func TestOtherFile(t *testing.T) {
	dir, w := create(t, nil)
	w.Call(call("c"))
	w.Picture(Picture{CallID: "c", Width: 1, Height: 1}, "png", solid(t, 1, 1, color.RGBA{}))
	w.Close(nil)
	tr := open(t, dir)
	p := tr.Turns()[0].Picture
	if err := os.WriteFile(filepath.Join(dir, picturesFolder, p.name()), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Image(p); err == nil || !strings.Contains(err.Error(), "has the hash") {
		t.Errorf("got %v, want another hash", err)
	}
}

const secret = `p"w\é-0123`

// TestSecrets puts keys wherever there is text, and looks at the bytes on the disk.
func TestSecrets(t *testing.T) {
	for _, key := range []string{"sk-abcdefgh12345", "x: sk-proj-abc_DEF-123", "line\nsk-abcdefgh12345", "\x1bsk-abcdefgh12345", "“sk-abcdefgh12345”", secret} {
		t.Run(fmt.Sprintf("%q", key), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "trace")
			w, err := Create(dir, Start{Task: key, Settings: map[string]string{"k": key}}, &Options{Secrets: []string{secret}})
			if err != nil {
				t.Fatal(err)
			}
			w.Response(Response{Texts: []Text{{"message", key}}})
			w.Call(call("c", driver.Type{Text: "type " + key}))
			w.Approval(Approval{Checks: []Check{{Message: key}}, Error: key})
			w.Stage(Stage{Member: key})
			w.Close(errors.New(key))
			data, err := os.ReadFile(filepath.Join(dir, recordsFile))
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"abc", "0123", "12345"} {
				if bytes.Contains(data, []byte(part)) {
					t.Errorf("got %q in\n%s", part, data)
				}
			}
			if tr := open(t, dir); !tr.Turns()[0].Call.Masked {
				t.Error("got a call that claims to be whole")
			}
		})
	}
	dir, w := create(t, nil)
	w.Call(call("c", driver.Type{Text: "a task-management desk-ornament"}))
	w.Close(nil)
	if c := open(t, dir).Turns()[0].Call; c.Masked || c.Actions[0].Action.(driver.Type).Text != "a task-management desk-ornament" {
		t.Errorf("got %+v, want words left alone", c)
	}
}

func TestMaskText(t *testing.T) {
	dir, w := create(t, &Options{MaskText: true})
	w.Response(Response{Texts: []Text{{"message", "I type hunter2"}}})
	w.Call(call("c", driver.Type{Text: "hunter2", Extra: driver.Extra{"x": json.RawMessage(`"hunter2"`)}}, driver.Keypress{Keys: []string{"q"}},
		driver.Keypress{Keys: []string{"CTRL", "S"}}))
	w.Approval(Approval{Action: &Action{driver.Type{Text: "hunter2"}}, Error: `typing "hunter2"`})
	w.Close(errors.New(`typing "hunter2": no display`))
	data, err := os.ReadFile(filepath.Join(dir, recordsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"hunter", "a task", `"q"`} {
		if bytes.Contains(data, []byte(part)) {
			t.Errorf("got %q in\n%s", part, data)
		}
	}
	c := open(t, dir).Turns()[0].Call
	want := Actions([]driver.Action{driver.Type{Text: "•••••••"}, driver.Keypress{Keys: []string{"•"}}, driver.Keypress{Keys: []string{"CTRL", "S"}}})
	if !c.Masked || !reflect.DeepEqual(c.Actions, want) {
		t.Errorf("got %+v, want %+v, masked", c, want)
	}
}

// TestLimit fills a trace with pictures, and then with lines.
func TestLimit(t *testing.T) {
	var log bytes.Buffer
	dir, w := create(t, &Options{Limit: minLimit, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	size := func() (n int64) {
		filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().IsRegular() {
				n += info.Size()
			}
			return nil
		})
		return n
	}
	big := make([]byte, minLimit/2)
	for i := range 3 {
		big[0] = byte(i)
		w.Call(call(fmt.Sprint(i)))
		w.Picture(Picture{CallID: fmt.Sprint(i), Width: 1, Height: 1}, "png", big)
	}
	tr := open(t, dir)
	var kept []bool
	for _, turn := range tr.Turns() {
		kept = append(kept, turn.Picture.Kept)
	}
	if want := []bool{true, false, false}; !reflect.DeepEqual(kept, want) {
		t.Errorf("got %v kept, want %v", kept, want)
	}
	if got := strings.Count(log.String(), "no more pictures"); got != 1 {
		t.Errorf("got it said %d times, want once:\n%s", got, log.String())
	}
	for range 1000 {
		w.Stage(Stage{Member: strings.Repeat("x", 100)})
	}
	if err := w.Close(nil); err == nil || !strings.Contains(err.Error(), "full at") {
		t.Errorf("got %v, want it to say that it is full", err)
	}
	if got := size(); got > minLimit || got < minLimit*9/10 {
		t.Errorf("got %d bytes, want up to %d", got, minLimit)
	}
	open(t, dir)
	if _, err := Create(t.TempDir(), Start{}, &Options{Limit: 100}); err == nil {
		t.Error("got a trace of 100 bytes")
	}
}

// TestSharedFolder begins a trace in a folder that was there: its mode is somebody else's business.
func TestSharedFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := Create(dir, Start{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Close(nil)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("got %v, %v, want the mode it had", info.Mode(), err)
	}
}

// TestLost has the folder taken away: the error is that of Close alone.
func TestLost(t *testing.T) {
	dir, w := create(t, nil)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.Picture(Picture{}, "png", []byte("x"))
	w.Response(Response{})
	if err := w.Close(nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the folder is gone", err)
	}
	if err := w.Close(nil); err != nil {
		t.Errorf("got %v from a second Close", err)
	}
}

func TestDiffer(t *testing.T) {
	grey := func(v uint8, w, h int) *image.Gray {
		p := image.NewGray(image.Rect(5, 5, 5+w, 5+h))
		for i := range p.Pix {
			p.Pix[i] = v
		}
		return p
	}
	one := grey(0, 10, 10)
	one.Pix[42] = 200
	for _, test := range []struct {
		name string
		a, b image.Image
		want float64
	}{
		{"same", grey(9, 4, 4), grey(9, 4, 4), 0},
		{"within tolerance", grey(0, 4, 4), grey(Tolerance, 4, 4), 0},
		{"beyond it", grey(Tolerance+1, 4, 4), grey(0, 4, 4), 1},
		{"one pixel", one, grey(0, 10, 10), 0.01},
		{"another size", grey(0, 4, 4), grey(0, 4, 5), 1},
		{"nothing", grey(0, 0, 0), grey(0, 0, 0), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Differ(test.a, test.b); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
