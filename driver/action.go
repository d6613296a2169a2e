package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"maps"
	"math"
	"slices"
	"strconv"
)

// An Action is one of the nine computer actions: [Click], [DoubleClick], [Drag], [Keypress], [Move], [Scroll],
// [Type], [Wait] or [Screenshot]. Actions are values: copy them with [Clone] where a callee may not be trusted
// to leave slices and maps alone.
type Action interface {
	// Kind is the API's name of the action, such as "double_click".
	Kind() Kind
	// MarshalJSON returns the API's form of the action, unknown fields included.
	json.Marshaler

	clone() Action
}

// Kind is the API's name of an action.
type Kind string

// The nine kinds.
const (
	KindClick       Kind = "click"
	KindDoubleClick Kind = "double_click"
	KindDrag        Kind = "drag"
	KindKeypress    Kind = "keypress"
	KindMove        Kind = "move"
	KindScreenshot  Kind = "screenshot"
	KindScroll      Kind = "scroll"
	KindType        Kind = "type"
	KindWait        Kind = "wait"
)

// Kinds lists the nine kinds in alphabetical order.
func Kinds() []Kind {
	return []Kind{KindClick, KindDoubleClick, KindDrag, KindKeypress, KindMove, KindScreenshot, KindScroll, KindType, KindWait}
}

// Extra holds the fields of an action that its Go type does not name, as they were received. Drivers ignore
// them; they are kept so that nothing is lost on the way through. An explicit null for "keys" is kept here too,
// because a nil slice means that the field was absent.
type Extra map[string]json.RawMessage

// Click presses and releases one button at a point.
type Click struct {
	X, Y   int
	Button Button
	Keys   []string // held during the click, by the names of ParseKey; nil when absent
	Extra  Extra
}

// DoubleClick double-clicks the left button at a point.
type DoubleClick struct {
	X, Y  int
	Keys  []string // held during both clicks; nil is written as null
	Extra Extra
}

// Drag drags with the left button along Path.
type Drag struct {
	Path  []image.Point
	Keys  []string // held during the drag; nil when absent
	Extra Extra
	// PathExtra holds unknown fields of the points, by index; nil when there are none.
	PathExtra []Extra
}

// Keypress presses several keys as one chord.
type Keypress struct {
	Keys  []string // by the names of ParseKey
	Extra Extra
}

// Move moves the pointer.
type Move struct {
	X, Y  int
	Keys  []string // held during the motion; nil when absent
	Extra Extra
}

// Scroll scrolls at a point.
type Scroll struct {
	X, Y int
	// ScrollX and ScrollY are distances in pixels; positive is right and down.
	ScrollX, ScrollY int
	Keys             []string // held while scrolling; nil when absent
	Extra            Extra
}

// Type types text.
type Type struct {
	Text  string
	Extra Extra
}

// Wait waits for the desktop.
type Wait struct{ Extra Extra }

// Screenshot asks for a picture.
type Screenshot struct{ Extra Extra }

func (Click) Kind() Kind       { return KindClick }
func (DoubleClick) Kind() Kind { return KindDoubleClick }
func (Drag) Kind() Kind        { return KindDrag }
func (Keypress) Kind() Kind    { return KindKeypress }
func (Move) Kind() Kind        { return KindMove }
func (Screenshot) Kind() Kind  { return KindScreenshot }
func (Scroll) Kind() Kind      { return KindScroll }
func (Type) Kind() Kind        { return KindType }
func (Wait) Kind() Kind        { return KindWait }

// Clone returns a deep copy: nothing done to the copy can be seen in a.
func Clone(a Action) Action { return a.clone() }

func (e Extra) clone() Extra {
	c := maps.Clone(e)
	for k, v := range c {
		c[k] = bytes.Clone(v)
	}
	return c
}

func (a Click) clone() Action {
	a.Keys, a.Extra = slices.Clone(a.Keys), a.Extra.clone()
	return a
}

func (a DoubleClick) clone() Action {
	a.Keys, a.Extra = slices.Clone(a.Keys), a.Extra.clone()
	return a
}

func (a Drag) clone() Action {
	a.Path, a.Keys, a.Extra, a.PathExtra = slices.Clone(a.Path), slices.Clone(a.Keys), a.Extra.clone(), slices.Clone(a.PathExtra)
	for i, e := range a.PathExtra {
		a.PathExtra[i] = e.clone()
	}
	return a
}

func (a Keypress) clone() Action {
	a.Keys, a.Extra = slices.Clone(a.Keys), a.Extra.clone()
	return a
}

func (a Move) clone() Action {
	a.Keys, a.Extra = slices.Clone(a.Keys), a.Extra.clone()
	return a
}

func (a Scroll) clone() Action {
	a.Keys, a.Extra = slices.Clone(a.Keys), a.Extra.clone()
	return a
}

func (a Type) clone() Action       { a.Extra = a.Extra.clone(); return a }
func (a Wait) clone() Action       { a.Extra = a.Extra.clone(); return a }
func (a Screenshot) clone() Action { a.Extra = a.Extra.clone(); return a }

// HeldKeys returns the keys that are to be held during a pointer action, nil for the other kinds.
func HeldKeys(a Action) []string {
	switch a := a.(type) {
	case Click:
		return a.Keys
	case DoubleClick:
		return a.Keys
	case Drag:
		return a.Keys
	case Move:
		return a.Keys
	case Scroll:
		return a.Keys
	}
	return nil
}

// Points returns the points of an action in order, nil when it has none.
func Points(a Action) []image.Point {
	switch a := a.(type) {
	case Click:
		return []image.Point{{X: a.X, Y: a.Y}}
	case DoubleClick:
		return []image.Point{{X: a.X, Y: a.Y}}
	case Drag:
		return slices.Clone(a.Path)
	case Move:
		return []image.Point{{X: a.X, Y: a.Y}}
	case Scroll:
		return []image.Point{{X: a.X, Y: a.Y}}
	}
	return nil
}

// Do performs a on d. The frame is nil unless a is a [Screenshot].
func Do(ctx context.Context, d Driver, a Action) (*Frame, error) {
	switch a := a.(type) {
	case Click:
		return nil, d.Click(ctx, a)
	case DoubleClick:
		return nil, d.DoubleClick(ctx, a)
	case Drag:
		return nil, d.Drag(ctx, a)
	case Keypress:
		return nil, d.Keypress(ctx, a)
	case Move:
		return nil, d.Move(ctx, a)
	case Screenshot:
		return d.Screenshot(ctx)
	case Scroll:
		return nil, d.Scroll(ctx, a)
	case Type:
		return nil, d.Type(ctx, a)
	case Wait:
		return nil, d.Wait(ctx, a)
	}
	return nil, fmt.Errorf("%w: %T is none of the nine actions", ErrInvalidAction, a)
}

// DecodeAction reads one action in the API's JSON form. Field names are case-sensitive, coordinates and
// distances must be whole numbers (12.0 and 3e2 are whole), required fields must be there, and nothing is guessed
// or rounded. Keys are checked to be strings, not to be known. Its errors wrap [ErrInvalidAction] and name the
// field and its value.
func DecodeAction(data []byte) (Action, error) {
	fields, err := object(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidAction, err)
	}
	f := &fieldReader{fields: fields}
	kind := Kind(f.text("type"))
	if f.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidAction, f.err)
	}
	a := f.action(kind)
	if f.err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalidAction, kind, f.err)
	}
	if a == nil {
		return nil, fmt.Errorf("%w: unknown type %q, want one of %v", ErrInvalidAction, kind, Kinds())
	}
	return a, nil
}

// fieldReader takes fields out of a JSON object one by one and remembers the first fault; what is left over
// is the Extra of the action.
type fieldReader struct {
	fields map[string]json.RawMessage
	err    error
}

func (f *fieldReader) action(kind Kind) Action {
	switch kind {
	case KindClick:
		return Click{X: f.integer("x"), Y: f.integer("y"), Button: f.button(), Keys: f.heldKeys(), Extra: f.rest()}
	case KindDoubleClick:
		a := DoubleClick{X: f.integer("x"), Y: f.integer("y"), Keys: f.heldKeys()}
		delete(f.fields, "keys") // a nil list is written as null
		a.Extra = f.rest()
		return a
	case KindDrag:
		path, extra := f.path()
		return Drag{Path: path, PathExtra: extra, Keys: f.heldKeys(), Extra: f.rest()}
	case KindKeypress:
		return Keypress{Keys: f.stringList("keys"), Extra: f.rest()}
	case KindMove:
		return Move{X: f.integer("x"), Y: f.integer("y"), Keys: f.heldKeys(), Extra: f.rest()}
	case KindScreenshot:
		return Screenshot{Extra: f.unusedKeys()}
	case KindScroll:
		return Scroll{X: f.integer("x"), Y: f.integer("y"), ScrollX: f.integer("scroll_x"), ScrollY: f.integer("scroll_y"),
			Keys: f.heldKeys(), Extra: f.rest()}
	case KindType:
		return Type{Text: f.text("text"), Extra: f.unusedKeys()}
	case KindWait:
		return Wait{Extra: f.unusedKeys()}
	}
	return nil
}

func (f *fieldReader) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

// take removes a required field and returns it; it reports a missing one.
func (f *fieldReader) take(name string) (json.RawMessage, bool) {
	raw, ok := f.fields[name]
	if !ok {
		f.fail("%s is missing", name)
	}
	delete(f.fields, name)
	return raw, ok
}

func (f *fieldReader) integer(name string) int {
	raw, ok := f.take(name)
	if !ok {
		return 0
	}
	n, err := integer(raw)
	if err != nil {
		f.fail("%s: %w", name, err)
	}
	return n
}

func (f *fieldReader) text(name string) string {
	raw, ok := f.take(name)
	if !ok {
		return ""
	}
	s, err := str(raw)
	if err != nil {
		f.fail("%s: %w", name, err)
	}
	return s
}

func (f *fieldReader) button() Button {
	name := f.text("button")
	if f.err != nil {
		return 0
	}
	b, err := ParseButton(name)
	if err != nil {
		f.fail("%w", err)
	}
	return b
}

// heldKeys reads the optional list "keys". An explicit null stays behind for Extra.
func (f *fieldReader) heldKeys() []string {
	raw, ok := f.fields["keys"]
	if !ok || isNull(raw) {
		return nil
	}
	return f.stringList("keys")
}

// unusedKeys checks "keys" on a kind that holds no keys, and keeps it with the unknown fields.
func (f *fieldReader) unusedKeys() Extra {
	raw, ok := f.fields["keys"]
	extra := f.rest()
	if ok && !isNull(raw) {
		f.stringList("keys")
	}
	return extra
}

func (f *fieldReader) stringList(name string) []string {
	raw, ok := f.take(name)
	if !ok {
		return nil
	}
	items, err := list(raw)
	if err != nil {
		f.fail("%s: %w", name, err)
		return nil
	}
	keys := make([]string, len(items))
	for i, item := range items {
		if keys[i], err = str(item); err != nil {
			f.fail("%s[%d]: %w", name, i, err)
			return nil
		}
	}
	return keys
}

func (f *fieldReader) path() ([]image.Point, []Extra) {
	raw, ok := f.take("path")
	if !ok {
		return nil, nil
	}
	items, err := list(raw)
	if err != nil {
		f.fail("path: %w", err)
		return nil, nil
	}
	path := make([]image.Point, len(items))
	var extra []Extra
	for i, item := range items {
		fields, err := object(item)
		if err != nil {
			f.fail("path[%d]: %w", i, err)
			return nil, nil
		}
		point := &fieldReader{fields: fields}
		path[i] = image.Pt(point.integer("x"), point.integer("y"))
		if point.err != nil {
			f.fail("path[%d]: %w", i, point.err)
			return nil, nil
		}
		if rest := point.rest(); rest != nil {
			if extra == nil {
				extra = make([]Extra, len(items))
			}
			extra[i] = rest
		}
	}
	return path, extra
}

func (f *fieldReader) rest() Extra {
	if len(f.fields) == 0 {
		return nil
	}
	return Extra(maps.Clone(f.fields))
}

// integer accepts what JSON readers with one number type accept: a number without a fraction, in any notation.
// Numbers beyond 2^53 are refused: they cannot be told apart there, and no screen is that wide.
func integer(raw json.RawMessage) (int, error) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, fmt.Errorf("%s is not a whole number", short(raw))
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, fmt.Errorf("%s is not a whole number in range", short(raw))
	}
	return int(f), nil
}

func str(raw json.RawMessage) (string, error) {
	var s string
	if len(raw) == 0 || raw[0] != '"' {
		return "", fmt.Errorf("%s is not a string", short(raw))
	}
	return s, json.Unmarshal(raw, &s)
}

func list(raw json.RawMessage) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' {
		return nil, fmt.Errorf("%s is not a list", short(raw))
	}
	return items, json.Unmarshal(raw, &items)
}

func object(raw json.RawMessage) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return nil, fmt.Errorf("%s is not an object", short(raw))
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", short(raw), err)
	}
	return fields, nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// short quotes outside text for an error message.
func short(raw json.RawMessage) string {
	const most = 60
	if len(raw) == 0 {
		return "nothing"
	}
	if len(raw) > most {
		return fmt.Sprintf("%q…", raw[:most])
	}
	return fmt.Sprintf("%q", raw)
}

// encode writes the type, the typed fields in order (name, value, name, value), then Extra sorted by name.
func encode(kind Kind, extra Extra, fields ...any) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"type":%q`, string(kind))
	put := func(name string, value any) error {
		n, err := marshal(name)
		if err != nil {
			return err
		}
		v, err := marshal(value)
		if err != nil {
			return err
		}
		b.WriteByte(',')
		b.Write(n)
		b.WriteByte(':')
		b.Write(v)
		return nil
	}
	for i := 0; i < len(fields); i += 2 {
		if err := put(fields[i].(string), fields[i+1]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		if err := put(name, extra[name]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal that leaves <, > and & alone: text is shown to people.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func withKeys(keys []string, fields ...any) []any {
	if keys != nil {
		fields = append(fields, "keys", keys)
	}
	return fields
}

func (a Click) MarshalJSON() ([]byte, error) {
	return encode(a.Kind(), a.Extra, withKeys(a.Keys, "button", a.Button, "x", a.X, "y", a.Y)...)
}

func (a DoubleClick) MarshalJSON() ([]byte, error) {
	return encode(a.Kind(), a.Extra, "x", a.X, "y", a.Y, "keys", a.Keys)
}

func (a Drag) MarshalJSON() ([]byte, error) {
	path := make([]map[string]any, len(a.Path))
	for i, p := range a.Path {
		path[i] = map[string]any{"x": p.X, "y": p.Y}
		if i < len(a.PathExtra) {
			for name, value := range a.PathExtra[i] {
				path[i][name] = value
			}
		}
	}
	return encode(a.Kind(), a.Extra, withKeys(a.Keys, "path", path)...)
}

func (a Keypress) MarshalJSON() ([]byte, error) {
	keys := a.Keys
	if keys == nil {
		keys = []string{}
	}
	return encode(a.Kind(), a.Extra, "keys", keys)
}

func (a Move) MarshalJSON() ([]byte, error) {
	return encode(a.Kind(), a.Extra, withKeys(a.Keys, "x", a.X, "y", a.Y)...)
}

func (a Scroll) MarshalJSON() ([]byte, error) {
	return encode(a.Kind(), a.Extra, withKeys(a.Keys, "scroll_x", a.ScrollX, "scroll_y", a.ScrollY, "x", a.X, "y", a.Y)...)
}

func (a Type) MarshalJSON() ([]byte, error) { return encode(a.Kind(), a.Extra, "text", a.Text) }
func (a Wait) MarshalJSON() ([]byte, error) { return encode(a.Kind(), a.Extra) }
func (a Screenshot) MarshalJSON() ([]byte, error) {
	return encode(a.Kind(), a.Extra)
}
