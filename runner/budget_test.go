package runner_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/runner"
)

// pair is a call with its output.
func pair(callID, name, output string) string {
	return fcOf(callID, name, "{}") + `,{"type":"function_call_output","call_id":"` + callID + `","output":` + output + `}`
}

// shot is a computer call with its screenshot.
func shot(callID, acknowledged string) string {
	return cc(callID, screenshotAction) + `,{"type":"computer_call_output","call_id":"` + callID +
		`","output":{"type":"computer_screenshot","image_url":"data:x"}` + acknowledged + `}`
}

func pictured(callID string) string {
	return pair(callID, "browser_screenshot", `[{"type":"input_text","text":"{}"},{"type":"input_image","image_url":"data:x"}]`)
}

// history is three computer calls, two browser calls, two functions.
var history = strings.Join([]string{shot("k1", ""), pair("a", "f", `"ok"`), shot("k2", ""), pair("p1", "browser_read_page", "[]"),
	pair("b", "g", `"ok"`), pictured("p2"), shot("k3", "")}, ",")

// withBrowser makes a run with everything, and an input of history items.
func (b *bench) withBrowser(input string, budget runner.ContextBudget, opts runner.Options) error {
	b.Helper()
	opts.ContextBudget, opts.Computer = &budget, allowed
	_, err := b.runner(runner.Registration{Computer: b.computer(), Browser: b.browser("", "read_page", "screenshot")}).Run(b.Context(), b.client(),
		request(`{"model":"m","input":[{"role":"user","content":"Go."},`+input+`]}`), opts)
	return err
}

func TestR33Bounds(t *testing.T) {
	b := newBench(t)
	for name, test := range map[string]struct {
		budget runner.ContextBudget
		params string
	}{
		"no bytes":           {runner.ContextBudget{MaxInputImages: 1}, ""},
		"negative images":    {runner.ContextBudget{MaxInputBytes: 1, MaxInputImages: -1}, ""},
		"negative keep":      {runner.ContextBudget{MaxInputBytes: 1, KeepRecentScreenshots: -1}, ""},
		"truncation":         {runner.ContextBudget{MaxInputBytes: 1000}, `,"truncation":"auto"`},
		"context management": {runner.ContextBudget{MaxInputBytes: 1000}, `,"context_management":[{"type":"compaction"}]`},
		"unpaired":           {runner.ContextBudget{MaxInputBytes: 1000}, `,"input":[` + fc("a") + `]`},
		"unregistered":       {runner.ContextBudget{MaxInputBytes: 1000}, `,"input":[` + pair("a", "h", `""`) + `]`},
		"another output":     {runner.ContextBudget{MaxInputBytes: 1000}, `,"input":[` + fc("a") + `,{"type":"computer_call_output","call_id":"a","output":{}}]`},
		"a trigger first":    {runner.ContextBudget{MaxInputBytes: 1000}, `,"input":[{"type":"compaction_trigger"},{"role":"user","content":"Go."}]`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.run(`{"model":"m"`+test.params+`}`, runner.Options{ContextBudget: &test.budget})
			wantConfig(t, err)
		})
	}
	wantLines(t, "trace", b.trace)

	// Bytes are those of compact JSON in UTF-8, whatever escapes and blanks were used to write it.
	input := `[ {"role" : "user","content":"a\/\u003c\u00e9\ud83d\ude00\ud800\u0001\u000a\"\\\u2028"} ]`
	size := len(`[{"role":"user","content":"a/<é😀\ud800\u0001\n\"\\` + "\u2028" + `"}]`)
	for bound, ok := range map[int]bool{size: true, size - 1: false} {
		b := newBench(t, answers(said("m")))
		_, err := b.run(`{"model":"m","input":`+input+`}`, runner.Options{ContextBudget: &runner.ContextBudget{MaxInputBytes: bound}})
		if ok {
			wantOK(t, err)
			if b.bodies[0]["truncation"] != "disabled" {
				t.Errorf("got truncation %v, want disabled", b.bodies[0]["truncation"])
			}
		} else {
			wantReason(t, err, runner.ReasonBudget, nil, nil)
			wantLines(t, "trace", b.trace)
		}
	}
	for bound, ok := range map[int]bool{4: true, 3: false} {
		b := newBench(t, answers(said("m")))
		err := b.withBrowser(history, runner.ContextBudget{MaxInputBytes: 10000, MaxInputImages: bound}, runner.Options{})
		if got := err == nil; got != ok {
			t.Errorf("4 images where %d are allowed: got %v, want %t", bound, err, ok)
		}
	}

	b = newBench(t, answers(fc("a")), answers(said("m")))
	_, err := b.run(`{"model":"m","input":[{"role":"user","content":"Go."},{"type":"compaction_trigger"}]}`,
		runner.Options{ContextBudget: &runner.ContextBudget{MaxInputBytes: 1000}})
	wantOK(t, err)
	wantLines(t, "first input", b.input(1), "user Go.", "compaction_trigger")
	wantLines(t, "second input", b.input(2), "user Go.", "function_call a", "function_call_output a f done")
}

func TestR34WhatStays(t *testing.T) {
	acknowledged := `,"acknowledged_safety_checks":[{"id":"s"}]`
	for name, test := range map[string]struct {
		input string
		keep  int
		want  []string
	}{
		"the newest":        {history, 0, []string{"k1", "a", "k2", "p1", "b"}},
		"two screenshots":   {history, 2, []string{"k1", "a", "k2", "p1", "b"}},
		"three screenshots": {history, 3, []string{"k1", "a", "p1", "b"}},
		"pending checks": {strings.Replace(shot("k0", ""), `"actions"`, `"pending_safety_checks":[{"id":"s"}],"actions"`, 1) + "," + history, 0,
			[]string{"k1", "a", "k2", "p1", "b"}},
		"acknowledged checks":           {shot("k0", acknowledged) + "," + history, 0, []string{"k1", "a", "k2", "p1", "b"}},
		"the newest browser call":       {pictured("p0") + "," + pair("p1", "browser_read_page", "[]"), 0, []string{}},
		"a browser call without images": {pair("p0", "browser_screenshot", "[]") + "," + pictured("p1"), 0, []string{"p0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got runner.Snapshot
			b := newBench(t)
			_ = b.withBrowser(test.input, runner.ContextBudget{MaxInputBytes: 1, KeepRecentScreenshots: test.keep,
				Compact: func(_ context.Context, s runner.Snapshot) (runner.Compaction, error) {
					got = s
					return runner.Compaction{}, nil
				}}, runner.Options{})
			wantLines(t, "eligible", got.Eligible, test.want...)
		})
	}
}

func TestR35Compaction(t *testing.T) {
	b := newBench(t, answers(fc("c")), answers(said("m")))
	asked := 0
	var records []runner.Checkpoint
	err := b.withBrowser(history, runner.ContextBudget{MaxInputBytes: 100000, MaxInputImages: 3,
		Compact: func(_ context.Context, s runner.Snapshot) (runner.Compaction, error) {
			if asked++; s.Images != 4 || s.MaxImages != 3 || s.MaxBytes != 100000 {
				t.Errorf("got %d images of %d, at most %d bytes, want 4 of 3, 100000", s.Images, s.MaxImages, s.MaxBytes)
			}
			for i := range s.History {
				scribble(s.History[i])
			}
			return runner.Compaction{Drop: []string{"k1", "a"}, Summary: "What was."}, nil
		}}, runner.Options{Ledger: ledger(&records)})
	wantOK(t, err)
	if asked != 2 {
		t.Errorf("asked %d times, want once for each request: it starts from the full history again", asked)
	}
	got := b.input(1)
	for i, part := range []string{"What was.", "Go.", `computer_call "k1"`, `function_call "a" of function "f"`} {
		if !contains(got[i], part) || !contains(got[i], "user ") {
			t.Errorf("got %q as item %d, want a message of the user with %q", got[i], i, part)
		}
	}
	wantLines(t, "the rest", got[4:6], "computer_call k2", "computer_call_output k2")
	if n := len(records[len(records)-1].History); n != 15+2 {
		t.Errorf("got %d items in the record, want all 17", n)
	}

	drop := func(c runner.Compaction, err error) func(context.Context, runner.Snapshot) (runner.Compaction, error) {
		return func(context.Context, runner.Snapshot) (runner.Compaction, error) { return c, err }
	}
	for name, test := range map[string]struct {
		compact func(context.Context, runner.Snapshot) (runner.Compaction, error)
		want    runner.Reason
	}{
		"nobody to ask":  {nil, runner.ReasonBudget},
		"nothing":        {drop(runner.Compaction{}, nil), runner.ReasonBudget},
		"not eligible":   {drop(runner.Compaction{Drop: []string{"k3"}}, nil), runner.ReasonFailed},
		"unknown":        {drop(runner.Compaction{Drop: []string{"z"}}, nil), runner.ReasonFailed},
		"twice":          {drop(runner.Compaction{Drop: []string{"k1", "k1"}}, nil), runner.ReasonFailed},
		"an error":       {drop(runner.Compaction{Drop: []string{"k1"}}, errRaised), runner.ReasonFailed},
		"a long summary": {drop(runner.Compaction{Drop: []string{"k1"}, Summary: strings.Repeat("x", 100000)}, nil), runner.ReasonBudget},
		"a changed list": {func(_ context.Context, s runner.Snapshot) (runner.Compaction, error) {
			s.Eligible[0] = "k3"
			return runner.Compaction{Drop: []string{"k3"}}, nil
		}, runner.ReasonFailed},
		"a panicking one": {func(context.Context, runner.Snapshot) (runner.Compaction, error) { panic("x") }, runner.ReasonFailed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			err := b.withBrowser(history, runner.ContextBudget{MaxInputBytes: 100000, MaxInputImages: 3, Compact: test.compact}, runner.Options{})
			wantReason(t, err, test.want, nil, nil)
		})
	}
}

func TestR36CompactionOfTheAPI(t *testing.T) {
	const compacted = `{"type":"compaction","id":"c1","encrypted_content":"c2VhbGVk+/=<"}`
	b := newBench(t, answers(compacted, fc("a")), answers(said("m")))
	_, err := b.run(`{"model":"m","input":"Go.","context_management":[{"type":"compaction","compact_threshold":1000}]}`, runner.Options{})
	wantOK(t, err)
	if !contains(b.raw[1], compacted) || b.bodies[1]["context_management"] == nil {
		t.Errorf("got the request %s, want the item byte for byte, and the parameter", b.raw[1])
	}
}

// manyShots is an input of n computer calls, the first with a function call before each.
func manyShots(n int) string {
	var items []string
	for i := range n {
		items = append(items, pair(fmt.Sprint("f", i), "f", `"ok"`), shot(fmt.Sprint("k", i), ""))
	}
	return strings.Join(items, ",")
}

func TestDropOldest(t *testing.T) {
	const images = 8
	dropped := func(n int) (ids []string) {
		b := newBench(t, answers(said("m")))
		err := b.withBrowser(manyShots(n), runner.ContextBudget{MaxInputBytes: 1 << 20, MaxInputImages: images, Compact: runner.DropOldest}, runner.Options{})
		wantOK(t, err)
		for _, line := range b.input(1) {
			if strings.HasPrefix(line, "user The ") {
				ids = append(ids, strings.Split(line, `"`)[1])
			}
		}
		return ids
	}
	wantLines(t, "within", dropped(images))
	// The number of pictures left out grows in steps of two, so that the beginning of the input mostly stays.
	wantLines(t, "one too many", dropped(images+1), "k0", "k1")
	wantLines(t, "two too many", dropped(images+2), "k0", "k1")
	wantLines(t, "three too many", dropped(images+3), "k0", "k1", "k2", "k3")

	// Where pictures are not enough, other calls go too, and what must stay is never named.
	text := `"` + strings.Repeat("x", 1000) + `"`
	input := pair("a", "f", text) + "," + pair("b", "f", text) + "," + shot("k1", "") + "," + shot("k2", "")
	b := newBench(t, answers(said("m")))
	wantOK(t, b.withBrowser(input, runner.ContextBudget{MaxInputBytes: 2000, MaxInputImages: 4, Compact: runner.DropOldest}, runner.Options{}))
	got := b.input(1)
	if !contains(got[1], `"a"`) || got[2] != "function_call b" || !contains(got[4], `"k1"`) || got[5] != "computer_call k2" {
		t.Errorf("got the input %q, want k1 and a left out", got)
	}
}

// What is left out never leaves a call without its output, or the other way round, and the input fits.
func TestDropOldestKeepsPairs(t *testing.T) {
	for size := 400; size < 6000; size += 200 {
		b := newBench(t, answers(said("m")))
		err := b.withBrowser(manyShots(12), runner.ContextBudget{MaxInputBytes: size, MaxInputImages: 5, Compact: runner.DropOldest}, runner.Options{})
		if err != nil {
			continue // less than what must stay
		}
		items := b.bodies[0]["input"].([]any)
		if got := len(toJSON(t, items)); got > size {
			t.Errorf("got %d bytes, want no more than %d", got, size)
		}
		open := map[any]bool{}
		for _, v := range items {
			o := v.(map[string]any)
			switch kind, _ := o["type"].(string); {
			case strings.HasSuffix(kind, "_output"):
				if !open[o["call_id"]] {
					t.Errorf("got an output of %v without its call", o["call_id"])
				}
				delete(open, o["call_id"])
			case kind != "":
				open[o["call_id"]] = true
			}
		}
		if len(open) > 0 {
			t.Errorf("got %v without outputs", open)
		}
	}
}

// ledger records into records.
func ledger(records *[]runner.Checkpoint) *runner.Ledger {
	return &runner.Ledger{RunID: "run", Save: func(_ context.Context, c runner.Checkpoint) error {
		*records = append(*records, c)
		return nil
	}}
}
