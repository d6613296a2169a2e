package runner_test

import (
	"errors"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

func TestR30Iterate(t *testing.T) {
	b := newBench(t, answers(fc("a")), answers(fc("b")), answers(said("m")))
	r := b.runner(runner.Registration{})
	sequence := r.Iterate(t.Context(), b.client(), request("Go."), runner.Options{})
	for turn, err := range sequence {
		wantOK(t, err)
		if turn.Step != 1 || turn.Final || turn.ToolsExecuted {
			t.Errorf("got the turn %+v, want the first, with nothing done", turn)
		}
		break
	}
	wantLines(t, "trace", b.trace, "request 1")
	yields := 0
	for turn, err := range sequence {
		yields++
		if turn != nil || !errors.Is(err, runner.ErrConsumed) {
			t.Errorf("a second range: got %v, %v, want ErrConsumed", turn, err)
		}
	}
	if yields != 1 {
		t.Errorf("a second range: got %d yields, want 1", yields)
	}

	// A new run starts; what is shown may be edited.
	steps := 0
	for turn, err := range r.Iterate(t.Context(), b.client(), request("Go."), runner.Options{}) {
		wantOK(t, err)
		steps++
		if turn.Step != steps || turn.Final != (steps == 2) {
			t.Errorf("got the turn %+v, want number %d of 2", turn, steps)
		}
		turn.Response.Output, turn.Response.ID = nil, "#"
		for i := range turn.AttemptedCallIDs {
			turn.AttemptedCallIDs[i] = "#"
		}
	}
	wantLines(t, "trace", b.trace, "request 1", "request 2", "f", "request 3")
	wantLines(t, "input", b.input(3), "user Go.", "function_call b", "function_call_output b f done")

	b = newBench(t, answers(fc("a")), answers(fc("a")))
	var shown []int
	r = b.runner(runner.Registration{})
	for turn, err := range r.Iterate(t.Context(), b.client(), request("Go."), runner.Options{}) {
		if err != nil {
			if turn != nil {
				t.Error("got a turn with the error")
			}
			wantReason(t, err, runner.ReasonInvalidResponse, []string{"a"}, []string{"a"})
			shown = append(shown, -1)
			// The run is over by now.
			if _, err := r.Run(t.Context(), b.client(), request("Go."), runner.Options{MaxSteps: -1}); errors.Is(err, runner.ErrBusy) {
				t.Error("a run started on hearing of the error: got ErrBusy")
			}
			continue
		}
		shown = append(shown, turn.Step)
	}
	if len(shown) != 2 || shown[1] != -1 {
		t.Errorf("got the yields %v, want one turn and the error", shown)
	}
}

// supply is a supplied output.
func supply(callID, text string) responses.ResponseInputItemFunctionCallOutputParam {
	return responses.ResponseInputItemFunctionCallOutputParam{CallID: openai.String(callID), Output: output(text)}
}

func TestR31SupplyOutputs(t *testing.T) {
	b := newBench(t, streamed(fc("a"), fcOf("b", "g", "{}"), page("p", "read_page")), streamed(said("m")))
	f, g := b.function("f"), b.function("g")
	g.AllowOutputOverride = true
	r := b.runner(runner.Registration{Functions: []runner.Function{f, g}, Browser: b.browser("", "read_page"),
		Early: &runner.Early{Functions: []string{"f"}}})
	var first *runner.Turn
	for turn, err := range r.Iterate(t.Context(), b.client(), request("Go."), eager) {
		wantOK(t, err)
		if turn.Final {
			continue
		}
		first = turn
		wantOK(t, turn.SupplyOutputs([]responses.ResponseInputItemFunctionCallOutputParam{supply("b", "mine")}))
		noted := supply("b", "x")
		noted.Status = "completed"
		for name, list := range map[string][]responses.ResponseInputItemFunctionCallOutputParam{
			"attempted":     {supply("a", "x")},
			"unknown":       {supply("z", "x")},
			"of a browser":  {supply("p", "x")},
			"twice":         {supply("b", "x"), supply("b", "y")},
			"with a status": {noted},
			"no output":     {{CallID: openai.String("b")}},
		} {
			if err := turn.SupplyOutputs(list); err == nil {
				t.Errorf("%s: got no error", name)
			}
		}
	}
	wantLines(t, "trace", b.trace, "request 1", "f", "read_page", "request 2")
	wantLines(t, "input", b.input(2)[4:6], "function_call_output a f done", "function_call_output b mine")
	if err := first.SupplyOutputs(nil); err == nil {
		t.Error("a turn that is over: got no error")
	}

	// An empty list clears.
	b = newBench(t, answers(fcOf("b", "g", "{}")), answers(said("m")))
	g = b.function("g")
	g.AllowOutputOverride = true
	for turn, err := range b.runner(runner.Registration{Functions: []runner.Function{g}}).Iterate(t.Context(), b.client(), request("Go."), runner.Options{}) {
		wantOK(t, err)
		if !turn.Final {
			wantOK(t, turn.SupplyOutputs([]responses.ResponseInputItemFunctionCallOutputParam{supply("b", "mine")}))
		}
		wantOK(t, turn.SupplyOutputs(nil))
	}
	wantLines(t, "trace", b.trace, "request 1", "g", "request 2")
}

func TestR32AppendUserText(t *testing.T) {
	b := newBench(t, answers(fc("a"), fcOf("b", "g", "{}")), answers(said("m")))
	for turn, err := range b.runner(runner.Registration{}).Iterate(t.Context(), b.client(), request("Go."), runner.Options{MaxSteps: 2}) {
		wantOK(t, err)
		if turn.Final {
			if err := turn.AppendUserText("More."); err == nil {
				t.Error("the final turn: got no error")
			}
			continue
		}
		wantOK(t, turn.AppendUserText(" One.\n"))
		if err := turn.AppendUserText(" \n\t"); err == nil {
			t.Error("a blank text: got no error")
		}
		wantOK(t, turn.AppendUserText("Two."))
	}
	wantLines(t, "input", b.input(2), "user Go.", "function_call a", "function_call b", "function_call_output a f done",
		"function_call_output b g done", "user  One.\n", "user Two.")
}
