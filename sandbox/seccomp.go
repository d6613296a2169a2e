package sandbox

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// seccompFile is a file with the profile, where the docker program, which sends it to the engine, can read it. It is in the
// user's folder for caches, by a name that says what is in it, and stays: there is one for each version of the profile, and
// nothing to be left behind by a start that is killed.
func seccompFile() (path string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a place for the seccomp profile: %w", err)
	}
	sum := sha256.Sum256(seccompProfile)
	path = filepath.Join(cache, "deskagent", fmt.Sprintf("seccomp-%x.json", sum[:8]))
	if data, err := os.ReadFile(path); err == nil && bytes.Equal(data, seccompProfile) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("writing the seccomp profile: %w", err)
	}
	// Whole at once: another start may be about to read it.
	f, err := os.CreateTemp(filepath.Dir(path), ".seccomp-")
	if err != nil {
		return "", fmt.Errorf("writing the seccomp profile: %w", err)
	}
	_, err = f.Write(seccompProfile)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", fmt.Errorf("writing the seccomp profile: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return path, nil
}
