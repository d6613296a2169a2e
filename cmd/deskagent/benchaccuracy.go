package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"math/rand/v2"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

const benchAccuracyHelp = `Measures how often a click hits what was aimed at. A window shows square targets of 4 to 24 pixels
of the screen, one after the other, at random places on a desktop of text, a photograph and plain
areas. An agent gets the picture that a model would get, finds the centre of the target in it, from
the pixels alone, and clicks there as a model does, with whole coordinates of the picture. The
window tells where the click came, and shows the next target.

The columns are the sizes of the targets, and the numbers how many of them were hit. "full" is a
picture of the whole screen. With "zoom" the agent finds the target in that, has a part of the
screen around it shown pixel for pixel, and looks and clicks again there.

A target that is larger than one pixel of the full picture, by a quarter at least, has to be hit, or
the command fails. When it is just as large, its surroundings decide where its centre seems to be.

A private virtual display is started for each size, unless --display names one. On that, a window
covers the screen in the meantime, and nobody else should touch the mouse.`

const benchAccuracyExample = `  deskagent bench accuracy
  deskagent bench accuracy --screen 3840x2160 --size 1024x576 --rounds 100
  deskagent bench accuracy --display :1 --json`

// accuracyScreens are the screens that are tried when none is named.
var accuracyScreens = []image.Point{{X: 1280, Y: 800}, {X: 1920, Y: 1080}, {X: 2560, Y: 1600}, {X: 3840, Y: 2160}}

// targetSizes are the sides of the targets, in pixels of the screen.
var targetSizes = []int{4, 6, 8, 12, 16, 24}

func newBenchAccuracy(c *command) *cobra.Command {
	b := &benchAccuracy{command: c}
	cmd := &cobra.Command{
		Use:     "accuracy",
		Short:   "Measure how often clicks on small targets hit",
		Long:    benchAccuracyHelp,
		Example: benchAccuracyExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	cmd.Flags().Var(&b.screens, "screen", "size of a private display; may be given again (default "+sizesFlag(accuracyScreens).String()+")")
	cmd.Flags().Var(&b.sizes, "size", "size of the picture; may be given again (default what fits into "+inPixels(toolset.DefaultFit)+", and 1280x720)")
	cmd.Flags().IntVar(&b.rounds, "rounds", 10, "how many targets of each size")
	cmd.Flags().BoolVar(&b.json, "json", false, "write one JSON object instead of the table")
	return cmd
}

// benchAccuracy is one deskagent bench accuracy.
type benchAccuracy struct {
	*command
	screens, sizes sizesFlag
	rounds         int
	json           bool
}

// accuracyReport is what --json writes.
type accuracyReport struct {
	Version string        `json:"version"`
	Rows    []accuracyRow `json:"rows"`
	// Missed is how many targets were missed that had to be hit, and First says the first of them.
	Missed int    `json:"missed"`
	First  string `json:"first,omitempty"`
}

type accuracyRow struct {
	Screen  string      `json:"screen"`
	Picture string      `json:"picture"`
	Zoom    bool        `json:"zoom"`
	Targets []targetRow `json:"targets"`
}

type targetRow struct {
	Size  int `json:"px"` // a side, on the screen
	Shown int `json:"shown"`
	Hit   int `json:"hit"`
}

func (b *benchAccuracy) run(ctx context.Context) error {
	if b.rounds < 1 {
		return usagef("rounds %d: want 1 or more", b.rounds)
	}
	screens, err := b.benchScreens(b.screens, accuracyScreens)
	if err != nil {
		return err
	}
	report := &accuracyReport{Version: version(), Rows: []accuracyRow{}}
	for _, size := range screens {
		if err := b.try(ctx, size, report); err != nil {
			return err
		}
	}
	if b.json {
		err = json.NewEncoder(b.out).Encode(report)
	} else {
		err = b.print(report)
	}
	return cmp.Or(err, report.failure())
}

// failure is nil if all was hit that had to be.
func (r *accuracyReport) failure() error {
	if r.Missed == 0 {
		return nil
	}
	return fmt.Errorf("missed %d targets that are larger than a pixel of the picture, first %s", r.Missed, r.First)
}

// try tries one screen.
func (b *benchAccuracy) try(ctx context.Context, size image.Point, report *accuracyReport) error {
	name, end, err := b.benchDisplay(ctx, size)
	if err != nil {
		return err
	}
	defer end()
	window, err := witness.Open(name)
	if err != nil {
		return err
	}
	defer window.Close()
	d, err := x11.Open(ctx, &x11.Options{Display: name, Logger: b.logger(), Watchdog: watchdog()})
	if err != nil {
		return err
	}
	defer d.Close()
	screen, err := d.Bounds(ctx)
	if err != nil {
		return err
	}
	g, err := newGallery(window, screen)
	if err != nil {
		return err
	}
	sizes := b.sizes
	if len(sizes) == 0 {
		sizes = sizesFlag{scaling.Fit(screen.Size(), toolset.DefaultFit), image.Pt(1280, 720)}
	}
	for _, size := range sizes {
		for _, zoom := range []bool{false, true} {
			row := accuracyRow{Screen: inPixels(screen.Size()), Picture: inPixels(size), Zoom: zoom}
			fmt.Fprintf(b.err, "deskagent: trying a screen of %s, pictures of %s, %s\n", row.Screen, row.Picture, row.look())
			for _, px := range targetSizes {
				shots, err := g.visit(ctx, &agent{driver: d, screen: screen, size: size, zoom: zoom}, randomTargets(screen, px, b.rounds))
				if err != nil {
					return fmt.Errorf("trying a screen of %s, pictures of %s, %s, targets of %d pixels: %w", row.Screen, row.Picture, row.look(), px, err)
				}
				row.Targets = append(row.Targets, report.count(shots, 4*px*size.X >= 5*screen.Dx() && 4*px*size.Y >= 5*screen.Dy()))
			}
			report.Rows = append(report.Rows, row)
		}
	}
	return d.Close()
}

// look is the way of looking, in a word.
func (r accuracyRow) look() string {
	if r.Zoom {
		return "zoom"
	}
	return "full"
}

// count counts hits, and notes what was missed that had to be hit.
func (r *accuracyReport) count(shots []shot, must bool) targetRow {
	row := targetRow{Size: shots[0].target.Dx(), Shown: len(shots)}
	for _, s := range shots {
		if s.hit() {
			row.Hit++
		} else if must {
			if r.Missed++; r.First == "" {
				r.First = s.String()
			}
		}
	}
	return row
}

// randomTargets are squares on a screen, the same ones each time.
func randomTargets(screen image.Rectangle, side, count int) (targets []image.Rectangle) {
	chance := rand.New(rand.NewPCG(uint64(side), uint64(count)))
	for range count {
		at := screen.Min.Add(image.Pt(chance.IntN(screen.Dx()-side+1), chance.IntN(screen.Dy()-side+1)))
		targets = append(targets, image.Rectangle{Min: at, Max: at.Add(image.Pt(side, side))})
	}
	return targets
}

func (b *benchAccuracy) print(r *accuracyReport) error {
	fmt.Fprintf(b.out, "deskagent %s, %d CPUs\n\n", r.Version, runtime.NumCPU())
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "screen\tpicture\tlook\t")
	for _, px := range targetSizes {
		fmt.Fprintf(table, "%d px\t", px)
	}
	fmt.Fprintln(table)
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t", row.Screen, row.Picture, row.look())
		for _, t := range row.Targets {
			fmt.Fprintf(table, "%d of %d\t", t.Hit, t.Shown)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}
