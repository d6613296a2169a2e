//go:build !linux

package shm

import (
	"fmt"
	"runtime"

	"github.com/deskagent/deskagent/driver"
)

// New returns an error that wraps [driver.ErrUnsupported].
func New(size int, _ func(rights []byte) error) (*Segment, error) {
	return nil, fmt.Errorf("sharing %d bytes of memory: %w on %s", size, driver.ErrUnsupported, runtime.GOOS)
}

// Close does nothing, as there is no Segment here.
func (*Segment) Close() error { return nil }
