package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
)

const actHelp = `Performs computer actions on the display without a model: each argument, or each line of the
file, is one action in the JSON form of the Responses API, in screen coordinates. All of them
are read before the first one runs; they run in order, and the first that fails ends it.

A screenshot action writes a picture to the file that -o names, a PNG, or a JPEG where the name ends
in .jpg; further ones get -2, -3 and so on before the ending. With --json each action done is one
JSON object on standard output.

` + sightHelp + `

--paste has text pasted by way of the clipboard, and puts back what was there: for good where a
clipboard manager runs, else for as long as this command runs. Terminals want --paste=CTRL+SHIFT+V.

--dry-run says what each action would send to the display, and sends nothing. Where there is a
display it is looked at, so that points outside it and keys it lacks are found too.`

const actExample = `  deskagent act '{"type":"click","x":40,"y":30,"button":"left"}' '{"type":"type","text":"hello\n"}'
  deskagent act '{"type":"keypress","keys":["CTRL","S"]}' '{"type":"screenshot"}' -o saved.png
  deskagent act --dry-run '{"type":"drag","path":[{"x":0,"y":0},{"x":50,"y":20}]}'
  deskagent act -f actions.jsonl
  generate | deskagent act -f -`

func newAct(c *command) *cobra.Command {
	act := &act{command: c}
	cmd := &cobra.Command{
		Use:     "act 'JSON' ...",
		Short:   "Perform computer actions by hand",
		Long:    actHelp,
		Example: actExample,
		RunE:    func(cmd *cobra.Command, args []string) error { return act.run(cmd.Context(), args) },
	}
	cmd.Flags().StringVarP(&act.file, "file", "f", "", "read JSON lines from a file, - for standard input")
	cmd.Flags().StringVarP(&act.output, "output", "o", "", "file for the picture of a screenshot action")
	cmd.Flags().BoolVar(&act.dryRun, "dry-run", false, "say what would be sent, touch nothing")
	cmd.Flags().BoolVar(&act.json, "json", false, "write one JSON object for each action done")
	handsFlags(cmd, &act.hands)
	sightFlags(cmd, &act.sight)
	remoteFlag(cmd, c)
	return cmd
}

type act struct {
	*command
	file, output string
	dryRun, json bool
	hands        hands
	sight        sight
}

func (c *act) run(ctx context.Context, args []string) error {
	actions, err := c.read(args)
	if err != nil {
		return err
	}
	for _, a := range actions {
		if a.Kind() == driver.KindScreenshot && c.output == "" && !c.dryRun {
			return usagef("a screenshot action needs -o FILE")
		}
	}
	if c.dryRun && c.remote != "" {
		return usagef("--dry-run is for a display: leave it out, or --remote")
	}
	if c.dryRun {
		return c.show(ctx, actions)
	}
	d, err := c.open(ctx, c.hands, c.sight)
	if err != nil {
		return err
	}
	defer d.Close()
	pictures := 0
	for i, a := range actions {
		start := time.Now()
		frame, err := driver.Do(ctx, d, a)
		if err != nil {
			return fmt.Errorf("action %d of %d: %w", i+1, len(actions), err)
		}
		done := actionDone{Action: a, Milliseconds: float64(time.Since(start).Microseconds()) / 1000}
		if s, ok := a.(driver.Scroll); ok && s.ScrollX == 0 && s.ScrollY == 0 {
			done.Note = "scrolls by nothing: the wheel was not turned"
		}
		if frame != nil {
			pictures++
			done.File = numbered(c.output, pictures)
			if err := c.writePicture(done.File, frame.Image); err != nil {
				return err
			}
		}
		if c.json {
			if err := json.NewEncoder(c.out).Encode(done); err != nil {
				return err
			}
		}
	}
	return d.Close()
}

// actionDone is a line of --json.
type actionDone struct {
	Action       driver.Action `json:"action"`
	Milliseconds float64       `json:"ms"`
	File         string        `json:"file,omitempty"` // of a screenshot
	Note         string        `json:"note,omitempty"`
}

// numbered puts -2, -3 and so on before the ending of a file's name.
func numbered(file string, n int) string {
	if n == 1 || file == "-" {
		return file
	}
	if dot := strings.LastIndexByte(file, '.'); dot > strings.LastIndexByte(file, '/')+1 {
		return fmt.Sprintf("%s-%d%s", file[:dot], n, file[dot:])
	}
	return fmt.Sprintf("%s-%d", file, n)
}

// read decodes all actions, of the arguments or of the file, before anything is done.
func (c *act) read(args []string) ([]driver.Action, error) {
	var lines [][]byte
	var where string
	switch {
	case c.file != "" && len(args) > 0:
		return nil, usagef("give actions as arguments or with -f, not both")
	case c.file != "":
		where = "line"
		data, err := c.readFile()
		if err != nil {
			return nil, fmt.Errorf("reading actions: %w", err)
		}
		lines = bytes.Split(data, []byte("\n"))
	case len(args) > 0:
		where = "action"
		for _, arg := range args {
			lines = append(lines, []byte(arg))
		}
	default:
		return nil, usagef("no action given")
	}
	var actions []driver.Action
	for i, line := range lines {
		if c.file != "" && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		a, err := driver.DecodeAction(line)
		if err != nil {
			return nil, hintError{usageError{fmt.Errorf("%s %d: %w", where, i+1, err)}, `"deskagent act --help" shows actions`}
		}
		actions = append(actions, a)
	}
	return actions, nil
}

func (c *act) readFile() ([]byte, error) {
	if c.file == "-" {
		return io.ReadAll(c.in)
	}
	return os.ReadFile(c.file)
}

// hands says how input is made.
type hands struct {
	release, clearModifiers bool
	paste                   chordFlag // none where text is typed
}

// none reports whether all is left to the defaults.
func (h hands) none() bool { return !h.release && !h.clearModifiers && len(h.paste) == 0 }

func handsFlags(cmd *cobra.Command, h *hands) {
	cmd.Flags().BoolVar(&h.release, "release", false, "first release the keys and buttons that are down")
	cmd.Flags().BoolVar(&h.clearModifiers, "clear-modifiers", false, "lift modifiers that somebody holds, for the time of each action")
	const name = "paste"
	cmd.Flags().Var(&h.paste, name, "paste text by way of the clipboard instead of typing it, with this chord")
	cmd.Flags().Lookup(name).NoOptDefVal = "CTRL+V"
}

// chordFlag is keys with plus signs between them.
type chordFlag []string

func (f *chordFlag) Set(s string) error {
	names := strings.Split(s, "+")
	if _, err := driver.ParseKeys(names); err != nil {
		return err
	}
	*f = names
	return nil
}

func (f *chordFlag) String() string { return strings.Join(*f, "+") }
func (f *chordFlag) Type() string   { return "CHORD" }

// openDisplay connects to the display. What the driver has to warn of is said, whatever the flags.
func (c *command) openDisplay(ctx context.Context, h hands, s sight) (*x11.Driver, error) {
	name, err := c.displayName()
	if err != nil {
		return nil, err
	}
	logger := warnings(c.err)
	if c.verbose {
		logger = c.logger()
	}
	options := &x11.Options{
		Display: name, Logger: logger, Watchdog: watchdog(), Release: h.release, ClearModifiers: h.clearModifiers,
		Paste: len(h.paste) > 0, PasteKeys: h.paste,
	}
	s.set(options)
	return x11.Open(ctx, options)
}

// show says what the actions are, and what the display would be sent. Without a display there is nothing to check
// them against, and only the first is said.
func (c *act) show(ctx context.Context, actions []driver.Action) error {
	d, err := c.openDry(ctx)
	if errors.Is(err, driver.ErrNoDisplay) {
		fmt.Fprintln(c.err, "deskagent: not checked against a display:", oneLine(err.Error()))
	} else if err != nil {
		return err
	} else {
		defer d.Close()
	}
	for i, a := range actions {
		for _, line := range approve.Describe(approve.Request{Action: a}) {
			fmt.Fprintln(c.out, line)
		}
		if d == nil || a.Kind() == driver.KindScreenshot {
			continue
		}
		if _, err := driver.Do(ctx, d, a); err != nil {
			return fmt.Errorf("action %d of %d: %w", i+1, len(actions), err)
		}
	}
	return nil
}

func (c *act) openDry(ctx context.Context) (*x11.Driver, error) {
	name, err := c.displayName()
	if err != nil {
		return nil, err
	}
	return x11.Open(ctx, &x11.Options{Display: name, DryRun: indented{c.out}, Logger: c.logger(), Paste: len(c.hands.paste) > 0, PasteKeys: c.hands.paste})
}

// indented writes each line, which comes in one piece, further in.
type indented struct{ io.Writer }

func (w indented) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, "    "); err != nil {
		return 0, err
	}
	return w.Writer.Write(line)
}
