package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// processStart is the boot and the clock tick since then in which a process started. The error of a process that is
// not there is fs.ErrNotExist.
func processStart(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field, the name in parentheses, may contain anything; the start is field 22 (proc(5)).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	if fields[0] == "Z" {
		return "", fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot's id: %v", err) // that is no answer about the process
	}
	return strings.TrimSpace(string(boot)) + "." + fields[19], nil
}

// processSpace tells apart machines of the same name, and containers on one.
func processSpace() string {
	machine, _ := os.ReadFile("/etc/machine-id")
	space, _ := os.Readlink("/proc/self/ns/pid")
	return string(machine) + space
}
