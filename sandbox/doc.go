// Package sandbox brings up Linux desktops in Docker that are safe to give to a model, tests that they are, and takes
// them down.
//
//	e := sandbox.New(nil)
//	s, err := e.Up(ctx, &sandbox.Options{Net: net})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	// s.ServeArgv() is the command of the driver in there.
//
// It works by the docker command, so that contexts, remote engines and Docker Desktop count, and keeps no state on disk:
// what belongs to a sandbox is found by labels. Every call's arguments are made by a pure function in argv.go, where a
// comment says what a flag is for.
//
// # What holds a guest
//
// An ordinary user without capabilities and without a way to gain some; the engine's filter of system calls, wider by
// three that Chromium needs to confine its own pages (see seccompProfile); a read-only root, and memory for what has to
// be written; bounds on memory, processors, processes and logs. Nothing of the host is mounted, no port is published,
// no variable of the host's environment goes in.
//
// # Network
//
// Without allowed hosts the guest is on no network at all. With some, it is alone on an internal network with a second
// container, the proxy, which is also on the engine's bridge and lets through what the list names (package proxy). The
// network's bridge has no address, so the host is not on it; the guest's name server leads nowhere.
//
// What else was thought of for the way out:
//
//   - A proxy on the host. It would need the host's address on the network, which is what has to be withheld, and on
//     Docker Desktop and remote engines the host of the guest is another one than ours.
//   - A proxy on the host, reached through docker exec's standard input and output, with the guest on no network. It
//     is the tightest, but needs a process of ours for as long as the guest has to reach anything, so a guest that
//     stays would need a daemon. An agent in the guest has just that, for the API alone (package gateway).
//   - Packet filters (the DOCKER-USER chain, or rules in the guest's own network namespace). They need root on the
//     engine's host, and know addresses, not names.
//
// # The self-test
//
// Limits that are set and do not hold have been seen often enough, so each start tries them from inside (package
// selftest): all addresses around, the outside, name servers, IPv6, metadata servers, raw sockets, privileges. What
// gets through stops the start with [ErrSelfTest].
//
// # Life
//
// A desktop has its final name only when it is ready and tested. A sandbox belongs to the process that made it, by
// number and start time, until that closes it; one with Options.Stays belongs to nobody once it is up. Each start
// first removes what belongs to processes that are dead.
package sandbox
