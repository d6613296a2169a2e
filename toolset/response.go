package toolset

import (
	"encoding/json"
	"fmt"
)

// A turn is one response that was checked.
type turn struct {
	items []json.RawMessage // its output, as it is replayed
	calls []*computerCall
	final bool // it holds a finished message that is more than commentary
}

var (
	itemShape = fields{{"type", text}, {"id", text}}

	logprob = fields{
		{"token", text},
		{"logprob", number},
		{"bytes", listOf(integer)},
	}
	annotation = byType(map[string]fields{
		"file_citation": {{"file_id", text}, {"filename", text}, {"index", integer}},
		"url_citation":  {{"url", text}, {"title", text}, {"start_index", integer}, {"end_index", integer}},
		"container_file_citation": {{"container_id", text}, {"file_id", text}, {"filename", text}, {"start_index", integer},
			{"end_index", integer}},
		"file_path": {{"file_id", text}, {"index", integer}},
	})

	// The items next to computer calls. They are checked because they are sent back with the history, where a
	// malformed one would spoil every later request.
	otherItems = map[string]fields{
		"message": {
			{"role", oneOf("assistant")},
			{"status", oneOf("in_progress", "completed", "incomplete")},
			{"phase", optional(nullable(oneOf("commentary", "final_answer")))},
			{"content", listOf(byType(map[string]fields{
				"output_text": {
					{"text", text},
					{"annotations", listOf(annotation)},
					{"logprobs", optional(nullable(listOf(append(logprob, field{"top_logprobs", listOf(logprob.check)}).check)))},
				},
				"refusal": {{"refusal", text}},
			}))},
		},
		"reasoning": {
			{"summary", listOf(byType(map[string]fields{"summary_text": {{"text", text}}}))},
			{"content", optional(listOf(byType(map[string]fields{"reasoning_text": {{"text", text}}})))},
			{"encrypted_content", optional(nullable(text))},
			{"status", optional(oneOf("in_progress", "completed", "incomplete"))},
		},
		"compaction": {{"encrypted_content", text}},
	}
)

// readTurn checks a whole response and enters its identities.
func readTurn(response json.RawMessage, known *identities) (*turn, error) {
	o, err := parseObject(response)
	if err != nil {
		return nil, fail(ReasonInvalidResponse, "response: %w", err)
	}
	if err := oneOf("completed")(o["status"]); err != nil {
		return nil, fail(ReasonInvalidResponse, "status: %w", err)
	}
	items, err := parseList(o["output"])
	if err != nil {
		return nil, fail(ReasonInvalidResponse, "output: %w", err)
	}
	known.newResponse()
	t := &turn{}
	for i, raw := range items {
		if reason, err := t.add(raw, known); err != nil {
			return nil, fail(reason, "output[%d]: %w", i, err)
		}
	}
	return t, nil
}

// add checks one item; the reason is that of the error.
func (t *turn) add(raw json.RawMessage, known *identities) (Reason, error) {
	o, err := parseObject(raw)
	if err == nil {
		err = itemShape.in(o)
	}
	if err != nil {
		return ReasonInvalidResponse, err
	}
	itemType, id := parseText(o["type"]), parseText(o["id"])
	if itemType == "computer_call" {
		c, err := decodeCall(raw)
		if err != nil {
			return ReasonInvalidCall, fmt.Errorf("computer call: %w", err)
		}
		if err := known.addCall(c.id); err != nil {
			return ReasonDuplicateIdentity, err
		}
		t.calls = append(t.calls, c)
		o = c.fields
	} else {
		shape, ok := otherItems[itemType]
		if !ok {
			return ReasonUnsupportedItem, fmt.Errorf("item of type %q in a run with only the computer tool", itemType)
		}
		if err := shape.in(o); err != nil {
			return ReasonInvalidResponse, fmt.Errorf("%s: %w", itemType, err)
		}
	}
	if err := known.addItem(id); err != nil {
		return ReasonDuplicateIdentity, err
	}
	if itemType == "message" && parseText(o["status"]) == "completed" && parseText(o["phase"]) != "commentary" {
		t.final = true
	}
	t.items = append(t.items, replay(o))
	return "", nil
}

// replay is the item as the API takes it back: it may not say who created it.
func replay(o object) json.RawMessage {
	kept := object{}
	for name, value := range o {
		if name != "created_by" {
			kept[name] = value
		}
	}
	return marshal(kept)
}

// identities are the ids that a run has met.
type identities struct {
	items, calls map[string]bool
}

// newIdentities knows the ids of the input, where they may stand for themselves, be referred to, or be answered.
func newIdentities(input []json.RawMessage) (*identities, error) {
	known := &identities{items: map[string]bool{}, calls: map[string]bool{}}
	for i, raw := range input {
		o, err := parseObject(raw)
		if err != nil {
			return nil, fmt.Errorf("input[%d]: %w", i, err)
		}
		if text(o["id"]) == nil {
			known.items[parseText(o["id"])] = true
		}
		if text(o["call_id"]) == nil {
			known.calls[parseText(o["call_id"])] = true
		}
	}
	return known, nil
}

// newResponse forgets the empty item id, which may come once in every response.
func (k *identities) newResponse() { delete(k.items, "") }

func (k *identities) addItem(id string) error {
	if k.items[id] {
		return fmt.Errorf("item id %q came before", id)
	}
	k.items[id] = true
	return nil
}

func (k *identities) addCall(id string) error {
	if k.calls[id] {
		return fmt.Errorf("call id %q came before", id)
	}
	k.calls[id] = true
	return nil
}
