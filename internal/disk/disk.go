// Package disk has what files need that must outlive a crash, or belong to one process at a time.
package disk

import "errors"

// ErrLocked says that another process, or another open file of this one, has the lock.
var ErrLocked = errors.New("locked by someone else")
