// Package gateway lets an agent that runs in a guest reach the API without the key, and without a network.
//
// The guest's end, [Listen], is a socket in the file system that speaks HTTP. What comes in there goes over one
// connection, which is the standard input and output of a command that leads into the guest, to the other end on the host,
// [Serve]. That one decides whether a request is what an agent needs, adds the key and sends it to the API. So the key is in
// the memory of one process on the host and nowhere else, and a guest with no network at all will do.
//
// # What else was thought of
//
//   - The key in the proxy of the sandbox. It would be in a container, for as long as that is there, and in the arguments or
//     the environment by which it got there; and the proxy would have to open TLS, with a certificate that the guest is
//     made to trust.
//   - A port on the guest's loopback in place of the socket. Every page in the guest's browser could send requests to it.
//
// # What it holds against
//
// Programs in the guest are the agent's equals: they can use the socket, too. So it passes on only
//
//   - responses that are asked of the model that was named, with hosted tools that were named, and of which everything is in
//     the request: stored conversations, prompts and responses are the account's. Hosted tools would be a way out of the
//     guest, as some of them fetch pages;
//   - a bounded number of those;
//   - files that are uploaded, and their deletion: of no others.
//
// It cannot tell whether a request is the agent's, so a program there can spend what the run may spend, and see what is in the
// answers to its own requests.
package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxBody is the longest request, in bytes: far beyond what the API takes.
	maxBody = 512 << 20
	// maxAnswer is the longest answer to an upload that is looked at.
	maxAnswer = 1 << 20
)

// Options says what a gateway lets through.
type Options struct {
	// Base is the address of the API, such as https://api.example.com/v1.
	Base *url.URL
	// Header is set in every request, in place of what the guest says: the key, the organization.
	Header http.Header
	// Model is the only model that may be asked.
	Model string
	// Tools are the hosted tools that may be declared, as they are declared. Functions and the computer are none.
	Tools []json.RawMessage
	// Responses is how many may be asked for.
	Responses int
	// Audit gets a record for each request: method, path, status, duration, and why it was refused. Nil discards them.
	Audit *slog.Logger
	// Transport makes the requests; nil means http.DefaultTransport.
	Transport http.RoundTripper
}

// A Gateway is the host's end, as an http.Handler. It may be used from several goroutines.
type Gateway struct {
	opts    Options
	tools   []any
	forward httputil.ReverseProxy

	mu    sync.Mutex // guards what follows
	asked int
	files []string // IDs of those that were uploaded
}

// New makes a gateway.
func New(opts *Options) (*Gateway, error) {
	g := &Gateway{opts: *opts}
	if g.opts.Audit == nil {
		g.opts.Audit = slog.New(slog.DiscardHandler)
	}
	for _, raw := range opts.Tools {
		var tool any
		if err := json.Unmarshal(raw, &tool); err != nil {
			return nil, fmt.Errorf("reading the hosted tool %q: %w", raw, err)
		}
		g.tools = append(g.tools, tool)
	}
	g.forward = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			u := *g.opts.Base
			u.Path, u.RawPath, u.RawQuery = strings.TrimSuffix(u.Path, "/")+r.In.URL.Path, "", ""
			r.Out.URL, r.Out.Host = &u, u.Host
			r.Out.Header = http.Header{}
			for _, name := range []string{"Accept", "Content-Type", "Content-Length", "User-Agent", "Idempotency-Key"} {
				if value := r.In.Header.Get(name); value != "" {
					r.Out.Header.Set(name, value)
				}
			}
			for name, values := range g.opts.Header {
				r.Out.Header[name] = slices.Clone(values)
			}
		},
		FlushInterval:  -1, // what is streamed goes on as it comes
		Transport:      cmp.Or[http.RoundTripper](opts.Transport, http.DefaultTransport),
		ModifyResponse: g.answered,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			g.opts.Audit.Warn("fail", "method", r.Method, "path", r.URL.Path, "reason", g.without(err.Error()))
			http.Error(w, "deskagent: the API could not be reached", http.StatusBadGateway)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return g, nil
}

// without takes what must not be told out of a text: what the gateway adds to requests.
func (g *Gateway) without(text string) string {
	for _, values := range g.opts.Header {
		for _, value := range values {
			for _, word := range strings.Fields(value) {
				if len(word) > 6 { // and is no Bearer
					text = strings.ReplaceAll(text, word, "(left out)")
				}
			}
		}
	}
	return text
}

// ServeHTTP decides about one request and carries it out.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	if err := g.admit(w, r); err != nil {
		g.opts.Audit.Warn("deny", "method", r.Method, "path", r.URL.Path, "reason", err.Error())
		refuse(w, err)
		return
	}
	status := &statusWriter{ResponseWriter: w}
	g.forward.ServeHTTP(status, r)
	g.opts.Audit.Info("allow", "method", r.Method, "path", r.URL.Path, "status", status.code, "sent", r.ContentLength,
		"took", time.Since(begin).Round(time.Millisecond))
}

// refuse answers as the API does, so that the agent tells what was wrong.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": "refused by deskagent: " + err.Error()}})
}

// admit says why a request is refused.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request) error {
	if r.URL.RawQuery != "" || path.Clean(r.URL.Path) != r.URL.Path {
		return errors.New("an address that no agent uses")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	id, file := strings.CutPrefix(r.URL.Path, "/files/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/responses":
		return g.admitResponse(r)
	case r.Method == http.MethodPost && r.URL.Path == "/files":
		return nil
	case r.Method == http.MethodDelete && file:
		g.mu.Lock()
		defer g.mu.Unlock()
		if !slices.Contains(g.files, id) {
			return errors.New("a file that was not uploaded from here")
		}
		return nil
	}
	return errors.New("not what an agent needs")
}

// admitResponse reads the body, and puts it back.
func (g *Gateway) admitResponse(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if err := g.checkResponse(body); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked >= g.opts.Responses {
		return fmt.Errorf("all of the %d requests of this run have been made", g.opts.Responses)
	}
	g.asked++
	return nil
}

// checkResponse looks at the fields by name. Names that differ in nothing but the case of their letters count too, and of
// those that occur twice each: another reader may take another one.
func (g *Gateway) checkResponse(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("a body that is no JSON object")
	}
	named := false
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return errors.New("a body that is no JSON object")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return errors.New("a body that is no JSON object")
		}
		switch field := strings.ToLower(name.(string)); field {
		case "model":
			var model string
			if err := json.Unmarshal(value, &model); err != nil || model != g.opts.Model {
				return fmt.Errorf("the model %.100s: this run is with %q", value, g.opts.Model)
			}
			named = true
		case "tools":
			if err := g.checkTools(value); err != nil {
				return err
			}
		case "previous_response_id", "conversation", "prompt", "background":
			if string(value) != "null" && string(value) != "false" {
				return fmt.Errorf("the field %q", field)
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return errors.New("a body that is no JSON object")
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("a body that is more than a JSON object")
	}
	if !named {
		return errors.New("no model")
	}
	return nil
}

// local are the types of tools that whoever asks for a response carries out.
var local = []string{"function", "custom", "computer", "computer_use_preview"}

func (g *Gateway) checkTools(list json.RawMessage) error {
	var tools []any
	if err := json.Unmarshal(list, &tools); err != nil {
		return errors.New("tools that are no list")
	}
	for _, tool := range tools {
		fields, _ := tool.(map[string]any)
		kind, _ := fields["type"].(string)
		if slices.Contains(local, kind) || slices.ContainsFunc(g.tools, func(named any) bool { return reflect.DeepEqual(named, tool) }) {
			continue
		}
		return fmt.Errorf("a tool of type %q that was not named when the run was started", kind)
	}
	return nil
}

// answered remembers files that have been uploaded, and keeps the guest from being sent elsewhere.
func (g *Gateway) answered(r *http.Response) error {
	for _, name := range []string{"Set-Cookie", "Location"} {
		r.Header.Del(name)
	}
	if r.Request.Method != http.MethodPost || path.Base(r.Request.URL.Path) != "files" || r.StatusCode/100 != 2 {
		return nil
	}
	answer, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return err
	}
	r.Body.Close()
	r.Body = io.NopCloser(bytes.NewReader(answer))
	r.ContentLength = int64(len(answer))
	r.Header.Set("Content-Length", fmt.Sprint(len(answer)))
	var file struct{ ID string }
	if err := json.Unmarshal(answer, &file); err == nil && file.ID != "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.files = append(g.files, file.ID)
	}
	return nil
}

// A statusWriter remembers the status.
type statusWriter struct {
	http.ResponseWriter
	code int
}

func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Serve serves the guest's end over a connection, until that or ctx ends. It calls ready when the guest's end listens,
// and perhaps again later.
func (g *Gateway) Serve(ctx context.Context, conn io.ReadWriteCloser, ready func()) error {
	return serve(ctx, conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == readyPath {
			ready()
			return
		}
		g.ServeHTTP(w, r)
	}))
}
