package uploads

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
)

const (
	// deleters is how many files are deleted at a time: those of a long run are to be gone within the patience.
	deleters = 8
	// settled is after how long an upload of which no answer came has either arrived or not: before, a list of files
	// that lacks it proves nothing.
	settled = time.Minute
	// clocks is by how much this clock and the API's may differ.
	clocks = time.Hour
)

// ErrUnsettled is wrapped by the error about files of which it is too early to say whether there are any: an upload was
// cut off less than a minute ago. Cleaning later settles it.
var ErrUnsettled = errors.New("an upload was cut off and may still arrive")

// A LeftError tells of files that may still be there, because they could not be deleted.
type LeftError struct {
	Files   int
	Expires time.Time // when the last of them is deleted by the API in any case
	Err     error     // why, for one of them
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("deleting uploaded pictures: %d may still be there, until %s: %v", e.Files,
		e.Expires.Format(time.DateTime), e.Err)
}

func (e *LeftError) Unwrap() error { return e.Err }

// Clean deletes the files on the lists in a folder that are nobody's: those of runs that were killed, and those that
// could not be deleted. It returns how many it has deleted. Errors are as those of [Uploads.Close], one for each list.
// A folder that is not there is empty.
func Clean(ctx context.Context, client *openai.Client, folder string, opts *Options) (deleted int, err error) {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return 0, fmt.Errorf("cleaning up uploaded pictures in %s: %w", folder, err)
	}
	files, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("cleaning up uploaded pictures: %w", err)
	}
	var errs []error
	for _, file := range files {
		if filepath.Ext(file.Name()) != Suffix {
			continue
		}
		n, err := o.clean(ctx, client.Files, filepath.Join(folder, file.Name()))
		deleted += n
		errs = append(errs, err)
	}
	return deleted, errors.Join(errs...)
}

// clean does the same with one list.
func (o *Options) clean(ctx context.Context, files openai.FileService, path string) (deleted int, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) { // somebody else cleans, too
		return 0, nil
	}
	if err == nil && info.Size() == 0 && time.Since(info.ModTime()) < settled {
		return 0, nil // somebody has just made it, and is about to lock it
	}
	var l *list
	if err == nil {
		l, err = readList(path, 0)
	}
	switch {
	case errors.Is(err, ErrInUse), errors.Is(err, os.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading the list of uploaded pictures %s: %w", path, err)
	}
	return o.deleteAll(ctx, files, l)
}

// deleteAll deletes the files of a list, and the list when none is left. It closes the list in any case.
func (o *Options) deleteAll(ctx context.Context, files openai.FileService, l *list) (deleted int, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	d := &deletion{ctx: ctx, files: files, unknown: map[string]bool{}, left: map[string]error{}}
	for _, name := range l.names {
		switch e := l.entries[name]; {
		case e.Account != o.Account:
			if time.Since(e.Expires) < clocks {
				d.left[name] = errors.New("it belongs to another account")
			}
		default:
			if e.ID != "" {
				d.add(name, e.ID)
			}
			if e.ID == "" || e.Again {
				d.unknown[name] = true
				if time.Since(e.Began) < settled {
					d.left[name] = ErrUnsettled
				}
			}
		}
	}
	d.lookUp()
	d.run()
	if len(d.left) == 0 {
		return d.deleted, l.remove()
	}
	left := &LeftError{Files: len(d.left)}
	for name, err := range d.left {
		if expires := l.entries[name].Expires; expires.After(left.Expires) {
			left.Expires = expires
		}
		if left.Err == nil || errors.Is(left.Err, ErrUnsettled) { // a failure says more
			left.Err = err
		}
	}
	return d.deleted, errors.Join(left, l.close())
}

// A deletion deletes files.
type deletion struct {
	ctx     context.Context
	files   openai.FileService
	unknown map[string]bool // names of which there may be files that are not in found
	found   []file

	mu      sync.Mutex       // guards what follows, while run
	left    map[string]error // why a file may still be there, by name
	deleted int
}

type file struct{ name, id string }

func (d *deletion) add(name, id string) { d.found = append(d.found, file{name, id}) }

// lookUp finds the files of which no more than the name is known.
func (d *deletion) lookUp() {
	if len(d.unknown) == 0 {
		return
	}
	known := map[file]bool{}
	for _, f := range d.found {
		known[f] = true
	}
	pages := d.files.ListAutoPaging(d.ctx, openai.FileListParams{Purpose: openai.String(string(openai.FilePurposeVision))}, withoutKey)
	for pages.Next() {
		f := file{pages.Current().Filename, pages.Current().ID}
		if d.unknown[f.name] && !known[f] {
			d.add(f.name, f.id)
		}
	}
	if err := pages.Err(); err != nil {
		for name := range d.unknown {
			d.left[name] = withoutURL(err)
		}
	}
}

// run deletes what was found.
func (d *deletion) run() {
	queue := make(chan file)
	var workers sync.WaitGroup
	for range min(deleters, len(d.found)) {
		workers.Go(func() {
			for f := range queue {
				err := d.delete(f.id)
				d.mu.Lock()
				if err == nil {
					d.deleted++
				} else if !errors.Is(err, errGone) {
					d.left[f.name] = err
				}
				d.mu.Unlock()
			}
		})
	}
	for _, f := range d.found {
		queue <- f
	}
	close(queue)
	workers.Wait()
}

// errGone says that a file was not there any more.
var errGone = errors.New("gone")

// delete deletes a file, and believes only a confirmation.
func (d *deletion) delete(id string) error {
	answer, err := d.files.Delete(d.ctx, id, withoutKey)
	if api, ok := errors.AsType[*openai.Error](err); ok && api.StatusCode == http.StatusNotFound {
		return errGone
	}
	if err != nil {
		return withoutURL(err)
	}
	if !answer.Deleted {
		return errors.New("the API did not confirm it")
	}
	return nil
}
