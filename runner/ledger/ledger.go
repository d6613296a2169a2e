// Package ledger keeps the record of a run in a folder, so that it is there after the process or the machine has
// stopped at any moment. A folder belongs to one run, and to one process at a time.
//
// # What is in the folder
//
// record.json is the latest record: a [runner.Checkpoint] in which every item of more than a few kilobytes is a text,
// "sha256:" and the digest of the item, which is the name of its file in the folder items. So a picture is written once,
// not with every save. lock is held by the process that has the folder open. All files are private to the user.
//
// # When a save has happened
//
// [Dir.Save] writes a new file, has it committed to the disk, gives it the name of the old one, and has the folder
// committed. A stop in between leaves the old record or the new one, whole in both cases.
package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/deskagent/deskagent/internal/disk"
	"github.com/deskagent/deskagent/runner"
)

// The names in the folder.
const (
	recordName = "record.json"
	itemsName  = "items"
	lockName   = "lock"
	newSuffix  = ".new" // of a file that is being written
)

// large is from how many bytes on an item has a file of its own.
const large = 4 << 10

// ErrInUse is wrapped by the error of Open when another process, or this one, has the folder open.
var ErrInUse = errors.New("the ledger is in use")

// A Dir is an open folder. Its methods are safe to use from several goroutines.
type Dir struct {
	path string

	mu     sync.Mutex // guards what follows
	lock   *os.File   // nil once closed
	latest *runner.Checkpoint
	seed   maphash.Seed
	stored map[fingerprint]string // the names of items that are on the disk
}

// A fingerprint finds an item again without the cost of a digest.
type fingerprint struct {
	size int
	sum  uint64
}

// Open takes a folder for this process, and makes it if it is not there. What a process that was stopped while writing
// has left is removed; its record stays. The folder should be closed again; a process that ends closes it in any case.
func Open(path string) (d *Dir, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening the ledger %s: %w", path, err)
		}
	}()
	if err := os.MkdirAll(filepath.Join(path, itemsName), 0o700); err != nil {
		return nil, err
	}
	_ = disk.SyncFolder(filepath.Dir(path)) // which may be somebody else's, and closed to us
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := disk.Lock(lock); err != nil {
		lock.Close()
		if errors.Is(err, disk.ErrLocked) {
			err = ErrInUse
		}
		return nil, err
	}
	d = &Dir{path: path, lock: lock, seed: maphash.MakeSeed(), stored: map[fingerprint]string{}}
	if err = d.sweep(); err == nil {
		d.latest, err = d.load()
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// Close gives the folder back. The lock is the file's, and ends with it.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	d.lock = nil
	return err
}

// Read is the latest record of a folder, nil if there is none. It takes no lock and changes nothing, and may be used
// while a run goes on.
func Read(path string) (*runner.Checkpoint, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	c, err := (&Dir{path: path}).load()
	if err != nil {
		return nil, fmt.Errorf("reading the ledger %s: %w", path, err)
	}
	return c, nil
}

// Latest is the latest record, nil if there is none. It belongs to the caller.
func (d *Dir) Latest() (*runner.Checkpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.load()
}

// Ledger is the folder as an option of a run that goes on from the latest record, or begins with the id.
func (d *Dir) Ledger(runID string) (*runner.Ledger, error) {
	latest, err := d.Latest()
	if err != nil {
		return nil, err
	}
	if latest != nil {
		runID = latest.RunID
	}
	return &runner.Ledger{RunID: runID, Save: d.Save, ResumeFrom: latest}, nil
}

// Save commits a record. One that is of another run, or not newer than the latest, is refused. ctx is not looked at: a
// record that has been begun is worth finishing.
func (d *Dir) Save(_ context.Context, c runner.Checkpoint) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving revision %d in the ledger %s: %w", c.Revision, d.path, err)
		}
	}()
	switch {
	case d.lock == nil:
		return fs.ErrClosed
	case d.latest != nil && d.latest.RunID != c.RunID:
		return fmt.Errorf("it holds the run %q, not %q", d.latest.RunID, c.RunID)
	case d.latest != nil && d.latest.Revision >= c.Revision:
		return fmt.Errorf("it holds revision %d already", d.latest.Revision)
	}
	if err := d.write(c); err != nil {
		return err
	}
	if err := d.commit(); err != nil {
		return err
	}
	d.latest = &runner.Checkpoint{RunID: c.RunID, Revision: c.Revision}
	return nil
}

// write puts a record, and the items it is the first to hold, on the disk, where it is not the latest yet.
func (d *Dir) write(c runner.Checkpoint) error {
	count := len(d.stored)
	for _, list := range []*[]json.RawMessage{&c.History, &c.PendingItems, &c.ReturnedOutputs} {
		short := make([]json.RawMessage, len(*list))
		for i, item := range *list {
			var err error
			if short[i], err = d.store(item); err != nil {
				return err
			}
		}
		*list = short
	}
	if len(d.stored) > count {
		if err := disk.SyncFolder(filepath.Join(d.path, itemsName)); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(d.path, recordName+newSuffix), raw)
}

// commit makes the record that was written the latest one.
func (d *Dir) commit() error {
	name := filepath.Join(d.path, recordName)
	if err := os.Rename(name+newSuffix, name); err != nil {
		return err
	}
	return disk.SyncFolder(d.path)
}

const digestPrefix = "sha256:"

// store returns what stands for an item in the record.
func (d *Dir) store(item json.RawMessage) (json.RawMessage, error) {
	if len(item) < large {
		return item, nil
	}
	key := fingerprint{len(item), maphash.Bytes(d.seed, item)}
	name, ok := d.stored[key]
	if !ok {
		sum := sha256.Sum256(item)
		name = hex.EncodeToString(sum[:])
		path := filepath.Join(d.path, itemsName, name)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if err := writeFile(path+newSuffix, item); err != nil {
				return nil, err
			}
			if err := os.Rename(path+newSuffix, path); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, err
		}
		d.stored[key] = name
	}
	return json.Marshal(digestPrefix + name)
}

// load reads the latest record, nil if there is none.
func (d *Dir) load() (*runner.Checkpoint, error) {
	raw, err := os.ReadFile(filepath.Join(d.path, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c runner.Checkpoint
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", recordName, err)
	}
	for _, list := range [][]json.RawMessage{c.History, c.PendingItems, c.ReturnedOutputs} {
		for i := range list {
			if list[i], err = d.fetch(list[i]); err != nil {
				return nil, err
			}
		}
	}
	return &c, nil
}

// fetch is the item that raw stands for.
func (d *Dir) fetch(raw json.RawMessage) (json.RawMessage, error) {
	if !bytes.HasPrefix(raw, []byte(`"`)) {
		return raw, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	want, ok := strings.CutPrefix(text, digestPrefix)
	if !ok || len(want) != hex.EncodedLen(sha256.Size) || strings.Trim(want, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("%s: an item that is neither an object nor a digest", recordName)
	}
	item, err := os.ReadFile(filepath.Join(d.path, itemsName, want))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(item); hex.EncodeToString(sum[:]) != want {
		return nil, fmt.Errorf("the item %s is not what was stored", want)
	}
	return item, nil
}

// sweep removes what was being written when a process was stopped.
func (d *Dir) sweep() error {
	for _, pattern := range []string{recordName, filepath.Join(itemsName, "*")} {
		left, err := filepath.Glob(filepath.Join(globEscaped(d.path), pattern+newSuffix))
		if err != nil {
			return err
		}
		for _, name := range left {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// globEscaped is a path as a pattern that matches it alone.
func globEscaped(path string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(path)
}

// writeFile writes a private file and has it committed to the disk.
func writeFile(path string, content []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}
