// Package model is the practice model: a server on the loopback interface that speaks the Responses API and works
// through the tasks of the practice application. It decides from the pixels of the last screenshot alone; what it
// knows about the window is how marks look, which package palette says.
//
// # What it insists on
//
// A request has to be what the real API would take: a key, the computer tool, no streaming, and the whole history,
// in which everything the model said stands unchanged and each call is answered exactly once, with a picture in a
// data URL and its safety checks acknowledged. Any other request is refused with a reason and changes nothing.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options describes a model. Nil means the zero Options.
type Options struct {
	// Logger gets a line for each turn; nil discards.
	Logger *slog.Logger
}

// A Server is a running model for one conversation. Its methods are safe to use from several goroutines.
type Server struct {
	logger   *slog.Logger
	listener net.Listener
	http     http.Server
	served   chan struct{} // closed when http has ended

	mu           sync.Mutex
	conversation conversation
}

// Start starts a model on a free port of the loopback interface.
func Start(opts *Options) (*Server, error) {
	s := &Server{logger: slog.New(slog.DiscardHandler), served: make(chan struct{}), conversation: newConversation()}
	if opts != nil && opts.Logger != nil {
		s.logger = opts.Logger
	}
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting the practice model: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", s.respond)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Errorf("there is no %s %q here, only POST \"/v1/responses\"", r.Method, r.URL.Path))
	})
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn)}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(s.listener) // ends with Close
	}()
	return s, nil
}

// URL is what a client takes for the base URL of the API.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/v1" }

// Close ends the server. An answer that is being thought out is waited for, a moment at most.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.served
	return err
}

// maxRequest bounds a request: every picture of a long conversation, in base64.
const maxRequest = 256 << 20

func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	if key := r.Header.Get("Authorization"); len(key) <= len("Bearer ") || key[:len("Bearer ")] != "Bearer " {
		refuse(w, http.StatusUnauthorized, errors.New("there is no key in the Authorization header"))
		return
	}
	var req request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the request is not JSON: %w", err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response, err := s.conversation.answer(&req)
	if err != nil {
		s.logger.Warn("practice model refused a request", "error", err)
		refuse(w, http.StatusBadRequest, err)
		return
	}
	s.logger.Debug("practice model answered", "step", s.conversation.step, "output", response["output"])
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response) // a client that has gone away misses it
}

// refuse answers with an error in the API's form.
func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{
		"message": err.Error(), "type": "invalid_request_error", "param": nil, "code": nil,
	}})
}
