package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/deskagent/deskagent/internal/run"
)

// Repository is the name of the images; the tag is made of what an image is built from.
const Repository = "deskagent/desktop"

// The build context, but for the deskagent program.
//
//go:embed image/Dockerfile image/menu.xml
var imageFiles embed.FS

// BuildOptions says what to build an image from. Nil means the zero BuildOptions.
type BuildOptions struct {
	// Binary is the deskagent program for the guest: static, for Linux on the engine's architecture. When empty, this
	// very program is taken if it is one, otherwise deskagent-linux-ARCH in its folder.
	Binary string
	// Output receives what the builder says; nil discards it. The last of it is in errors anyway.
	Output io.Writer
}

// Build makes the image of a desktop, if the engine does not have it yet, and returns its name. The name contains a
// hash of all that the image is built from, so an image is never taken for another one. An error about a missing
// program wraps [ErrNoBinary].
func (e *Engine) Build(ctx context.Context, opts *BuildOptions) (string, error) {
	arch, err := e.Arch(ctx)
	if err != nil {
		return "", err
	}
	return e.build(ctx, opts, arch)
}

// build is Build for an engine whose architecture is known.
func (e *Engine) build(ctx context.Context, opts *BuildOptions, arch string) (string, error) {
	if opts == nil {
		opts = &BuildOptions{}
	}
	image, files, err := contextFor(opts, arch)
	if err != nil {
		return "", err
	}
	if found, err := e.hasImage(ctx, image); found || err != nil {
		return image, err
	}
	e.progress("building the image " + image + " (a few minutes the first time)")
	if err := e.run(ctx, &run.Options{Input: bytes.NewReader(files), Output: opts.Output}, buildArgs(image)...); err != nil {
		return "", fmt.Errorf("building image %s: %w", image, err)
	}
	return image, nil
}

// FindImage returns the name of the image that [Engine.Build] makes, and whether the engine has it.
func (e *Engine) FindImage(ctx context.Context, opts *BuildOptions) (image string, found bool, err error) {
	if opts == nil {
		opts = &BuildOptions{}
	}
	arch, err := e.Arch(ctx)
	if err != nil {
		return "", false, err
	}
	if image, _, err = contextFor(opts, arch); err == nil {
		found, err = e.hasImage(ctx, image)
	}
	return image, found, err
}

// contextFor is the name of the image for an architecture, and the context to build it from.
func contextFor(opts *BuildOptions, arch string) (name string, files []byte, err error) {
	binary, err := guestBinary(opts.Binary, arch)
	if err != nil {
		return "", nil, err
	}
	if files, err = buildContext(imageFiles, binary); err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(files)
	return fmt.Sprintf("%s:%x", Repository, sum[:8]), files, nil
}

func (e *Engine) hasImage(ctx context.Context, image string) (bool, error) {
	_, err := e.docker(ctx, "image", "inspect", "--format", "{{.ID}}", image)
	if missing(err) {
		return false, nil
	}
	return err == nil, err
}

// buildArgs are the arguments of docker that build an image from a context on standard input.
func buildArgs(image string) []string {
	return []string{"build", "--tag", image,
		// The classic builder leaves the container of a step that failed.
		"--force-rm", "-"}
}

// buildContext is the context as a tar file: the files of the folder image and the program, the same bytes for the same
// content. Text has Unix line ends, whatever a checkout on another system has made of it (row D2 of the field cases).
func buildContext(files fs.FS, binary []byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, mode int64, data []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	entries, err := fs.ReadDir(files, "image")
	if err != nil {
		return nil, fmt.Errorf("making the build context: %w", err)
	}
	for _, entry := range entries {
		data, err := fs.ReadFile(files, "image/"+entry.Name())
		if err == nil {
			err = add(entry.Name(), 0o644, unixLines(data))
		}
		if err != nil {
			return nil, fmt.Errorf("adding %s to the build context: %w", entry.Name(), err)
		}
	}
	if err := errors.Join(add("deskagent", 0o755, binary), w.Close()); err != nil {
		return nil, fmt.Errorf("adding the program to the build context: %w", err)
	}
	return b.Bytes(), nil
}

func unixLines(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }

// guestBinary reads the program for the guest.
func guestBinary(path, arch string) ([]byte, error) {
	candidates := []string{path}
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("%w: finding this program: %w", ErrNoBinary, err)
		}
		candidates = []string{self, filepath.Join(filepath.Dir(self), "deskagent-linux-"+arch)}
	}
	var reasons []string
	for _, candidate := range candidates {
		data, err := staticFor(candidate, arch)
		if err == nil {
			return data, nil
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", candidate, err))
	}
	return nil, fmt.Errorf("%w (linux/%s): %s", ErrNoBinary, arch, strings.Join(reasons, "; "))
}

// machines are the ELF machines of the architectures that there are images for.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// staticFor reads a program and makes sure that it runs in a container of any distribution.
func staticFor(path, arch string) ([]byte, error) {
	machine, ok := machines[arch]
	if !ok {
		return nil, errors.New("there are desktops for amd64 and arm64 only")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		var e *os.PathError
		if errors.As(err, &e) {
			err = e.Err
		}
		return nil, err
	}
	program, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, errors.New("not a program for Linux")
	}
	if program.Machine != machine {
		return nil, fmt.Errorf("for %s", program.Machine)
	}
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			return nil, errors.New("not static, as it was built with cgo")
		}
	}
	return data, nil
}
