package runner_test

import (
	"encoding/json"
)

// A script is the input of a case, or one operation of a sequence.
type script struct {
	Op, Target       string
	Registration     registration
	Params           json.RawMessage
	Options          options
	Responses        []rule
	ClientMaxRetries int `json:"client_max_retries"`
	Turns            []turnScript
	AfterEnd         []action `json:"after_end"`
	Operations       []script
	Inside           []insideOperation
	Cancel           string
	TraceEnds        bool `json:"trace_ends"`
	ScribbleParams   bool `json:"scribble_params"`
}

type registration struct {
	Functions []struct {
		Tool                json.RawMessage
		AllowOutputOverride bool `json:"allow_output_override"`
		Independent, Typed  bool
		NoExecute           bool `json:"no_execute"`
		Answers             []rule
	}
	Computer *struct{ Driver []rule }
	Browser  *struct {
		Members   []string
		Driver    []rule
		Confirm   []rule
		URLPolicy []rule `json:"url_policy"`
	}
	Early *struct {
		Functions []string
		Computer  bool
	}
	ScribbleAfter bool `json:"scribble_after"`
}

type options struct {
	MaxSteps            json.Number `json:"max_steps"`
	MaxConcurrentCalls  int         `json:"max_concurrent_calls"`
	Stream, Eager       bool
	OnEvent             []rule `json:"on_event"`
	ApproveMCP          []rule `json:"approve_mcp"`
	ApproveSafetyChecks []rule `json:"approve_safety_checks"`
	BeforeAction        []rule `json:"before_action"`
	BeforeEarlyCall     []rule `json:"before_early_call"`
	Observer            []rule
	Headers             map[string]string
	RequestOptions      map[string]any `json:"request_options"`
	Ledger              *struct {
		RunID      string `json:"run_id"`
		Save       []rule
		ResumeFrom json.RawMessage `json:"resume_from"`
	}
	ContextBudget *struct {
		MaxInputBytes         json.Number `json:"max_input_bytes"`
		MaxInputImages        json.Number `json:"max_input_images"`
		KeepRecentScreenshots int         `json:"keep_recent_screenshots"`
		Compact               []rule
	} `json:"context_budget"`
}

type rule struct {
	Method, Type       string
	Nth                int
	Return             json.RawMessage
	Raise, RaiseSafe   bool
	Cancel, Scribble   bool
	Linger             bool
	WaitFor            string `json:"wait_for"`
	Response           json.RawMessage
	Events             []json.RawMessage
	Status             int
	ConnectionLost     bool `json:"connection_lost"`
	isEvents, returned bool
}

func (r *rule) UnmarshalJSON(raw []byte) error {
	type plain rule
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return err
	}
	r.isEvents, r.returned = given["events"] != nil, given["return"] != nil
	return json.Unmarshal(raw, (*plain)(r))
}

type insideOperation struct {
	At  string
	Nth int
	script
}

type turnScript struct {
	Step int
	Do   []action
}

type action struct {
	OnTurn         int             `json:"on_turn"`
	SupplyOutputs  json.RawMessage `json:"supply_outputs"`
	AppendUserText json.RawMessage `json:"append_user_text"`
	Scribble       bool
	Cancel, Close  bool
	Break          bool
	script
}
