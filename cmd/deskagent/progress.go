package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// progress says what happens, a line per step and action.
type progress struct {
	out     io.Writer
	spent   *spent
	started time.Time
	steps   int
}

func (p *progress) observer() observer {
	return observer{turn: p.turn, call: p.call, picture: p.picture}
}

// turn reports what one request cost. The bill has been added to before.
func (p *progress) turn(turn *runner.Turn) error {
	p.steps++
	fmt.Fprintf(p.out, "step %d (%.1f s, tokens: %s)\n", turn.Step, time.Since(p.started).Seconds(), p.spent.last)
	return nil
}

func (p *progress) call(call toolset.Call) {
	for i, a := range call.Actions {
		for _, line := range approve.Describe(approve.Request{Action: a, Shown: call.Shown[i]}) {
			fmt.Fprintln(p.out, "  "+line)
		}
	}
}

func (p *progress) picture(shot toolset.Shot) {
	if s := shot.Frame.Settling; s.State == driver.Changing {
		fmt.Fprintf(p.out, "  the screen still changes after %.1f s, in %v\n", s.Elapsed.Seconds(), s.Changed)
	}
}

// diagnostics logs the stages of a run. Those of computer calls are logged by the toolset.
func diagnostics(logger *slog.Logger) observer {
	return observer{diagnostic: func(d runner.Diagnostic) {
		if d.API == runner.APIComputer {
			return
		}
		attrs := []any{"stage", d.Stage, "outcome", d.Reason, "duration", d.Duration}
		if d.CallID != "" {
			attrs = append(attrs, "member", d.Member, "call_id", d.CallID)
		}
		if d.Usage != nil {
			attrs = append(attrs, "input_tokens", d.Usage.InputTokens, "output_tokens", d.Usage.OutputTokens)
		}
		logger.Debug("run", attrs...)
	}}
}

func (p *progress) end() {
	fmt.Fprintf(p.out, "%d steps, %.1f s, tokens: %s\n", p.steps, time.Since(p.started).Seconds(), p.spent.total)
}
