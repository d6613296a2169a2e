package approve_test

import (
	"fmt"
	"image"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
)

func ExampleDescribe() {
	for _, r := range []approve.Request{
		{
			Action: driver.Click{X: 960, Y: 540, Button: driver.ButtonLeft, Keys: []string{"CTRL"}},
			Shown:  driver.Click{X: 640, Y: 360, Button: driver.ButtonLeft, Keys: []string{"CTRL"}},
		},
		{Action: driver.Type{Text: "cd /tmp\nls\x1b[2J"}},
		{
			Checks: []approve.SafetyCheck{{ID: "sc_1", Code: "malicious_instructions", Message: "The page asks for a password."}},
			Call:   []byte(`{"actions":[{"type":"move","x":5,"y":6}]}`),
		},
	} {
		fmt.Println(strings.Join(approve.Describe(r), "\n"))
	}
	// Output:
	// click the left button at (960,540) on the screen, at (640,360) in the picture, holding CTRL
	// type 14 characters:
	//   "cd /tmp\n"
	//   "ls\x1b[2J"
	// go on in spite of 1 pending safety check:
	//   check "sc_1", code "malicious_instructions":
	//     "The page asks for a password."
	//   the call is to:
	//     move the pointer to (5,6) in the picture
}

func TestDescribe(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    approve.Request
		want []string
	}{
		{name: "nothing", want: []string{"do nothing"}},
		{name: "click in one space", r: approve.Request{Action: driver.Click{X: 0, Y: 500, Button: driver.ButtonForward}},
			want: []string{"click the forward button at (0,500) on the screen"}},
		{name: "click with no button", r: approve.Request{Action: driver.Click{}},
			want: []string{"click the Button(0) button at (0,0) on the screen"}},
		{name: "double click", r: approve.Request{Action: driver.DoubleClick{X: 2, Y: 4, Keys: []string{"Shift", "+", "a b", "é", ""}}, Shown: driver.DoubleClick{X: 1, Y: 2}},
			want: []string{`double-click the left button at (2,4) on the screen, at (1,2) in the picture, holding Shift+"+"+"a b"+"\u00e9"+""`}},
		{name: "drag", r: approve.Request{Action: driver.Drag{Path: []image.Point{{X: 2, Y: 4}, {X: 9, Y: 9}, {X: 6, Y: 8}}}, Shown: driver.Drag{Path: []image.Point{{X: 1, Y: 2}, {X: 4, Y: 4}, {X: 3, Y: 4}}}},
			want: []string{"drag with the left button from (2,4) to (6,8) along 3 points on the screen, from (1,2) to (3,4) along 3 points in the picture"}},
		{name: "drag to nowhere", r: approve.Request{Action: driver.Drag{}},
			want: []string{"drag with the left button along a path without points on the screen"}},
		{name: "chord", r: approve.Request{Action: driver.Keypress{Keys: []string{"CTRL", "PAGE_UP"}}}, want: []string{"press CTRL+PAGE_UP"}},
		{name: "no chord", r: approve.Request{Action: driver.Keypress{}}, want: []string{"press no keys"}},
		{name: "move", r: approve.Request{Action: driver.Move{X: -1, Y: 7, Keys: []string{"ALT"}}}, want: []string{"move the pointer to (-1,7) on the screen, holding ALT"}},
		{name: "scroll", r: approve.Request{Action: driver.Scroll{X: 3, Y: 3, ScrollX: -30, ScrollY: 450}, Shown: driver.Scroll{X: 2, Y: 2, ScrollX: -20, ScrollY: 300}},
			want: []string{"scroll down by 450 px and left by 30 px at (3,3) on the screen, down by 300 px and left by 20 px at (2,2) in the picture"}},
		{name: "scroll back", r: approve.Request{Action: driver.Scroll{ScrollX: 1, ScrollY: -2}}, want: []string{"scroll up by 2 px and right by 1 px at (0,0) on the screen"}},
		{name: "scroll nowhere", r: approve.Request{Action: driver.Scroll{}}, want: []string{"scroll by 0 px at (0,0) on the screen"}},
		{name: "wait", r: approve.Request{Action: driver.Wait{}}, want: []string{"wait for the desktop"}},
		{name: "screenshot", r: approve.Request{Action: driver.Screenshot{}}, want: []string{"take a screenshot"}},
		{name: "no text", r: approve.Request{Action: driver.Type{}}, want: []string{`type 0 characters: ""`}},
		{name: "shell text", r: approve.Request{Action: driver.Type{Text: "it's $HOME `id`; rm -rf x"}}, want: []string{"type 25 characters: \"it's $HOME `id`; rm -rf x\""}},
		{name: "controls", r: approve.Request{Action: driver.Type{Text: "\x1b[2J\x9b\r\t\x00\x7f\u0085\u009b"}}, want: []string{`type 11 characters: "\x1b[2J\x9b\r\t\x00\x7f\u0085\u009b"`}},
		{name: "bidi controls", r: approve.Request{Action: driver.Type{Text: "a\u202eb\u2066c\u200fd\u061c"}}, want: []string{`type 8 characters: "a\u202eb\u2066c\u200fd\u061c"`}},
		{name: "invisible", r: approve.Request{Action: driver.Type{Text: "a\u200b\u200d\u2060\ufeff\u00ad\u00a0\u3000\u2028"}},
			want: []string{`type 9 characters: "a\u200b\u200d\u2060\ufeff\u00ad\u00a0\u3000\u2028"`}},
		{name: "shapeless", r: approve.Request{Action: driver.Type{Text: "a\u3164\u115f\u034f\ufe0f\u2800\U000e0041\U000e0100\ue000"}},
			want: []string{"type 9 characters:", `  "a\u3164\u115f\u034f\ufe0f\u2800\U000e0041\U000e0100\ue000"`}},
		{name: "marks", r: approve.Request{Action: driver.Type{Text: "\u0301e\u0301 \u0301o\u0302\u0301\u0327\u0327x\u20dd"}},
			want: []string{`type 12 characters: "\u0301` + "e\u0301" + ` \u0301` + "o\u0302\u0301" + `\u0327\u0327x\u20dd"`}},
		{name: "other scripts", r: approve.Request{Action: driver.Type{Text: "Привет 世界 🎉 नमस्ते"}}, want: []string{`type 18 characters: "Привет 世界 🎉 नमस्ते"`}},
		{name: "tool", r: tool, want: []string{`call the tool "send" of the MCP server "mail" with: "{\"to\":\"me\"}"`}},
		{name: "tool with controls", r: approve.Request{Tool: &approve.ToolCall{Server: "a\x1bb", Name: "é\u202e"}},
			want: []string{`call the tool "\u00e9\u202e" of the MCP server "a\x1bb" with: ""`}},
		{name: "lines", r: approve.Request{Action: driver.Type{Text: "a\n\nb\n"}}, want: []string{"type 5 characters:", `  "a\n"`, `  "\n"`, `  "b\n"`}},
		{name: "long", r: approve.Request{Action: driver.Type{Text: strings.Repeat("x", 145)}},
			want: []string{"type 145 characters:", `  "` + strings.Repeat("x", 72) + `"`, `  "` + strings.Repeat("x", 72) + `"`, `  "x"`}},
		{name: "long and wide", r: approve.Request{Action: driver.Type{Text: strings.Repeat("世", 37)}},
			want: []string{"type 37 characters:", `  "` + strings.Repeat("世", 36) + `"`, `  "世"`}},
		{name: "checks", r: approve.Request{
			Checks: []approve.SafetyCheck{{ID: "sc\x1b1", Message: "Go?"}, {ID: "sc_2", Code: "c\n2"}},
			Call:   []byte(`{"action":{"type":"click","x":1,"y":2,"button":"side"},"Action":{"type":"wait"},"actions":[]}`),
		}, want: []string{
			"go on in spite of 2 pending safety checks:",
			`  check "sc\x1b1", no code: "Go?"`,
			`  check "sc_2", code "c\n2", no message`,
			"  the call is to:",
			"    do what cannot be read:",
			`      "{\"type\":\"click\",\"x\":1,\"y\":2,\"button\":\"side\"}"`,
		}},
		{name: "checks of a call that is none", r: approve.Request{Checks: []approve.SafetyCheck{{ID: "1"}}, Call: []byte("\x1b")},
			want: []string{"go on in spite of 1 pending safety check:", `  check "1", no code, no message`, `  the call: "\x1b"`}},
		{name: "checks of a call without actions", r: approve.Request{Checks: []approve.SafetyCheck{{ID: "1"}}, Call: []byte("{}")},
			want: []string{"go on in spite of 1 pending safety check:", `  check "1", no code, no message`, `  the call: "{}"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := approve.Describe(tt.r); !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// FuzzDescribe checks, for text in every place where it can come in, that the lines show nothing but what can be
// seen, and that the literals of a text to be typed put together are that text.
func FuzzDescribe(f *testing.F) {
	for _, s := range []string{"", "y\n", "\x1b]0;title\a\x1b[6n", "a\u202eb", "\xff\xfe\u0301\u0301", strings.Repeat("é\u0301世\n", 50), `\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		typing := approve.Describe(approve.Request{Action: driver.Type{Text: s}})
		for _, line := range slices.Concat(typing,
			approve.Describe(approve.Request{Action: driver.Keypress{Keys: []string{s}}}),
			approve.Describe(approve.Request{Action: driver.Move{Keys: []string{s, s}}}),
			approve.Describe(approve.Request{Checks: []approve.SafetyCheck{{ID: s, Code: s, Message: s}}, CallID: s, Call: []byte(s)}),
			approve.Describe(approve.Request{Tool: &approve.ToolCall{Server: s, Name: s, Arguments: s}}),
			approve.Describe(approve.Request{Checks: []approve.SafetyCheck{{}}, Call: []byte(`{"actions":[` + strconv.Quote(s) + `,` + s + `]}`)}),
		) {
			if !utf8.ValidString(line) {
				t.Errorf("%q: got %q, not UTF-8", s, line)
			}
			for _, r := range line {
				if r != ' ' && !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) ||
					unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Bidi_Control) {
					t.Errorf("%q: got %U in %q", s, r, line)
				}
			}
		}
		_, text, _ := strings.Cut(strings.Join(typing, "\n"), ":")
		var typed strings.Builder
		for _, literal := range strings.Split(text, "\n") {
			literal = strings.TrimSpace(literal)
			if literal == "" {
				continue // below a head that stands alone
			}
			piece, err := strconv.Unquote(literal)
			if err != nil {
				t.Errorf("%q: got %q, not a literal: %v", s, literal, err)
			}
			typed.WriteString(piece)
		}
		if got := typed.String(); got != s {
			t.Errorf("got %q, want %q", got, s)
		}
	})
}
