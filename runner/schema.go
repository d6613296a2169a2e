package runner

import (
	"bytes"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A schema is a compiled JSON schema. Whatever cannot be compiled is refused, so that nothing that a schema demands
// goes unchecked.
type schema struct {
	checks     []shape
	properties map[string]*schema
	required   []string
	closed     bool
	object     bool
}

// annotations say nothing about a value.
var annotations = []string{"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema",
	"$id", "$comment", "format", "$defs", "definitions"}

func compileSchema(raw []byte) (*schema, error) {
	root, err := decode(raw)
	if err != nil {
		return nil, err
	}
	c := &compiler{root: root, references: map[string]*schema{}}
	return c.compile(root)
}

// strict reports whether it is the schema of a closed object with all properties required.
func (s *schema) strict() bool {
	names := slices.Sorted(maps.Keys(s.properties))
	return s.object && s.closed && slices.Equal(names, slices.Sorted(slices.Values(s.required)))
}

func (s *schema) valid(v any) bool {
	return !slices.ContainsFunc(s.checks, func(check shape) bool { return !check(v) })
}

// A compiler compiles the parts of one schema.
type compiler struct {
	root       any
	references map[string]*schema // by pointer; also keeps recursive schemas finite
}

func (c *compiler) compile(v any) (*schema, error) {
	s := &schema{}
	return s, c.fill(s, v)
}

func (c *compiler) fill(s *schema, v any) error {
	switch v := v.(type) {
	case bool:
		s.checks = []shape{func(any) bool { return v }}
		return nil
	case object:
		for _, word := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains(annotations, word) {
				continue
			}
			compile, ok := keywords[word]
			if !ok {
				return refuse("the keyword %q is not supported", word)
			}
			check, err := compile(c, s, v, v[word])
			if err != nil {
				return err
			}
			if check == nil {
				return refuse("the value of %q is malformed", word)
			}
			s.checks = append(s.checks, check)
		}
		return nil
	}
	return refuse("neither an object nor a boolean")
}

// A keyword compiles the value of one word of a schema. A nil shape stands for a malformed value.
type keyword func(c *compiler, s *schema, whole object, value any) (shape, error)

var keywords map[string]keyword

func init() { // keywords and compile refer to each other
	keywords = map[string]keyword{
		"type": typeKeyword, "enum": enumKeyword, "const": constKeyword, "$ref": refKeyword,
		"properties": propertiesKeyword, "required": requiredKeyword, "additionalProperties": additionalKeyword,
		"items": itemsKeyword, "pattern": patternKeyword,
		"anyOf": combined(func(matching, of int) bool { return matching > 0 }),
		"oneOf": combined(func(matching, of int) bool { return matching == 1 }),
		"allOf": combined(func(matching, of int) bool { return matching == of }),
		"not":   notKeyword, "uniqueItems": uniqueKeyword,
		"minimum":          bound(func(v, limit *big.Rat) bool { return v.Cmp(limit) >= 0 }),
		"maximum":          bound(func(v, limit *big.Rat) bool { return v.Cmp(limit) <= 0 }),
		"exclusiveMinimum": bound(func(v, limit *big.Rat) bool { return v.Cmp(limit) > 0 }),
		"exclusiveMaximum": bound(func(v, limit *big.Rat) bool { return v.Cmp(limit) < 0 }),
		"multipleOf": bound(func(v, limit *big.Rat) bool {
			return limit.Sign() > 0 && new(big.Rat).Quo(v, limit).IsInt()
		}),
		"minLength":     length(characters, atLeast),
		"maxLength":     length(characters, atMost),
		"minItems":      length(elements, atLeast),
		"maxItems":      length(elements, atMost),
		"minProperties": length(members, atLeast),
		"maxProperties": length(members, atMost),
	}
}

func typeKeyword(_ *compiler, s *schema, _ object, value any) (shape, error) {
	types := map[string]shape{"object": isObject, "array": list, "string": text, "number": number, "integer": integer,
		"boolean": boolean, "null": func(v any) bool { return v == nil }}
	s.object = value == "object"
	names, ok := value.([]any)
	if !ok {
		names = []any{value}
	}
	var shapes []shape
	for _, name := range names {
		t := types[textOf(name)]
		if t == nil {
			return nil, nil
		}
		shapes = append(shapes, t)
	}
	return either(shapes...), nil
}

func equal(v, w any) bool {
	if number(v) && number(w) {
		return rational(v).Cmp(rational(w)) == 0
	}
	return bytes.Equal(encode(v), encode(w))
}

func enumKeyword(_ *compiler, _ *schema, _ object, value any) (shape, error) {
	values, ok := value.([]any)
	if !ok {
		return nil, nil
	}
	return func(v any) bool { return slices.ContainsFunc(values, func(w any) bool { return equal(v, w) }) }, nil
}

func constKeyword(_ *compiler, _ *schema, _ object, value any) (shape, error) {
	return func(v any) bool { return equal(v, value) }, nil
}

// refKeyword follows a pointer within the schema.
func refKeyword(c *compiler, _ *schema, _ object, value any) (shape, error) {
	pointer, ok := strings.CutPrefix(textOf(value), "#")
	if !ok {
		return nil, nil
	}
	target := c.references[pointer]
	if target == nil {
		v := c.root
		for i, name := range strings.Split(pointer, "/") {
			if i == 0 && name == "" {
				continue
			}
			o, _ := v.(object)
			if v, ok = o[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; !ok {
				return nil, nil
			}
		}
		target = &schema{}
		c.references[pointer] = target
		if err := c.fill(target, v); err != nil {
			return nil, err
		}
	}
	return func(v any) bool { return target.valid(v) }, nil
}

func propertiesKeyword(c *compiler, s *schema, _ object, value any) (shape, error) {
	o, ok := value.(object)
	if !ok {
		return nil, nil
	}
	s.properties = map[string]*schema{}
	for name, v := range o {
		p, err := c.compile(v)
		if err != nil {
			return nil, err
		}
		s.properties[name] = p
	}
	return func(v any) bool {
		o, _ := v.(object)
		for name, p := range s.properties {
			if v, ok := o[name]; ok && !p.valid(v) {
				return false
			}
		}
		return true
	}, nil
}

func requiredKeyword(_ *compiler, s *schema, _ object, value any) (shape, error) {
	if !listOf(text)(value) {
		return nil, nil
	}
	for _, name := range value.([]any) {
		s.required = append(s.required, textOf(name))
	}
	return func(v any) bool {
		o, ok := v.(object)
		return !ok || !slices.ContainsFunc(s.required, func(name string) bool { return missing(at(o, name)) })
	}, nil
}

func additionalKeyword(c *compiler, s *schema, whole object, value any) (shape, error) {
	rest, err := c.compile(value)
	if err != nil {
		return nil, err
	}
	s.closed = value == false
	named, _ := whole["properties"].(object)
	return func(v any) bool {
		o, _ := v.(object)
		for name, v := range o {
			if missing(at(named, name)) && !rest.valid(v) {
				return false
			}
		}
		return true
	}, nil
}

func itemsKeyword(c *compiler, _ *schema, _ object, value any) (shape, error) {
	each, err := c.compile(value)
	if err != nil {
		return nil, err
	}
	return func(v any) bool { return !list(v) || listOf(each.valid)(v) }, nil
}

func uniqueKeyword(_ *compiler, _ *schema, _ object, value any) (shape, error) {
	return func(v any) bool {
		items, _ := v.([]any)
		for i, item := range items {
			if value == true && slices.ContainsFunc(items[:i], func(w any) bool { return equal(item, w) }) {
				return false
			}
		}
		return true
	}, nil
}

func patternKeyword(_ *compiler, _ *schema, _ object, value any) (shape, error) {
	pattern, err := regexp.Compile(textOf(value))
	if err != nil || !text(value) {
		return nil, nil
	}
	return func(v any) bool { return !text(v) || pattern.MatchString(textOf(v)) }, nil
}

func notKeyword(c *compiler, _ *schema, _ object, value any) (shape, error) {
	no, err := c.compile(value)
	return func(v any) bool { return !no.valid(v) }, err
}

// combined is a keyword about how many of several schemas hold.
func combined(enough func(matching, of int) bool) keyword {
	return func(c *compiler, _ *schema, _ object, value any) (shape, error) {
		values, _ := value.([]any)
		if len(values) == 0 {
			return nil, nil
		}
		var schemas []*schema
		for _, v := range values {
			s, err := c.compile(v)
			if err != nil {
				return nil, err
			}
			schemas = append(schemas, s)
		}
		return func(v any) bool {
			matching := 0
			for _, s := range schemas {
				if s.valid(v) {
					matching++
				}
			}
			return enough(matching, len(schemas))
		}, nil
	}
}

// bound is a keyword about numbers. They are compared exactly.
func bound(holds func(v, limit *big.Rat) bool) keyword {
	return func(_ *compiler, _ *schema, _ object, value any) (shape, error) {
		if !finite(value) {
			return nil, nil
		}
		limit := rational(value)
		return func(v any) bool { return !number(v) || finite(v) && holds(rational(v), limit) }, nil
	}
}

// rational is a number that is known to be finite as a float, so that its exponent is small.
func rational(v any) *big.Rat {
	r := new(big.Rat)
	if finite(v) {
		r.SetString(v.(interface{ String() string }).String())
	}
	return r
}

// length is a keyword about the size of a value, which is negative when the keyword is not about the value.
func length(size func(v any) int, holds func(size, limit int) bool) keyword {
	return func(_ *compiler, _ *schema, _ object, value any) (shape, error) {
		if !integer(value) || rational(value).Sign() < 0 || !rational(value).Num().IsInt64() {
			return nil, nil
		}
		limit := int(rational(value).Num().Int64())
		return func(v any) bool { n := size(v); return n < 0 || holds(n, limit) }, nil
	}
}

func atLeast(size, limit int) bool { return size >= limit }
func atMost(size, limit int) bool  { return size <= limit }

func characters(v any) int {
	if !text(v) {
		return -1
	}
	return utf8.RuneCountInString(textOf(v))
}

func elements(v any) int {
	items, ok := v.([]any)
	if !ok {
		return -1
	}
	return len(items)
}

func members(v any) int {
	o, ok := v.(object)
	if !ok {
		return -1
	}
	return len(o)
}
