//go:build !linux && !windows

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
)

// processStart is the moment in which a process started. The error of a process that is not there is fs.ErrNotExist.
func processStart(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	if start := strings.Join(strings.Fields(string(out)), "-"); err == nil && start != "" {
		return start, nil
	}
	if errors.As(err, new(*exec.ExitError)) {
		return "", fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	return "", fmt.Errorf("asking ps for process %d: %v", pid, err)
}

func processSpace() string { return "" }
