package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := Lock(first); err != nil {
		t.Fatal(err)
	}
	if err := Lock(second); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v from a lock that is taken, want ErrLocked", err)
	}
	first.Close()
	if err := Lock(second); err != nil {
		t.Errorf("got %v from a lock that was given back", err)
	}
}

func TestSyncFolder(t *testing.T) {
	if err := SyncFolder(t.TempDir()); err != nil {
		t.Error(err)
	}
}
