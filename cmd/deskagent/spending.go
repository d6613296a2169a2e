package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// A price is what a million tokens cost in US dollars.
type price struct {
	Input  float64 `json:"input"`
	Cached float64 `json:"cached"` // input that the API had read before
	Output float64 `json:"output"`
}

// pricesDate is when the prices were looked up.
const pricesDate = "2026-06"

// prices are those of the standard service tier, by model, from the price list of the API's documentation. A model that
// is not here, or a dated version of one that is, has no known price: a guess would make --max-cost a false promise.
var prices = map[string]price{
	"gpt-5.5":      {5, 0.5, 30},
	"gpt-5.4":      {2.5, 0.25, 15},
	"gpt-5.4-mini": {0.75, 0.075, 4.5},
	"gpt-5.4-nano": {0.2, 0.02, 1.25},
	"gpt-5.2":      {1.75, 0.175, 14},
	"gpt-5-mini":   {0.25, 0.025, 2},
	"gpt-5-nano":   {0.05, 0.005, 0.4},
	"gpt-4.1":      {2, 0.5, 8},
	"gpt-4o":       {2.5, 1.25, 10},
	"o4-mini":      {1.1, 0.275, 4.4},
}

// longInput is the size of an input, in tokens, beyond which some models cost more than their price here.
const longInput = 272_000

// spending bounds what a run may cost.
type spending struct {
	maxTokens int64
	maxCost   float64 // US dollars; 0 for no bound
	file      string  // prices that come before ours
}

const spendingHelp = `--max-tokens and --max-cost end the run, before anything else is done, as soon as its responses have used
as much, in tokens of input and output or in US dollars; the last request may go beyond. Prices are
those of ` + pricesDate + `, without those of hosted tools. --prices names a file of other ones, per million tokens:
  {"gpt-5.4": {"input": 2.5, "cached": 0.25, "output": 15}}`

func spendingFlags(cmd *cobra.Command, s *spending) {
	flags := cmd.Flags()
	flags.Int64Var(&s.maxTokens, "max-tokens", 0, "the most tokens to use (default no bound)")
	flags.Float64Var(&s.maxCost, "max-cost", 0, "the most US dollars to spend (default no bound)")
	flags.StringVar(&s.file, "prices", "", "file with prices of models")
}

// price looks up what a model costs, nil if that is not known, and refuses bounds that cannot be kept.
func (s *spending) price(model string) (*price, error) {
	switch {
	case s.maxTokens < 0:
		return nil, usagef("--max-tokens %d: want 1 or more", s.maxTokens)
	case s.maxCost < 0:
		return nil, usagef("--max-cost %v: want more than 0", s.maxCost)
	}
	known, err := readPrices(s.file)
	if err != nil {
		return nil, usageError{err}
	}
	p, ok := known[model]
	if !ok {
		p, ok = prices[model]
	}
	if ok {
		return &p, nil
	}
	if s.maxCost > 0 {
		return nil, hintError{usagef("--max-cost: what %q costs is not known", model), "--prices FILE tells; \"deskagent run --help\" shows one"}
	}
	return nil, nil
}

// readPrices reads a file of prices; without a name there are none. What is not a price is refused, and so is one
// with a part left out: it would count as nothing.
func readPrices(file string) (map[string]price, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading prices: %w", err)
	}
	var given map[string]struct{ Input, Cached, Output *float64 }
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&given); err != nil {
		return nil, fmt.Errorf("reading prices: %s: %w", file, err)
	}
	read := map[string]price{}
	for model, p := range given {
		for _, part := range []*float64{p.Input, p.Cached, p.Output} {
			if part == nil || *part < 0 {
				return nil, fmt.Errorf("reading prices: %s: %q: want input, cached and output of 0 or more", file, model)
			}
		}
		read[model] = price{*p.Input, *p.Cached, *p.Output}
	}
	return read, nil
}

// A bill is what one response or more cost.
type bill struct {
	toolset.Usage
	cached  int64 // of the input
	dollars float64
	priced  bool // dollars is all of it
}

func (b bill) String() string {
	s := fmt.Sprintf("%d in", b.InputTokens)
	if b.cached > 0 {
		s += fmt.Sprintf(" (%d cached)", b.cached)
	}
	s += fmt.Sprintf(", %d out, %d in all", b.OutputTokens, b.TotalTokens)
	switch {
	case b.Incomplete:
		return s + " (incomplete: a response did not say)"
	case !b.priced:
		return s + ", cost unknown"
	}
	return s + fmt.Sprintf(", %.4f USD", b.dollars)
}

// spent keeps the bill of a run, and ends the run when it reaches a bound.
type spent struct {
	bounds spending
	price  *price // nil if it is not known
	last   bill   // of the latest response
	total  bill
}

func newSpent(bounds spending, p *price) *spent {
	return &spent{bounds: bounds, price: p, total: bill{priced: p != nil}}
}

// errSpent is wrapped by the error of a run that has reached a bound.
var errSpent = errors.New("reached")

// turn adds a response.
func (s *spent) turn(turn *runner.Turn) error {
	s.last = bill{priced: s.price != nil}
	s.last.Add(json.RawMessage(turn.Response.RawJSON()))
	s.last.cached = turn.Response.Usage.InputTokensDetails.CachedTokens
	if s.price != nil {
		fresh := s.last.InputTokens - s.last.cached
		s.last.dollars = (float64(fresh)*s.price.Input + float64(s.last.cached)*s.price.Cached + float64(s.last.OutputTokens)*s.price.Output) / 1e6
	}
	s.last.priced = s.last.priced && !s.last.Incomplete && s.last.InputTokens <= longInput
	s.total.add(s.last)
	return nil
}

// bound refuses to go on beyond a bound. The answer itself is never refused: it is paid for.
func (s *spent) bound(turn *runner.Turn) error {
	if turn.Final {
		return nil
	}
	bounded := s.bounds.maxTokens > 0 || s.bounds.maxCost > 0
	switch {
	case bounded && s.total.Incomplete:
		return fmt.Errorf("the bound on tokens or cost cannot be kept: response %d does not say what it cost", turn.Step)
	case s.bounds.maxTokens > 0 && s.total.TotalTokens >= s.bounds.maxTokens:
		return fmt.Errorf("--max-tokens %d is %w: %d tokens were used", s.bounds.maxTokens, errSpent, s.total.TotalTokens)
	case s.bounds.maxCost > 0 && !s.total.priced:
		return fmt.Errorf("--max-cost cannot be kept: an input of %d tokens may cost more than the price that is known", s.last.InputTokens)
	case s.bounds.maxCost > 0 && s.total.dollars >= s.bounds.maxCost:
		return fmt.Errorf("--max-cost %v is %w: %.4f USD were spent", s.bounds.maxCost, errSpent, s.total.dollars)
	}
	return nil
}

func (b *bill) add(other bill) {
	b.InputTokens += other.InputTokens
	b.OutputTokens += other.OutputTokens
	b.TotalTokens += other.TotalTokens
	b.Incomplete = b.Incomplete || other.Incomplete
	b.cached += other.cached
	b.dollars += other.dollars
	b.priced = b.priced && other.priced
}
