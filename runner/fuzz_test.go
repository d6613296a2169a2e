package runner

import (
	"encoding/json"
	"testing"
)

// Whatever a response holds, inspecting it ends with a yes or a no.
func FuzzInspect(f *testing.F) {
	for _, seed := range []string{
		`{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"x","annotations":[]}]}`,
		`{"type":"function_call","call_id":"a","name":"f","arguments":"{}","caller":{"type":"program","caller_id":"p"}}`,
		`{"type":"computer_call","id":"c","call_id":"k","status":"completed","actions":[{"type":"drag","path":[{"x":1,"y":2}]}]}`,
		`{"type":"file_search_call","id":"x","status":"completed","queries":[],"results":[{"score":1,"attributes":{"a":[]}}]}`,
		`{"type":"code_interpreter_call","id":"x","status":"completed","container_id":"c","code":null,"outputs":[{"type":"logs"}]}`,
		`{"type":"mcp_call","id":"x","server_label":{},"name":[],"arguments":"","approval_request_id":{"a":1}}`,
		`{"type":"mcp_approval_request","id":"x","server_label":"crm","name":"n","arguments":""}`,
		`[]`, `null`, `{"type":{}}`,
	} {
		f.Add(seed)
	}
	r, err := New(Registration{})
	if err != nil {
		f.Fatal(err)
	}
	r.tools["f"] = &tool{name: "f", direct: true, function: &Function{}}
	d, err := r.declare(json.RawMessage(`[{"type":"web_search"},{"type":"file_search"},{"type":"code_interpreter","container":{"type":"auto"}},
		{"type":"image_generation"},{"type":"mcp","server_label":"crm","require_approval":{"always":{}},"allowed_tools":[{},"n"]}]`))
	if err != nil {
		f.Fatal(err)
	}
	d.computer = true
	c, err := readChoice(json.RawMessage(`{"type":"allowed_tools","tools":[{"type":"mcp","server_label":{}},{"type":"function","name":"f"},null]}`), d)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if !json.Valid([]byte(raw)) {
			return
		}
		in := &inspector{Runner: r, declaration: d, choice: c, calls: map[string]bool{}, items: map[string]bool{}, approvals: map[string]*approval{}}
		it := newItem(json.RawMessage(raw))
		if in.inspect(it, "output[0]") == nil {
			if again := newItem(it.replay()); !it.same(again) {
				t.Errorf("got %s to send back, want the same but for who created it", again.raw)
			}
		}
		im := &importer{inspector: &inspector{Runner: r, declaration: d, calls: map[string]bool{}, items: map[string]bool{},
			approvals: map[string]*approval{}}, strict: true}
		_, _, _ = im.read([]json.RawMessage{json.RawMessage(raw)})
	})
}

// A compact form is never longer than what it is the form of.
func FuzzCompactSize(f *testing.F) {
	for _, seed := range []string{`"a\u00e9\ud83d\ude00\ud800\/"`, `{"a" : [1e5, "\\\"", "\\"]}`, `"\ud800\u0041"`, `"\u0000\u001f\u007f\u2028"`, ` 1 `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if !json.Valid([]byte(raw)) {
			return
		}
		if got := compactSize([]byte(raw)); got < 1 || got > len(raw) {
			t.Errorf("got %d bytes for %q of %d", got, raw, len(raw))
		}
	})
}
