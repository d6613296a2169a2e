package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/openai/openai-go/v3/responses"
)

// Typed makes a function whose arguments are checked against the declaration's JSON schema and decoded to an A, with
// unknown fields refused, before any call of the response is carried out. Arguments that do not fit end the run, and
// execute is not called.
//
// The schema may use the part of JSON Schema 2020-12 that function tools can use: see the error for what it may not. A
// strict declaration needs a closed object whose properties are all required. What does not fit is a [*ConfigError].
func Typed[A any](tool responses.FunctionToolParam, execute func(ctx context.Context, arguments A) (Output, error)) (Function, error) {
	raw, err := json.Marshal(tool.Parameters)
	if err != nil {
		return Function{}, refuse("function %q: the schema cannot be encoded", tool.Name)
	}
	schema, err := compileSchema(raw)
	if err != nil {
		return Function{}, refuse("function %q: the schema: %v", tool.Name, err)
	}
	if tool.Strict.Value && !schema.strict() {
		return Function{}, refuse("function %q: a strict schema is a closed object with all properties required", tool.Name)
	}
	if execute == nil {
		return Function{}, refuse("function %q: nothing to execute", tool.Name)
	}
	decode := func(arguments string) (a A, err error) {
		v, err := decode([]byte(arguments))
		if err != nil {
			return a, err
		}
		if !schema.valid(v) {
			return a, errSchema
		}
		d := json.NewDecoder(bytes.NewReader([]byte(arguments)))
		d.DisallowUnknownFields()
		return a, d.Decode(&a)
	}
	return Function{
		Tool: tool,
		Execute: func(ctx context.Context, arguments map[string]any) (Output, error) {
			a, err := decode(string(encode(arguments)))
			if err != nil {
				return Output{}, err
			}
			return execute(ctx, a)
		},
		prepare: func(arguments string) (execution, error) {
			a, err := decode(arguments)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) (Output, error) { return execute(ctx, a) }, nil
		},
	}, nil
}

var errSchema = errors.New("arguments that the schema does not allow")
