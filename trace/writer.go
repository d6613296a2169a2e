package trace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// DefaultLimit is how many bytes a trace may have when nothing else is said.
const DefaultLimit = 500_000_000

// minLimit leaves room for the lines of a short run.
const minLimit = 1 << 16

// The files of a trace.
const (
	recordsFile    = "trace.jsonl"
	picturesFolder = "pictures"
)

// Options are the choices of a trace. The zero value means the documented defaults.
type Options struct {
	// Limit is how many bytes the files may have, 65536 or more. Zero: [DefaultLimit].
	Limit int64
	// MaskText has typed text replaced by dots. What may quote it, the task and the words of the model, is left out.
	// Such a trace cannot be replayed.
	MaskText bool
	// Secrets are texts that must not be written anywhere, such as the key in use. What looks like a key of the API is
	// not written in any case.
	Secrets []string
	// Logger gets a warning when the trace is full or cannot be written. Nil discards.
	Logger *slog.Logger
}

// A Writer writes a trace. Its methods may be called from several goroutines; none has an error, see [Writer.Close].
type Writer struct {
	dir      string
	pictures int64 // how many bytes there may be when a picture has been added
	limit    int64 // how many there may be when a line has been added
	log      *slog.Logger

	mu       sync.Mutex // guards what follows
	file     *os.File
	censor   *censor
	began    time.Time
	step     int
	size     int64           // in bytes, of all files
	kept     map[string]bool // the names of the pictures that are there
	noRoom   bool            // for pictures
	fault    error           // the first one; nothing is written any more
	finished bool
}

// Create begins a trace in dir, which must not hold one yet. It is made if need be; one that is there keeps its mode, as it
// may be shared, and what is in it can be read by the owner alone. Opts may be nil. Start gets the
// version. The Writer has to be closed.
func Create(dir string, start Start, opts *Options) (*Writer, error) {
	if opts == nil {
		opts = &Options{}
	}
	w := &Writer{dir: dir, limit: cmp.Or(opts.Limit, DefaultLimit), log: opts.Logger, censor: newCensor(opts.Secrets, opts.MaskText),
		began: time.Now(), kept: map[string]bool{}}
	if w.limit < minLimit {
		return nil, fmt.Errorf("making a trace of at most %d bytes: want %d or more", w.limit, minLimit)
	}
	w.pictures = w.limit - w.limit/16
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if err := w.create(); err != nil {
		return nil, fmt.Errorf("making a trace: %w", err)
	}
	start.Version = Version
	if opts.MaskText {
		start.Task = ""
	}
	w.add(Record{Start: &start})
	return w, nil
}

func (w *Writer) create() (err error) {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	w.file, err = os.OpenFile(filepath.Join(w.dir, recordsFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is one in %q already", w.dir)
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(w.dir, picturesFolder), 0o700); err != nil {
		return errors.Join(err, w.file.Close(), os.Remove(w.file.Name()))
	}
	return nil
}

// Response records a response, which begins a step.
func (w *Writer) Response(r Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step++
	if w.censor.maskText {
		r.Texts = nil
	}
	w.add(Record{Response: &r})
}

// Call records a call that is about to be carried out.
func (w *Writer) Call(c Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shown, maskedShown := w.censor.actions(c.Shown)
	actions, masked := w.censor.actions(c.Actions)
	w.add(Record{Call: &Call{ID: c.ID, Shown: shown, Actions: actions, Checks: w.censor.checks(c.Checks), Masked: masked || maskedShown}})
}

// Approval records a question that has been answered.
func (w *Writer) Approval(a Approval) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Action != nil {
		action := w.censor.action(*a.Action)
		a.Action = &action
	}
	a.Checks, a.Error = w.censor.checks(a.Checks), w.censor.said(a.Error)
	w.add(Record{Approval: &a})
}

// Sandbox records what keeps the desktop apart.
func (w *Writer) Sandbox(s Sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(Record{Sandbox: &s})
}

// Stage records a part of the work that has been finished.
func (w *Writer) Stage(s Stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(Record{Stage: &s})
}

// Picture records a picture, as the file that was sent. The format is "png" or "jpeg".
func (w *Writer) Picture(p Picture, format string, file []byte) {
	sum := sha256.Sum256(file)
	p.SHA256, p.Format, p.Bytes = hex.EncodeToString(sum[:]), format, len(file)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.Kept = w.keep(p.name(), file)
	w.add(Record{Picture: &p})
}

// name is that of the picture's file.
func (p *Picture) name() string { return p.SHA256 + "." + p.Format }

// keep writes a picture if it is not there yet, and reports whether it is there now.
func (w *Writer) keep(name string, file []byte) bool {
	switch {
	case w.kept[name]:
		return true
	case w.fault != nil || w.finished:
		return false
	case w.size+int64(len(file)) > w.pictures:
		if !w.noRoom {
			w.noRoom = true
			note := fmt.Sprintf("the trace is full at %d bytes: no more pictures are kept", w.size)
			w.log.Warn(note, "dir", w.dir)
			w.add(Record{Note: note})
		}
		return false
	}
	if err := os.WriteFile(filepath.Join(w.dir, picturesFolder, name), file, 0o600); err != nil {
		w.fail(err)
		return false
	}
	w.size += int64(len(file))
	w.kept[name] = true
	return true
}

// add writes a line. The caller holds the lock.
func (w *Writer) add(r Record) {
	if w.fault != nil || w.finished {
		return
	}
	r.At, r.Step = time.Now(), w.step
	line := append(w.censor.line(r), '\n')
	if w.size+int64(len(line)) > w.limit {
		w.fail(fmt.Errorf("full at %d bytes", w.size))
		return
	}
	n, err := w.file.Write(line)
	w.size += int64(n)
	if err != nil {
		w.fail(err)
	}
}

func (w *Writer) fail(err error) {
	w.fault = fmt.Errorf("the trace ends early: %w", err)
	w.log.Warn(w.fault.Error(), "dir", w.dir)
}

// Close records the end of the run, with the error that ended it, if any, and closes the files. Its own error is what
// went wrong first with the trace. What is recorded later is ignored, and so is a second Close.
func (w *Writer) Close(cause error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return nil
	}
	end := &End{Took: time.Since(w.began)}
	if cause != nil {
		end.Error = w.censor.said(cause.Error())
	}
	w.add(Record{End: end})
	w.finished = true
	return errors.Join(w.fault, w.file.Close())
}
