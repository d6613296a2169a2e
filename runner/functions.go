package runner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/openai/openai-go/v3/responses"
)

// Output is what a function returns for the model: a text, which may be empty, or blocks of text, images and files. A
// nil list is no output, an empty one is.
type Output = responses.ResponseInputItemFunctionCallOutputOutputUnionParam

// A Function is a function tool.
type Function struct {
	// Tool is the declaration that is sent. It needs a name.
	Tool responses.FunctionToolParam
	// AllowOutputOverride lets [Turn.SupplyOutputs] take the place of a call.
	AllowOutputOverride bool
	// Independent lets calls of an eager run without a ledger run beside each other and beside the stream. Execute is
	// then called from several goroutines.
	Independent bool
	// Execute gets the arguments of a call, decoded from JSON without a type; it may keep and change them. Its error
	// or panic ends the run and its text goes nowhere. It is awaited even when ctx is done.
	Execute func(ctx context.Context, arguments map[string]any) (Output, error)

	prepare func(arguments string) (execution, error) // of typed functions
}

type callIDKey struct{}

// CallID is the id of the call that a function was given ctx for, "" in any other context. It is unique within a run.
func CallID(ctx context.Context) string {
	id, _ := ctx.Value(callIDKey{}).(string)
	return id
}

// An execution is a call with its arguments.
type execution func(context.Context) (Output, error)

// A tool is a registered function, or a tool of the browser.
type tool struct {
	name     string
	function *Function // nil for a tool of the browser
	direct   bool      // may be called by the model itself
	programs bool      // may be called by a program that the model wrote
}

// register captures a declaration.
func (r *Runner) register(t *tool, declaration responses.FunctionToolParam) error {
	raw, err := json.Marshal(declaration)
	if err != nil {
		return refuse("function %q: the declaration cannot be encoded", declaration.Name)
	}
	declared := decodeObject(raw)
	if !(fields{"type": oneOf("function"), "name": nonempty, "allowed_callers": maybe(listOf(text))}).open(declared) {
		return refuse("function %q: the declaration is not that of a function with a name", declaration.Name)
	}
	t.name, t.direct, t.programs = textOf(declared["name"]), true, true
	if callers, ok := declared["allowed_callers"].([]any); ok {
		t.direct, t.programs = slices.Contains(callers, any("direct")), slices.Contains(callers, any("programmatic"))
	}
	if r.tools[t.name] != nil {
		return refuse("two tools are named %q", t.name)
	}
	r.tools[t.name] = t
	r.declarations = append(r.declarations, raw)
	return nil
}

// prepared decodes the arguments of a call.
func (f *Function) prepared(arguments string) (execution, error) {
	o := decodeObject([]byte(arguments))
	if o == nil {
		return nil, errNoObject
	}
	if f.prepare != nil {
		return f.prepare(arguments)
	}
	var plain map[string]any // with numbers as everybody decodes them
	if err := json.Unmarshal([]byte(arguments), &plain); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Output, error) { return f.Execute(ctx, plain) }, nil
}

var errNoObject = errors.New("the arguments are not an object")

var (
	cacheMark = fields{"mode": oneOf("explicit"), "ttl": optional(oneOf("30m", "12h"))}.closed
	// inputBlocks are the blocks of an output, and of a user's message.
	inputBlocks = either(
		fields{"type": oneOf("input_text"), "text": text, "prompt_cache_breakpoint": maybe(cacheMark)}.closed,
		both(fields{"type": oneOf("input_image"), "image_url": maybe(nonblank), "file_id": maybe(nonblank),
			"detail":                  maybe(oneOf("auto", "low", "high", "original")),
			"prompt_cache_breakpoint": maybe(cacheMark)}.closed, has("image_url", "file_id")),
		both(fields{"type": oneOf("input_file"), "file_data": maybe(nonblank), "file_id": maybe(nonblank),
			"file_url": maybe(nonblank), "filename": maybe(text), "detail": optional(oneOf("auto", "low", "high")),
			"prompt_cache_breakpoint": maybe(cacheMark)}.closed, has("file_data", "file_id", "file_url")),
	)
	functionOutput = either(text, listOf(inputBlocks))
)

func both(a, b shape) shape { return func(v any) bool { return a(v) && b(v) } }

// has is an object in which one of the fields is a text.
func has(names ...string) shape {
	return func(v any) bool {
		o, _ := v.(object)
		return slices.ContainsFunc(names, func(name string) bool { return text(o[name]) })
	}
}

// encodeOutput checks and encodes what a function returned. It returns the decoded output as well.
func encodeOutput(o Output) (raw json.RawMessage, v any, ok bool) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, nil, false
	}
	v, err = decode(raw)
	return raw, v, err == nil && functionOutput(v)
}

// functionCallOutput is the item that answers a function call.
func functionCallOutput(callID string, output json.RawMessage) json.RawMessage {
	return encode(object{"type": "function_call_output", "call_id": callID, "output": output})
}

// images counts the images in the output of a function or in the content of a message.
func images(v any) (n int) {
	blocks, _ := v.([]any)
	for _, b := range blocks {
		if o, ok := b.(object); ok && o["type"] == "input_image" {
			n++
		}
	}
	return n
}
