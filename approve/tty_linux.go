package approve

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ttyFile is a terminal device. Go opens it non-blocking, which makes deadlines work; its open file is our own, so
// that changes nothing for the shell and others on the same terminal.
type ttyFile struct{ *os.File }

func openTTY(path string) (TTY, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := f.SetDeadline(time.Time{}); err != nil {
		f.Close()
		return nil, err
	}
	return ttyFile{f}, nil
}

func (t ttyFile) DiscardInput() error {
	conn, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var flushErr error
	if err := conn.Control(func(fd uintptr) {
		flushErr = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH)
	}); err != nil {
		return err
	}
	return os.NewSyscallError("tcflush", flushErr)
}
