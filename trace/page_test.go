package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
)

const attack = `</script></style></svg><script>document.title="owned"</script><img src="x" onerror="document.title='owned'">`

// pageOf is the page of a trace of three steps, with an attack wherever there is text, as a file.
func pageOf(t *testing.T) (file string, page []byte) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "trace")
	w, err := Create(dir, Start{Program: attack, Task: "Task " + attack, Settings: map[string]string{attack: attack}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Sandbox(Sandbox{attack, attack, attack, []Test{{"tcp", attack, true, attack}, {"udp", attack, false, attack}}})
	area := image.Rect(100, 50, 740, 530)
	picture := func(id string, frame uint64, c color.RGBA) {
		p := NewPicture(id, &driver.Frame{ID: frame, Blank: attack, Settling: driver.Settling{State: driver.Settled, Elapsed: 310 * time.Millisecond,
			Changed: image.Rect(200, 100, 400, 200)}}, area, image.Pt(320, 240))
		w.Picture(p, "png", solid(t, 320, 240, c))
	}
	red, blue := color.RGBA{R: 200}, color.RGBA{B: 200}
	w.Response(Response{Usage: &Usage{100, 20, 120}})
	w.Call(call("c1", driver.Screenshot{}))
	picture("c1", 1, red)
	w.Response(Response{Usage: &Usage{300, 40, 340}, Texts: []Text{{"message", "Say " + attack}, {"reasoning", "Think \u202e" + attack}}})
	shown := []driver.Action{driver.Click{X: 100, Y: 60, Button: driver.ButtonRight, Keys: []string{attack}}, driver.Type{Text: "Type " + attack},
		driver.Drag{Path: []image.Point{{X: 10, Y: 20}, {X: 30, Y: 40}, {X: 50, Y: 20}}}, driver.Scroll{X: 7, Y: 8, ScrollY: -100}, driver.Screenshot{}}
	actions := slices.Clone(shown)
	actions[0] = driver.Click{X: 300, Y: 170, Button: driver.ButtonRight}
	w.Call(Call{ID: "c2", Shown: Actions(shown), Actions: Actions(actions), Checks: []Check{{"s", attack, attack}}})
	w.Approval(Approval{CallID: "c2", Checks: []Check{{"s", attack, attack}}, Allowed: true, Took: 3 * time.Second})
	for _, a := range Actions(actions) {
		w.Approval(Approval{CallID: "c2", Action: &a, Allowed: true, Took: time.Second})
		w.Stage(Stage{Stage: "action", Outcome: "completed", Member: string(a.Kind()), CallID: "c2", Took: 5 * time.Millisecond})
	}
	picture("c2", 2, blue)
	w.Response(Response{Usage: &Usage{500, 60, 560}})
	w.Call(call("c3", driver.Wait{}, driver.Screenshot{}))
	w.Approval(Approval{CallID: "c3", Action: &Action{driver.Wait{}}, Error: attack})
	w.Close(errors.New("ended: " + attack))
	var b bytes.Buffer
	if err := open(t, dir).WritePage(&b); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, b.Bytes()
}

// TestPageOfSandbox says at a glance whether the desktop was kept apart.
func TestPageOfSandbox(t *testing.T) {
	for _, test := range []struct {
		tests []Test
		want  string
	}{
		{[]Test{{"tcp", "192.0.2.1:80", true, "silence"}}, "all 1 limits that were tried hold"},
		{[]Test{{"tcp", "192.0.2.1:80", true, "silence"}, {"udp", "", false, "an answer"}}, "not all limits hold"},
		{nil, "not all limits hold"},
	} {
		dir := filepath.Join(t.TempDir(), "trace")
		w, err := Create(dir, Start{Task: "x"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Sandbox(Sandbox{"box", "img:1", "none", test.tests})
		w.Close(nil)
		var b bytes.Buffer
		if err := open(t, dir).WritePage(&b); err != nil {
			t.Fatal(err)
		}
		if page := b.String(); !strings.Contains(page, "Sandbox box, network none: ") || !strings.Contains(page, test.want) {
			t.Errorf("%+v: want %q in\n%s", test.tests, test.want, page)
		}
	}
}

// TestPageIsSelfContained finds nothing in the page that a browser would load.
func TestPageIsSelfContained(t *testing.T) {
	_, page := pageOf(t)
	attribute := regexp.MustCompile(`(?i)\s(?:href|src|srcset|action|data|style|on\w+)\s*=\s*"?([^" >]*)`)
	for _, tag := range regexp.MustCompile(`<[a-z][^>]*>`).FindAll(page, -1) {
		for _, link := range attribute.FindAllSubmatch(tag, -1) {
			if to := string(link[1]); !strings.HasPrefix(to, "#") && !strings.HasPrefix(to, "data:image/png;base64,") {
				t.Errorf("got a link to %.100q", to)
			}
		}
	}
	for _, outside := range []string{"@import", "fetch", "http:", "https:"} {
		if bytes.Contains(page, []byte(outside)) {
			t.Errorf("got %q in the page", outside)
		}
	}
	if got := bytes.Count(page, []byte("data:image/png")); got != 2 {
		t.Errorf("got %d pictures, want each of the two once", got)
	}
	if bytes.Contains(page, []byte("\u202e")) {
		t.Error("got a character that turns the text around")
	}
}

// TestMarks checks what is drawn, in the space of the picture: half of the screen's pixels, from (100,50).
func TestMarks(t *testing.T) {
	_, page := pageOf(t)
	_, section, _ := strings.Cut(string(page), `id="step-2"`)
	section, _, _ = strings.Cut(section, "</section>")
	for _, want := range []string{
		`<g transform="translate(100 60) scale(0.25)">`,   // the click, as the model put it
		`at (300,170) on the screen`,                      // and where it was done
		`<path class="line" d="M10 20L30 40L50 20"`,       // the drag
		`<path class="trail" d="M100 60L10 20"/>`,         // the way to it
		`transform="rotate(270)"`,                         // scrolling up
		`<rect class="changed" x="50" y="25" width="100"`, // what had changed on the screen
		`>right &lt;/script&gt;`,                          // button and held key
		`settled after 310 ms`,                            //
		`approval 8.0 s`,                                  // five actions and the check
		`300 tokens in, 40 out`,                           //
		`Think \u202e`,                                    //
	} {
		if !strings.Contains(section, want) {
			t.Errorf("got no %s in\n%s", want, section)
		}
	}
}

// A browser is a headless Chromium with one page.
type browser struct {
	in      *os.File
	out     *json.Decoder
	id      int    // of the last message
	session string // with the page
}

// openBrowser opens a page, and talks to the browser by its pipe: what is sent and what comes is JSON with a zero behind it.
func openBrowser(t *testing.T, url string) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "deskagent-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
		"--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as the browser has it
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{in: in, out: json.NewDecoder(zeroless{out})}
	t.Cleanup(func() {
		in.Close() // the browser ends when nobody is there any more
		cmd.Wait()
		cancel()
		out.Close()
		// Its helpers may write for a moment longer than it lives.
		for range 100 {
			if err = os.RemoveAll(profile); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error(err)
	})
	var target struct{ TargetID, SessionID string }
	b.call(t, "", "Target.createTarget", map[string]any{"url": url}, &target)
	b.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for deadline := time.Now().Add(30 * time.Second); b.eval(t, `document.readyState + (document.querySelector("nav") ? "" : " empty")`) != "complete"; {
		if time.Now().After(deadline) {
			t.Fatal("the page does not load")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return b
}

// zeroless takes zeros for spaces.
type zeroless struct{ *os.File }

func (r zeroless) Read(p []byte) (int, error) {
	n, err := r.File.Read(p)
	for i := range p[:n] {
		if p[i] == 0 {
			p[i] = ' '
		}
	}
	return n, err
}

func (b *browser) call(t *testing.T, session, method string, params map[string]any, result any) {
	t.Helper()
	b.id++
	message, err := json.Marshal(map[string]any{"id": b.id, "sessionId": session, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	if session == "" {
		message = bytes.Replace(message, []byte(`,"sessionId":""`), nil, 1)
	}
	if _, err := b.in.Write(append(message, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := b.out.Decode(&answer); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		if answer.ID != b.id {
			continue // an event
		}
		if answer.Error != nil {
			t.Fatalf("%s: %s", method, answer.Error)
		}
		if err := json.Unmarshal(answer.Result, result); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// eval is what an expression has for a value in the page, as text.
func (b *browser) eval(t *testing.T, expression string) string {
	t.Helper()
	var answer struct{ Result struct{ Value any } }
	b.call(t, b.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	return fmt.Sprint(answer.Result.Value)
}

// press presses and releases a key.
func (b *browser) press(t *testing.T, key string) {
	t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		b.call(t, b.session, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key}, new(struct{}))
	}
}

// shownSteps are the ids of the steps that can be seen.
const shownSteps = `[...document.querySelectorAll(".step")].filter(s => s.getClientRects().length).map(s => s.id).join()`

// TestPageInBrowser goes through the page with the keys.
func TestPageInBrowser(t *testing.T) {
	file, _ := pageOf(t)
	b := openBrowser(t, "file://"+file)
	for _, step := range []struct{ key, want string }{
		{"", "step-1"}, {"ArrowRight", "step-2"}, {"ArrowRight", "step-3"}, {"ArrowRight", "end"}, {"ArrowRight", "end"},
		{"ArrowLeft", "step-3"}, {"Home", "step-1"}, {"ArrowLeft", "step-1"}, {"End", "end"},
	} {
		if step.key != "" {
			b.press(t, step.key)
		}
		if got := b.eval(t, shownSteps); got != step.want {
			t.Errorf("after %q: got %s to be seen, want %s", step.key, got, step.want)
		}
	}
	b.eval(t, `location.hash = "#step-2"`)
	for name, test := range map[string]struct{ expression, want string }{
		"title":            {`document.title`, "Trace: Task " + attack},
		"scripts":          {`document.scripts.length`, "1"},
		"elements of text": {`document.querySelectorAll("img, blockquote *, h1 *, .what *, .caption *").length`, "0"},
		"message":          {`document.querySelector("blockquote.message").textContent`, "Say " + attack},
		"style":            {`getComputedStyle(document.querySelector("nav")).position`, "sticky"}, // the policy lets it be
		"size of picture":  {`(r => r.width + "x" + r.height)(document.querySelector("#step-2 use").getBBox())`, "320x240"},
		"bad step":         {`document.querySelector("nav a.bad").textContent`, "3"},
		"declined":         {`document.querySelector("#step-3 .no").textContent`, "declined"},
	} {
		if got := b.eval(t, test.expression); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	// The policy is in force: what is put into the page afterwards does not run, and nothing can be fetched.
	b.eval(t, `{ const s = document.createElement("script"); s.textContent = "document.title='owned'"; document.body.append(s); }`)
	if got := b.eval(t, `document.title`); strings.HasPrefix(got, "owned") {
		t.Error("got a script to run that is not the page's own")
	}
}

// TestPageWithoutScripts shows every step when no script runs.
func TestPageWithoutScripts(t *testing.T) {
	_, page := pageOf(t)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, bytes.Replace(page, []byte("script-src"), []byte("script-src 'none'; x-src"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, "file://"+file)
	if got, want := b.eval(t, shownSteps), "step-1,step-2,step-3,end"; got != want {
		t.Errorf("got %s to be seen, want %s", got, want)
	}
}

// TestPageOfKilled makes a page of a trace without an end, and of one whose pictures are gone.
func TestPageOfKilled(t *testing.T) {
	dir, w := create(t, nil)
	w.Response(Response{})
	w.Call(call("c", driver.Screenshot{}))
	w.Picture(Picture{CallID: "c", Width: 4, Height: 3}, "png", solid(t, 4, 3, color.RGBA{}))
	if err := os.RemoveAll(filepath.Join(dir, picturesFolder)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := open(t, dir).WritePage(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"has no end", "not kept"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got no %q", want)
		}
	}
}
