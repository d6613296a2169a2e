package trace

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/deskagent/deskagent/driver"
)

const hidden = "***"

// keyLike finds what looks like a key of the API in an encoded line. It is not to be found within words, such as
// task-force; what comes before it may be an escaped character, which ends in a letter.
var keyLike = regexp.MustCompile(`((?:^|[^A-Za-z]|\\[bfnrt]|\\u[0-9a-f]{4})sk-)[A-Za-z0-9_-]{6,}`)

// A censor takes out of lines what must not be in them.
type censor struct {
	secrets  [][]byte // as they are encoded in a line
	maskText bool
	typed    []string // that has been masked, and must not turn up in an error either
}

func newCensor(secrets []string, maskText bool) *censor {
	c := &censor{maskText: maskText}
	for _, s := range secrets {
		if s != "" {
			c.secrets = append(c.secrets, bytes.Trim(encode(s), `"`))
		}
	}
	return c
}

// line returns the encoded form of v without secrets.
func (c *censor) line(v any) []byte {
	line := encode(v)
	for _, s := range c.secrets {
		line = bytes.ReplaceAll(line, s, []byte(hidden))
	}
	return keyLike.ReplaceAll(line, []byte("${1}"+hidden))
}

// encode is json.Marshal that leaves <, > and & alone, so that a line can be read by people.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("trace: encoding a record: " + err.Error()) // the types of this package can be encoded
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// actions returns the actions as they may be written, and whether those are others than they were.
func (c *censor) actions(actions []Action) (list []Action, masked bool) {
	list = slices.Clone(actions)
	for i, a := range list {
		list[i] = c.action(a)
	}
	return list, !bytes.Equal(c.line(list), encode(actions))
}

// action masks typed text: that of a type action, and a key pressed alone that writes a character.
func (c *censor) action(a Action) Action {
	if !c.maskText {
		return a
	}
	switch typed := a.Action.(type) {
	case driver.Type:
		if !slices.Contains(c.typed, typed.Text) && typed.Text != "" {
			c.typed = append(c.typed, typed.Text)
		}
		return Action{driver.Type{Text: dots(typed.Text)}}
	case driver.Keypress:
		if len(typed.Keys) == 1 && utf8.RuneCountInString(typed.Keys[0]) == 1 {
			return Action{driver.Keypress{Keys: []string{dots(typed.Keys[0])}}}
		}
	}
	return a
}

func dots(text string) string { return strings.Repeat("•", utf8.RuneCountInString(text)) }

// said returns what is left of something said outside of the actions, which may quote typed text.
func (c *censor) said(text string) string {
	for _, t := range c.typed {
		text = strings.ReplaceAll(text, t, hidden)
	}
	return text
}

func (c *censor) checks(checks []Check) []Check {
	list := slices.Clone(checks)
	for i := range list {
		list[i].Message = c.said(list[i].Message)
	}
	return list
}
