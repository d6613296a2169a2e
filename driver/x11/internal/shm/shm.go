// Package shm is memory that this process shares with an X server.
package shm

// A Segment is memory behind a file that has no name, so that nothing is left of it when the last process that has it
// ends, in whatever way.
//
// It is not a System V segment, which is the older way to share memory with an X server: that outlives a process that
// is killed before it has marked the segment for removal, and its number means other memory, somebody else's, to a
// server in another container.
type Segment struct {
	Data []byte
}
