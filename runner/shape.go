package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A shape reports whether a decoded value has some form. The API's client is lenient (it makes "5" of 5), so what an
// item really says is checked on values that were decoded without a type. Shapes say only yes or no: what they saw may
// be private.
type shape func(v any) bool

// absent is the value of a field that is not there, which is not the same as null.
type absent struct{}

// An object is a decoded JSON object; its numbers are of type json.Number.
type object = map[string]any

// decode decodes one JSON value with nothing after it.
func decode(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		return nil, errTrailing
	}
	return v, nil
}

var errTrailing = errors.New("text after a JSON value")

// decodeObject returns nil for what is not an object.
func decodeObject(raw []byte) object {
	v, err := decode(raw)
	if err != nil {
		return nil
	}
	o, _ := v.(object)
	return o
}

// encode is json.Marshal for values that were decoded from JSON before, so that encoding them cannot fail. It leaves
// <, > and & alone.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("encoding what was decoded: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// at is a field of o, absent if it is not there.
func at(o object, name string) any {
	if v, ok := o[name]; ok {
		return v
	}
	return absent{}
}

// textOf returns "" for what is not a string.
func textOf(v any) string {
	s, _ := v.(string)
	return s
}

func text(v any) bool     { _, ok := v.(string); return ok }
func nonempty(v any) bool { return textOf(v) != "" }
func nonblank(v any) bool { return strings.TrimFunc(textOf(v), blank) != "" }
func boolean(v any) bool  { _, ok := v.(bool); return ok }
func number(v any) bool   { _, ok := v.(json.Number); return ok }
func missing(v any) bool  { return v == absent{} }
func list(v any) bool     { _, ok := v.([]any); return ok }

func finite(v any) bool {
	n, ok := v.(json.Number)
	f, err := n.Float64()
	return ok && err == nil && !math.IsInf(f, 0)
}

func integer(v any) bool {
	n, ok := v.(json.Number)
	f, err := strconv.ParseFloat(string(n), 64)
	return ok && err == nil && f == math.Trunc(f)
}

func isObject(v any) bool { _, ok := v.(object); return ok }

func scalar(v any) bool { return text(v) || boolean(v) || finite(v) }

func optional(s shape) shape { return func(v any) bool { return missing(v) || s(v) } }
func nullable(s shape) shape { return func(v any) bool { return v == nil || s(v) } }

// maybe is absent, null, or what s says.
func maybe(s shape) shape { return optional(nullable(s)) }

func oneOf(words ...string) shape {
	return func(v any) bool { return text(v) && slices.Contains(words, textOf(v)) }
}

func listOf(s shape) shape {
	return func(v any) bool {
		items, ok := v.([]any)
		return ok && !slices.ContainsFunc(items, func(v any) bool { return !s(v) })
	}
}

// mapOf is an object whose values all have one form.
func mapOf(s shape) shape {
	return func(v any) bool {
		o, ok := v.(object)
		for _, v := range o {
			ok = ok && s(v)
		}
		return ok
	}
}

func either(shapes ...shape) shape {
	return func(v any) bool { return slices.ContainsFunc(shapes, func(s shape) bool { return s(v) }) }
}

// fields is an object with at least these fields; others are nobody's business.
type fields map[string]shape

func (f fields) open(v any) bool {
	o, ok := v.(object)
	for name, s := range f {
		ok = ok && s(at(o, name))
	}
	return ok
}

// closed is an object with these fields and no others.
func (f fields) closed(v any) bool {
	o, ok := v.(object)
	for name := range o {
		ok = ok && f[name] != nil
	}
	return ok && f.open(v)
}

// byType is an object whose type says what else it holds.
func byType(types map[string]fields) shape {
	return func(v any) bool {
		o, _ := v.(object)
		f, ok := types[textOf(o["type"])]
		return ok && f.open(o)
	}
}

// blank reports whether r counts as white space to the API's clients: Unicode's spaces and line breaks but for
// U+0085, and the byte order mark.
func blank(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\uFEFF', '\u2028', '\u2029':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}
