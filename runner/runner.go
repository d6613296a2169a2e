package runner

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/deskagent/deskagent/toolset"
)

// A Registration says what a runner can do. It is read once, by [New]; later changes to it have no effect.
type Registration struct {
	// Browser is a browser; nil for none. Its tools are declared before the functions.
	Browser Browser
	// Computer is a desktop; nil for none. The computer tool is declared last unless the parameters of a run hold
	// one of their own.
	Computer *toolset.Toolset
	// Functions are declared in this order.
	Functions []Function
	// Early limits which calls may run before their response is complete. Nil: every local tool. It matters only
	// to runs with [Options.Eager].
	Early *Early
}

// Early names what may run early. The zero Early allows nothing.
type Early struct {
	Functions []string // wire names of functions and browser tools
	Computer  bool
}

// Status is what [Runner.Close] reports.
type Status = toolset.Status

// The states after Close.
const (
	Closed   = toolset.Closed   // nothing runs and nothing will
	Draining = toolset.Draining // the running run goes on to its end
)

// A Runner carries out runs, one at a time: while one is going on, others get [ErrBusy], also from inside its own
// callbacks. Its methods are safe to use from several goroutines.
type Runner struct {
	browser      Browser
	desktop      *toolset.Toolset
	tools        map[string]*tool  // functions and browser tools, by wire name
	declarations []json.RawMessage // theirs, in the order of declaration
	overrides    []string          // functions whose outputs may be supplied, sorted
	mayBeEarly   func(*call) bool

	mu     sync.Mutex // guards what follows
	active bool
	closed bool
}

// New returns a Runner. What does not fit is a [*ConfigError].
func New(r Registration) (*Runner, error) {
	runner := &Runner{browser: r.Browser, desktop: r.Computer, tools: map[string]*tool{}, overrides: []string{}}
	if r.Browser != nil {
		for _, declared := range r.Browser.Tools() {
			if err := runner.register(&tool{}, declared); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range r.Functions {
		if f.Execute == nil {
			return nil, refuse("function %q: nothing to execute", f.Tool.Name)
		}
		t := &tool{function: &f}
		if err := runner.register(t, f.Tool); err != nil {
			return nil, err
		}
		if f.AllowOutputOverride {
			runner.overrides = append(runner.overrides, t.name)
		}
	}
	slices.Sort(runner.overrides)
	if err := runner.setEarly(r.Early); err != nil {
		return nil, err
	}
	return runner, nil
}

func (r *Runner) setEarly(early *Early) error {
	if early == nil {
		r.mayBeEarly = func(*call) bool { return true }
		return nil
	}
	if early.Computer && r.desktop == nil {
		return refuse("early: there is no computer")
	}
	names := map[string]bool{}
	for _, name := range early.Functions {
		if r.tools[name] == nil || names[name] {
			return refuse("early: %q is not registered, or listed twice", name)
		}
		names[name] = true
	}
	computer := early.Computer
	r.mayBeEarly = func(c *call) bool {
		if c.kind == computerCall {
			return computer
		}
		return names[c.name]
	}
	return nil
}

// Close refuses all further runs, with [ErrClosed]. It returns at once, and may be called from inside a callback and
// repeatedly: Draining while a run is going on, Closed when none is. It closes neither the computer nor the browser;
// once it says Closed they may be given to someone else.
func (r *Runner) Close() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.active {
		return Draining
	}
	return Closed
}

func (r *Runner) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.active:
		return ErrBusy
	}
	r.active = true
	return nil
}

func (r *Runner) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active = false
}
