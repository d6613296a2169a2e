package main

import (
	"encoding/json"
	"fmt"
	"image"
	"io"
	"log/slog"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/exercise"
	"github.com/deskagent/deskagent/sandbox/desktop"
	"github.com/deskagent/deskagent/sandbox/gateway"
	"github.com/deskagent/deskagent/sandbox/proxy"
	"github.com/deskagent/deskagent/sandbox/selftest"
)

const guestHelp = `What runs inside a sandbox. "deskagent sandbox" starts it there; there is no use for it by hand.`

func newGuest(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "guest",
		Short:  "Be the inside of a sandbox",
		Long:   guestHelp,
		Hidden: true,
		Args:   usage(cobra.NoArgs),
		RunE:   func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGuestDesktop(c), newGuestCheck(c), newGuestProxy(c), newGuestAPI(c), newGuestPractice(c))
	return cmd
}

func newGuestDesktop(c *command) *cobra.Command {
	var screen sizeFlag
	cmd := &cobra.Command{
		Use:   "desktop",
		Short: "Bring up the desktop and watch it until this command is ended",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return desktop.Run(cmd.Context(), &desktop.Options{
				Screen: image.Point(screen), Output: c.err, Logger: slog.New(slog.NewTextHandler(c.err, nil)),
			})
		},
	}
	cmd.Flags().Var(&screen, "screen", "size of the screen (default 1280x800)")
	return cmd
}

func newGuestCheck(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Wait for the desktop, try the limits by the plan on standard input, and write the report",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var plan selftest.Plan
			if err := json.NewDecoder(c.in).Decode(&plan); err != nil {
				return fmt.Errorf("reading the plan: %w", err)
			}
			// The desktop comes up in the meantime.
			report := selftest.Run(cmd.Context(), plan)
			if err := desktop.WaitReady(cmd.Context()); err != nil {
				return err
			}
			return json.NewEncoder(c.out).Encode(report)
		},
	}
}

func newGuestProxy(c *command) *cobra.Command {
	var allow []string
	var from string
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Be the way out to the hosts that are named, for the clients of one network",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			network, err := netip.ParsePrefix(from)
			if err != nil {
				return usageError{err}
			}
			opts := &proxy.Options{From: network, Audit: slog.New(slog.NewJSONHandler(c.out, nil))}
			for _, host := range allow {
				rule, err := proxy.ParseRule(host)
				if err != nil {
					return usageError{err}
				}
				opts.Allow = append(opts.Allow, rule)
			}
			own, err := ownAddress(network)
			if err != nil {
				return err
			}
			listener, err := net.Listen("tcp", netip.AddrPortFrom(own, proxy.Port).String())
			if err != nil {
				return err
			}
			return proxy.New(opts).Serve(cmd.Context(), listener)
		},
	}
	cmd.Flags().StringArrayVar(&allow, "allow", nil, "HOST[:PORT] to let through")
	cmd.Flags().StringVar(&from, "from", "", "network of the clients, such as 172.18.0.0/16")
	return cmd
}

// ownAddress is this machine's address in a network.
func ownAddress(network netip.Prefix) (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, addr := range addrs {
		if own, err := netip.ParsePrefix(addr.String()); err == nil && network.Contains(own.Addr()) {
			return own.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no own address in network %v among %v", network, addrs)
}

func newGuestAPI(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "api SOCKET",
		Short: "Be the inner end of the way to the API, whose outer end is on standard input and output",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return gateway.Listen(cmd.Context(), struct {
				io.Reader
				io.Writer
				io.Closer
			}{c.in, c.out, io.NopCloser(nil)}, args[0])
		},
	}
}

func newGuestPractice(c *command) *cobra.Command {
	return &cobra.Command{
		Use:   "practice",
		Short: "Show what an exercise needs, as it is asked for on standard input",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			display, err := c.displayName()
			if err != nil {
				return err
			}
			return exercise.Practise(cmd.Context(), display, c.in, c.out)
		},
	}
}
