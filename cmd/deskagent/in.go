package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/sandbox"
	"github.com/deskagent/deskagent/trace"
)

// inside is the sandbox whose desktop a command drives: --in and --net.
type inside struct {
	where, net string
}

const inHelp = `--in docker does it in a sandbox: a desktop in a container that is started for it, with its limits
tested, and gone afterwards. --net says what may be reached from there, as for "deskagent sandbox
up"; nothing unless it says so. --in docker:NAME takes a sandbox that is up. The key, the questions
and the model's words stay here; there are only the mouse, the keyboard and the screen.`

func inFlags(cmd *cobra.Command, g *inside) {
	cmd.Flags().StringVar(&g.where, "in", "", "where to do it: docker, or docker:NAME (default on --display)")
	cmd.Flags().StringVar(&g.net, "net", "none", "with --in docker, what may be reached: none, or allow=HOST[:PORT],...")
}

// check refuses what there is no such thing as, before anything is started.
func (g *inside) check() (name string, net sandbox.Net, err error) {
	if net, err = sandbox.ParseNet(g.net); err != nil {
		return "", net, usageError{err}
	}
	program, name, named := strings.Cut(g.where, ":")
	switch {
	case g.where == "" && g.net != "none":
		return "", net, usagef("--net %s: there is a network to limit with --in docker only", g.net)
	case g.where != "" && (program != "docker" || named && name == ""):
		return "", net, usagef("--in %s: want docker, or docker:NAME", g.where)
	case named && g.net != "none":
		return "", net, usagef("--net %s: sandbox %s has its network already", g.net, name)
	}
	return name, net, nil
}

// given says that there is to be a sandbox.
func (g *inside) given() bool { return g.where != "" }

// openBox opens the sandbox that the flags name, or starts one. What it returns ends it, if it was started.
func (c *command) openBox(ctx context.Context) (s *sandbox.Sandbox, end func() error, err error) {
	name, net, err := c.guest.check()
	if err != nil {
		return nil, nil, err
	}
	b := &box{command: c, docker: "docker"}
	if name == "" {
		s, err = b.engine().Up(ctx, &sandbox.Options{Name: fmt.Sprintf("run-%d", os.Getpid()), Net: net, Build: b.buildOptions()})
	} else if s, err = b.engine().Open(ctx, name); err == nil {
		err = s.Test(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	tell(c.onBox, recordOf(s))
	if name != "" {
		return s, func() error { return nil }, nil
	}
	return s, s.Close, nil
}

// recordOf is what the record of a run holds of its sandbox.
func recordOf(s *sandbox.Sandbox) trace.Sandbox {
	r := trace.Sandbox{Name: s.Name, Image: s.Image, Network: s.Net.String()}
	for _, f := range s.Report {
		r.Tests = append(r.Tests, trace.Test(f))
	}
	return r
}

// A boxed desk is in a sandbox, which may have to end with it.
type boxed struct {
	desk
	end func() error
}

func (b boxed) Close() error { return errors.Join(b.desk.Close(), b.end()) }

// openGuest connects to the desktop in a sandbox.
func (c *command) openGuest(ctx context.Context) (desk, error) {
	s, end, err := c.openBox(ctx)
	if err != nil {
		return nil, err
	}
	d, err := c.openRemote(ctx, s.ServeArgv())
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return boxed{d, end}, nil
}
