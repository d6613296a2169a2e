// Package filesapi is a Files API for tests: it keeps what is uploaded in memory, and is strict about what pictures for a
// model have to be.
package filesapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg" // these, to read the pictures
	_ "image/png"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// pageSize is how many files a page of a list has: few, so that there are several pages.
const pageSize = 3

// A Server answers requests under /v1/files. Set its fields before its first use; its methods may be called from any
// goroutine.
type Server struct {
	// Before, when not nil, is called before anything else. It answers the request itself when it returns true.
	Before func(http.ResponseWriter, *http.Request) bool
	// Stored, when not nil, is called when a file is there, before the client hears of it. It may panic with
	// [http.ErrAbortHandler], with which the client never does.
	Stored func()

	mu       sync.Mutex // guards what follows
	files    []file     // the latest last
	uploaded int
}

// A file is in the API's form.
type file struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int    `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt int64  `json:"expires_at"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
}

// Len is how many files there are.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// Uploaded is how many files there have been.
func (s *Server) Uploaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uploaded
}

var fileIDs = regexp.MustCompile(`"file_id":"([^"]*)"`)

// Check returns an error if a request refers to a file that is not there, and otherwise to how many it does.
func (s *Server) Check(body []byte) (references int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, match := range fileIDs.FindAllSubmatch(body, -1) {
		if !slices.ContainsFunc(s.files, func(f file) bool { return f.ID == string(match[1]) }) {
			return references, fmt.Errorf("there is no file %s", match[1])
		}
		references++
	}
	return references, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Before != nil && s.Before(w, r) {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/files", s.upload)
	mux.HandleFunc("GET /v1/files", s.show)
	mux.HandleFunc("DELETE /v1/files/{id}", s.remove)
	mux.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// Fail answers with an error of the API that is not worth another attempt.
func Fail(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Should-Retry", "false")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": fmt.Sprintf(format, args...)}})
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	content, header, err := r.FormFile("file")
	if err != nil {
		Fail(w, http.StatusBadRequest, "no file: %v", err)
		return
	}
	raw, err := io.ReadAll(content)
	if err != nil {
		Fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	_, format, err := image.Decode(bytes.NewReader(raw))
	if err != nil || header.Header.Get("Content-Type") != "image/"+format {
		Fail(w, http.StatusBadRequest, "a file of type %q that is %s: %v", header.Header.Get("Content-Type"), format, err)
		return
	}
	seconds, err := strconv.ParseInt(r.FormValue("expires_after[seconds]"), 10, 64)
	if err != nil || seconds < 3600 || seconds > 2592000 || r.FormValue("expires_after[anchor]") != "created_at" {
		Fail(w, http.StatusBadRequest, "expires %q after %q", r.FormValue("expires_after[seconds]"), r.FormValue("expires_after[anchor]"))
		return
	}
	if got := r.FormValue("purpose"); got != "vision" {
		Fail(w, http.StatusBadRequest, "purpose %q", got)
		return
	}
	now := time.Now().Unix()
	s.mu.Lock()
	s.uploaded++
	f := file{ID: fmt.Sprintf("file-%024d", s.uploaded), Object: "file", Bytes: len(raw), CreatedAt: now, ExpiresAt: now + seconds,
		Filename: header.Filename, Purpose: "vision"}
	s.files = append(s.files, f)
	s.mu.Unlock()
	if s.Stored != nil {
		s.Stored()
	}
	answer(w, f)
}

// show answers with a page of the list of files, the latest first.
func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	if got := r.FormValue("purpose"); got != "vision" {
		Fail(w, http.StatusBadRequest, "purpose %q", got)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	files := slices.Clone(s.files)
	slices.Reverse(files)
	if after := r.FormValue("after"); after != "" {
		files = files[slices.IndexFunc(files, func(f file) bool { return f.ID == after })+1:]
	}
	page := files[:min(pageSize, len(files))]
	answer(w, map[string]any{"object": "list", "data": page, "has_more": len(files) > len(page)})
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.files, func(f file) bool { return f.ID == id })
	if i < 0 {
		Fail(w, http.StatusNotFound, "No such File object: %s", id)
		return
	}
	s.files = slices.Delete(s.files, i, i+1)
	answer(w, map[string]any{"id": id, "object": "file", "deleted": true})
}
