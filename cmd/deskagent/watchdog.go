package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver/x11"
)

const watchdogHelp = `Waits until a driver of this display is gone, and releases what it held if it died. The other
commands start it for themselves; there is no use for it by hand.`

func newWatchdog() *cobra.Command {
	return &cobra.Command{
		Use:    "watchdog DISPLAY DRIVER",
		Short:  "Release what is down when the driver dies",
		Long:   watchdogHelp,
		Hidden: true,
		Args:   usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			// These are for the command that is watched. It may come back to them, and it goes before this one does.
			signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			return x11.Watch(context.WithoutCancel(cmd.Context()), args[0], args[1])
		},
	}
}

// watchdog is the command line of a watchdog, for the driver to start. It is none where this program cannot find
// itself.
func watchdog() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, "watchdog"}
}
