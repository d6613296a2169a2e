package keyboard

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/xkb"
)

// A Part is as much of a text as can be typed with one binding of the empty keycodes.
type Part struct {
	Bindings []Binding // none where the layout has every character
	Strokes  []Stroke  // one for each character
}

// Obstacles are the modifiers that are latched or locked and have to be lifted before a text is typed. Num Lock is
// none: it is reckoned with.
func (m *Map) Obstacles(state xkb.State) byte { return (state.Latched | state.Locked) &^ m.numLock }

// Text finds the keys for a text, all of it, for a keyboard that is in a state but for its [Map.Obstacles]. Newline is
// the Return key and tab the Tab key; a carriage return and a newline are one newline. The error names the first
// character that cannot be typed and its index, counted in characters from 0, and wraps [driver.ErrUnsupported]. A text may
// be so long that ctx ends meanwhile.
func (m *Map) Text(ctx context.Context, text string, state xkb.State) ([]Part, error) {
	const glance = 1 << 12 // characters between two looks at ctx
	locked := state.Locked &^ m.Obstacles(state)
	onLayout := map[driver.Key]Stroke{} // A text may be long and has few characters.
	var parts []Part
	var now binder
	index := 0
	for i, r := range text {
		if index%glance == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if r == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			index++
			continue
		}
		symbol, ok := driver.RuneKey(r)
		if !ok {
			return nil, fmt.Errorf("%s at index %d: %w as text", describe(text[i:]), index, driver.ErrUnsupported)
		}
		stroke, ok := onLayout[symbol]
		if !ok {
			if stroke, ok = m.Stroke(symbol, state.Group, locked); ok {
				onLayout[symbol] = stroke
			}
		}
		if !ok {
			if stroke, ok = now.bind(m, symbol); !ok && len(now.Bindings) > 0 {
				parts = append(parts, now.Part)
				now = binder{}
				stroke, ok = now.bind(m, symbol)
			}
		}
		if !ok {
			return nil, fmt.Errorf("%s at index %d: %w by this keyboard map, which has no empty key to put it on", describe(text[i:]), index, driver.ErrUnsupported)
		}
		now.Strokes = append(now.Strokes, stroke)
		index++
	}
	if len(now.Strokes) > 0 {
		parts = append(parts, now.Part)
	}
	return parts, nil
}

// describe names the first character of a text, or its first byte where it is none.
func describe(text string) string {
	if r, size := utf8.DecodeRuneInString(text); size > 1 || r != utf8.RuneError {
		return fmt.Sprintf("character %q", r)
	}
	return fmt.Sprintf("byte %#x, which is not UTF-8,", text[0])
}

// A binder makes a Part: it puts symbols on the empty keycodes as long as there is room.
type binder struct {
	Part
	bound map[driver.Key]Stroke
}

// bind returns the stroke for a symbol, which may be there already. The bare keys are filled first, so that a text of
// few characters does without Shift and AltGr.
func (b *binder) bind(m *Map, symbol driver.Key) (Stroke, bool) {
	if stroke, ok := b.bound[symbol]; ok {
		return stroke, true
	}
	n, free := len(b.bound), len(m.empty)
	if n == free*len(m.levels) {
		return Stroke{}, false
	}
	level, key := n/free, n%free
	if level == 0 {
		// On all levels, as clients that go by the core protocol take a letter that is alone for both of its cases.
		b.Bindings = append(b.Bindings, Binding{m.empty[key], m.fresh, slices.Repeat([]driver.Key{symbol}, max(2, len(m.levels)))})
	}
	binding := b.Bindings[key]
	binding.Symbols[level] = symbol
	stroke := Stroke{Code: binding.Code, Symbol: binding.Symbols[0], Mods: m.levels[level]}
	if b.bound == nil {
		b.bound = map[driver.Key]Stroke{}
	}
	b.bound[symbol] = stroke
	return stroke, true
}
