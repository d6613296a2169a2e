package approve

import (
	"errors"
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

func (t ttyFile) Typed() (typed []byte, err error) {
	conn, err := t.SyscallConn()
	if err != nil {
		return nil, err
	}
	// Not by way of Read, which would wait, or see a deadline that is over.
	var readErr error
	if err := conn.Control(func(fd uintptr) {
		if inForeground(int(fd)) {
			typed, readErr = drain(int(fd))
		}
	}); err != nil {
		return nil, err
	}
	return typed, os.NewSyscallError("read", readErr)
}

// inForeground reports whether a terminal is the process's own, and the process the one that it belongs to now.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// drain reads until nothing more is there. In line mode a read gives one line.
func drain(fd int) (typed []byte, err error) {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), n == 0 && err == nil: // nothing, or the end of input was typed
			return typed, nil
		case err != nil:
			return typed, err
		default:
			typed = append(typed, buf[:n]...)
		}
	}
}
