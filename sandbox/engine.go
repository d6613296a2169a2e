package sandbox

import (
	"bytes"
	"cmp"
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
	p, err := e.platform(ctx)
	return p.arch, err
}

// A platform is what there is behind the docker command, which may be podman's.
type platform struct {
	arch   string
	podman bool
}

func (e *Engine) platform(ctx context.Context) (platform, error) {
	out, err := e.docker(ctx, "version", "--format", "{{json .}}")
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return platform{}, cause
		}
		return platform{}, fmt.Errorf("%w: %w", ErrNoEngine, err)
	}
	return parsePlatform(out)
}

// parsePlatform reads what docker version says. podman is the engine itself where it has no server, and says system and
// architecture in one word.
func parsePlatform(version []byte) (p platform, err error) {
	type program struct{ Os, Arch, OsArch string }
	var v struct{ Client, Server *program }
	if err := json.Unmarshal(version, &v); err != nil {
		return p, fmt.Errorf("reading what docker says of its version %q: %w", version, err)
	}
	engine := cmp.Or(v.Server, v.Client, &program{})
	system := engine.Os
	p = platform{engine.Arch, engine.OsArch != ""}
	if p.podman {
		system, p.arch, _ = strings.Cut(engine.OsArch, "/")
	}
	if system != "linux" || p.arch == "" {
		return platform{}, fmt.Errorf("%w to run Linux containers: it is %q", ErrNoEngine, version)
	}
	return p, nil
}

// missing tells whether docker, or podman, failed because what it was to work on is not there.
func missing(err error) bool {
	var e *run.Error
	return errors.As(err, &e) && slices.ContainsFunc([]string{"no such", "not found", "not known"}, func(words string) bool {
		return strings.Contains(strings.ToLower(e.Output), words)
	})
}

// Health is what an engine can do, as far as sandboxes depend on it.
type Health struct {
	Version, Arch                             string
	Podman                                    bool // it is podman's docker command
	Seccomp, MemoryLimit, CPULimit, PIDsLimit bool
}

// Health asks the engine what it can do. The error wraps [ErrNoEngine] if none answers.
func (e *Engine) Health(ctx context.Context) (Health, error) {
	p, err := e.platform(ctx)
	if err != nil {
		return Health{}, err
	}
	out, err := e.docker(ctx, "info", "--format", "{{json .}}")
	if err != nil {
		return Health{}, err
	}
	return parseHealth(p, out)
}

func parseHealth(p platform, info []byte) (Health, error) {
	var i struct {
		ServerVersion          string
		SecurityOptions        []string
		MemoryLimit, PidsLimit bool
		CPUCfsQuota            bool                     `json:"CpuCfsQuota"`
		Version                struct{ Version string } // from here on, podman's
		Host                   struct {
			CgroupControllers []string
			Security          struct{ SeccompEnabled bool }
		}
	}
	if err := json.Unmarshal(info, &i); err != nil {
		return Health{}, fmt.Errorf("reading what docker says of the engine: %w", err)
	}
	if p.podman {
		has := func(controller string) bool { return slices.Contains(i.Host.CgroupControllers, controller) }
		return Health{i.Version.Version, p.arch, true, i.Host.Security.SeccompEnabled, has("memory"), has("cpu"), has("pids")}, nil
	}
	seccomp := slices.ContainsFunc(i.SecurityOptions, func(s string) bool { return strings.HasPrefix(s, "name=seccomp") })
	return Health{i.ServerVersion, p.arch, false, seccomp, i.MemoryLimit, i.CPUCfsQuota, i.PidsLimit}, nil
}
