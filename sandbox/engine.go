package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deskagent/deskagent/internal/run"
)

var (
	// ErrNoEngine is wrapped by the error of a machine where no Docker engine answers.
	ErrNoEngine = errors.New("no Docker engine answers")

	// ErrNotFound is wrapped by the error about a sandbox that is not there.
	ErrNotFound = errors.New("there is no such sandbox")

	// ErrSelfTest is wrapped by the error of a start that was stopped because a limit does not hold.
	ErrSelfTest = errors.New("the self-test found limits that do not hold")

	// ErrNoBinary is wrapped by the error of an image that cannot be made for want of a static deskagent program.
	ErrNoBinary = errors.New("no static deskagent program for the guest")
)

// Config describes how to work with an engine. Nil means the zero Config.
type Config struct {
	// Docker is the command; nil means docker. It may have arguments, such as --context, and may be another program
	// that takes the same.
	Docker []string
	// Progress is told about steps that take a while, a line each; nil discards them.
	Progress func(step string)
}

// An Engine is a Docker engine as the docker command reaches it. It holds nothing, so it needs no closing, and may be
// used from several goroutines.
type Engine struct {
	argv     []string
	progress func(string)
}

// New makes an Engine. Nothing is started or asked yet.
func New(c *Config) *Engine {
	e := &Engine{argv: []string{"docker"}, progress: func(string) {}}
	if c != nil && len(c.Docker) > 0 {
		e.argv = slices.Clone(c.Docker)
	}
	if c != nil && c.Progress != nil {
		e.progress = c.Progress
	}
	return e
}

// docker runs one docker command and returns what it wrote to standard output.
func (e *Engine) docker(ctx context.Context, args ...string) ([]byte, error) {
	var result bytes.Buffer
	err := e.run(ctx, &run.Options{Result: &result}, args...)
	return result.Bytes(), err
}

// run runs one docker command.
func (e *Engine) run(ctx context.Context, opts *run.Options, args ...string) error {
	child, err := run.Start(ctx, e.Argv(args), opts)
	started := err == nil
	if started {
		err = child.Err()
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case cause != nil:
		return cause
	case !started:
		return fmt.Errorf("%w: %w", ErrNoEngine, err)
	}
	return err
}

// Argv is the whole command of a docker call with these arguments.
func (e *Engine) Argv(args []string) []string { return slices.Concat(e.argv, args) }

// Arch is the engine's architecture, such as amd64, which may be another than this program's. It is also the way to
// find out whether an engine answers: the error wraps [ErrNoEngine] if none does.
func (e *Engine) Arch(ctx context.Context) (string, error) {
	out, err := e.docker(ctx, "version", "--format", "{{.Server.Os}}/{{.Server.Arch}}")
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		return "", fmt.Errorf("%w: %w", ErrNoEngine, err)
	}
	system, arch, _ := strings.Cut(strings.TrimSpace(string(out)), "/")
	if system != "linux" || arch == "" {
		return "", fmt.Errorf("%w to run Linux containers: it is %q", ErrNoEngine, out)
	}
	return arch, nil
}

// missing tells whether docker failed because what it was to work on is not there.
func missing(err error) bool {
	var e *run.Error
	return errors.As(err, &e) && (strings.Contains(strings.ToLower(e.Output), "no such") || strings.Contains(e.Output, "not found"))
}

// Health is what an engine can do, as far as sandboxes depend on it.
type Health struct {
	Version, Arch                             string
	Seccomp, MemoryLimit, CPULimit, PIDsLimit bool
}

// Health asks the engine what it can do. The error wraps [ErrNoEngine] if none answers.
func (e *Engine) Health(ctx context.Context) (Health, error) {
	arch, err := e.Arch(ctx)
	if err != nil {
		return Health{}, err
	}
	out, err := e.docker(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return Health{}, err
	}
	var info struct {
		ServerVersion          string
		SecurityOptions        []string
		MemoryLimit, PidsLimit bool
		CPUCfsQuota            bool `json:"CpuCfsQuota"`
	}
	if err := json.Unmarshal(out, &info); err != nil {
		return Health{}, fmt.Errorf("reading what docker says of the engine: %w", err)
	}
	seccomp := slices.ContainsFunc(info.SecurityOptions, func(s string) bool { return strings.HasPrefix(s, "name=seccomp") })
	return Health{info.ServerVersion, arch, seccomp, info.MemoryLimit, info.CPUCfsQuota, info.PidsLimit}, nil
}
