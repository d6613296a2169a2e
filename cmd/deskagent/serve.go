package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/remote"
	"github.com/deskagent/deskagent/driver/x11"
)

const serveHelp = `Offers the desktop as an MCP server on standard input and output: the nine computer actions as
tools, with pictures as images, for any client that speaks the Model Context Protocol, and for
"deskagent act", "screenshot" and "run" with --remote. It serves one client, and ends with it; what
was held down then is released. An example for the configuration of a client:

  {
    "mcpServers": {
      "desktop": {
        "command": "deskagent",
        "args": ["serve", "--display", ":1", "--approve", "allow"]
      }
    }
  }

--approve says who decides about actions and pictures:
  prompt   you, on the terminal, before each one (default); without a terminal it refuses to start
  allow    nobody here: every action is allowed, as when the client asks by itself
  deny     nobody: every action is declined

A display that is not marked as a guest's is refused; "deskagent run --help" tells how to mark one.
--allow-host goes on without.

` + sightHelp

const serveExample = `  deskagent serve --display :1 --approve allow
  deskagent act --remote "docker exec -i desktop deskagent serve --approve allow" '{"type":"wait"}'
  deskagent run --remote "ssh guest DISPLAY=:0 deskagent serve --approve allow" "Write a haiku"`

func newServe(c *command) *cobra.Command {
	s := &serve{command: c}
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Offer the desktop to an MCP client",
		Long:    serveHelp,
		Example: serveExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	cmd.Flags().Var(&s.approve, "approve", "who decides about actions: prompt, allow or deny")
	cmd.Flags().BoolVar(&s.allowHost, "allow-host", false, "go on even if the display is not marked as a guest's")
	handsFlags(cmd, &s.hands)
	sightFlags(cmd, &s.sight)
	return cmd
}

// serve is one deskagent serve.
type serve struct {
	*command
	approve   approveFlag
	allowHost bool
	hands     hands
	sight     sight
}

func (s *serve) run(ctx context.Context) error {
	var terminal person
	defer terminal.close()
	approver, err := s.approver(&terminal)
	if err != nil {
		return err
	}
	if err := s.checkGuest(s.allowHost); err != nil {
		return err
	}
	d, err := s.openDisplay(ctx, s.hands, s.sight)
	if err != nil {
		return err
	}
	defer d.Close()
	server, err := remote.NewServer(d, &remote.ServerOptions{
		Version: version(), Logger: s.logger(),
		Approve: func(ctx context.Context, a driver.Action) error {
			switch answer, err := approve.Ask(ctx, approver, approve.Request{Action: a}); {
			case err != nil:
				return err
			case answer != approve.Allow:
				return approve.ErrDenied
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	// A client that is gone is an error of a write, and not the end of this process, with all that it holds.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := server.Serve(ctx, io.NopCloser(s.in), unclosed{s.out}); err != nil {
		return err
	}
	return d.Close()
}

// approver is who the flag says.
func (s *serve) approver(terminal *person) (approve.Approver, error) {
	switch s.approve {
	case approveAllow:
		return approve.AllowActions, nil
	case approveDeny:
		return approve.DenyAll, nil
	}
	if err := terminal.open(); err != nil {
		return nil, nobodyToAsk(err)
	}
	return terminal, nil
}

// unclosed is a stream that ends with the process.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// A desk is what the commands need of a driver.
type desk interface {
	driver.Driver
	driver.Sizer
	driver.Viewer
	driver.Holder
	Close() error
}

var (
	_ desk = (*x11.Driver)(nil)
	_ desk = (*remote.Driver)(nil)
)

// remoteFlag is for commands whose desktop may be elsewhere.
func remoteFlag(cmd *cobra.Command, c *command) {
	cmd.Flags().StringVar(&c.remote, "remote", "", `a command that leads to a "deskagent serve" whose desktop to drive, its words separated by spaces`)
}

// elsewhere reports whether the desktop is not one of this machine's displays.
func (c *command) elsewhere() bool { return c.remote != "" || c.guest.where != "" }

// open connects to the desktop: that of --remote or --in, or the display.
func (c *command) open(ctx context.Context, h hands, s sight) (desk, error) {
	if !c.elsewhere() {
		return c.openDisplay(ctx, h, s)
	}
	argv := strings.Fields(c.remote)
	switch {
	case c.remote != "" && c.guest.where != "":
		return nil, usagef("want --remote or --in, not both")
	case c.display != "":
		return nil, usagef("--display is of this machine: leave it out, or --remote and --in")
	case !h.none() || !s.none():
		return nil, usagef("the flags about input and pictures are for a display of this machine: with --remote, give them to the command there")
	case c.guest.where != "":
		return c.openGuest(ctx)
	case len(argv) == 0:
		return nil, usagef("--remote %q: want a command", c.remote)
	}
	d, err := c.openRemote(ctx, argv)
	if errors.Is(err, driver.ErrDisplayLost) {
		err = hintError{err, "the command has to lead to a \"deskagent serve\" that needs no terminal: with --approve allow, what is done is decided here"}
	}
	return d, err
}

// openRemote connects to the desktop that a command serves.
func (c *command) openRemote(ctx context.Context, argv []string) (desk, error) {
	d, err := remote.Start(ctx, argv, &remote.StartOptions{Stderr: c.err})
	if err != nil {
		return nil, err
	}
	return d, nil
}
