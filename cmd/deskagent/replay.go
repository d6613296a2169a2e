package main

import (
	"context"
	"encoding/json"
	"fmt"
	"image"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
	"github.com/deskagent/deskagent/trace"
)

const replayHelp = `Does once more what "deskagent run --trace" or "deskagent exercise --trace" has recorded, on a display
in the state that the first one began in, and compares the pictures. No model takes part. The calls
are done at the points of the screen where they were done; one that was declined or failed is left
out.

At the first picture of which more than --threshold percent of the pixels is different, the replay
ends, as what would be done from there on is not meant for what is there. --keep-going goes on
all the same. The exit status is 0 when there was no such picture.

Who is asked, and which displays are refused, is as for "deskagent run". Give --mask, --pointer, --monitor
and --paste as they were given then; "deskagent view" shows that, under Settings.`

const replayExample = `  deskagent exercise --trace trace --seed 5 --display :1
  deskagent replay trace --display :2`

func newReplay(c *command) *cobra.Command {
	r := &replay{runTask: runTask{command: c}}
	cmd := &cobra.Command{
		Use:     "replay DIR",
		Short:   "Do a recorded run once more, and compare the pictures",
		Long:    replayHelp,
		Example: replayExample,
		Args:    usage(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.Float64Var(&r.threshold, "threshold", 0.5, "how much of a picture may be different, in percent")
	flags.BoolVar(&r.keepGoing, "keep-going", false, "go on after pictures that differ")
	flags.Var(&r.approve, "approve", "who decides about actions: prompt, allow or deny")
	flags.StringSliceVar(&r.codes, "acknowledge-checks", nil, "codes of safety checks to acknowledge unasked")
	flags.BoolVar(&r.allowHost, "allow-host", false, "go on even if the display is not marked as a guest's")
	sightFlags(cmd, &r.eyes.sight)
	handsFlags(cmd, &r.hands)
	return cmd
}

// replay is one deskagent replay. Of the runTask it has what says who is asked, and on which display.
type replay struct {
	runTask
	threshold float64 // in percent
	keepGoing bool

	trace  *trace.Trace
	shown  toolset.Shot // the last picture
	report replayReport
}

// replayReport counts what came of the pictures.
type replayReport struct {
	same, alike, different, uncompared int
	first                              string // where the first one was that is different
}

func (r *replay) run(ctx context.Context, dir string) (err error) {
	if r.threshold < 0 || r.threshold >= 100 {
		return usagef("--threshold %v: want 0 or more, and less than 100", r.threshold)
	}
	if r.trace, err = trace.Open(dir); err != nil {
		return err
	}
	turns, err := r.turns()
	if err != nil {
		return err
	}
	var terminal person
	defer terminal.close()
	policy, err := r.policy(&terminal)
	if err != nil {
		return err
	}
	if err := r.checkGuest(r.allowHost); err != nil {
		return err
	}
	d, err := r.open(ctx, r.hands, r.eyes.sight)
	if err != nil {
		return err
	}
	defer d.Close()
	tools, err := toolset.New(d, &toolset.Options{
		Limits: toolset.LimitsWhole, Present: unsent, OnPicture: func(s toolset.Shot) { r.shown = s }, Logger: r.logger(),
	})
	if err != nil {
		return err
	}
	for _, turn := range turns {
		call, err := screenCall(turn.Call)
		if err != nil {
			return err
		}
		if _, err := tools.Execute(ctx, call, &toolset.ExecuteOptions{Policy: policy}); err != nil {
			return fmt.Errorf("step %d: %w", turn.Step, err)
		}
		if err := r.compare(turn); err != nil {
			return err
		}
		if r.report.different > 0 && !r.keepGoing {
			break
		}
	}
	if err := r.conclude(len(turns)); err != nil {
		return err
	}
	return d.Close()
}

// turns are the calls to do: those that were carried out.
func (r *replay) turns() (turns []trace.Turn, err error) {
	for _, turn := range r.trace.Turns() {
		switch {
		case turn.Picture == nil:
			fmt.Fprintf(r.err, "step %d: the call was declined, or failed: it is left out\n", turn.Step)
		case turn.Call.Masked:
			return nil, fmt.Errorf("step %d: the trace does not hold the text of this call, which was masked", turn.Step)
		default:
			turns = append(turns, turn)
		}
	}
	return turns, nil
}

// unsent stands for the picture where it would be sent.
func unsent(context.Context, *image.RGBA) (toolset.Picture, error) {
	return toolset.Picture{Type: toolset.PictureType, FileID: param.NewOpt("replayed")}, nil
}

// screenCall is a recorded call in the API's form, for a toolset whose pictures are the screen itself.
func screenCall(c trace.Call) (json.RawMessage, error) {
	checks := c.Checks
	if checks == nil {
		checks = []trace.Check{}
	}
	return json.Marshal(map[string]any{
		"type": "computer_call", "id": "cu_" + c.ID, "call_id": c.ID, "status": "completed",
		"actions": c.Actions, "pending_safety_checks": checks,
	})
}

// compare compares the picture after a call with that in the trace.
func (r *replay) compare(turn trace.Turn) error {
	got, err := r.picture(turn.Picture)
	if err != nil {
		return fmt.Errorf("step %d: %w", turn.Step, err)
	}
	if !turn.Picture.Kept {
		r.report.uncompared++
		fmt.Fprintf(r.err, "step %d: the picture was not kept\n", turn.Step)
		return nil
	}
	want, err := r.trace.Image(turn.Picture)
	if err != nil {
		return fmt.Errorf("step %d: %w", turn.Step, err)
	}
	switch percent := 100 * trace.Differ(got, want); {
	case percent == 0:
		r.report.same++
		fmt.Fprintf(r.err, "step %d: the same picture\n", turn.Step)
	case percent <= r.threshold:
		r.report.alike++
		fmt.Fprintf(r.err, "step %d: %.4f %% of the picture is different\n", turn.Step, percent)
	default:
		if r.report.different++; r.report.different == 1 {
			r.report.first = fmt.Sprintf("step %d, call %q: %.4f %% of the picture is different", turn.Step, turn.Call.ID, percent)
		}
		fmt.Fprintf(r.err, "step %d: %.4f %% of the picture is different, which is too much\n", turn.Step, percent)
	}
	return nil
}

// picture makes of the last screen what was made of it when it was recorded.
func (r *replay) picture(want *trace.Picture) (*image.RGBA, error) {
	m, err := scaling.New(image.Rectangle(want.Area), image.Pt(want.Width, want.Height))
	if err != nil {
		return nil, err
	}
	f := r.shown.Frame
	pixels, err := f.Pixels()
	if err != nil {
		return nil, err
	}
	screen := &image.RGBA{Pix: pixels.Pix, Stride: pixels.Stride, Rect: f.Area}
	picture, err := m.Picture(screen)
	if err != nil {
		return nil, fmt.Errorf("this display has another size than the one that was recorded: %w", err)
	}
	return picture, nil
}

// conclude says what came of it.
func (r *replay) conclude(calls int) error {
	n := r.report
	done := n.same + n.alike + n.different + n.uncompared
	fmt.Fprintf(r.out, "%d of %d calls done; pictures: %d the same, %d alike, %d different, %d not compared\n",
		done, calls, n.same, n.alike, n.different, n.uncompared)
	if n.different > 0 {
		return fmt.Errorf("the replay diverges in %s", n.first)
	}
	return nil
}
