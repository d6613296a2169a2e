package x11_test

import (
	"bytes"
	"context"
	"errors"
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
	for deadline := time.Now().Add(5 * time.Second); ; { // It goes into the background before the text is there.
		got, fault := c.paste(t, selection, "UTF8_STRING")
		if got == text {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("copying with xclip: got %d bytes, want %d: %s", len(got), len(text), fault)
		}
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
			{apptest.GTKEntry, nil}, {apptest.GTKArea, nil}, {apptest.Qt, nil}, {apptest.TkEntry, nil}, {apptest.TkArea, nil}, {apptest.Chromium, nil},
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

// TestPasteRefused checks that what no program can take is refused before the first event, and names the place.
func TestPasteRefused(t *testing.T) {
	d := newDesktop(t, x11.Options{Sink: x11.SinkXTEST, Paste: true})
	for text, want := range map[string]string{
		"é\x00": `character '\x00' at index 1`, "aé\xffb": "byte 0xff, which is not UTF-8, at index 2", "\xed\xa0\x80": "byte 0xed, which is not UTF-8, at index 0",
	} {
		err := d.Type(t.Context(), driver.Type{Text: text})
		if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if err := d.Type(t.Context(), driver.Type{}); err != nil {
		t.Errorf("pasting nothing: got %v", err)
	}
	if got := d.events(t); len(got) > 0 {
		t.Errorf("got %v, want no event", got)
	}
	d.setFocus(t, xproto.InputFocusNone)
	if err := d.Type(t.Context(), driver.Type{Text: "a"}); err == nil || !strings.Contains(err.Error(), "no window has the keyboard focus") {
		t.Errorf("got %v", err)
	}
	for _, opts := range []x11.Options{{PasteKeys: []string{"CTRL", "V"}}, {Paste: true, PasteKeys: []string{"CTRL", "NOPE"}}} {
		opts.Display = d.server.Display()
		if opened, err := x11.Open(t.Context(), &opts); err == nil {
			opened.Close()
			t.Errorf("opened with Paste %v and PasteKeys %q", opts.Paste, opts.PasteKeys)
		}
	}
}

// TestPasteUnasked pastes into a window that does not know how to: an error within its time, also when it is cancelled,
// and the clipboard and the keyboard are as they were.
func TestPasteUnasked(t *testing.T) {
	for _, test := range []struct {
		name      string
		timeout   time.Duration
		want      string
		least, to time.Duration
	}{
		{"never", time.Minute, "after 0 of 5 bytes: no program asked for it within 5s", 5 * time.Second, 6 * time.Second},
		{"cancelled", 200 * time.Millisecond, context.DeadlineExceeded.Error(), 200 * time.Millisecond, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachSink(t, func(t *testing.T, sink x11.Sink) {
				d := newDesktop(t, x11.Options{Sink: sink, Paste: true})
				copier := newCopier(t, d.server.Display())
				copier.copy(t, "clipboard", copied)
				ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
				defer cancel()
				start := time.Now()
				err := d.Type(ctx, driver.Type{Text: "Abcde"})
				if took := time.Since(start); took < test.least || took > test.to {
					t.Errorf("took %v, want %v to %v", took, test.least, test.to)
				}
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
				d.free(t)
				copier.holds(t, "clipboard", copied)
			})
		})
	}
}

// TestPasteClosed checks that what a program copies after a paste is its own, whatever becomes of the driver.
func TestPasteClosed(t *testing.T) {
	d := newDesktop(t, x11.Options{Sink: x11.SinkXTEST, Paste: true})
	copier := newCopier(t, d.server.Display())
	copier.copy(t, "clipboard", copied)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.Type(ctx, driver.Type{Text: "a"}); err == nil {
		t.Fatal("a window that does not paste was pasted into")
	}
	copier.holds(t, "clipboard", copied)
	copier.copy(t, "clipboard", "a later copy")
	copier.holds(t, "clipboard", "a later copy")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	copier.holds(t, "clipboard", "a later copy")
}
