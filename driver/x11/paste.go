package x11

import (
	"cmp"
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/deskagent/deskagent/driver"
)

// paste puts a text into the window that has the focus by way of the clipboard, and then puts back what was there.
func (k *desk) paste(ctx context.Context, text string) (err error) {
	if err := pastable(text); err != nil || text == "" {
		return err
	}
	p, err := k.check(ctx, k.opts.PasteKeys, nil)
	if err != nil {
		return err
	}
	window, err := k.keymap.focus.Window()
	if err != nil {
		return err
	}
	reader, err := k.keymap.focus.Reader(window)
	if err != nil {
		return err
	}
	if err := k.begin(&p.seen); err != nil {
		return err
	}
	if k.opts.DryRun != nil {
		fmt.Fprintf(k.opts.DryRun, "clipboard holds %d characters\n", utf8.RuneCountInString(text))
		return k.hands.press(p.keys...)
	}
	lost, err := k.clipboard.Lend(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, k.clipboard.Return()) }()
	if len(lost) > 0 {
		k.opts.Logger.Warn("not all of the clipboard can be put back", "lost", lost)
	}
	if err := k.hands.press(p.keys...); err != nil {
		return err
	}
	if err := k.hands.pause(ctx, k.opts.Hold); err != nil {
		return err
	}
	if err := k.hands.releaseAll(); err != nil {
		return err
	}
	// A program that has come to the chord by now is not taken for one that looked at the clipboard before it.
	bounded, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("there was no answer for %v", patience))
	defer cancel()
	if _, err := k.keymap.focus.Caught(bounded, window); err != nil {
		return err
	}
	return k.clipboard.Fetched(ctx, reader)
}

// pastable makes sure that programs can take a text as it is. The error names the first character that they cannot, and
// its index, counted in characters from 0.
func pastable(text string) error {
	index := 0
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return fmt.Errorf("byte %#x, which is not UTF-8, at index %d: %w as text", text[i], index, driver.ErrUnsupported)
		case r == 0:
			return fmt.Errorf("character %q at index %d: %w as text", r, index, driver.ErrUnsupported)
		}
		index++
	}
	return nil
}
