package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/windows"
)

// processStart is the moment in which a process started. The error of a process that is not there is fs.ErrNotExist.
func processStart(pid int) (string, error) {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return "", fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	if err != nil {
		return "", fmt.Errorf("opening process %d: %v", pid, err)
	}
	defer windows.CloseHandle(process)
	var start, exit, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(process, &start, &exit, &kernel, &user); err != nil {
		return "", fmt.Errorf("asking for the times of process %d: %v", pid, err)
	}
	return strconv.FormatInt(start.Nanoseconds(), 10), nil
}

func processSpace() string { return "" }
