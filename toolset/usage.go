package toolset

import "encoding/json"

// Usage is what responses cost, in tokens. The zero Usage is that of no response.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
	// Incomplete tells that a response did not say what it cost, so that the true sums are higher.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Add adds the usage that a response, given as JSON, reports. Figures that are missing, negative or not whole make
// the sum incomplete and none of that response's figures count.
func (u *Usage) Add(response json.RawMessage) {
	var figures [3]int64
	o, err := parseObject(response)
	if err == nil {
		o, err = parseObject(o["usage"])
	}
	for i, name := range []string{"input_tokens", "output_tokens", "total_tokens"} {
		if err == nil {
			figures[i], err = parseInteger(o[name])
		}
		if err != nil || figures[i] < 0 {
			u.Incomplete = true
			return
		}
	}
	u.InputTokens += figures[0]
	u.OutputTokens += figures[1]
	u.TotalTokens += figures[2]
}
