package sandbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/deskagent/deskagent/internal/run"
	"github.com/deskagent/deskagent/sandbox/selftest"
)

// startTime bounds how long a guest may take to be ready, tested and found in order.
const startTime = 60 * time.Second

// cleanTime bounds the removal of a sandbox, which also happens when the context has ended already.
const cleanTime = 30 * time.Second

// Options describes a sandbox. Nil means the zero Options.
type Options struct {
	// Name is how people call it: lower-case letters, digits and hyphens, at most 40. Empty means a name by chance.
	Name string
	// Image is what to start; empty means what [Engine.Build] makes of Build.
	Image string
	// Build says how to make the image, when Image is empty.
	Build *BuildOptions
	// Screen is the size of the desktop in pixels; zero means 1280x800.
	Screen image.Point
	// Net is what the guest may reach; the zero value is nothing at all.
	Net Net
	// Egress is the engine's network by which the proxy gets out, when hosts are allowed; empty means its default,
	// bridge. The guest is not on it.
	Egress string
	// Limits bound what the guest may use.
	Limits Limits
	// Stays lets the sandbox stay until somebody takes it down. Otherwise it belongs to this process, and whoever comes
	// next removes what a process left that was killed.
	Stays bool
	// Keep leaves a sandbox that does not start as it is, to be looked at and taken down by hand.
	Keep bool
}

// Limits bound what a guest may use of the host. A zero field means its default.
type Limits struct {
	Memory string  // in the engine's notation, with no swap beside it; default 2g
	CPUs   float64 // default 2
	PIDs   int     // processes and threads; default 512
	Temp   string  // for /tmp and for /home/desk each, in the engine's notation, out of the memory; default 512m
}

func (l Limits) complete() (Limits, error) {
	if l.Memory == "" {
		l.Memory = "2g"
	}
	if l.CPUs == 0 {
		l.CPUs = 2
	}
	if l.PIDs == 0 {
		l.PIDs = 512
	}
	if l.Temp == "" {
		l.Temp = "512m"
	}
	for _, size := range []string{l.Memory, l.Temp} {
		if !sizes.MatchString(size) {
			return l, fmt.Errorf("size %q: want a number with k, m or g after it", size)
		}
	}
	if l.CPUs < 0 || l.PIDs < 0 {
		return l, fmt.Errorf("limits of %v processors and %d processes: want more than none", l.CPUs, l.PIDs)
	}
	return l, nil
}

var (
	sizes = regexp.MustCompile(`^[1-9][0-9]*[kmg]$`)
	names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
)

// container checks the options and makes the values of docker's arguments from them.
func (o *Options) container() (container, error) {
	c := container{name: o.Name, image: o.Image, stays: o.Stays, start: rand.Text(), net: o.Net, egress: o.Egress}
	if c.name == "" {
		c.name = "guest-" + strings.ToLower(rand.Text()[:8])
	}
	if !names.MatchString(c.name) {
		return c, fmt.Errorf("name %q: want 1 to 40 lower-case letters, digits and hyphens, the hyphens inside", c.name)
	}
	screen := o.Screen
	if screen == (image.Point{}) {
		screen = image.Pt(1280, 800)
	}
	if screen.X < 320 || screen.Y < 200 || screen.X > 7680 || screen.Y > 7680 {
		return c, fmt.Errorf("screen of %dx%d: want from 320x200 to 7680x7680", screen.X, screen.Y)
	}
	c.screen = fmt.Sprintf("%dx%d", screen.X, screen.Y)
	if c.egress == "" {
		c.egress = "bridge"
	}
	var err error
	if c.limits, err = o.Limits.complete(); err != nil {
		return c, err
	}
	c.owner, err = self()
	return c, err
}

// A Sandbox is a running guest.
type Sandbox struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Net   Net    `json:"net"`
	// Report is what the self-test at the start found. All of it is as it has to be.
	Report selftest.Report `json:"report"`

	engine *Engine
}

// Up starts a guest and returns when its desktop is ready and its self-test has passed. What dead owners left is
// removed first. On an error nothing stays behind, unless opts.Keep says so.
func (e *Engine) Up(ctx context.Context, opts *Options) (_ *Sandbox, err error) {
	if opts == nil {
		opts = &Options{}
	}
	c, err := opts.container()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting sandbox %s: %w", c.name, err)
		}
	}()
	p, err := e.platform(ctx)
	if err != nil {
		return nil, err
	}
	if c.podman = p.podman; c.podman && !c.net.None() {
		return nil, fmt.Errorf("network %v: %w: podman leaves the host's address on it, want none", c.net, errors.ErrUnsupported)
	}
	list, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := e.reap(ctx, list); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(list, func(info Info) bool { return info.Name == c.name && !info.Abandoned }) {
		return nil, errors.New("there is one of that name")
	}
	if c.image == "" {
		if c.image, err = e.build(ctx, opts.Build, p.arch); err != nil {
			return nil, err
		}
	}
	if c.seccomp, err = seccompFile(); err != nil {
		return nil, err
	}

	s := &Sandbox{Name: c.name, Image: c.image, Net: c.net, engine: e}
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("not ready after %v", startTime))
	defer cancel()
	if err := s.start(ctx, c); err != nil {
		return nil, s.abandon(ctx, c, err, opts.Keep)
	}
	return s, nil
}

// start makes all that belongs to the sandbox, and tests it. The desktop gets its final name at the very end, so that
// one which is half made is known as that.
func (s *Sandbox) start(ctx context.Context, c container) error {
	e, starting := s.engine, desktopName(c.name)+suffixStarting
	if !c.net.None() {
		e.progress("starting the proxy for " + c.net.String())
		if err := s.startProxy(ctx, &c); err != nil {
			return err
		}
	}
	e.progress("starting the desktop")
	if _, err := e.docker(ctx, desktopArgs(c)...); err != nil {
		return err
	}
	plan, err := e.plan(ctx, c)
	if err != nil {
		return err
	}
	e.progress("testing its limits")
	if s.Report, err = e.check(ctx, starting, plan); err != nil {
		return err
	}
	_, err = e.docker(ctx, "rename", starting, desktopName(c.name))
	return err
}

func (s *Sandbox) startProxy(ctx context.Context, c *container) error {
	e := s.engine
	if _, err := e.docker(ctx, networkArgs(*c)...); err != nil {
		return err
	}
	subnet, err := e.docker(ctx, "network", "inspect", "--format", "{{range .IPAM.Config}}{{.Subnet}}{{end}}", networkName(c.name))
	if err != nil {
		return err
	}
	c.subnet = strings.TrimSpace(string(subnet))
	for _, args := range [][]string{proxyArgs(*c), connectArgs(*c), {"start", proxyName(c.name)}} {
		if _, err := e.docker(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// check runs the self-test in a container, which waits for the desktop to be ready too.
func (e *Engine) check(ctx context.Context, container string, plan selftest.Plan) (selftest.Report, error) {
	input, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("writing the plan of the self-test: %w", err)
	}
	var out bytes.Buffer
	if err := e.run(ctx, &run.Options{Input: bytes.NewReader(input), Result: &out}, checkArgs(container)...); err != nil {
		return nil, fmt.Errorf("running the self-test: %w", err)
	}
	var report selftest.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		return nil, fmt.Errorf("reading the report of the self-test %q: %w", out.Bytes(), err)
	}
	if failed := report.Failed(); len(failed) > 0 {
		lines := make([]string, len(failed))
		for i, finding := range failed {
			lines[i] = fmt.Sprintf("%s %s: %s", finding.Name, finding.Target, finding.Detail)
		}
		return report, fmt.Errorf("%w: %s", ErrSelfTest, strings.Join(lines, "; "))
	}
	return report, nil
}

// abandon clears up after a start that went wrong, or keeps what there is for a look, and adds the guest's own words
// to the error.
func (s *Sandbox) abandon(ctx context.Context, c container, cause error, keep bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	starting := desktopName(c.name) + suffixStarting
	var words bytes.Buffer
	if err := s.engine.run(ctx, &run.Options{Output: &words}, "logs", "--tail", "10", starting); err == nil && words.Len() > 0 {
		cause = fmt.Errorf("%w; the guest's last words: %q", cause, strings.TrimSpace(words.String()))
	}
	if keep {
		if _, err := s.engine.docker(ctx, "rename", starting, desktopName(c.name)+suffixFailed); err == nil {
			return cause
		}
	}
	// One of the same name may be starting too, which is why this one went wrong; its parts are left alone.
	return errors.Join(cause, s.engine.remove(ctx, func(p part) bool { return p.start == c.start }))
}

// Test tries the limits of a running sandbox once more, and takes the time of the start for what there is around it now. The
// error wraps [ErrSelfTest] when something gets through.
func (s *Sandbox) Test(ctx context.Context) error {
	plan, err := s.engine.plan(ctx, container{name: s.Name, net: s.Net})
	if err == nil {
		s.Report, err = s.engine.check(ctx, s.Container(), plan)
	}
	if err != nil {
		return fmt.Errorf("testing the limits of sandbox %s: %w", s.Name, err)
	}
	return nil
}

// Close takes the sandbox down and returns when nothing of it is left. It may be called again.
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	return s.engine.remove(ctx, of(s.Name))
}

// Container is the engine's name for the guest.
func (s *Sandbox) Container() string { return desktopName(s.Name) }

// ServeArgv is the command of one long-lived process that offers the guest's driver on its standard input and output.
// When it is killed, the guest's end of it ends within a second. It asks nobody in there: who approves is on this side,
// and asked before anything is sent.
func (s *Sandbox) ServeArgv() []string {
	return s.ExecArgv(ExecOptions{Input: true}, "deskagent", "serve", "--approve", "allow")
}

// ExecOptions says how a command runs in a guest.
type ExecOptions struct {
	Input    bool // it gets standard input
	Terminal bool // it gets a terminal, as the docker command is on one
}

// ExecArgv is the command that runs a command in the guest, as its ordinary user and with its display.
func (s *Sandbox) ExecArgv(opts ExecOptions, argv ...string) []string {
	return s.engine.Argv(execArgs(s.Container(), opts, argv))
}

// Exec runs a command in the guest and returns what it wrote to standard output.
func (s *Sandbox) Exec(ctx context.Context, argv ...string) ([]byte, error) {
	return s.engine.docker(ctx, execArgs(s.Container(), ExecOptions{}, argv)...)
}
