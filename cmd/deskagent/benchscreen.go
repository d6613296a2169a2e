package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

const benchScreenHelp = `Measures how long pictures of the screen take, and how soon it is known that the screen has come
to rest. What it looks at is a drawn desktop of text, a terminal and a photograph, with a clock
that changes between any two pictures. The rows:

  capture                 the whole screen, pixel for pixel, in the memory of this program
  scale to WxH            such a picture made smaller
  encode PNG, JPEG        the smaller one; bytes are those of the file
  base64                  the PNG
  screen to data URL      all of that, as a model gets it: captured, scaled, encoded as PNG, base64
  ... of an unchanged one the same, when nothing has changed since the last picture
  ... pixel for pixel     the same without making it smaller
  rest: nothing changes   from the end of an action that has no effect to the picture after it
  rest: a change          from a change, 16 ms after an action, to the picture
  rest: an animation      from the last change of an animation of 700 ms to the picture

Screenshots are taken at once where nothing was done before, so only the last three rows wait. Where
scrot, maim and import are installed they take pictures in turns with deskagent, in a quarter of
the rounds: each as a process, as a program would start it, that writes a PNG of the whole screen
to a temporary file. Beside the median is how many times as long that takes as the row.

What deskagent makes is compared with the desktop that was drawn, and every picture after a
change has to show it; otherwise the command fails.

A private virtual display is started for each size, unless --display names one. On that, a window
covers the screen in the meantime, and nobody else should touch the mouse.`

const benchScreenExample = `  deskagent bench screen
  deskagent bench screen --screen 1920x1080 --size 1280x720
  deskagent bench screen --display :1 --rounds 100 --json
  deskagent bench screen --against ''            without comparison, much quicker`

// defaultScreens are the screens that are measured when none is named.
var defaultScreens = []image.Point{{X: 1280, Y: 800}, {X: 1920, Y: 1080}, {X: 2560, Y: 1440}, {X: 3840, Y: 2160}}

func newBenchScreen(c *command) *cobra.Command {
	b := &benchScreen{command: c}
	cmd := &cobra.Command{
		Use:     "screen",
		Short:   "Measure pictures of the screen, and when they are taken",
		Long:    benchScreenHelp,
		Example: benchScreenExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	cmd.Flags().Var(&b.screens, "screen", "size of a private display; may be given again (default "+sizesFlag(defaultScreens).String()+")")
	cmd.Flags().Var((*sizeFlag)(&b.size), "size", "size of the picture (default what fits into "+inPixels(toolset.DefaultFit)+")")
	cmd.Flags().IntVar(&b.rounds, "rounds", 20, "how often each thing is done")
	cmd.Flags().StringSliceVar(&b.against, "against", rivalNames(), "programs to compare with, empty for none")
	cmd.Flags().BoolVar(&b.json, "json", false, "write one JSON object instead of the tables")
	return cmd
}

// benchScreen is one deskagent bench screen.
type benchScreen struct {
	*command
	screens sizesFlag
	size    image.Point
	rounds  int
	against []string
	json    bool
}

// sizesFlag is WxH in pixels, any number of times.
type sizesFlag []image.Point

func (f sizesFlag) String() string {
	var words []string
	for _, size := range f {
		words = append(words, inPixels(size))
	}
	return strings.Join(words, ", ")
}

func (f *sizesFlag) Type() string { return "WxH" }

func (f *sizesFlag) Set(s string) error {
	var size sizeFlag
	if err := size.Set(s); err != nil {
		return err
	}
	*f = append(*f, image.Point(size))
	return nil
}

func inPixels(size image.Point) string { return (*sizeFlag)(&size).String() }

// A rival is a program that writes the screen to a PNG file.
type rival struct {
	name    string
	version []string // its arguments for that
	argv    func(file string) []string
}

var rivals = []rival{
	{"scrot", []string{"--version"}, func(file string) []string { return []string{"scrot", "-o", file} }},
	{"maim", []string{"--version"}, func(file string) []string { return []string{"maim", file} }},
	{"import", []string{"-version"}, func(file string) []string { return []string{"import", "-window", "root", file} }},
}

func rivalNames() (names []string) {
	for _, r := range rivals {
		names = append(names, r.name)
	}
	return names
}

// screenReport is what --json writes.
type screenReport struct {
	Version string            `json:"version"`
	CPUs    int               `json:"cpus"`
	Against map[string]string `json:"against"` // the versions of those that are installed
	Screens []screenTable     `json:"screens"`
}

type screenTable struct {
	Screen  string      `json:"screen"`
	Picture string      `json:"picture"`
	Rows    []screenRow `json:"rows"`
}

// screenRow is one thing that was measured. Times are in milliseconds, and bytes those of the last round.
type screenRow struct {
	Name    string              `json:"name"`
	Rounds  int                 `json:"rounds"`
	Median  float64             `json:"median_ms"`
	P95     float64             `json:"p95_ms"`
	Bytes   int                 `json:"bytes,omitempty"`
	Against map[string]rivalRow `json:"against,omitempty"`
}

type rivalRow struct {
	Rounds int     `json:"rounds"`
	Median float64 `json:"median_ms"`
	P95    float64 `json:"p95_ms"`
	Bytes  int     `json:"bytes"`
	Ratio  float64 `json:"ratio"` // of the medians
}

func (b *benchScreen) run(ctx context.Context) error {
	if b.rounds < 1 {
		return usagef("rounds %d: want 1 or more", b.rounds)
	}
	screens, err := b.benchScreens(b.screens, defaultScreens)
	if err != nil {
		return err
	}
	report := screenReport{Version: version(), CPUs: runtime.NumCPU()}
	var present []rival
	if present, report.Against, err = b.findRivals(ctx); err != nil {
		return err
	}
	for _, size := range screens {
		table, err := b.measure(ctx, size, present)
		if err != nil {
			return err
		}
		report.Screens = append(report.Screens, table)
	}
	if b.json {
		return json.NewEncoder(b.out).Encode(report)
	}
	return b.print(report)
}

// versionNumber is the first one of what a program says about itself.
var versionNumber = regexp.MustCompile(`[0-9]+\.[0-9.-]*[0-9]`)

// findRivals finds those to compare with that are installed, and their versions.
func (b *benchScreen) findRivals(ctx context.Context) (present []rival, versions map[string]string, err error) {
	versions = map[string]string{}
	for _, name := range b.against {
		i := slices.IndexFunc(rivals, func(r rival) bool { return r.name == name })
		if i < 0 {
			return nil, nil, usagef("comparing with %q: want some of %s", name, strings.Join(rivalNames(), ", "))
		}
		out, err := exec.CommandContext(ctx, name, rivals[i].version...).CombinedOutput() // maim says it on standard error
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintf(b.err, "deskagent: not compared with %s, which is not installed\n", name)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("asking %s for its version: %w", name, err)
		}
		versions[name] = versionNumber.FindString(string(out))
		present = append(present, rivals[i])
	}
	return present, versions, nil
}

// measure measures one screen.
func (b *benchScreen) measure(ctx context.Context, size image.Point, present []rival) (screenTable, error) {
	name, end, err := b.benchDisplay(ctx, size)
	if err != nil {
		return screenTable{}, err
	}
	defer end()
	window, err := witness.Open(name)
	if err != nil {
		return screenTable{}, err
	}
	defer window.Close()
	d, err := x11.Open(ctx, &x11.Options{Display: name, Logger: b.logger(), Watchdog: watchdog()})
	if err != nil {
		return screenTable{}, err
	}
	defer d.Close()
	screen, err := d.Bounds(ctx)
	if err != nil {
		return screenTable{}, err
	}
	directory, err := os.MkdirTemp("", "deskagent-bench-")
	if err != nil {
		return screenTable{}, err
	}
	defer os.RemoveAll(directory)
	m := &screenMeasurement{
		ctx: ctx, display: name, window: window, driver: d, rounds: b.rounds, rivals: present,
		file: filepath.Join(directory, "screen.png"), desktop: drawDesktop(screen.Size()), screen: screen, size: b.size,
	}
	if m.size == (image.Point{}) {
		m.size = scaling.Fit(screen.Size(), toolset.DefaultFit)
	}
	table := screenTable{Screen: inPixels(screen.Size()), Picture: inPixels(m.size)}
	fmt.Fprintf(b.err, "deskagent: measuring a screen of %s\n", table.Screen)
	table.Rows, err = m.all()
	if err != nil {
		return table, fmt.Errorf("measuring a screen of %s: %w", table.Screen, err)
	}
	return table, d.Close()
}

func (b *benchScreen) print(r screenReport) error {
	fmt.Fprintf(b.out, "deskagent %s, %d CPUs", r.Version, r.CPUs)
	for _, name := range b.against {
		if version, ok := r.Against[name]; ok {
			fmt.Fprintf(b.out, "; %s %s", name, version)
		}
	}
	fmt.Fprintln(b.out)
	for _, t := range r.Screens {
		fmt.Fprintf(b.out, "\nA screen of %s, pictures of %s\n\n", t.Screen, t.Picture)
		table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		heading := "\trounds\tmedian\t95 %\tbytes\t"
		for _, name := range b.against {
			heading += name + "\tratio\t"
		}
		fmt.Fprintln(table, heading)
		for _, row := range t.Rows {
			bytes := "-"
			if row.Bytes > 0 {
				bytes = fmt.Sprintf("%d K", (row.Bytes+1023)/1024)
			}
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t", row.Name, row.Rounds, inWords(row.Median), inWords(row.P95), bytes)
			for _, name := range b.against {
				if x, ok := row.Against[name]; ok {
					fmt.Fprintf(table, "%s\t%.1f\t", inWords(x.Median), x.Ratio)
				} else {
					fmt.Fprint(table, "-\t-\t")
				}
			}
			fmt.Fprintln(table)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
