package runner

import (
	"context"
	"encoding/json"

	"github.com/openai/openai-go/v3/responses"
)

// A Browser is a set of function tools that act on one browser.
type Browser interface {
	// Tools are the enabled tools in the order of declaration, with their wire names, browser_ and the member's
	// name. They do not change.
	Tools() []responses.FunctionToolParam
	// ExecuteCall carries out one function_call by such a name, given as JSON with a completed status. A refusal or
	// a failure that the model is to hear of is a result that is not OK. An error is for what ends the run: a
	// malformed call, a bad result or state of the browser, a done ctx, a toolset that is busy or closed.
	ExecuteCall(ctx context.Context, call json.RawMessage, opts BrowserOptions) (BrowserResult, error)
}

// BrowserOptions are the choices of one browser call.
type BrowserOptions struct {
	// Skip says that an earlier browser call of the same response was not OK, so that the model made this one
	// without knowing what it is about: it is answered without being carried out.
	Skip bool
	// OnDiagnostic takes the records of the call; nil when the run has no observer.
	OnDiagnostic func(Diagnostic)
}

// A BrowserResult is the answer to a browser call. It is taken as it is: looking into a picture again would take
// longer than all else that is done with it.
type BrowserResult struct {
	Output json.RawMessage // the function_call_output
	OK     bool            // what it says of itself
	Images int             // how many input_image blocks it holds
}
