package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

const benchHelp = `Measures deskagent on this machine.`

const benchInputHelp = `Measures how long input takes, from the call until a window has all of it, and checks that what
the window got is what was asked for. xdotool does the same things in turns with deskagent, where
it is installed: its time is that of the process, as a program that uses it would see it. Of its
ways to type it is the quickest for ASCII, "type --delay 0", and the usual one for the rest.

The columns: the median of the rounds and the time that 95 % of them stayed within; "own", the
median of the call alone without the pauses that are meant to be there, such as the time a button
stays down; the same of xdotool, in how many rounds the window got exactly what was asked for, and
how many times as long it took. A text is typed in a tenth of the rounds, three at least.

A private virtual display is started for it, unless --display names one. On that, a grey window
covers the screen in the meantime, and nobody else should touch the mouse or the keyboard.`

const benchInputExample = `  deskagent bench input
  deskagent bench input --display :1 --rounds 100 --json
  deskagent bench input --xdotool ''             without comparison, much quicker`

func newBench(c *command) *cobra.Command {
	bench := &cobra.Command{
		Use:   "bench",
		Short: "Measure deskagent on this machine",
		Long:  benchHelp,
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	b := &benchInput{command: c}
	input := &cobra.Command{
		Use:     "input",
		Short:   "Measure clicks, chords, drags, scrolling and typing",
		Long:    benchInputHelp,
		Example: benchInputExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	input.Flags().IntVar(&b.rounds, "rounds", 30, "how often each thing is done")
	input.Flags().StringVar(&b.xdotool, "xdotool", "xdotool", "the xdotool to compare with, empty for none")
	input.Flags().StringVar((*string)(&b.sink), "sink", "", "how events are sent: robotgo or xtest (default robotgo where it can be had)")
	input.Flags().BoolVar(&b.json, "json", false, "write one JSON object instead of the table")
	bench.AddCommand(input, newBenchScreen(c), newBenchAccuracy(c))
	return bench
}

// benchInput is one deskagent bench input.
type benchInput struct {
	*command
	rounds  int
	xdotool string
	sink    x11.Sink
	json    bool
}

// benchReport is what --json writes.
type benchReport struct {
	Version string     `json:"version"`
	CPUs    int        `json:"cpus"`
	Sink    x11.Sink   `json:"sink"`
	Xdotool string     `json:"xdotool,omitempty"` // its version
	Rows    []benchRow `json:"rows"`
}

// benchRow is one thing that was measured. Times are in milliseconds.
type benchRow struct {
	Name    string   `json:"name"`
	Rounds  int      `json:"rounds"`
	Median  float64  `json:"median_ms"`
	P95     float64  `json:"p95_ms"`
	Own     *float64 `json:"own_ms,omitempty"` // without pauses; none where there are none
	Xdotool *xdoRow  `json:"xdotool,omitempty"`
}

type xdoRow struct {
	Median float64 `json:"median_ms"`
	P95    float64 `json:"p95_ms"`
	Exact  int     `json:"exact_rounds"`
	Ratio  float64 `json:"ratio"` // of the medians
}

func (b *benchInput) run(ctx context.Context) error {
	if b.rounds < 1 {
		return usagef("rounds %d: want 1 or more", b.rounds)
	}
	name, end, err := b.benchDisplay(ctx, image.Point{})
	if err != nil {
		return err
	}
	defer end()
	window, err := witness.Open(name)
	if err != nil {
		return err
	}
	defer window.Close()
	if err := window.AnswerPings(); err != nil {
		return err
	}
	report := benchReport{Version: version(), CPUs: runtime.NumCPU()}
	if report.Xdotool, err = b.xdotoolVersion(ctx, name); err != nil {
		return err
	}
	m := &measurement{ctx: ctx, display: name, window: window, rounds: b.rounds, say: func(what string) { fmt.Fprintln(b.err, "deskagent: measuring", what) }}
	if report.Xdotool != "" {
		m.xdotool = b.xdotool
	}
	if report.Sink, report.Rows, err = m.all(x11.Options{Display: name, Sink: b.sink, Logger: b.logger(), Watchdog: watchdog()}); err != nil {
		return err
	}
	if b.json {
		return json.NewEncoder(b.out).Encode(report)
	}
	return b.print(report)
}

// benchScreens are the sizes of the displays to measure on: those that were named, or the usual ones. That of --display is
// as it is, which is the zero size.
func (c *command) benchScreens(named, usual []image.Point) ([]image.Point, error) {
	switch {
	case c.display != "" && len(named) > 0:
		return nil, usagef("display %q has its own size: --screen is for private ones", c.display)
	case c.display != "":
		return []image.Point{{}}, nil
	case len(named) > 0:
		return named, nil
	}
	return usual, nil
}

// benchDisplay is the display to measure on: that of --display, or a virtual one of a size, which end ends. The zero size
// is the default of package xvfb.
func (c *command) benchDisplay(ctx context.Context, size image.Point) (name string, end func(), err error) {
	if c.display != "" {
		return c.display, func() {}, nil
	}
	server, err := xvfb.Start(ctx, &xvfb.Options{Width: size.X, Height: size.Y})
	if errors.Is(err, xvfb.ErrMissing) {
		return "", nil, hintError{err, "install xvfb, or measure on a display you have with --display"}
	}
	if err != nil {
		return "", nil, err
	}
	return server.Display(), func() { server.Close() }, nil
}

// xdotoolVersion is empty where there is none to compare with.
func (b *benchInput) xdotoolVersion(ctx context.Context, display string) (string, error) {
	if b.xdotool == "" {
		return "", nil
	}
	out, err := onDisplay(ctx, display, b.xdotool, "version").Output() // It does not even say that without a display.
	switch {
	case errors.Is(err, exec.ErrNotFound) && b.xdotool == "xdotool":
		fmt.Fprintln(b.err, "deskagent: not compared with xdotool, which is not installed")
		return "", nil
	case err != nil:
		return "", fmt.Errorf("asking %q for its version: %w", b.xdotool, err)
	}
	return strings.TrimPrefix(oneLine(string(out)), "xdotool version "), nil
}

func (b *benchInput) print(r benchReport) error {
	fmt.Fprintf(b.out, "deskagent %s, %d CPUs, input through %s", r.Version, r.CPUs, r.Sink)
	if r.Xdotool != "" {
		fmt.Fprintf(b.out, "; xdotool %s", printable(r.Xdotool))
	}
	fmt.Fprint(b.out, "\n\n")
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	heading := "\trounds\tmedian\t95 %\town\t"
	if r.Xdotool != "" {
		heading += "xdotool\t95 %\texact\tratio\t"
	}
	fmt.Fprintln(table, heading)
	for _, row := range r.Rows {
		own := "-"
		if row.Own != nil {
			own = inWords(*row.Own)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t", row.Name, row.Rounds, inWords(row.Median), inWords(row.P95), own)
		if x := row.Xdotool; x != nil {
			fmt.Fprintf(table, "%s\t%s\t%d of %d\t%.1f\t", inWords(x.Median), inWords(x.P95), x.Exact, row.Rounds, x.Ratio)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// inWords writes milliseconds with as many digits as are worth reading.
func inWords(ms float64) string {
	return (time.Duration(ms*1000) * time.Microsecond).Round(max(time.Microsecond*10, roundTo(ms))).String()
}

// roundTo is a hundredth of the largest power of ten in a time.
func roundTo(ms float64) time.Duration {
	unit := 10 * time.Microsecond
	for limit := 10.0; ms >= limit; limit *= 10 {
		unit *= 10
	}
	return unit
}
