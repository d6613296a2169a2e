package main

import (
	"errors"
	"fmt"
	"image"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// sight says what the driver shows in pictures, and when it takes them.
type sight struct {
	monitor string
	pointer bool
	masks   masksFlag
	settle  settleFlag
}

// none reports whether all is left to the defaults.
func (s sight) none() bool {
	return s.monitor == "" && !s.pointer && len(s.masks) == 0 && s.settle == (settleFlag{})
}

const sightHelp = `Before a picture is taken after an action the screen is let come to rest; --settle says how long
a reaction may take to begin, how long nothing must change then, and when the picture is taken in
any case. --mask makes an area black in every picture, or the windows that have a text in their
class or title.`

func sightFlags(cmd *cobra.Command, s *sight) {
	flags := cmd.Flags()
	flags.StringVar(&s.monitor, "monitor", "", "the monitor to show, by its name (default all of them)")
	flags.BoolVar(&s.pointer, "pointer", false, "draw the pointer")
	flags.Var(&s.masks, "mask", "what is black in every picture, repeatable")
	flags.Var(&s.settle, "settle", "times of coming to rest")
}

// set puts the settings into the options of a driver.
func (s *sight) set(o *x11.Options) {
	o.Monitor, o.Pointer, o.Masks = s.monitor, s.pointer, s.masks
	o.SettleGrace, o.SettleQuiet, o.SettleDeadline = s.settle.grace, s.settle.quiet, s.settle.deadline
}

// eyes says how pictures are made.
type eyes struct {
	sight
	view  scaling.View
	zoom  cropFlag
	focus focusFlag
}

const eyesHelp = `--focus window shows the active window alone, with its menus and dialogues, and --zoom a part of
the screen pixel for pixel: for what is too small to be seen otherwise.

` + sightHelp

func eyesFlags(cmd *cobra.Command, e *eyes) {
	viewFlags(cmd, &e.view)
	cmd.Flags().Var(&e.zoom, "zoom", "part of the screen to show, pixel for pixel")
	cmd.Flags().Var(&e.focus, "focus", "what to show: the screen or the active window")
	sightFlags(cmd, &e.sight)
}

// resolve refuses flags that contradict each other, and makes --zoom a part of the view.
func (e *eyes) resolve() error {
	zoomed := e.zoom != (cropFlag{})
	switch {
	case zoomed && (e.view.Crop != image.Rectangle{} || e.view.Size != image.Point{}):
		return usagef("--zoom is a part of the screen pixel for pixel: leave out --crop and --size, or --zoom")
	case e.focus == focusWindow && (zoomed || e.view.Crop != image.Rectangle{}):
		return usagef("--focus window shows the active window: leave out --crop and --zoom, or --focus")
	case zoomed:
		e.view.Crop = image.Rectangle(e.zoom)
		e.view.Size = e.view.Crop.Size()
	}
	return nil
}

// choose is what a picture of a scene shows, and its size.
func (e *eyes) choose(s driver.Scene) (image.Rectangle, image.Point, error) {
	view := e.view
	if e.focus == focusWindow {
		if view.Crop = s.Window.Visible; view.Crop.Empty() {
			return image.Rectangle{}, image.Point{}, errors.New("no window is active")
		}
	}
	m, err := view.Mapping(s.Screen)
	if err != nil {
		return image.Rectangle{}, image.Point{}, usageError{err}
	}
	return m.Crop(), m.Size(), nil
}

// focusFlag is screen or window.
type focusFlag string

const (
	focusScreen focusFlag = "screen"
	focusWindow focusFlag = "window"
)

func (f *focusFlag) String() string {
	if *f == "" {
		return string(focusScreen)
	}
	return string(*f)
}

func (f *focusFlag) Type() string { return "WHAT" }

func (f *focusFlag) Set(s string) error {
	switch v := focusFlag(s); v {
	case focusScreen, focusWindow:
		*f = v
		return nil
	}
	return errors.New("want screen or window")
}

// masksFlag is X,Y,W,H or a part of a window's class or title, once or more.
type masksFlag []x11.Mask

func (f *masksFlag) String() string { return strings.Join(f.GetSlice(), " ") }

// GetSlice, Append and Replace make it a pflag.SliceValue.
func (f *masksFlag) GetSlice() []string {
	var words []string
	for _, m := range *f {
		if words = append(words, m.Window); m.Window == "" {
			area := cropFlag(m.Area)
			words[len(words)-1] = area.String()
		}
	}
	return words
}

func (f *masksFlag) Append(s string) error { return f.Set(s) }

func (f *masksFlag) Replace(list []string) error {
	*f = nil
	for _, s := range list {
		if err := f.Set(s); err != nil {
			return err
		}
	}
	return nil
}

func (f *masksFlag) Type() string { return "X,Y,W,H|TEXT" }

func (f *masksFlag) Set(s string) error {
	var area cropFlag
	if _, err := numbers(s, ",", 4); err != nil {
		if strings.TrimSpace(s) == "" {
			return errors.New("want X,Y,W,H in pixels of the screen, or a part of a window's class or title")
		}
		*f = append(*f, x11.Mask{Window: s})
		return nil
	}
	if err := area.Set(s); err != nil {
		return err
	}
	*f = append(*f, x11.Mask{Area: image.Rectangle(area)})
	return nil
}

// settleFlag is three durations with commas between them.
type settleFlag struct{ grace, quiet, deadline time.Duration }

func (f *settleFlag) String() string {
	if *f == (settleFlag{}) {
		return "200ms,80ms,3s"
	}
	return fmt.Sprintf("%v,%v,%v", f.grace, f.quiet, f.deadline)
}

func (f *settleFlag) Type() string { return "TIMES" }

func (f *settleFlag) Set(s string) error {
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return errors.New("want three times, such as 200ms,80ms,3s")
	}
	for i, to := range []*time.Duration{&f.grace, &f.quiet, &f.deadline} {
		t, err := time.ParseDuration(parts[i])
		if err != nil || t <= 0 {
			return fmt.Errorf("%q: want a time of more than 0, such as 200ms", parts[i])
		}
		*to = t
	}
	return nil
}

// limitsFlag is the name of limits.
type limitsFlag toolset.Limits

var limits = map[string]toolset.Limits{
	"whole": toolset.LimitsWhole, "original": toolset.LimitsOriginal, "high": toolset.LimitsHigh, "small": toolset.LimitsSmall, "tiles": toolset.LimitsTiles,
}

func (f *limitsFlag) String() string {
	for name, l := range limits {
		if l == toolset.Limits(*f) {
			return name
		}
	}
	return "high"
}

func (f *limitsFlag) Type() string { return "WHICH" }

func (f *limitsFlag) Set(s string) error {
	l, ok := limits[s]
	if !ok {
		return errors.New("want whole, original, high, small or tiles")
	}
	*f = limitsFlag(l)
	return nil
}

// isJPEG reports whether a picture is to be JPEG by the name of its file.
func isJPEG(file string) bool {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".jpg", ".jpeg":
		return true
	}
	return false
}
