package runner

import (
	"time"

	"github.com/deskagent/deskagent/toolset"
)

// A Diagnostic is the record of one finished stage of a run. It holds no text, argument, picture or error.
type Diagnostic struct {
	API    API
	Stage  Stage
	Reason Outcome
	// CallID is the id of the call or of the MCP approval request; empty when the record is about a request.
	CallID string
	// Member is what was called: a function, a kind of action, a tool of an MCP server, a browser member without its
	// prefix. Empty when the record is about a request or about safety checks.
	Member string
	// Duration is how long the stage took, the time of whoever was asked included. Those of calls that run beside
	// each other, or beside the stream, overlap.
	Duration time.Duration
	// Usage is what a response says it cost; nil in other records and when it does not say so properly.
	Usage *toolset.Usage
}

// API is the part of the API that a record is about.
type API string

// The parts.
const (
	APIResponses API = "responses" // requests, functions, MCP approvals
	APIBrowser   API = "browser"
	APIComputer  API = "computer"
)

// Stage is a part of a run.
type Stage string

// The stages.
const (
	StageRequest   Stage = "request"
	StageArguments Stage = "arguments"
	StageApproval  Stage = "approval"
	StageAction    Stage = "action"
	StageOutput    Stage = "output"
)

// Outcome is how a stage ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted     Outcome = "completed"
	OutcomeRefused       Outcome = "refused" // an MCP call was declined
	OutcomeCancelled     Outcome = "cancelled"
	OutcomeInvalidInput  Outcome = "invalid_input"
	OutcomeInvalidOutput Outcome = "invalid_output"
	OutcomeAPIFailed     Outcome = "api_failed"
	OutcomeDriverFailed  Outcome = "driver_failed"
	OutcomePolicyFailed  Outcome = "policy_failed"
)

// failure is how a stage ends that fails for no better reason.
func (s Stage) failure() Outcome {
	switch s {
	case StageRequest:
		return OutcomeAPIFailed
	case StageArguments:
		return OutcomeInvalidInput
	case StageApproval:
		return OutcomePolicyFailed
	case StageOutput:
		return OutcomeInvalidOutput
	}
	return OutcomeDriverFailed
}

// AddUsage adds what a record of a completed request says to total, and ignores other records. A response that did
// not say what it cost makes the total incomplete.
func AddUsage(total *toolset.Usage, d Diagnostic) {
	switch {
	case d.Stage != StageRequest || d.Reason != OutcomeCompleted:
	case d.Usage == nil:
		total.Incomplete = true
	default:
		total.InputTokens += d.Usage.InputTokens
		total.OutputTokens += d.Usage.OutputTokens
		total.TotalTokens += d.Usage.TotalTokens
	}
}
