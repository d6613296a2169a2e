package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/toolset"
)

// approveFlag is prompt, allow or deny.
type approveFlag string

const (
	approvePrompt approveFlag = "prompt"
	approveAllow  approveFlag = "allow"
	approveDeny   approveFlag = "deny"
)

func (f *approveFlag) String() string {
	if *f == "" {
		return string(approvePrompt)
	}
	return string(*f)
}

func (f *approveFlag) Type() string { return "WHO" }

func (f *approveFlag) Set(s string) error {
	switch v := approveFlag(s); v {
	case approvePrompt, approveAllow, approveDeny:
		*f = v
		return nil
	}
	return errors.New("want prompt, allow or deny")
}

// policy makes the policy of the flags, with p as the one who is asked.
func (r *runTask) policy(p *person) (toolset.Policy, error) {
	policy := toolset.Policy{SafetyChecks: p}
	switch r.approve {
	case approveDeny:
		return toolset.Ask(approve.DenyAll), nil
	case approveAllow:
		policy.Actions = approve.AllowActions
	default:
		if err := p.open(); err != nil {
			return policy, nobodyToAsk(err)
		}
		policy.Actions = p
	}
	if len(r.codes) > 0 {
		policy.SafetyChecks = approve.AllowChecks(policy.SafetyChecks, r.codes, warnings(r.err))
	}
	return policy, nil
}

// mcpApprover is who is asked about tools of MCP servers: the one who is asked about everything, or p.
func (r *runTask) mcpApprover(p *person) approve.Approver {
	if r.approve == approveDeny {
		return approve.DenyAll
	}
	return p
}

func nobodyToAsk(err error) error {
	return hintError{fmt.Errorf("%w: there is nobody to ask: %w", approve.ErrDenied, err),
		"run in a terminal, or choose --approve allow where nothing of value can be lost"}
}

// person is the one at the terminal, which is opened when there is a first question.
type person struct {
	mu       sync.Mutex
	terminal *approve.Terminal
}

func (p *person) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal != nil {
		return nil
	}
	terminal, err := approve.OpenTerminal(nil)
	if err != nil {
		return err
	}
	p.terminal = terminal
	return nil
}

func (p *person) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal != nil {
		p.terminal.Close()
	}
}

// typed is what was typed unasked since the last time. Where no terminal can be opened there is nothing.
func (p *person) typed() ([]string, error) {
	if err := p.open(); err != nil {
		return nil, nil
	}
	return p.terminal.Typed()
}

func (p *person) Approve(ctx context.Context, r approve.Request) (approve.Decision, error) {
	if err := p.open(); err != nil {
		return approve.Deny, err
	}
	return p.terminal.Approve(ctx, r)
}
