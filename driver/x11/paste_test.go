package x11_test

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
)

// A copier is another program that copies to the clipboard of a display, and pastes from it.
type copier struct {
	path    string
	display string
}

func newCopier(t *testing.T, display string) copier {
	t.Helper()
	path, err := exec.LookPath("xclip")
	if err != nil {
		t.Skip("needs xclip")
	}
	return copier{path, display}
}

// copy puts a text on a selection. The program stays until another one takes the selection, or the display ends.
func (c copier) copy(t *testing.T, selection, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.path, "-display", c.display, "-selection", selection, "-i")
	cmd.Stdin = strings.NewReader(text)
	if err := cmd.Run(); err != nil {
		t.Fatalf("copying with xclip: %v", err)
	}
}

// paste returns what is on a selection, in a target, and why nothing is.
func (c copier) paste(t *testing.T, selection, target string) (text, fault string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, "-display", c.display, "-selection", selection, "-t", target, "-o")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && stderr.Len() == 0 {
		t.Fatalf("pasting with xclip: %v", err)
	}
	return string(out), stderr.String()
}

// holds checks what is on a selection.
func (c copier) holds(t *testing.T, selection, want string) {
	t.Helper()
	if got, fault := c.paste(t, selection, "UTF8_STRING"); got != want {
		t.Errorf("%s: got %s %s", selection, apptest.Difference(got, want), fault)
	}
}

const copied = "copied before: äöü 中文 🎉\n"

// pastedText has what keys would make something else of.
const pastedText = "plain, ÄÖ «β» Привет 中文 👩‍👩‍👧 e\u0301\u00a0|"

// TestPaste pastes into real applications, on a layout that has none of the text. What other programs had copied is
// there again afterwards.
func TestPaste(t *testing.T) {
	long(t)
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		for _, test := range []struct {
			kind apptest.Kind
			keys []string
		}{
			{apptest.GTKEntry, nil}, {apptest.GTKArea, nil}, {apptest.TkEntry, nil}, {apptest.TkArea, nil}, {apptest.Chromium, nil},
			{apptest.XTerm, []string{"CTRL", "SHIFT", "V"}},
		} {
			t.Run(string(test.kind), func(t *testing.T) {
				desktop := apptest.NewDesktop(t)
				copier := newCopier(t, desktop.Display())
				setResources(t, desktop.Display(), "XTerm*VT100.translations: #override Ctrl Shift <Key>V: insert-selection(CLIPBOARD)\n")
				field := desktop.Open(t, test.kind)
				desktop.SetKeyboard(t, apptest.Keyboard{Layout: "us,ru", Group: 1})
				copier.copy(t, "clipboard", copied)
				copier.copy(t, "primary", "selected")
				d := open(t, x11.Options{Display: desktop.Display(), Sink: sink, Paste: true, PasteKeys: test.keys})
				text := pastedText
				if !test.kind.OneLine() && test.kind != apptest.XTerm { // A terminal sends Return for a newline.
					text += manyLines
				}
				keymap := desktop.Keymap(t)
				for range 2 {
					start := time.Now()
					if err := d.Type(t.Context(), driver.Type{Text: text}); err != nil {
						t.Fatal(err)
					}
					t.Logf("took %v", time.Since(start))
					if difference := apptest.Difference(field.Take(t, text), text); difference != "" {
						t.Error(difference)
					}
					copier.holds(t, "clipboard", copied)
				}
				copier.holds(t, "primary", "selected")
				if desktop.Keymap(t) != keymap {
					t.Error("the keyboard is not as it was")
				}
			})
		}
	})
}

// setResources sets the X resources of programs that are to start.
func setResources(t *testing.T, display, resources string) {
	t.Helper()
	x, err := xgb.NewConnDisplay(display)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	err = xproto.ChangePropertyChecked(x, xproto.PropModeReplace, xproto.Setup(x).DefaultScreen(x).Root, xproto.AtomResourceManager,
		xproto.AtomString, 8, uint32(len(resources)), []byte(resources)).Check()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPasteLarge pastes a megabyte while another one is on the clipboard.
func TestPasteLarge(t *testing.T) {
	long(t)
	const million = 1 << 20
	for _, kind := range []apptest.Kind{apptest.GTKArea, apptest.TkArea, apptest.Chromium} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRoom(t, kind, x11.SinkXTEST)
			d := open(t, x11.Options{Display: r.desktop.Display(), Sink: x11.SinkXTEST, Paste: true})
			copier := newCopier(t, r.desktop.Display())
			before := strings.Repeat("copied 中文\n", million/14)
			copier.copy(t, "clipboard", before)
			text := strings.Repeat("a line of some text, Привет\n", million/34)
			start := time.Now()
			if err := d.Type(t.Context(), driver.Type{Text: text}); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes took %v", len(text), time.Since(start))
			if difference := apptest.Difference(r.field.Take(t, text), text); difference != "" {
				t.Error(difference)
			}
			copier.holds(t, "clipboard", before)
		})
	}
}

// TestPasteEmpty pastes while nothing is on the clipboard, which is so again afterwards.
func TestPasteEmpty(t *testing.T) {
	r := newRoom(t, apptest.GTKEntry, x11.SinkXTEST)
	d := open(t, x11.Options{Display: r.desktop.Display(), Sink: x11.SinkXTEST, Paste: true})
	copier := newCopier(t, r.desktop.Display())
	if err := d.Type(t.Context(), driver.Type{Text: pastedText}); err != nil {
		t.Fatal(err)
	}
	if difference := apptest.Difference(r.field.Take(t, pastedText), pastedText); difference != "" {
		t.Error(difference)
	}
	if got, fault := copier.paste(t, "clipboard", "UTF8_STRING"); got != "" || fault == "" {
		t.Errorf("got %q, %q, want an empty clipboard", got, fault)
	}
}
