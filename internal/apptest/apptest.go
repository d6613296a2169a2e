// Package apptest starts real applications on a desktop of their own, for tests of drivers: each shows one text field
// that has the focus, and is asked over loopback what it holds. What arrived is so by the application's own word.
//
// The applications are those whose ways with the keyboard differ: GTK 3, Qt 5, Tk, a program in xterm, Chromium, and a window
// of plain Xlib that composes dead keys. Where one is not installed, Open skips the test.
package apptest

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/deskagent/deskagent/internal/run"
)

// A Kind is a kind of text field, by its application.
type Kind string

// The kinds. Entries have one line; in the others Return and Tab are characters.
const (
	GTKEntry Kind = "GTK entry"
	GTKArea  Kind = "GTK area"
	Qt       Kind = "Qt"
	TkEntry  Kind = "Tk entry"
	TkArea   Kind = "Tk area"
	Xlib     Kind = "Xlib"
	XTerm    Kind = "xterm"
	Chromium Kind = "Chromium"
)

// Kinds are all of them.
var Kinds = []Kind{GTKEntry, GTKArea, Qt, TkEntry, TkArea, Xlib, XTerm, Chromium}

// OneLine reports whether a field has no place for newlines and tabs.
func (k Kind) OneLine() bool { return k == GTKEntry || k == TkEntry }

// startTime bounds how long an application may take to show its field; a browser on a busy machine takes long.
const startTime = 60 * time.Second

// title is in the title of every window here.
const title = "field"

//go:embed field.py
var script []byte

//go:embed page.html
var page []byte

// A Field is a text field of a running application. Its methods are called from the goroutine of the test.
type Field struct {
	Kind    Kind
	process *run.Process
	asker   asker
}

// An asker asks an application one of the questions that field.py and page.html list, and returns its answer in JSON.
type asker interface {
	ask(question string) ([]byte, error)
}

// Open starts an application and returns when its field has the focus. It ends with the test.
func (d *Desktop) Open(t testing.TB, kind Kind) *Field {
	t.Helper()
	f := &Field{Kind: kind}
	if kind == Chromium {
		f.openPage(t, d)
	} else {
		f.openScript(t, d)
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(10 * time.Millisecond) {
		var focused bool
		f.Ask(t, "focused", &focused)
		if focused && (kind != XTerm || d.active() == title) { // a program in a terminal does not know
			return f
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no focus within %v; the active window is %q", kind, startTime, d.active())
		}
	}
}

// start starts the application's process, which is stopped when the test ends.
func (f *Field) start(t testing.TB, d *Desktop, argv ...string) {
	t.Helper()
	env := append(os.Environ(), "DISPLAY="+d.Display(), "LC_ALL=C.UTF-8", "GTK_IM_MODULE=gtk-im-context-simple", "NO_AT_BRIDGE=1", "XMODIFIERS=")
	process, err := run.Start(t.Context(), argv, &run.Options{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Stop)
	f.process = process
}

// openScript starts field.py in the way that the kind asks for, and waits until it connects.
func (f *Field) openScript(t testing.TB, d *Desktop) {
	t.Helper()
	var python []string
	var field string
	switch f.Kind {
	case GTKEntry, GTKArea:
		python, field = findPython(t, "import gi; gi.require_version('Gtk', '3.0')"), map[Kind]string{GTKEntry: "entry", GTKArea: "area"}[f.Kind]
	case Qt:
		python, field = findPython(t, "import PyQt5.QtWidgets"), "qt"
	case TkEntry, TkArea:
		python, field = findPython(t, "import tkinter"), map[Kind]string{TkEntry: "tkentry", TkArea: "tkarea"}[f.Kind]
	case Xlib:
		python, field = findPython(t, "import ctypes"), "xlib"
	case XTerm:
		terminal := find(t, "xterm")
		python, field = append([]string{terminal, "-u8", "-title", title, "-e"}, findPython(t, "import termios")...), "tty"
	default:
		t.Fatalf("opening a field: no kind %q", f.Kind)
	}
	file := filepath.Join(t.TempDir(), "field.py")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f.start(t, d, append(python, file, field, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))...)

	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	select {
	case conn := <-accepted:
		f.asker = &line{conn, bufio.NewReader(conn)}
		t.Cleanup(func() { conn.Close() })
	case <-f.process.Done():
		listener.Close()
		<-accepted
		t.Fatalf("%s ended: %v", f.Kind, f.process.Err())
	}
}

// A line asks over a connection.
type line struct {
	conn    net.Conn
	answers *bufio.Reader
}

func (l *line) ask(question string) ([]byte, error) {
	l.conn.SetDeadline(time.Now().Add(startTime))
	if _, err := io.WriteString(l.conn, question+"\n"); err != nil {
		return nil, err
	}
	return l.answers.ReadBytes('\n')
}

// openPage starts Chromium with page.html.
func (f *Field) openPage(t testing.TB, d *Desktop) {
	t.Helper()
	browser := find(t, "chromium")
	p := &post{questions: make(chan string), answers: make(chan []byte)}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	argv := []string{browser, "--app=" + server.URL, "--user-data-dir=" + profile(t), "--window-position=0,0", "--window-size=1000,700",
		"--ozone-platform=x11", "--no-first-run", "--no-default-browser-check", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--password-store=basic",
		// What it says about itself would be lost, but for the last words of one that does not start.
		"--log-level=3"}
	if os.Getuid() == 0 {
		argv = append(argv, "--no-sandbox") // It refuses to run as root with it.
	}
	f.start(t, d, argv...)
	f.asker = p
}

// profile is a directory for the browser, which goes on writing for a moment after it was stopped.
func profile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apptest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

// A post is the server that the page asks for questions and gives the answers to.
type post struct {
	questions chan string
	answers   chan []byte
}

func (p *post) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", "text/html")
		w.Write(page)
	case "/question":
		select {
		case question := <-p.questions:
			io.WriteString(w, question)
		case <-r.Context().Done():
		}
	case "/answer":
		answer, err := io.ReadAll(r.Body)
		if err != nil {
			return // The one who asked waits in vain, and says so.
		}
		select {
		case p.answers <- answer:
		case <-r.Context().Done():
		}
	default:
		http.NotFound(w, r)
	}
}

func (p *post) ask(question string) ([]byte, error) {
	late := time.After(startTime)
	select {
	case p.questions <- question:
	case <-late:
		return nil, errors.New("the page does not run")
	}
	select {
	case answer := <-p.answers:
		return answer, nil
	case <-late:
		return nil, errors.New("the page does not answer")
	}
}

// Ask asks the application a question and puts the answer into answer.
func (f *Field) Ask(t testing.TB, question string, answer any) {
	t.Helper()
	data, err := f.asker.ask(question)
	if err == nil {
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		t.Fatalf("asking %s for %q: %v", f.Kind, question, err)
	}
}

// Take waits until the field holds a text, empties it and returns what it held. It returns something else when the
// field has not changed for as long as no application takes for a key.
func (f *Field) Take(t testing.TB, want string) (got string) {
	t.Helper()
	const patience, longest = 2 * time.Second, 100 * time.Millisecond
	interval := time.Millisecond // longer and longer: one who is always asked does not get to anything else
	for changed := time.Now(); time.Since(changed) < patience; interval = min(2*interval, longest) {
		var now string
		if f.Ask(t, "text", &now); now == want {
			break
		} else if now != got {
			got, changed = now, time.Now()
		}
		time.Sleep(interval)
	}
	f.Ask(t, "take", &got)
	return got
}

// Difference tells where two texts differ first: the index, in characters, and what is there. It is empty for equal
// texts.
func Difference(got, want string) string {
	if got == want {
		return ""
	}
	g, w := []rune(got), []rune(want)
	i := 0
	for i < len(g) && i < len(w) && g[i] == w[i] {
		i++
	}
	return fmt.Sprintf("at index %d got %q, want %q; got %d characters, want %d", i, excerpt(g[i:]), excerpt(w[i:]), len(g), len(w))
}

// excerpt is the begin of a text.
func excerpt(text []rune) string { return string(text[:min(12, len(text))]) }

// find finds a program; the test is skipped where it is missing.
func find(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip("needs " + program)
	}
	return path
}

// findPython finds a Python that can do what a test needs. The system's comes first: the modules of its packages are
// for it, and another may come before it in PATH.
func findPython(t testing.TB, need string) []string {
	t.Helper()
	for _, program := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), program, "-c", need).Run() == nil {
			return []string{program}
		}
	}
	t.Skipf("needs a python3 that can do %q", need)
	return nil
}
