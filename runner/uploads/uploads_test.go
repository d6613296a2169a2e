package uploads

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/deskagent/deskagent/internal/filesapi"
	"github.com/deskagent/deskagent/toolset"
)

// serve starts the Files API, and returns a client of it.
func serve(t *testing.T, api *filesapi.Server) *openai.Client {
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("none"))
	return &client
}

func open(t *testing.T, client *openai.Client, path string, opts *Options) *Uploads {
	t.Helper()
	u, err := Open(client, path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// shade is a picture that is small, and unlike the others.
func shade(i int) *image.RGBA {
	picture := image.NewRGBA(image.Rect(0, 0, 8, 8))
	for p := range 64 {
		picture.Set(p%8, p/8, color.RGBA{uint8(i), uint8(i >> 8), uint8(p), 255})
	}
	return picture
}

// wantClosed closes uploads, and wants nothing left, on the server and on the disk.
func wantClosed(t *testing.T, u *Uploads, api *filesapi.Server, list string) {
	t.Helper()
	if err := u.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if got := api.Len(); got != 0 {
		t.Errorf("got %d files on the server, want none", got)
	}
	if _, err := os.Stat(list); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for the list, want none", err)
	}
}

// wantLeft wants an error about so many files that may be there, with a cause.
func wantLeft(t *testing.T, err error, files int, cause string) {
	t.Helper()
	left, ok := errors.AsType[*LeftError](err)
	if !ok || left.Files != files || !strings.Contains(err.Error(), cause) || time.Until(left.Expires) <= 0 {
		t.Errorf("got %v, want an error about %d files: %s", err, files, cause)
	}
	if err != nil && strings.Contains(err.Error(), "file-") {
		t.Errorf("got %v, want no id in it", err)
	}
}

// age makes all uploads on a list older.
func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	l, err := readList(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, name := range l.names {
		e := l.entries[name]
		e.Began, e.Expires = e.Began.Add(-by), e.Expires.Add(-by)
		if err := l.put(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPresent(t *testing.T) {
	for _, format := range []string{"png", "jpeg"} {
		t.Run(format, func(t *testing.T) {
			api := &filesapi.Server{}
			path := filepath.Join(t.TempDir(), "state", "pictures"+Suffix)
			u := open(t, serve(t, api), path, nil)
			encode, err := toolset.Encoding{Format: format}.Presenter()
			if err != nil {
				t.Fatal(err)
			}
			present := u.Present(encode)
			ids := map[string]bool{}
			for _, i := range []int{1, 2, 2, 3, 1} {
				p, err := present(t.Context(), shade(i))
				if err != nil {
					t.Fatal(err)
				}
				if p.Type != toolset.PictureType || p.ImageURL.Valid() || p.FileID.Value == "" {
					t.Errorf("got %+v, want the id of a file", p)
				}
				ids[p.FileID.Value] = true
			}
			if len(ids) != 3 || api.Uploaded() != 3 {
				t.Errorf("got %d ids and %d uploads of 3 pictures", len(ids), api.Uploaded())
			}
			for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
				if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want && runtime.GOOS != "windows" {
					t.Errorf("%s: got %v, %v, want permissions %o", name, info, err, want)
				}
			}
			wantClosed(t, u, api, path)
			if _, err := present(t.Context(), shade(4)); !errors.Is(err, os.ErrClosed) {
				t.Errorf("got %v after closing", err)
			}
			if err := u.Close(); err != nil {
				t.Errorf("closing it twice: %v", err)
			}
		})
	}
}

// A picture is on the list before the API hears of it.
func TestListedBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pictures")
	listed := regexp.MustCompile(`"name":"deskagent-[a-z0-9]{26}\.png"`)
	api := &filesapi.Server{Before: func(_ http.ResponseWriter, r *http.Request) bool {
		if raw, err := os.ReadFile(path); err != nil || !listed.Match(raw) {
			t.Errorf("%s: got the list %q, %v, want the picture on it", r.Method, raw, err)
		}
		return false
	}}
	u := open(t, serve(t, api), path, nil)
	if _, err := u.Present(toolset.PNG)(t.Context(), shade(1)); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, u, api, path)
}

func TestUploadFails(t *testing.T) {
	api := &filesapi.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			filesapi.Fail(w, http.StatusForbidden, "no")
		}
		return r.Method == http.MethodPost
	}}
	client := serve(t, api)
	path := filepath.Join(t.TempDir(), "pictures")
	u := open(t, client, path, nil)
	if p, err := u.Present(toolset.PNG)(t.Context(), shade(1)); err == nil || !strings.Contains(err.Error(), "uploading a picture: OpenAI API error: 403") {
		t.Errorf("got %v, %v, want an error", p, err)
	}
	wantLeft(t, u.Close(), 1, ErrUnsettled.Error())
	age(t, path, 2*settled)
	wantClosed(t, open(t, client, path, nil), api, path)

	// With Auto the picture goes inline, and so do all after it.
	u = open(t, client, path, &Options{Auto: true})
	u.inlined = InlineBytes
	present := u.Present(toolset.PNG)
	for i := range 2 {
		if p, err := present(t.Context(), shade(i)); err != nil || p.FileID.Valid() || !p.ImageURL.Valid() {
			t.Errorf("got %v, %v, want the picture inline", p, err)
		}
	}
	if got := len(u.list.names); got != 1 {
		t.Errorf("got %d attempts, want 1", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u.failed = false
	if p, err := present(ctx, shade(3)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v with a context that is done", p, err)
	}
}

// What the client repeats may be there twice, and what the API never answered may be there. Both are found by their names,
// on whatever page of the list, and nothing else is deleted.
func TestLookUp(t *testing.T) {
	var lost atomic.Int32
	api := &filesapi.Server{Stored: func() {
		if lost.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
	}}
	client := serve(t, api)
	for name, tt := range map[string]struct {
		lost  int32 // answers
		fails bool
	}{
		"repeated once": {lost: 1},
		"never heard":   {lost: 3, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := ListIn(folder)
			u, other := open(t, client, path, nil), open(t, client, filepath.Join(folder, "other"), nil)
			others := func(from int) {
				for i := range 5 { // more than a page
					if _, err := other.Present(toolset.PNG)(t.Context(), shade(from+i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			others(0)
			lost.Store(tt.lost)
			if _, err := u.Present(toolset.PNG)(t.Context(), shade(0)); (err != nil) != tt.fails {
				t.Errorf("got %v, want an error: %t", err, tt.fails)
			}
			lost.Store(0)
			others(5)

			wantLeft(t, u.Close(), 1, ErrUnsettled.Error())
			if got := api.Len(); got != 10 {
				t.Errorf("got %d files, want the 10 of others", got)
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
			age(t, path, 2*settled)
			if n, err := Clean(t.Context(), client, folder, nil); n != 0 || err != nil {
				t.Errorf("got %d, %v, want the list settled", n, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("got %v for the list, want none", err)
			}
		})
	}
}

func TestDeleteFails(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"refused":     {func(w http.ResponseWriter, _ *http.Request) { filesapi.Fail(w, http.StatusForbidden, "no") }, "403 Forbidden"},
		"unconfirmed": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"deleted":false}`) }, "did not confirm"},
		"silent":      {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"lost": {func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			api := &filesapi.Server{Before: func(w http.ResponseWriter, r *http.Request) bool {
				if broken.Load() && r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "1") {
					w.Header().Set("Content-Type", "application/json")
					tt.answer(w, r)
					return true
				}
				return false
			}}
			client := serve(t, api)
			folder := t.TempDir()
			path := ListIn(folder)
			patience := DefaultPatience
			if name == "silent" {
				patience = 200 * time.Millisecond
			}
			u := open(t, client, path, &Options{Patience: patience})
			for i := range 3 {
				if _, err := u.Present(toolset.PNG)(t.Context(), shade(i)); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := Clean(t.Context(), client, folder, nil); n != 0 || err != nil {
				t.Errorf("got %d, %v from cleaning under a living owner, want nothing", n, err)
			}
			broken.Store(true)
			wantLeft(t, u.Close(), 1, tt.want)
			if got := api.Len(); got != 1 {
				t.Errorf("got %d files, want 1", got)
			}
			// The next one deletes it. Those that are gone already are no trouble.
			broken.Store(false)
			if n, err := Clean(t.Context(), client, folder, nil); n != 1 || err != nil || api.Len() != 0 {
				t.Errorf("got %d, %v and %d files, want 1 deleted", n, err, api.Len())
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
				t.Errorf("got %v, %v in the folder, want nothing", left, err)
			}
		})
	}
}

// Files of another account are not there for this one, which proves nothing.
func TestAccounts(t *testing.T) {
	api := &filesapi.Server{}
	client := serve(t, api)
	folder := t.TempDir()
	path := ListIn(folder)
	u := open(t, client, path, &Options{Account: "a"})
	if _, err := u.Present(toolset.PNG)(t.Context(), shade(1)); err != nil {
		t.Fatal(err)
	}
	if err := u.Keep(); err != nil {
		t.Fatal(err)
	}
	stranger := serve(t, &filesapi.Server{})
	n, err := Clean(t.Context(), stranger, folder, &Options{Account: "b"})
	wantLeft(t, err, 1, "another account")
	if n != 0 || api.Len() != 1 {
		t.Errorf("got %d deleted, want none", n)
	}
	if n, err := Clean(t.Context(), client, folder, &Options{Account: "a"}); n != 1 || err != nil || api.Len() != 0 {
		t.Errorf("got %d, %v, want 1 deleted", n, err)
	}

	// Once expired they need no more care.
	u = open(t, client, path, &Options{Account: "a"})
	if _, err := u.Present(toolset.PNG)(t.Context(), shade(1)); err != nil {
		t.Fatal(err)
	}
	u.Keep()
	age(t, path, DefaultExpiry+clocks)
	if n, err := Clean(t.Context(), stranger, folder, &Options{Account: "b"}); n != 0 || err != nil {
		t.Errorf("got %d, %v, want the list forgotten", n, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for the list, want none", err)
	}
}

// A run that goes on takes over what it had uploaded before.
func TestKeep(t *testing.T) {
	api := &filesapi.Server{}
	client := serve(t, api)
	path := filepath.Join(t.TempDir(), "list")
	for i := range 2 {
		u := open(t, client, path, nil)
		if _, err := Open(client, path, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("opening it twice: got %v, want ErrInUse", err)
		}
		if _, err := u.Present(toolset.PNG)(t.Context(), shade(i)); err != nil {
			t.Fatal(err)
		}
		if err := u.Keep(); err != nil || api.Len() != i+1 {
			t.Errorf("got %v and %d files, want %d kept", err, api.Len(), i+1)
		}
	}
	wantClosed(t, open(t, client, path, nil), api, path)
}

func TestAutoGoesInlineFirst(t *testing.T) {
	api := &filesapi.Server{}
	path := filepath.Join(t.TempDir(), "list")
	u := open(t, serve(t, api), path, &Options{Auto: true})
	present := u.Present(toolset.PNG)
	sent := InlineBytes - 10_000
	u.inlined = sent
	for i := 0; api.Uploaded() < 2; i++ {
		p, err := present(t.Context(), shade(i))
		if err != nil {
			t.Fatal(err)
		}
		if sent += len(p.ImageURL.Value); sent > InlineBytes {
			t.Fatalf("got %d bytes inline, want no more than %d", sent, InlineBytes)
		}
	}
	if sent < InlineBytes-1000 {
		t.Errorf("got %d bytes inline before the first upload, want close to %d", sent, InlineBytes)
	}
	wantClosed(t, u, api, path)
}

func TestDamagedList(t *testing.T) {
	for name, tt := range map[string]struct {
		after   string // in the list
		deleted int
		want    string // of the error
	}{
		"half a line":    {`{"name":"deskagent-`, 1, ""},
		"something else": {"{}\n", 0, "none of ours"},
		"no list":        {"hello\n", 0, "none of ours"},
	} {
		t.Run(name, func(t *testing.T) {
			api := &filesapi.Server{}
			client := serve(t, api)
			folder := t.TempDir()
			path := ListIn(folder)
			u := open(t, client, path, nil)
			if _, err := u.Present(toolset.PNG)(t.Context(), shade(1)); err != nil {
				t.Fatal(err)
			}
			u.Keep()
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(whole, tt.after...), 0o600); err != nil {
				t.Fatal(err)
			}
			n, err := Clean(t.Context(), client, folder, nil)
			if n != tt.deleted || (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %d deleted, %v, want %d, %q", n, err, tt.deleted, tt.want)
			}
		})
	}
}

// A list that is being made is left alone, and one that stayed empty is not.
func TestEmptyList(t *testing.T) {
	client := serve(t, &filesapi.Server{})
	folder := t.TempDir()
	path := ListIn(folder)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	clean := func() {
		if n, err := Clean(t.Context(), client, folder, nil); n != 0 || err != nil {
			t.Errorf("got %d, %v from an empty list", n, err)
		}
	}
	clean()
	old := time.Now().Add(-2 * settled)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Errorf("got %v, want the list to be there", err)
	}
	clean()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for the empty list, want none", err)
	}
}

func TestOptions(t *testing.T) {
	client := serve(t, &filesapi.Server{})
	for _, opts := range []Options{{Expiry: time.Minute}, {Expiry: 31 * 24 * time.Hour}, {Expiry: time.Hour + time.Millisecond}, {Patience: -1}} {
		if _, err := Open(client, filepath.Join(t.TempDir(), "list"), &opts); err == nil {
			t.Errorf("%+v: got no error", opts)
		}
		if _, err := Clean(t.Context(), client, t.TempDir(), &opts); err == nil {
			t.Errorf("%+v: got no error from Clean", opts)
		}
	}
	if n, err := Clean(t.Context(), client, filepath.Join(t.TempDir(), "none"), nil); n != 0 || err != nil {
		t.Errorf("got %d, %v from a folder that is not there", n, err)
	}
}
