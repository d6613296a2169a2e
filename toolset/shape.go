package toolset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A shape checks one JSON value; raw is nil when there is none. The API's client is lenient (it makes "5" of 5 and
// 1 of 1.5), so what a call or a response really says can only be checked before it is decoded.
type shape func(raw json.RawMessage) error

// An object is a JSON object with its values as they were received.
type object map[string]json.RawMessage

func parseObject(raw json.RawMessage) (object, error) {
	raw = bytes.TrimSpace(raw)
	if err := starts(raw, "{", "an object"); err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", quote(raw), err)
	}
	return o, nil
}

func parseList(raw json.RawMessage) (items []json.RawMessage, err error) {
	if err := starts(raw, "[", "a list"); err != nil {
		return nil, err
	}
	return items, json.Unmarshal(raw, &items)
}

// parseText returns "" for what is not a string.
func parseText(raw json.RawMessage) (s string) {
	if text(raw) != nil || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// parseInteger accepts a number without a fraction, in any notation.
func parseInteger(raw json.RawMessage) (int64, error) {
	if err := number(raw); err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("%s is not a whole number in range", quote(raw))
	}
	return int64(f), nil
}

// starts checks the type of a value that is known to be JSON by its first byte.
func starts(raw json.RawMessage, first, what string) error {
	if len(raw) == 0 {
		return fmt.Errorf("%s is missing", what)
	}
	if !bytes.ContainsRune([]byte(first), rune(raw[0])) {
		return fmt.Errorf("%s is not %s", quote(raw), what)
	}
	return nil
}

func text(raw json.RawMessage) error    { return starts(raw, `"`, "a string") }
func number(raw json.RawMessage) error  { return starts(raw, "-0123456789", "a number") }
func integer(raw json.RawMessage) error { _, err := parseInteger(raw); return err }

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func optional(s shape) shape {
	return func(raw json.RawMessage) error {
		if raw == nil {
			return nil
		}
		return s(raw)
	}
}

func nullable(s shape) shape {
	return func(raw json.RawMessage) error {
		if isNull(raw) {
			return nil
		}
		return s(raw)
	}
}

func oneOf(words ...string) shape {
	return func(raw json.RawMessage) error {
		if text(raw) != nil || !slices.Contains(words, parseText(raw)) {
			return fmt.Errorf("%s, want one of %q", quote(raw), words)
		}
		return nil
	}
}

func listOf(s shape) shape {
	return func(raw json.RawMessage) error {
		items, err := parseList(raw)
		if err != nil {
			return err
		}
		for i, item := range items {
			if err := s(item); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
}

// fields is an object with at least these fields; others are nobody's business.
type fields []field

type field struct {
	name  string
	shape shape
}

func (f fields) check(raw json.RawMessage) error {
	o, err := parseObject(raw)
	if err != nil {
		return err
	}
	return f.in(o)
}

func (f fields) in(o object) error {
	for _, field := range f {
		if err := field.shape(o[field.name]); err != nil {
			return fmt.Errorf("%s: %w", field.name, err)
		}
	}
	return nil
}

// byType is an object whose type says what else it holds.
func byType(types map[string]fields) shape {
	return func(raw json.RawMessage) error {
		o, err := parseObject(raw)
		if err != nil {
			return err
		}
		f, ok := types[parseText(o["type"])]
		if !ok {
			return fmt.Errorf("unknown type %s", quote(o["type"]))
		}
		return f.in(o)
	}
}

// quote shows outside text in an error.
func quote(raw json.RawMessage) string {
	const most = 60
	switch {
	case len(raw) == 0:
		return "nothing"
	case len(raw) > most:
		return fmt.Sprintf("%q…", raw[:most])
	}
	return fmt.Sprintf("%q", raw)
}

// marshal is json.Marshal for values that were decoded from JSON before, so that encoding them cannot fail. It
// leaves <, > and & alone, which people are shown.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
