package sandbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
)

// An owner is the process that made a sandbox. Its number alone says little, as numbers come round, so its start is
// written beside it; and another machine that uses the same engine, or a container with the engine's socket in it, has
// other processes under the same numbers.
type owner struct {
	host  string // the machine and the space of its process numbers
	pid   int
	start string // of the process
}

func (o owner) String() string { return o.host + "/" + strconv.Itoa(o.pid) + "/" + o.start }

func parseOwner(s string) (owner, error) {
	fields := strings.SplitN(s, "/", 3)
	if len(fields) == 3 {
		if pid, err := strconv.Atoi(fields[1]); err == nil {
			return owner{fields[0], pid, fields[2]}, nil
		}
	}
	return owner{}, fmt.Errorf("owner %q: want HOST/PID/START", s)
}

// self is this process.
var self = sync.OnceValues(func() (owner, error) {
	start, err := processStart(os.Getpid())
	if err != nil {
		return owner{}, fmt.Errorf("finding out when this process started: %w", err)
	}
	name, err := os.Hostname()
	if err != nil {
		return owner{}, fmt.Errorf("finding out the name of this machine: %w", err)
	}
	sum := sha256.Sum256([]byte(name + "\x00" + processSpace()))
	return owner{fmt.Sprintf("%x", sum[:6]), os.Getpid(), start}, nil
})

// dead tells whether the process is known to have ended. One on another machine is not known to have.
func (o owner) dead() bool {
	me, err := self()
	if err != nil || o.host != me.host {
		return false
	}
	start, err := processStart(o.pid)
	return errors.Is(err, fs.ErrNotExist) || err == nil && start != o.start
}
