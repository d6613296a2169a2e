package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // pictures may be JPEG
	_ "image/png"  // or PNG
	"reflect"
	"strings"
	"time"
)

// A request is what the model reads of a request.
type request struct {
	Model  string            `json:"model"`
	Input  []json.RawMessage `json:"input"`
	Tools  []tool            `json:"tools"`
	Stream bool              `json:"stream"`
	// Those would have the server remember; this one is told everything each time.
	PreviousResponseID *string         `json:"previous_response_id"`
	Conversation       json.RawMessage `json:"conversation"`
}

type tool struct {
	Type string `json:"type"`
}

// A check is a pending safety check.
type check struct {
	ID      string `json:"id"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of the safety checks that the model raises, both by the call that saves.
const (
	CodeReplaces = "replaces_record"
	CodePersonal = "personal_data"
)

var saveChecks = []check{
	{"sc_1", CodeReplaces, "Saving replaces the record that was there before."},
	{"sc_2", CodePersonal, "The record contains a name."},
}

// An output is a computer_call_output.
type output struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output struct {
		Type     string  `json:"type"`
		ImageURL string  `json:"image_url"`
		FileID   *string `json:"file_id"`
	} `json:"output"`
	Acknowledged []check `json:"acknowledged_safety_checks"`
}

// A conversation is one run: what was said, and what the model makes of it.
type conversation struct {
	mind    *mind
	step    int
	history []json.RawMessage // input of the last request, and what was said to it
	callID  string            // of the call to be answered next
	checks  []check           // that it raised
	ended   bool
	tokens  int // of the last input
}

func newConversation() conversation { return conversation{mind: newMind()} }

// answer checks a request and returns the response. After an error the conversation is as before.
func (c *conversation) answer(req *request) (map[string]any, error) {
	picture, text, err := c.check(req)
	if err != nil {
		return nil, err
	}
	c.step++
	cached := c.tokens
	c.tokens += text / 4
	// The first request has no picture, so all that can be done is to ask for one.
	t := turn{actions: []action{screenshot()}}
	if picture != nil {
		t = c.mind.decide(see(picture), picture)
		c.tokens += pictureTokens(picture.Bounds().Size())
	}
	said, err := json.Marshal(c.say(t))
	if err != nil {
		return nil, err
	}
	c.history = append(req.Input[:len(req.Input):len(req.Input)], said)
	return c.response(req.Model, said, cached), nil
}

// check compares a request with what it has to be. It returns the picture of the last call, nil in the first
// request, and the number of bytes of text that are new.
func (c *conversation) check(req *request) (image.Image, int, error) {
	computers := 0
	for _, t := range req.Tools {
		if t.Type == "computer" {
			computers++
		}
	}
	switch {
	case req.Model == "":
		return nil, 0, errors.New("model is missing")
	case computers != 1:
		return nil, 0, fmt.Errorf("tools contain the computer %d times, want it once", computers)
	case req.Stream:
		return nil, 0, errors.New("stream is not supported here")
	case req.PreviousResponseID != nil || len(req.Conversation) > 0 && string(req.Conversation) != "null":
		return nil, 0, errors.New("stored conversations are not supported here: send the whole history")
	case c.ended:
		return nil, 0, errors.New("the conversation has ended")
	case c.step == 0:
		return nil, size(req.Input), c.checkFirst(req.Input)
	}
	if got, want := len(req.Input), len(c.history)+1; got != want {
		return nil, 0, fmt.Errorf("input has %d items, want %d: the history and one computer_call_output for %q", got, want, c.callID)
	}
	for i, want := range c.history {
		if !sameJSON(req.Input[i], want) {
			return nil, 0, fmt.Errorf("input[%d] is not what it was", i)
		}
	}
	picture, err := c.checkOutput(req.Input[len(c.history)])
	if err != nil {
		return nil, 0, fmt.Errorf("input[%d]: %w", len(c.history), err)
	}
	return picture, size(req.Input[len(c.history)-1 : len(c.history)]), nil
}

// checkFirst checks the input of the first request: something to do, and nothing done yet.
func (c *conversation) checkFirst(input []json.RawMessage) error {
	if len(input) == 0 {
		return errors.New("input is empty")
	}
	for i, item := range input {
		var o output
		if err := json.Unmarshal(item, &o); err != nil {
			return fmt.Errorf("input[%d]: %w", i, err)
		}
		if strings.HasPrefix(o.Type, "computer_call") {
			return fmt.Errorf("input[%d] is a %s, but there was no call yet", i, o.Type)
		}
	}
	return nil
}

// checkOutput checks the answer to the last call and returns its picture.
func (c *conversation) checkOutput(item json.RawMessage) (image.Image, error) {
	var o output
	if err := json.Unmarshal(item, &o); err != nil {
		return nil, err
	}
	switch {
	case o.Type != "computer_call_output" || o.CallID != c.callID:
		return nil, fmt.Errorf("%s for call %q, want a computer_call_output for %q", o.Type, o.CallID, c.callID)
	case o.Output.Type != "computer_screenshot" || o.Output.FileID != nil:
		return nil, fmt.Errorf("output of type %q, want a computer_screenshot with an image_url only", o.Output.Type)
	case !reflect.DeepEqual(o.Acknowledged, c.checks):
		return nil, fmt.Errorf("acknowledged_safety_checks are %v, want %v", o.Acknowledged, c.checks)
	}
	header, data, ok := strings.Cut(o.Output.ImageURL, ";base64,")
	if !ok || !strings.HasPrefix(header, "data:image/") {
		return nil, errors.New("image_url is not a data URL of a picture in base64")
	}
	picture, _, err := image.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return nil, fmt.Errorf("reading the picture: %w", err)
	}
	return picture, nil
}

// size is the number of bytes of items.
func size(items []json.RawMessage) int {
	n := 0
	for _, item := range items {
		n += len(item)
	}
	return n
}

// say returns the output item of a turn, and remembers what has to come back.
func (c *conversation) say(t turn) map[string]any {
	if len(t.actions) == 0 {
		c.ended = true
		return map[string]any{
			"type": "message", "id": fmt.Sprintf("msg_%d", c.step), "role": "assistant", "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": t.message, "annotations": []any{}, "logprobs": []any{}}},
		}
	}
	c.callID, c.checks = fmt.Sprintf("call_%d", c.step), nil
	if t.risky {
		c.checks = saveChecks
	}
	pending := c.checks
	if pending == nil {
		pending = []check{} // an empty list is written as one
	}
	return map[string]any{
		"type": "computer_call", "id": fmt.Sprintf("cu_%d", c.step), "call_id": c.callID, "status": "completed",
		"actions": t.actions, "pending_safety_checks": pending,
	}
}

// response wraps an output item in a response. The figures of its usage are those of a rule of thumb, four bytes a
// token; of the input all but the latest is cached.
func (c *conversation) response(model string, said json.RawMessage, cached int) map[string]any {
	out := len(said)/4 + 1
	return map[string]any{
		"id": fmt.Sprintf("resp_%d", c.step), "object": "response", "created_at": time.Now().Unix(), "status": "completed",
		"model": model, "output": []json.RawMessage{said}, "error": nil, "incomplete_details": nil, "instructions": nil,
		"metadata": map[string]any{}, "parallel_tool_calls": false, "temperature": 1, "top_p": 1, "tool_choice": "auto",
		"tools": []tool{{"computer"}},
		"usage": map[string]any{
			"input_tokens": c.tokens, "input_tokens_details": map[string]int{"cached_tokens": cached},
			"output_tokens": out, "output_tokens_details": map[string]int{"reasoning_tokens": 0},
			"total_tokens": c.tokens + out,
		},
	}
}

// pictureTokens is about what the API counts for a picture: one token for each patch of 32 by 32 pixels.
func pictureTokens(size image.Point) int { return (size.X + 31) / 32 * ((size.Y + 31) / 32) }

// sameJSON reports whether two texts are the same JSON value.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
