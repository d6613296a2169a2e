package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// New makes a segment of size bytes, which are 0, and has share send it, as the control data of a message. No other
// process can get hold of it later.
func New(size int, share func(rights []byte) error) (_ *Segment, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sharing %d bytes of memory: %w", size, err)
		}
	}()
	fd, err := unix.MemfdCreate("deskagent", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	s := &Segment{data}
	if err := share(unix.UnixRights(fd)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close unmaps the memory, whatever the other process does with it: who reads Data afterwards crashes.
func (s *Segment) Close() error {
	return unix.Munmap(s.Data)
}
