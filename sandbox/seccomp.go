package sandbox

import (
	_ "embed"
	"fmt"
	"os"
)

// seccompProfile filters the system calls of a guest: the engine's default profile and one rule more, which allows
// clone, unshare and chroot whatever their arguments. Chromium needs these three for its own sandbox, which it makes
// of user namespaces: with any of them missing it does not start, or starts unprotected with --no-sandbox. They give
// little away, as a process that makes a user namespace gains privileges in there alone, and none of the other calls
// that the default ties to privileges (mount among them) is allowed.
//
// The file is made of github.com/moby/profiles/seccomp, whose profile can be had on Linux only:
//
//	go test ./sandbox -run TestSeccompProfile -update
//
//go:embed seccomp.json
var seccompProfile []byte

// writeSeccomp writes the profile to where the docker program, which sends it to the engine, can read it.
func writeSeccomp() (path string, remove func(), err error) {
	f, err := os.CreateTemp("", "deskagent-seccomp-*.json")
	if err != nil {
		return "", nil, fmt.Errorf("writing the seccomp profile: %w", err)
	}
	remove = func() { os.Remove(f.Name()) }
	_, err = f.Write(seccompProfile)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("writing the seccomp profile: %w", err)
	}
	return f.Name(), remove, nil
}
