package selftest

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// confinement are the probes of what the process itself may do.
func confinement() []func() Finding {
	return []func() Finding{
		func() Finding { return rawSocket("raw socket", unix.AF_INET, unix.IPPROTO_ICMP) },
		func() Finding { return rawSocket("packet socket", unix.AF_PACKET, 0) },
		status,
		rootFileSystem,
		engineSocket,
	}
}

func rawSocket(name string, family, protocol int) Finding {
	f := Finding{Name: name, Target: "socket"}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		unix.Close(fd)
		f.Detail = "opened"
		return f
	}
	f.OK, f.Detail = errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES), err.Error()
	return f
}

// status looks at what the kernel says of this process: an ordinary user, nothing to gain, filtered system calls.
func status() Finding {
	const file = "/proc/self/status"
	f := Finding{Name: "privileges", Target: file}
	text, err := os.ReadFile(file)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = unprivileged(string(text))
	return f
}

func unprivileged(status string) (bool, string) {
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapInh": "0000000000000000", "CapPrm": "0000000000000000",
		"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "CapAmb": "0000000000000000"}
	var wrong []string
	seen := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case name == "Uid" || name == "Gid":
			seen++
			for _, id := range strings.Fields(value) {
				if id == "0" {
					wrong = append(wrong, name+" "+value)
					break
				}
			}
		case want[name] != "":
			seen++
			if value != want[name] {
				wrong = append(wrong, name+" "+value)
			}
		}
	}
	switch {
	case seen != len(want)+2:
		return false, fmt.Sprintf("%d of %d lines found", seen, len(want)+2)
	case len(wrong) > 0:
		return false, strings.Join(wrong, ", ")
	}
	return true, "an ordinary user, no capabilities, none to gain, system calls filtered"
}

func rootFileSystem() Finding {
	f := Finding{Name: "root file system", Target: "/"}
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		f.Detail = err.Error()
		return f
	}
	if f.OK, f.Detail = fs.Flags&unix.ST_RDONLY != 0, "read-only"; !f.OK {
		f.Detail = "writable"
	}
	return f
}

func engineSocket() Finding {
	f := Finding{Name: "engine's socket", OK: true, Detail: "not there"}
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock"} {
		if _, err := os.Stat(path); err == nil {
			f.OK, f.Target, f.Detail = false, path, "there"
		}
	}
	return f
}
