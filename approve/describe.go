package approve

import (
	"encoding/json"
	"fmt"
	"image"
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/deskagent/deskagent/driver"
)

// Describe says what r asks for, in words that go on after "the model wants to": one line, and indented ones below
// it where the text to be typed, or the arguments of a tool, are long or there are safety checks to show. Points and distances are in pixels of
// the screen, and of the picture where r.Shown is given.
//
// The lines hold no control character and nothing invisible. Text from outside is in Go string literals, shown
// whole; where it takes several lines, it is the literals put together. Letters of all scripts are shown as they
// are, so the lines are meant for a UTF-8 terminal.
func Describe(r Request) []string {
	if len(r.Checks) > 0 {
		return describeChecks(r)
	}
	if r.Tool != nil {
		return withText(fmt.Sprintf("call the tool %s of the MCP server %s with:", strconv.QuoteToASCII(r.Tool.Name),
			strconv.QuoteToASCII(r.Tool.Server)), r.Tool.Arguments)
	}
	return describeAction(r.Action, r.Shown)
}

// describeAction describes one action in the spaces in which it is known.
func describeAction(screen, picture driver.Action) []string {
	a := screen
	if a == nil {
		a = picture
	}
	var what string
	switch a := a.(type) {
	case nil:
		what = "do nothing"
	case driver.Click:
		what = fmt.Sprintf("click the %v button", a.Button)
	case driver.DoubleClick:
		what = "double-click the left button"
	case driver.Drag:
		what = "drag with the left button"
	case driver.Keypress:
		what = "press " + chord(a.Keys)
	case driver.Move:
		what = "move the pointer"
	case driver.Screenshot:
		what = "take a screenshot"
	case driver.Scroll:
		what = "scroll"
	case driver.Type:
		return withText("type "+count(utf8.RuneCountInString(a.Text), "character")+":", a.Text)
	case driver.Wait:
		what = "wait for the desktop"
	}
	var places []string
	if at := where(screen); at != "" {
		places = append(places, " "+at+" on the screen")
	}
	if at := where(picture); at != "" {
		places = append(places, " "+at+" in the picture")
	}
	what += strings.Join(places, ",")
	if keys := driver.HeldKeys(a); len(keys) > 0 {
		what += ", holding " + chord(keys)
	}
	return []string{what}
}

// where gives the points and distances of a, nothing for an action that has none.
func where(a driver.Action) string {
	switch a := a.(type) {
	case driver.Click, driver.DoubleClick:
		return "at " + driver.Points(a)[0].String()
	case driver.Drag:
		if len(a.Path) == 0 {
			return "along a path without points"
		}
		return fmt.Sprintf("from %v to %v along %s", a.Path[0], a.Path[len(a.Path)-1], count(len(a.Path), "point"))
	case driver.Move:
		return "to " + image.Pt(a.X, a.Y).String()
	case driver.Scroll:
		return fmt.Sprintf("%s at (%d,%d)", distance(a.ScrollX, a.ScrollY), a.X, a.Y)
	}
	return ""
}

func distance(x, y int) string {
	var parts []string
	for _, d := range []struct {
		by            int
		forward, back string
	}{{y, "down", "up"}, {x, "right", "left"}} {
		switch {
		case d.by > 0:
			parts = append(parts, fmt.Sprintf("%s by %d px", d.forward, d.by))
		case d.by < 0:
			parts = append(parts, fmt.Sprintf("%s by %d px", d.back, -d.by))
		}
	}
	if parts == nil {
		return "by 0 px"
	}
	return strings.Join(parts, " and ")
}

func describeChecks(r Request) []string {
	lines := []string{fmt.Sprintf("go on in spite of %s:", count(len(r.Checks), "pending safety check"))}
	for _, c := range r.Checks {
		head := "check " + strconv.QuoteToASCII(c.ID)
		if c.Code == "" {
			head += ", no code"
		} else {
			head += ", code " + strconv.QuoteToASCII(c.Code)
		}
		if c.Message == "" {
			lines = append(lines, indent(head+", no message")...)
		} else {
			lines = append(lines, indent(withText(head+":", c.Message)...)...)
		}
	}
	return append(lines, indent(describeCall(r.Call)...)...)
}

// describeCall lists the actions of a call, because a warning means little without what it is about. The actions
// are in the space of the picture: they have not been mapped yet. Field names are compared in their case, as the
// toolset does, and what cannot be read is shown as it is.
func describeCall(call json.RawMessage) []string {
	if len(call) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(call, &fields); err != nil {
		return withText("the call:", string(call))
	}
	var actions []json.RawMessage
	if action, ok := fields["action"]; ok {
		actions = append(actions, action)
	} else if err := json.Unmarshal(fields["actions"], &actions); err != nil {
		return withText("the call:", string(call))
	}
	lines := []string{"the call is to:"}
	for _, raw := range actions {
		action, err := driver.DecodeAction(raw)
		if err != nil {
			lines = append(lines, indent(withText("do what cannot be read:", string(raw))...)...)
			continue
		}
		lines = append(lines, indent(describeAction(nil, action)...)...)
	}
	return lines
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// chord shows key names; all but the plain ones are quoted, so that the plus key is not taken for the sign between
// two keys.
func chord(names []string) string {
	if len(names) == 0 {
		return "no keys"
	}
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = name
		if name == "" || strings.ContainsFunc(name, notPlain) {
			shown[i] = strconv.QuoteToASCII(name)
		}
	}
	return strings.Join(shown, "+")
}

func notPlain(r rune) bool {
	return r > unicode.MaxASCII || r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

func indent(lines ...string) []string {
	for i, line := range lines {
		lines[i] = "  " + line
	}
	return lines
}

// textWidth is the width of a piece of text in columns: with head, quotes and indents it fits 80.
const textWidth = 72

// withText puts text after head: on the same line if it fits, otherwise on indented lines below.
func withText(head, text string) []string {
	pieces := quote(text)
	if len(pieces) == 1 && len(head)+len(" ")+utf8.RuneCountInString(pieces[0]) <= textWidth {
		return []string{head + " " + pieces[0]}
	}
	return append([]string{head}, indent(pieces...)...)
}

// quote returns text as Go string literals that together are the text. A piece ends after a newline, and where
// the next character would make it wider than textWidth.
func quote(text string) []string {
	var pieces []string
	var piece strings.Builder
	width, newline := 0, false
	for c := range visible(text) {
		first, _ := utf8.DecodeRuneInString(c)
		w := columns(c)
		// A mark stays with its letter: at the start of a piece it would sit on our quote.
		if newline || width+w > textWidth && !unicode.IsMark(first) {
			pieces = append(pieces, `"`+piece.String()+`"`)
			piece.Reset()
			width = 0
		}
		piece.WriteString(c)
		width += w
		newline = c == `\n`
	}
	return append(pieces, `"`+piece.String()+`"`)
}

// columns is how wide c is on a terminal, at most: everything but ASCII counts as double width.
func columns(c string) int {
	if c[0] < utf8.RuneSelf {
		return len(c)
	}
	return 2
}

// visible yields the characters of text in the notation of Go string literals. On top of what [strconv.Quote]
// escapes (control characters, bidi controls, all blanks but the space, invalid UTF-8) it escapes what has no shape
// of its own, and marks that do not sit on a letter or are more than two: they could be drawn over other text.
func visible(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		marks := 0 // that may still follow
		for len(text) > 0 {
			r, size := utf8.DecodeRuneInString(text)
			c := strconv.Quote(text[:size])
			switch {
			case shapeless(r), unicode.IsMark(r) && (marks == 0 || unicode.Is(unicode.Me, r)):
				c = strconv.QuoteToASCII(text[:size])
				marks = 0
			case unicode.IsMark(r):
				marks--
			case unicode.IsLetter(r):
				marks = 2
			default:
				marks = 0
			}
			if !yield(c[1 : len(c)-1]) {
				return
			}
			text = text[size:]
		}
	}
}

// shapeless reports characters that count as printable and show nothing: fillers, variation selectors, the blank
// Braille pattern.
func shapeless(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800'
}
