// Package uploads sends pictures to a model by reference. Every request of a run carries the whole history, so that
// pictures in it are sent again and again, and the bytes of a run grow with the square of its steps. A picture that is
// uploaded through the Files API is sent once; the history holds its id.
//
// # What is left behind
//
// Nothing, as far as that can be had. A file is put on a list on the disk before it is uploaded, under a name of its own,
// and is on it until the API has confirmed that it is gone. [Uploads.Close] deletes the files; what it could not delete,
// or what a process that was killed had no time to, [Clean] deletes later. An upload of which no answer came, or which
// the client repeated, is looked for by its name. In any case the files expire: [Options.Expiry].
//
// # When a picture is worth an upload
//
// An upload costs two more requests, one for the picture before the model gets to see it and one to delete it, and saves
// the bytes of the picture in each later request. How many those will be is not known. So with [Options.Auto] pictures
// go inline until they come to [InlineBytes], which is what a request then carries at most, and are uploaded from
// there on. Half a megabyte takes 0.2 s at 20 Mbit/s, which is about what those two requests take. A short run, or one of
// small pictures, never uploads any, and a long one sends a fixed part of each request again.
//
// TestBytesSent measures it, in runs of 5, 20 and 100 requests with pictures of a busy desktop, 330 KB each as data URLs:
//
//	           5        20       100
//	inline     3.3 MB   62.9 MB  1643 MB
//	auto       2.1 MB   10.8 MB  58.7 MB
//	upload     1.0 MB   4.8 MB   26.2 MB
package uploads

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/deskagent/deskagent/toolset"
)

// InlineBytes is what pictures may come to, as data URLs, that go inline with [Options.Auto].
const InlineBytes = 512 << 10

// The defaults of Options.
const (
	DefaultExpiry   = 24 * time.Hour
	DefaultPatience = 15 * time.Second
)

// The API's bounds of an expiry.
const (
	minExpiry = time.Hour
	maxExpiry = 30 * 24 * time.Hour
)

// Options are the choices of uploads. The zero value means the documented defaults.
type Options struct {
	// Account tells the files of one client from those of others on the same list or in the same folder: the address
	// of the API and whatever stands for the key, say. An API says of the files of others that they are not there, so
	// those are left alone until they have expired. It is kept on the disk and must not be a secret.
	Account string
	// Auto has pictures go inline as long as that is cheaper, and when uploading fails. See the package comment.
	Auto bool
	// Expiry is after how long the API deletes a file by itself, from an hour to 30 days, in whole seconds. It must be
	// longer than the run, which cannot go on without its pictures. Zero: [DefaultExpiry].
	Expiry time.Duration
	// Patience bounds the time that deleting takes. Zero: [DefaultPatience].
	Patience time.Duration
	// Logger gets a record of each upload at debug level, without its id, and a warning when Auto gives uploading up.
	// Nil discards.
	Logger *slog.Logger
}

func (o *Options) check() error {
	o.Expiry = cmp.Or(o.Expiry, DefaultExpiry)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Expiry < minExpiry || o.Expiry > maxExpiry || o.Expiry%time.Second != 0:
		return fmt.Errorf("an expiry of %v, want whole seconds from %v to %v", o.Expiry, minExpiry, maxExpiry)
	case o.Patience < 0:
		return fmt.Errorf("a patience of %v", o.Patience)
	}
	return nil
}

// A Present turns a picture into what is sent, as that of [toolset.Options].
type Present = func(context.Context, *image.RGBA) (toolset.Picture, error)

// Uploads are the uploaded pictures of one run. Its methods are safe to use from several goroutines.
type Uploads struct {
	opts  Options
	files openai.FileService

	mu      sync.Mutex // guards what follows
	list    *list      // nil once closed
	ids     map[[sha256.Size]byte]string
	inlined int  // bytes
	failed  bool // with Auto
}

// Open begins with uploads on the list of that path, which belongs to them until they are closed: [ErrInUse] says that it
// is somebody else's. Files that are on it already are taken over. Folders are made if need be. See [ListIn] for a path.
func Open(client *openai.Client, path string, opts *Options) (*Uploads, error) {
	u := &Uploads{files: client.Files, ids: map[[sha256.Size]byte]string{}}
	if opts != nil {
		u.opts = *opts
	}
	err := u.opts.check()
	if err == nil {
		u.list, err = openList(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the list of uploaded pictures %s: %w", path, err)
	}
	return u, nil
}

// Present returns a function that presents a picture as next does, and gives the id of a file in place of the data URL. A
// picture that was uploaded before is not uploaded again. An upload is repeated as the client is told to repeat
// requests; when it fails all the same, that is the error, or with [Options.Auto], this picture and all further ones go
// inline.
func (u *Uploads) Present(next Present) Present {
	return func(ctx context.Context, picture *image.RGBA) (toolset.Picture, error) {
		p, err := next(ctx, picture)
		if err != nil {
			return toolset.Picture{}, err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.goesInline(p.ImageURL.Value) {
			return p, nil
		}
		id, err := u.reference(ctx, p.ImageURL.Value)
		switch {
		case err == nil:
			return toolset.Picture{Type: p.Type, FileID: param.NewOpt(id)}, nil
		case !u.opts.Auto || ctx.Err() != nil:
			return toolset.Picture{}, err
		}
		u.failed = true
		u.opts.Logger.Warn("pictures go inline from here on", "err", err)
		return p, nil
	}
}

// goesInline reports whether a picture is not to be uploaded, and counts it then.
func (u *Uploads) goesInline(dataURL string) bool {
	if !u.opts.Auto || !u.failed && u.inlined+len(dataURL) > InlineBytes {
		return false
	}
	u.inlined += len(dataURL)
	return true
}

// reference is the id of the file of a picture, which is uploaded if need be.
func (u *Uploads) reference(ctx context.Context, dataURL string) (string, error) {
	if u.list == nil {
		return "", fmt.Errorf("uploading a picture: %w", fs.ErrClosed)
	}
	digest := sha256.Sum256([]byte(dataURL))
	if id, ok := u.ids[digest]; ok {
		return id, nil
	}
	id, err := u.upload(ctx, dataURL)
	if err != nil {
		return "", fmt.Errorf("uploading a picture: %w", err)
	}
	u.ids[digest] = id
	return id, nil
}

// upload makes a file of a picture. It is on the list before the API hears of it.
func (u *Uploads) upload(ctx context.Context, dataURL string) (id string, err error) {
	mediaType, data, ok := strings.Cut(strings.TrimPrefix(dataURL, "data:"), ";base64,")
	_, format, isImage := strings.Cut(mediaType, "image/")
	content, err := base64.StdEncoding.DecodeString(data)
	if !ok || !isImage || err != nil {
		return "", errors.New("it is no data URL of a picture")
	}
	began := time.Now()
	e := entry{Name: "deskagent-" + strings.ToLower(rand.Text()) + "." + format, Account: u.opts.Account, Began: began,
		Expires: began.Add(u.opts.Expiry)}
	if err := u.list.put(e); err != nil {
		return "", err
	}
	attempts := 0
	file, err := u.files.New(ctx, openai.FileNewParams{
		File:         openai.File(bytes.NewReader(content), e.Name, mediaType),
		Purpose:      openai.FilePurposeVision,
		ExpiresAfter: openai.FileNewParamsExpiresAfter{Seconds: int64(u.opts.Expiry / time.Second)},
	},
		withoutKey,
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			attempts++
			return next(r)
		}))
	if err != nil {
		return "", withoutURL(err)
	}
	if strings.TrimSpace(file.ID) == "" {
		return "", errors.New("the API gave it no id")
	}
	e.ID, e.Again = file.ID, attempts > 1
	if err := u.list.put(e); err != nil {
		return "", err
	}
	u.opts.Logger.Debug("uploaded a picture", "bytes", len(content), "attempts", attempts, "took", time.Since(began))
	return e.ID, nil
}

// withoutKey keeps the key that the client's options may hold for another request from a request. An upload gets none of
// its own: with one, net/http repeats the request by itself, and nobody hears of it.
var withoutKey = option.WithHeaderDel("Idempotency-Key")

// withoutURL is an error of a request without its address, which holds the id of a file.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// Close deletes the files, waits for that, and gives the list back. It takes no context, as that of a run is often over by
// then, but no longer than [Options.Patience]. A [*LeftError] tells of files that may still be there: they stay on the
// list, for [Clean]. Only the first call does anything.
func (u *Uploads) Close() error {
	return u.end(func(l *list) error {
		_, err := u.opts.deleteAll(context.Background(), u.files, l)
		return err
	})
}

// Keep gives the list back and leaves the files, for a run that is to be resumed: Open takes them over.
func (u *Uploads) Keep() error { return u.end((*list).close) }

// end does something with the list, once, after which nothing more is uploaded.
func (u *Uploads) end(with func(*list) error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.list == nil {
		return nil
	}
	l := u.list
	u.list = nil
	return with(l)
}
