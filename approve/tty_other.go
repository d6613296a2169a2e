//go:build !linux

package approve

import (
	"fmt"
	"runtime"

	"github.com/deskagent/deskagent/driver"
)

// openTTY has no terminal here: the poller of Darwin does not take /dev/tty, and a Windows console has no deadlines.
// Asking without a time limit is worse than saying so.
func openTTY(string) (TTY, error) {
	return nil, fmt.Errorf("the controlling terminal on %s: %w", runtime.GOOS, driver.ErrUnsupported)
}
