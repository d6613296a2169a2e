package main

import (
	"cmp"
	"math"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/runner"
)

// inputBounds bound the input of each request; 0 stands for no bound.
type inputBounds struct{ images, bytes int }

const inputHelp = `Every request holds the whole conversation. --context-images and --context-bytes bound it: the oldest
calls with pictures are left out, each replaced by a line that says so, and the newest picture stays.`

func inputFlags(cmd *cobra.Command, b *inputBounds) {
	cmd.Flags().IntVar(&b.images, "context-images", 0, "the most pictures in a request (default no bound)")
	cmd.Flags().IntVar(&b.bytes, "context-bytes", 0, "the most bytes of input in a request (default no bound)")
}

// budget is the bounds as the runner takes them, nil for none.
func (b inputBounds) budget() (*runner.ContextBudget, error) {
	switch {
	case b.images < 0 || b.bytes < 0:
		return nil, usagef("--context-images %d, --context-bytes %d: want 1 or more", b.images, b.bytes)
	case b == inputBounds{}:
		return nil, nil
	}
	return &runner.ContextBudget{
		MaxInputImages: cmp.Or(b.images, math.MaxInt), MaxInputBytes: cmp.Or(b.bytes, math.MaxInt), Compact: runner.DropOldest,
	}, nil
}
