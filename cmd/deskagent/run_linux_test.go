package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/deskagent/deskagent/internal/witness"
)

// TestL1 is row L1 of the field cases: a greeting ends after one request, without an action.
func TestL1(t *testing.T) {
	server, window := guest(t)
	api := serveAPI(t.Cleanup, []string{doneMessage}) // a second request would be an error
	output, err := deskagent(t, server.Display(), api.URL, "run", "--approve", "allow", "Hello").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "\nDone.\n") {
		t.Errorf("got %v, want the answer:\n%s", err, output)
	}
	if events, err := window.Events(); err != nil || len(events) > 0 {
		t.Errorf("got %v, %v, want no events", events, err)
	}
}

// TestL2 is row L2 of the field cases: Ctrl-C ends the command within 200 ms, with nothing held, whatever it is
// doing. TestInterrupt has it in the middle of an action. The best of three counts, as others use the machine.
func TestL2(t *testing.T) {
	server, window := guest(t)
	for _, test := range []struct {
		name   string
		args   []string
		answer string        // of the API; empty for none, ever
		until  func(*screen) // waits until the command is where it is to be interrupted
	}{
		{"in a request", []string{"--approve", "allow"}, "", func(s *screen) { <-s.asked }},
		{"in a stream", []string{"--approve", "allow", "--stream"}, "", func(s *screen) { <-s.asked }},
		{"in a question", nil, clickCall, func(s *screen) { s.sees("everything: ") }},
		{"in a wait for rest", []string{"--approve", "allow", "--settle", "20s,80ms,30s"}, clickCall, func(s *screen) {
			if err := window.WaitFor(witness.ButtonUp, 20*time.Second); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			best := time.Hour
			for range 3 {
				asked := make(chan struct{}, 10)
				api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					asked <- struct{}{}
					if test.answer == "" {
						w.(http.Flusher).Flush()
						<-r.Context().Done()
						return
					}
					w.Header().Set("Content-Type", "application/json")
					io.WriteString(w, test.answer)
				}))
				s := onTerminal(t, deskagent(t, server.Display(), api.URL, append([]string{"run", "click"}, test.args...)...))
				s.asked = asked
				test.until(s)
				begin := time.Now()
				s.types("\x03")
				if code := s.wait(); code != exitFailed {
					t.Errorf("got exit code %d, want %d:\n%s", code, exitFailed, &s.errors)
				}
				best = min(best, time.Since(begin))
				api.Close()
				if !strings.Contains(s.errors.String(), "error: interrupted") {
					t.Errorf("got %s, want it to say that it was interrupted", &s.errors)
				}
				if held, err := window.Held(); err != nil || len(held) > 0 {
					t.Errorf("got %v, %v, want nothing held", held, err)
				}
				if _, err := window.Events(); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("ended after %v", best)
			if best > 200*time.Millisecond {
				t.Errorf("ended after %v, want at most 200ms", best)
			}
		})
	}
}

// A screen is a terminal with a command in its foreground.
type screen struct {
	t              *testing.T
	cmd            *exec.Cmd
	far            *os.File
	asked          chan struct{} // a value for each request
	output, errors bytes.Buffer  // of the standard streams, which are not the terminal

	mu    sync.Mutex // guards what follows
	shown strings.Builder
}

// onTerminal starts a command with a terminal of its own as its standard input.
func onTerminal(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	far, near, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, cmd: cmd, far: far}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = near, &s.output, &s.errors
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	near.Close()
	over := make(chan struct{})
	go func() {
		defer close(over)
		buf := make([]byte, 4096)
		for {
			n, err := far.Read(buf)
			s.mu.Lock()
			s.shown.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return // the command has ended
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if it is still there
		<-over
		far.Close()
	})
	return s
}

func (s *screen) types(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.far, keys); err != nil {
		s.t.Fatal(err)
	}
}

// sees waits until the terminal shows a text.
func (s *screen) sees(text string) {
	s.t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		shown := s.shown.String()
		s.mu.Unlock()
		if strings.Contains(shown, text) {
			return
		}
		if time.Since(begin) > 20*time.Second {
			s.t.Fatalf("got %q on the terminal, want %q", shown, text)
		}
	}
}

// wait waits for the command to end, and returns its exit code.
func (s *screen) wait() int {
	s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// scripted answers requests with one body after the other, each when it is let, and keeps what it was sent.
type scripted struct {
	answers  []string
	kind     string // the content type
	let      chan struct{}
	arrived  chan struct{}
	requests []string
}

func (a *scripted) start(t *testing.T) string {
	a.let, a.arrived = make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(a.requests) == len(a.answers) {
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		a.requests = append(a.requests, string(body))
		a.arrived <- struct{}{}
		<-a.let
		w.Header().Set("Content-Type", a.kind)
		io.WriteString(w, a.answers[len(a.requests)-1])
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// next waits for a request, does something while the model thinks, and lets it have its answer.
func (a *scripted) next(meanwhile func()) {
	<-a.arrived
	meanwhile()
	a.let <- struct{}{}
}

// TestFollowUp types while the command works: whole lines become texts of the user after the turn, in order, and an
// answer to a question is no such text.
func TestFollowUp(t *testing.T) {
	server, _ := guest(t)
	api := &scripted{answers: []string{clickCall, doneMessage}, kind: "application/json"}
	s := onTerminal(t, deskagent(t, server.Display(), api.start(t), "run", "click"))
	api.next(func() {
		s.types("use the other button\nand hurry\ny\n")
		s.sees("hurry\r\ny\r\n") // the echo: the lines are there to be read
	})
	s.sees("a = yes to every click")
	s.types("y\n")
	s.sees("a = yes to every screenshot")
	s.types("y\n")
	api.next(func() {
		s.types("too late\n")
		s.sees("late")
	})
	if code := s.wait(); code != exitDone {
		t.Fatalf("got exit code %d:\n%s", code, &s.errors)
	}
	var sent struct {
		Input []struct{ Role, Content string }
	}
	if err := json.Unmarshal([]byte(api.requests[1]), &sent); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, item := range sent.Input {
		if item.Role == "user" {
			said = append(said, item.Content)
		}
	}
	if got, want := strings.Join(said, "|"), "click|use the other button|and hurry"; got != want {
		t.Errorf("got user texts %s, want %s", got, want)
	}
	for _, want := range []string{`passed on to the model: "and hurry"`, `not passed on, as the model is done: "too late"`} {
		if !strings.Contains(s.errors.String(), want) {
			t.Errorf("got %s, want %s in it", &s.errors, want)
		}
	}
}

const mcpRequest = `{"id":"r1","object":"response","status":"completed","output":[{"type":"mcp_approval_request","id":"mcpr_1",` +
	`"server_label":"mail","name":"send","arguments":"{\"to\":\"me\u001b[2J\"}"}]}`

// TestMCPIsAsked puts the approval requests of MCP servers to the person at the terminal, also where all actions are
// allowed (rows A2 and A4 of the field cases, for tools).
func TestMCPIsAsked(t *testing.T) {
	server, _ := guest(t)
	for _, test := range []struct {
		approve, types string // nothing typed: no question
		want           string
	}{
		{"allow", "y\n", `"approve":true`},
		{"allow", "n\n", `"approve":false`},
		{"prompt", "y\n", `"approve":true`},
		{"deny", "", `"approve":false`},
	} {
		t.Run(test.approve+" "+strings.TrimSpace(test.types), func(t *testing.T) {
			api := &scripted{answers: []string{mcpRequest, doneMessage}, kind: "application/json"}
			s := onTerminal(t, deskagent(t, server.Display(), api.start(t), "run", "--approve", test.approve,
				"--mcp", "mail=https://mcp.example.com", "send it"))
			api.next(func() {})
			if test.types != "" {
				s.sees(`call the tool "send" of the MCP server "mail" with:`)
				s.sees(`"{\"to\":\"me\x1b[2J\"}"`)
				s.sees("q = no to everything: ")
				s.types(test.types)
			}
			api.next(func() {})
			if code := s.wait(); code != exitDone {
				t.Fatalf("got exit code %d:\n%s", code, &s.errors)
			}
			if !strings.Contains(api.requests[0], `"require_approval":"always"`) {
				t.Errorf("got request %s, want approvals to be asked for", api.requests[0])
			}
			if got := api.requests[1]; !strings.Contains(got, test.want) {
				t.Errorf("got request %s, want %s in it", got, test.want)
			}
		})
	}
}

// events is a stream of the API.
func events(list ...string) string {
	var b strings.Builder
	for _, data := range list {
		var e struct{ Type string }
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Type, data)
	}
	return b.String()
}

// TestStream shows what the model says and thinks, with a mark before each line and nothing that moves the cursor.
func TestStream(t *testing.T) {
	server, _ := guest(t)
	_, message, _ := strings.Cut(strings.TrimSuffix(doneMessage, "]}"), `"output":[`)
	api := &scripted{kind: "text/event-stream", answers: []string{events(
		`{"type":"response.created","sequence_number":0,"response":{"id":"r2","object":"response","status":"in_progress","output":[]}}`,
		`{"type":"response.reasoning_summary_text.delta","sequence_number":1,"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"I greet"}`,
		`{"type":"response.reasoning_summary_text.delta","sequence_number":2,"item_id":"rs_1","output_index":0,"summary_index":0,"delta":" back."}`,
		`{"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"Do\u001b[2Jne.\nstep 9"}`,
		`{"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":`+message+`}`,
		`{"type":"response.completed","sequence_number":5,"response":`+doneMessage+`}`,
	)}}
	cmd := deskagent(t, server.Display(), api.start(t), "run", "--approve", "allow", "--stream", "Hello")
	var output, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	api.next(func() {})
	if err := cmd.Wait(); err != nil || output.String() != "Done.\n" {
		t.Errorf("got %q, %v, want the answer:\n%s", &output, err, &talk)
	}
	if want := "  ~ I greet back.\n  | Do\\x1b[2Jne.\n  | step 9\nstep 1 "; !strings.HasPrefix(talk.String(), want) {
		t.Errorf("got %q, want %q first", &talk, want)
	}
	for _, want := range []string{`"stream":true`, `"reasoning":{"summary":"auto"}`} {
		if !strings.Contains(api.requests[0], want) {
			t.Errorf("got request %s, want %s in it", api.requests[0], want)
		}
	}
}

// metered answers with calls for n turns, and says of each input what it cost as the API's guide to images counts: a
// token for each patch of 32 by 32 pixels, and four bytes of everything else.
func metered(t *testing.T, turns int, actions string) *httptest.Server {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		requests++
		tokens, rest := 0, len(body)
		for _, url := range regexp.MustCompile(`data:image/png;base64,([^"]+)`).FindAllSubmatch(body, -1) {
			config, _, err := image.DecodeConfig(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(url[1])))
			if err != nil {
				t.Error(err)
			}
			tokens += (config.Width + 31) / 32 * ((config.Height + 31) / 32)
			rest -= len(url[0])
		}
		tokens += rest / 4
		answer := doneMessage
		if requests <= turns {
			answer = fmt.Sprintf(`{"id":"r%d","object":"response","status":"completed","output":[{"type":"computer_call","id":"cu_%[1]d",`+
				`"call_id":"call_%[1]d","status":"completed","actions":[%s]}]}`, requests, fmt.Sprintf(actions, requests))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `%s,"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%[2]d}}`,
			strings.TrimSuffix(answer, "}"), tokens)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestCost1 is row $1 of the field cases: ten steps that the model asks for together are one call and two requests.
func TestCost1(t *testing.T) {
	server, window := guest(t)
	click := `{"type":"click","button":"left","x":10,"y":20}`
	api := metered(t, 1, strings.Repeat(click+",", 9)+`{"type":"click","button":"left","x":10,"y":2%d}`)
	output, err := deskagent(t, server.Display(), api.URL, "run", "--approve", "allow", "click ten times").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "\n2 steps, ") {
		t.Errorf("got %v, want two steps:\n%s", err, output)
	}
	all, err := window.Events()
	presses := 0
	for _, e := range all {
		if e.Kind == witness.ButtonDown {
			presses++
		}
	}
	if err != nil || presses != 10 {
		t.Errorf("got %d clicks, %v, want 10", presses, err)
	}
}

// TestCost2 is row $2 of the field cases: each request's usage is reported, and a picture of 1440x900 costs no more
// than the 1,500 tokens that are to be expected. With --context-images the requests stop growing.
func TestCost2(t *testing.T) {
	const turns = 20
	for _, test := range []struct {
		name string
		args []string
		last int // pictures in the last request
	}{
		{"all pictures", nil, turns},
		{"four pictures", []string{"--context-images", "4"}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, _ := guestOf(t, 1440, 900)
			api := metered(t, turns, `{"type":"move","x":10,"y":%d}`)
			args := append([]string{"run", "--approve", "allow", "--pictures", "inline", "--max-steps", strconv.Itoa(turns + 1), "--settle", "20ms,10ms,1s"}, test.args...)
			talk, err := deskagent(t, server.Display(), api.URL, append(args, "look")...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, talk)
			}
			var reported []int
			lines := bufio.NewScanner(bytes.NewReader(talk))
			for lines.Scan() {
				if m := regexp.MustCompile(`^step \d+ .*tokens: (\d+) in`).FindStringSubmatch(lines.Text()); m != nil {
					n, _ := strconv.Atoi(m[1])
					reported = append(reported, n)
				}
			}
			if len(reported) != turns+1 {
				t.Fatalf("got %d reports, want one for each of %d requests:\n%s", len(reported), turns+1, talk)
			}
			each := (reported[turns] - reported[0]) / test.last
			t.Logf("tokens by request: %v; %d for each picture", reported, each)
			if each < 1200 || each > 1700 {
				t.Errorf("got %d tokens for each picture with its call, want about 1,500", each)
			}
		})
	}
}
