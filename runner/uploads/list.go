package uploads

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/deskagent/deskagent/internal/disk"
)

// ErrInUse is wrapped by the error of Open when another process, or this one, has the list.
var ErrInUse = errors.New("the list is in use")

// Suffix is that of the names of lists that [Clean] finds. They are lines of JSON.
const Suffix = ".uploads"

// ListIn is the path of a new list in a folder that several runs share, and that [Clean] looks through.
func ListIn(folder string) string {
	return filepath.Join(folder, strings.ToLower(rand.Text())+Suffix)
}

// An entry is a line of a list: what is known of one file. The last line about a name holds.
type entry struct {
	Name    string    `json:"name"`
	Account string    `json:"account"`
	Began   time.Time `json:"began"`
	Expires time.Time `json:"expires"`
	ID      string    `json:"id,omitempty"`    // empty: it is not known whether there is a file
	Again   bool      `json:"again,omitempty"` // it took several attempts, so there may be others of that name
}

// A list is an open list, locked for as long as it is open.
type list struct {
	file    *os.File
	names   []string // in order
	entries map[string]entry
}

// openList opens a list, and makes it if it is not there.
func openList(path string) (*list, error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	l, err := readList(path, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	if err := disk.SyncFolder(folder); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// readList opens a list with more flags, locks and reads it.
func readList(path string, flags int) (l *list, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|flags, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := disk.Lock(f); errors.Is(err, disk.ErrLocked) {
		return nil, ErrInUse
	} else if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	// What comes after the last line end was being written when the process was stopped. Nothing had come of it: an upload
	// waits for its line.
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	if err := f.Truncate(int64(len(whole))); err != nil {
		return nil, err
	}
	l = &list{file: f, entries: map[string]entry{}}
	for line := range bytes.Lines(whole) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil || e.Name == "" {
			return nil, fmt.Errorf("a line that is none of ours: %q", line)
		}
		l.set(e)
	}
	return l, nil
}

func (l *list) set(e entry) {
	if _, ok := l.entries[e.Name]; !ok {
		l.names = append(l.names, e.Name)
	}
	l.entries[e.Name] = e
}

// put adds a line, committed to the disk.
func (l *list) put(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return err
	}
	l.set(e)
	return l.file.Sync()
}

func (l *list) close() error { return l.file.Close() }

// remove closes the list and removes it. In between somebody else may take it: who finds the files gone removes it as
// well.
func (l *list) remove() error {
	err := l.file.Close()
	if gone := os.Remove(l.file.Name()); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
