package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Info is what the engine knows of a sandbox.
type Info struct {
	Name  string `json:"name"`
	State string `json:"state"` // running, stopped, starting or failed
	// Status is the engine's own word, such as "Up 3 minutes" or "Exited (1) 5 seconds ago".
	Status string `json:"status"`
	Image  string `json:"image"`
	Net    string `json:"net"`
	Stays  bool   `json:"stays"` // until it is taken down
	// Abandoned is a sandbox whose owner is dead, which the next [Engine.Reap] removes.
	Abandoned bool `json:"abandoned"`
}

// The states of a sandbox.
const (
	StateRunning  = "running"
	StateStopped  = "stopped"  // its desktop has ended; the log says why
	StateStarting = "starting" // or what is left of a start
	StateFailed   = "failed"   // and kept for a look
)

// part is a container or a network of a sandbox.
type part struct {
	name              string // the engine's
	sandbox, role     string
	state, status     string
	image, net, start string
	owner             owner
	owned             bool // the label of the owner could be read
	stays             bool
}

// parts lists all that the engine has of sandboxes.
func (e *Engine) parts(ctx context.Context) ([]part, error) {
	out, err := e.docker(ctx, listArgs()...)
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	networks, err := e.docker(ctx, listNetworksArgs()...)
	if err != nil {
		return nil, fmt.Errorf("listing networks of sandboxes: %w", err)
	}
	return parseParts(string(out), string(networks))
}

func parseParts(containers, networks string) ([]part, error) {
	var parts []part
	for line := range strings.Lines(containers) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(f) != 11 {
			return nil, fmt.Errorf("listing sandboxes: %q: want 11 fields", line)
		}
		p := part{name: f[1], state: f[2], status: f[3], image: f[4], sandbox: f[5], role: f[6], stays: f[8] == "true", net: f[9], start: f[10]}
		o, err := parseOwner(f[7])
		p.owner, p.owned = o, err == nil
		parts = append(parts, p)
	}
	for line := range strings.Lines(networks) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("listing networks of sandboxes: %q: want 4 fields", line)
		}
		p := part{name: f[0], role: roleNetwork, sandbox: f[1], start: f[3]}
		o, err := parseOwner(f[2])
		p.owner, p.owned = o, err == nil
		parts = append(parts, p)
	}
	return parts, nil
}

// List tells about all sandboxes of the engine, whoever made them, by name.
func (e *Engine) List(ctx context.Context) ([]Info, error) {
	parts, err := e.parts(ctx)
	if err != nil {
		return nil, err
	}
	return infos(parts), nil
}

func infos(parts []part) []Info {
	all := map[string]Info{}
	for _, p := range parts {
		info, ok := all[p.sandbox]
		if !ok {
			// Without a desktop it is what is left of a start or an end.
			info = Info{Name: p.sandbox, State: StateStarting, Abandoned: p.abandoned()}
		}
		if p.role == roleDesktop {
			info = Info{Name: p.sandbox, State: p.desktopState(), Status: p.status, Image: p.image, Net: p.net, Stays: p.stays,
				Abandoned: p.abandoned()}
		}
		all[p.sandbox] = info
	}
	list := make([]Info, 0, len(all))
	for _, info := range all {
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (p part) desktopState() string {
	switch {
	case strings.HasSuffix(p.name, suffixStarting):
		return StateStarting
	case strings.HasSuffix(p.name, suffixFailed):
		return StateFailed
	case p.state == "running", strings.HasPrefix(p.state, "Up "): // docker, podman
		return StateRunning
	}
	return StateStopped
}

// abandoned tells whether a desktop, or a part without one, has nobody left who will take it down. One that stays has
// its owner only until its start is complete.
func (p part) abandoned() bool {
	kept := p.role == roleDesktop && (strings.HasSuffix(p.name, suffixFailed) || p.stays && !strings.HasSuffix(p.name, suffixStarting))
	return !kept && p.owned && p.owner.dead()
}

// find returns the sandbox of a name, or an error that wraps [ErrNotFound].
func (e *Engine) find(ctx context.Context, name string) (Info, error) {
	list, err := e.List(ctx)
	if err != nil {
		return Info{}, err
	}
	for _, info := range list {
		if info.Name == name {
			return info, nil
		}
	}
	return Info{}, fmt.Errorf("%w: %q", ErrNotFound, name)
}

// Open returns the running sandbox of a name. Its Report is empty until [Sandbox.Test] has been called.
func (e *Engine) Open(ctx context.Context, name string) (*Sandbox, error) {
	info, err := e.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if info.State != StateRunning {
		return nil, fmt.Errorf("sandbox %s is not running but %s", name, info.State)
	}
	net, err := ParseNet(info.Net)
	if err != nil {
		return nil, fmt.Errorf("reading the labels of sandbox %s: %w", name, err)
	}
	return &Sandbox{Name: name, Image: info.Image, Net: net, engine: e}, nil
}

// Down takes a sandbox down, in whatever state it is, and returns when nothing of it is left.
func (e *Engine) Down(ctx context.Context, name string) error {
	if _, err := e.find(ctx, name); err != nil {
		return err
	}
	return e.remove(ctx, of(name))
}

// Reap removes what dead owners left and returns the names of the sandboxes.
func (e *Engine) Reap(ctx context.Context) ([]string, error) {
	list, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	return e.reap(ctx, list)
}

func (e *Engine) reap(ctx context.Context, list []Info) ([]string, error) {
	var reaped []string
	for _, info := range list {
		if info.Abandoned {
			if err := e.remove(ctx, of(info.Name)); err != nil {
				return reaped, err
			}
			reaped = append(reaped, info.Name)
		}
	}
	return reaped, nil
}

// of matches the parts of the sandbox of a name.
func of(name string) func(part) bool { return func(p part) bool { return p.sandbox == name } }

// remove removes the parts that match: the containers, then the network that they were on. That somebody else removes
// them at the same time is fine.
func (e *Engine) remove(ctx context.Context, match func(part) bool) error {
	parts, err := e.parts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, networks := range []bool{false, true} {
		for _, p := range parts {
			if !match(p) || networks != (p.role == roleNetwork) {
				continue
			}
			args := []string{"rm", "--force", "--volumes", p.name}
			if networks {
				args = []string{"network", "rm", p.name}
			}
			if _, err := e.docker(ctx, args...); err != nil && !missing(err) {
				errs = append(errs, fmt.Errorf("removing %s: %w", p.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// LogsArgv is the command that shows the log of a sandbox's desktop, or the audit log of its proxy.
func (e *Engine) LogsArgv(ctx context.Context, name string, audit, follow bool) ([]string, error) {
	parts, err := e.parts(ctx)
	if err != nil {
		return nil, err
	}
	role := roleDesktop
	if audit {
		role = roleProxy
	}
	found := false
	for _, p := range parts {
		found = found || p.sandbox == name
		if p.sandbox == name && p.role == role {
			args := []string{"logs", p.name}
			if follow {
				args = []string{"logs", "--follow", p.name}
			}
			return e.Argv(args), nil
		}
	}
	if found && audit {
		return nil, fmt.Errorf("sandbox %s has no network, so there is no audit log", name)
	}
	return nil, fmt.Errorf("%w: %q", ErrNotFound, name)
}

// Audit writes the audit log of the sandbox to w: a JSON object for each request to the proxy, oldest first. A sandbox
// without a network has none.
func (s *Sandbox) Audit(ctx context.Context, w io.Writer) error {
	if s.Net.None() {
		return nil
	}
	out, err := s.engine.docker(ctx, "logs", proxyName(s.Name))
	if err != nil {
		return fmt.Errorf("reading the audit log of sandbox %s: %w", s.Name, err)
	}
	_, err = w.Write(out)
	return err
}
