package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A ContextBudget bounds the input of each request. It bounds neither the ledger nor tokens.
type ContextBudget struct {
	// MaxInputBytes bounds the input as compact JSON in UTF-8.
	MaxInputBytes int
	// MaxInputImages bounds the images: those of computer calls, and those in outputs of functions and in messages.
	MaxInputImages int
	// KeepRecentScreenshots is how many of the newest screenshots always stay. Zero: 1.
	KeepRecentScreenshots int
	// Compact says what to leave out of an input that is too large; nil ends the run. What was left out once is part
	// of the history all the same: the next request starts from all of it, and Compact is asked again if need be.
	// [DropOldest] is a good choice.
	Compact func(context.Context, Snapshot) (Compaction, error)
}

// A Snapshot is an input that is too large.
type Snapshot struct {
	History []json.RawMessage
	// Eligible are the ids of the calls that may be left out, in the order of the history. The newest screenshots,
	// the newest call of the browser and of the computer, and computer calls with safety checks are not among them.
	Eligible []string
	// Bytes and Images are those of the history, MaxBytes and MaxImages what the budget allows.
	Bytes, Images, MaxBytes, MaxImages int
}

// A Compaction says what to leave out.
type Compaction struct {
	// Drop are eligible ids. Each of these calls is replaced, in its place, by a message that names it and says that
	// its output is left out; the output goes.
	Drop []string
	// Summary becomes a message of the user before everything else; empty for none.
	Summary string
}

func (b *ContextBudget) check() error {
	switch {
	case b.MaxInputBytes < 1:
		return refuse("context budget: at most %d bytes, want 1 or more", b.MaxInputBytes)
	case b.MaxInputImages < 0:
		return refuse("context budget: at most %d images", b.MaxInputImages)
	case b.KeepRecentScreenshots < 0:
		return refuse("context budget: keeping %d screenshots, want 1 or more", b.KeepRecentScreenshots)
	}
	return nil
}

// admit refuses parameters that leave the size of the input to the API.
func (b *ContextBudget) admit(body map[string]json.RawMessage) error {
	if raw := body["truncation"]; raw != nil && textOf(decoded(raw)) == "auto" {
		return refuse("context budget: truncation is auto")
	}
	if managed, ok := decoded(body["context_management"]).([]any); ok && len(managed) > 0 {
		return refuse("context budget: context_management is given as well")
	}
	body["truncation"] = json.RawMessage(`"disabled"`)
	return nil
}

func decoded(raw json.RawMessage) any {
	v, _ := decode(raw)
	return v
}

// measure sums up a list of entries as one JSON array.
func measure(history []entry) (bytes, images int) {
	bytes = len("[]") + max(0, len(history)-1)
	for i := range history {
		e := &history[i]
		if e.size == 0 {
			e.size = compactSize(e.raw)
		}
		bytes += e.size
		images += e.images
	}
	return bytes, images
}

// within reports whether an input fits the budget.
func (b *ContextBudget) within(history []entry) bool {
	size, images := measure(history)
	return size <= b.MaxInputBytes && images <= b.MaxInputImages
}

// bounded returns history, or as much of it as the budget allows.
func (b *ContextBudget) bounded(ctx context.Context, history []entry, isBrowser func(entry) bool) ([]entry, error) {
	if b.within(history) {
		return history, nil
	}
	if b.Compact == nil {
		return nil, stop(ReasonBudget, "the input is larger than the context budget")
	}
	s := Snapshot{Eligible: b.eligible(history, isBrowser), MaxBytes: b.MaxInputBytes, MaxImages: b.MaxInputImages}
	s.Bytes, s.Images = measure(history)
	for _, e := range history {
		s.History = append(s.History, bytes.Clone(e.raw))
	}
	allowed := slices.Clone(s.Eligible)
	var c Compaction
	err := guard(func() (err error) { c, err = b.Compact(ctx, s); return err })
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, stop(ReasonFailed, "compacting the input")
	}
	drop := map[string]bool{}
	for _, id := range c.Drop {
		if !slices.Contains(allowed, id) || drop[id] {
			return nil, stop(ReasonFailed, "compacting the input: a call that is not eligible, or twice")
		}
		drop[id] = true
	}
	projection := project(history, drop, c.Summary)
	if !b.within(projection) {
		return nil, stop(ReasonBudget, "the input is larger than the context budget even when compacted")
	}
	return projection, nil
}

// eligible returns the calls that may be left out.
func (b *ContextBudget) eligible(history []entry, isBrowser func(entry) bool) []string {
	pictured, checked := map[string]bool{}, map[string]bool{} // by what the output holds
	for _, e := range history {
		if e.kind == outputEntry {
			pictured[e.callID], checked[e.callID] = e.images > 0, e.checks
		}
	}
	ids := []string{}
	screenshots, browser, computer := max(1, b.KeepRecentScreenshots), 1, 1
	for _, e := range slices.Backward(history) {
		if !e.hasCall() {
			continue
		}
		keep := e.checks || checked[e.callID]
		isPicture := e.kind == computerEntry
		switch {
		case e.kind == computerEntry:
			keep = keep || computer > 0
			computer--
		case isBrowser(e):
			keep = keep || browser > 0
			browser--
			isPicture = pictured[e.callID] && (e.name == "browser_screenshot" || e.name == "browser_zoom")
		}
		if isPicture {
			keep = keep || screenshots > 0
			screenshots--
		}
		if !keep {
			ids = append(ids, e.callID)
		}
	}
	slices.Reverse(ids)
	return ids
}

// project is the history without the calls to drop.
func project(history []entry, drop map[string]bool, summary string) []entry {
	var kept []entry
	if summary != "" {
		kept = append(kept, userMessage("Summary of what was left out of this conversation:\n"+summary))
	}
	for _, e := range history {
		switch {
		case !drop[e.callID] || e.kind == otherEntry:
			kept = append(kept, e)
		case e.hasCall():
			kept = append(kept, receipt(e))
		}
	}
	return kept
}

// receipt takes the place of a call that was left out.
func receipt(e entry) entry {
	what := fmt.Sprintf("function_call %q of function %q", e.callID, e.name)
	if e.kind == computerEntry {
		what = fmt.Sprintf("computer_call %q", e.callID)
	}
	return userMessage("The " + what + " and its output are left out here to save space. What it did, and whether that" +
		" still holds, is not verified.")
}

// DropOldest is a Compact that leaves out the oldest calls with pictures until the input fits, and, where that is not
// enough, the oldest other calls. It leaves out whole groups, of a quarter of the images that are allowed: so the
// beginning of the input stays the same for some requests, and the API need not read it anew.
func DropOldest(_ context.Context, s Snapshot) (Compaction, error) {
	eligible := map[string]bool{}
	for _, id := range s.Eligible {
		eligible[id] = true
	}
	// What leaving out a call would save.
	type saving struct {
		id            string
		bytes, images int
	}
	saved := map[string]*saving{}
	var all []*saving
	for _, raw := range s.History {
		e := newEntry(raw, decodeObject(raw))
		if !eligible[e.callID] || e.kind == otherEntry {
			continue
		}
		v := saved[e.callID]
		if v == nil {
			v = &saving{id: e.callID, bytes: -compactSize(receipt(e).raw)}
			saved[e.callID], all = v, append(all, v)
		} else {
			v.bytes++ // the comma
		}
		v.bytes += compactSize(raw)
		v.images += e.images
	}
	slices.SortStableFunc(all, func(a, b *saving) int { return min(b.images, 1) - min(a.images, 1) })

	group := max(1, s.MaxImages/4)
	var c Compaction
	for i, v := range all {
		fits := s.Bytes <= s.MaxBytes && s.Images <= s.MaxImages
		if fits && (i%group == 0 || v.images == 0) {
			break
		}
		c.Drop = append(c.Drop, v.id)
		s.Bytes -= v.bytes
		s.Images -= v.images
	}
	return c, nil
}

// compactSize is the length of a JSON value when it is written without white space and with no more escapes than JSON
// needs. The value is known to be JSON.
func compactSize(raw []byte) (n int) {
	for len(raw) > 0 {
		switch c := raw[0]; c {
		case ' ', '\t', '\n', '\r':
			raw = raw[1:]
		case '"':
			end := 1 + endOfString(raw[1:])
			n += 2 + stringSize(raw[1:end])
			raw = raw[end+1:]
		default:
			n++
			raw = raw[1:]
		}
	}
	return n
}

// endOfString is the index of the quote that ends s.
func endOfString(s []byte) int {
	quote := bytes.IndexByte(s, '"')
	for i := 0; ; {
		slash := bytes.IndexByte(s[i:quote], '\\')
		if slash < 0 {
			return quote
		}
		if i += slash + 2; i > quote { // it was escaped
			quote = i + bytes.IndexByte(s[i:], '"')
		}
	}
}

// stringSize is the length of what is between the quotes.
func stringSize(s []byte) (n int) {
	for {
		plain := bytes.IndexByte(s, '\\')
		if plain < 0 {
			return n + len(s)
		}
		n += plain
		s = s[plain:]
		size, used := escapeSize(s)
		n += size
		s = s[used:]
	}
}

// escapeSize is the length of the character that s begins with, an escape, and of the escape.
func escapeSize(s []byte) (size, used int) {
	switch s[1] {
	case '/':
		return 1, 2
	case 'u':
	default:
		return 2, 2
	}
	r := hexRune(s[2:6])
	if utf16.IsSurrogate(r) {
		if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' && utf16.DecodeRune(r, hexRune(s[8:12])) != utf8.RuneError {
			return 4, 12
		}
		return 6, 6 // alone: stays an escape
	}
	switch {
	case strings.ContainsRune("\"\\\b\f\n\r\t", r):
		return 2, 6
	case r < ' ':
		return 6, 6
	}
	return utf8.RuneLen(r), 6
}

func hexRune(digits []byte) (r rune) {
	for _, d := range digits {
		switch {
		case d <= '9':
			d -= '0'
		default:
			d = d | 0x20 - 'a' + 10
		}
		r = r<<4 | rune(d)
	}
	return r
}
