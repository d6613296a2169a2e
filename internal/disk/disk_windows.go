package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Lock takes the lock of an open file, which ends with the file or with the process. It does not wait: when someone
// else has it, the error is [ErrLocked].
func Lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// SyncFolder does nothing: Windows commits names with the files, and does not open folders for writing.
func SyncFolder(string) error { return nil }
