package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const testKey = "sk-test-0123456789abcdefghijklmnop"

// A way is from a socket to an API, over a connection as a command's.
type way struct {
	socket string
	client *http.Client
	audit  *bytes.Buffer
	cut    func() // ends the connection
	ended  chan struct{}
}

func newWay(t *testing.T, api string, change func(*Options)) *way {
	t.Helper()
	base, err := url.Parse(api + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{socket: filepath.Join(t.TempDir(), "api", "s"), audit: new(bytes.Buffer), ended: make(chan struct{})}
	opts := &Options{
		Base: base, Header: http.Header{"Authorization": {"Bearer " + testKey}}, Model: "m-1", Responses: 100,
		Tools: []json.RawMessage{json.RawMessage(`{"type":"mcp","server_label":"mail","server_url":"https://mail.example"}`)},
		Audit: slog.New(slog.NewTextHandler(w.audit, nil)),
	}
	if change != nil {
		change(opts)
	}
	g, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	host, guest := net.Pipe()
	w.cut = func() { host.Close() }
	ready := make(chan struct{})
	served := make(chan error, 1)
	go func() { served <- g.Serve(t.Context(), host, func() { close(ready) }) }()
	go func() {
		defer close(w.ended)
		if err := Listen(t.Context(), guest, w.socket); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case <-time.After(10 * time.Second):
		t.Fatal("the guest's end is not ready")
	}
	transport := Dial(w.socket)
	w.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		w.cut()
		<-w.ended
		<-served
		if _, err := os.Stat(w.socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v, want no socket left", err)
		}
	})
	return w
}

// do makes a request as a program in the guest does, and returns the status and the body.
func (w *way) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", "Openai-Organization", "Cookie", "X-Other"} {
		r.Header.Set(name, "the guest's")
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if location := answer.Header.Get("Location"); location != "" {
		t.Errorf("got a redirect to %s", location)
	}
	return answer.StatusCode, string(text)
}

// TestWhatPasses has requests of all kinds. The API counts those that it gets, and finds the key on each.
func TestWhatPasses(t *testing.T) {
	var got atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Add(1)
		if key := r.Header.Get("Authorization"); key != "Bearer "+testKey {
			t.Errorf("got the key %q, want ours", key)
		}
		for _, name := range []string{"Openai-Organization", "Cookie", "X-Other", "X-Forwarded-For"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("got %s: %q, want nothing of the guest's", name, value)
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/files"):
			io.WriteString(w, `{"id":"file-1"}`)
		default:
			fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, len(body))
		}
	}))
	defer api.Close()
	w := newWay(t, api.URL, nil)
	for _, test := range []struct {
		method, path, body string
		want               string // of the refusal, empty for none
	}{
		{"POST", "/responses", `{"model":"m-1","input":"hello"}`, ""},
		{"POST", "/responses", `{"model":"m-1","tools":[{"type":"computer"},{"type":"function","name":"f"}],"previous_response_id":null}`, ""},
		{"POST", "/responses", `{"tools":[{"server_url":"https://mail.example","type":"mcp","server_label":"mail"}],"model":"m-1"}`, ""},
		{"POST", "/responses", `{"model":"m-2","input":"hello"}`, "the model"},
		{"POST", "/responses", `{"model":"m-1","Model":"m-2"}`, "the model"},
		{"POST", "/responses", `{"model":"m-1","model":"m-2"}`, "the model"},
		{"POST", "/responses", `{"input":"hello"}`, "no model"},
		{"POST", "/responses", `{"model":"m-1","tools":[{"type":"web_search"}]}`, `type \"web_search\"`},
		{"POST", "/responses", `{"model":"m-1","tools":[],"TOOLS":[{"type":"web_search"}]}`, `type \"web_search\"`},
		{"POST", "/responses", `{"model":"m-1","tools":[{"type":"mcp","server_label":"mail","server_url":"https://elsewhere.example"}]}`, `type \"mcp\"`},
		{"POST", "/responses", `{"model":"m-1","tools":{"type":"web_search"}}`, "no list"},
		{"POST", "/responses", `{"model":"m-1","previous_response_id":"resp_1"}`, "previous_response_id"},
		{"POST", "/responses", `{"model":"m-1","conversation":"conv_1"}`, "conversation"},
		{"POST", "/responses", `{"model":"m-1","prompt":{"id":"pmpt_1"}}`, "prompt"},
		{"POST", "/responses", `["model"]`, "no JSON object"},
		{"POST", "/responses", `{"model":"m-1"`, "no JSON object"},
		{"POST", "/responses", `{"model":"m-1"}{"model":"m-2"}`, "more than"},
		{"POST", "/responses?x=1", `{"model":"m-1"}`, "address"},
		{"POST", "/responses/../files", `{"model":"m-1"}`, "address"},
		{"POST", "/files/../responses", `{}`, "address"},
		{"GET", "/responses/resp_1", "", "not what"},
		{"GET", "/files", "", "not what"},
		{"GET", "/models", "", "not what"},
		{"POST", "/embeddings", "{}", "not what"},
		{"PUT", "/responses", `{"model":"m-1"}`, "not what"},
		{"POST", "/.ready/", "", "address"},
		{"DELETE", "/files/file-1", "", "not uploaded from here"},
		{"DELETE", "/files/", "", "address"},
		{"POST", "/files", "a picture", ""},
		{"DELETE", "/files/file-1", "", ""},
		{"DELETE", "/files/file-2", "", "not uploaded from here"},
	} {
		before := got.Load()
		status, answer := w.do(t, test.method, test.path, test.body)
		refused := test.want != ""
		if reached := got.Load() > before; reached == refused {
			t.Errorf("%s %s %s: reached the API: %v, answer %d %s", test.method, test.path, test.body, reached, status, answer)
		}
		if refused && (status != http.StatusForbidden || !strings.Contains(answer, test.want)) {
			t.Errorf("%s %s %s: got %d %s, want it refused for %q", test.method, test.path, test.body, status, answer, test.want)
		}
		if !refused && status != http.StatusOK {
			t.Errorf("%s %s %s: got %d %s, want it passed on", test.method, test.path, test.body, status, answer)
		}
	}
	if log := w.audit.String(); strings.Contains(log, testKey) || strings.Count(log, "msg=allow") != 5 || !strings.Contains(log, "status=200") {
		t.Errorf("got the audit log %s, want five that were allowed, and no key", log)
	}
}

// TestBound makes one request more than a run may make.
func TestBound(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") }))
	defer api.Close()
	w := newWay(t, api.URL, func(o *Options) { o.Responses = 2 })
	for i := range 3 {
		if status, answer := w.do(t, "POST", "/responses", `{"model":"m-1"}`); (status == http.StatusOK) != (i < 2) {
			t.Errorf("request %d: got %d %s", i+1, status, answer)
		}
	}
}

// TestRedirect has an API that sends its clients elsewhere. The key does not go there, and the guest does not learn where.
func TestRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	api := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer api.Close()
	w := newWay(t, api.URL, nil)
	r, err := http.NewRequest("POST", "http://"+Host+"/responses", strings.NewReader(`{"model":"m-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := w.client.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusTemporaryRedirect || answer.Header.Get("Location") != "" {
		t.Errorf("got %d to %q, want the status alone", answer.StatusCode, answer.Header.Get("Location"))
	}
}

// TestStream sends one half of an answer when the other end has read the one before, and then hangs until the request is
// cancelled.
func TestStream(t *testing.T) {
	read, cancelled := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(cancelled)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range []string{"one\n", "two\n"} {
			io.WriteString(w, line)
			w.(http.Flusher).Flush()
			<-read
		}
		<-r.Context().Done()
	}))
	defer api.Close()
	w := newWay(t, api.URL, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+Host+"/responses", strings.NewReader(`{"model":"m-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one\n", "two\n"} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(answer.Body, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q before the rest is sent", got, err, want)
		}
		read <- struct{}{}
	}
	cancel()
	select {
	case <-cancelled:
	case <-time.After(10 * time.Second):
		t.Error("the request to the API goes on after the guest's was cancelled")
	}
	answer.Body.Close()
}

// TestLarge sends a request of the size of a long run with pictures, and another one beside it.
func TestLarge(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(w, r.Body)
		if err != nil {
			t.Errorf("got %v after %d bytes", err, n)
		}
	}))
	defer api.Close()
	w := newWay(t, api.URL, nil)
	beside := make(chan struct{})
	go func() {
		defer close(beside)
		for range 20 {
			w.do(t, "POST", "/responses", `{"model":"m-1"}`)
		}
	}()
	body := `{"model":"m-1","input":"` + strings.Repeat("x", 40<<20) + `"}`
	if status, answer := w.do(t, "POST", "/responses", body); status != http.StatusOK || answer != body {
		t.Errorf("got %d and %d bytes, want what was sent, %d", status, len(answer), len(body))
	}
	<-beside
}

// TestWatch notices the end of the connection, which is that of a run on the host.
func TestWatch(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	w := newWay(t, api.URL, nil)
	ctx, end, err := Watch(t.Context(), w.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if ctx.Err() != nil {
		t.Fatal("the way is said to be gone")
	}
	w.cut()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the end was not noticed")
	}
	if cause := context.Cause(ctx); !errors.Is(cause, ErrGone) {
		t.Errorf("got %v, want %v", cause, ErrGone)
	}
	if _, _, err := Watch(t.Context(), w.socket+"-none"); !errors.Is(err, ErrGone) {
		t.Errorf("got %v for no socket, want %v", err, ErrGone)
	}
}

// TestSocket is for one user alone.
func TestSocket(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	w := newWay(t, api.URL, nil)
	for path, want := range map[string]os.FileMode{w.socket: 0o600, filepath.Dir(w.socket): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("got %v, %v, want mode %v", info.Mode(), err, want)
		}
	}
}

// TestTold has a transport whose error holds the key.
func TestTold(t *testing.T) {
	w := newWay(t, "http://192.0.2.1", func(o *Options) {
		o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("dialing with %v", r.Header)
		})
	})
	if status, answer := w.do(t, "POST", "/responses", `{"model":"m-1"}`); status != http.StatusBadGateway || strings.Contains(answer, testKey) {
		t.Errorf("got %d %s, want it to say that the API could not be reached, and no key", status, answer)
	}
	if log := w.audit.String(); !strings.Contains(log, "dialing with") || strings.Contains(log, testKey) {
		t.Errorf("got the audit log %s, want the reason without the key", log)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
