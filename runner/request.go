package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/openai/openai-go/v3/responses"
)

// request makes one request and checks the response. What was seen of a response that does not fit goes into the
// ledger where a hosted tool may have acted.
func (r *run) request(ctx context.Context, input []entry) (*Turn, error) {
	if err := cancelled(ctx); err != nil {
		return nil, err
	}
	r.newResponse()
	r.sameTurn, r.skipBrowser = false, false
	start := time.Now()
	raw, seen, err := r.receive(ctx, input)
	record := Diagnostic{API: APIResponses, Stage: StageRequest, Reason: OutcomeCompleted, Duration: time.Since(start)}
	if err != nil {
		record.Reason = StageRequest.failure()
		if ctx.Err() != nil {
			record.Reason = OutcomeCancelled
		}
		r.report(record)
		return nil, orCancelled(ctx, err)
	}
	t, bad := r.inspectResponse(raw, seen)
	if bad != nil {
		if bad.keep == keepAll {
			r.pending = t.raws()
		}
		return nil, r.keepMisfit(ctx, bad)
	}
	record.Usage = usage(raw)
	t.record = record
	return t, nil
}

// receive returns a completed response, nil if it did not complete, and the items that were inspected on the way: nil
// unless the run is eager.
func (r *run) receive(ctx context.Context, input []entry) (json.RawMessage, []*item, error) {
	if r.opts.Stream {
		s := &reader{run: r, deferred: len(r.hosted) > 0}
		raw, err := s.read(ctx, input)
		return raw, s.inspected(), err
	}
	response, err := r.requests.send(ctx, r.step, input)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, requestFailed(r.step, err)
	}
	return json.RawMessage(response.RawJSON()), nil, nil
}

// keepMisfit saves what is to be kept of a response that does not fit, and returns the error.
func (r *run) keepMisfit(ctx context.Context, bad *misfit) error {
	if bad.keep == keepNothing {
		return bad.Error
	}
	if err := r.save(ctx, PhasePending, nil); err != nil {
		return err
	}
	return bad.Error
}

// inspectResponse checks a whole response. In an eager run its items were inspected as they came, and have to be what
// they were then. The turn is returned with a misfit too, with all items.
func (r *run) inspectResponse(raw json.RawMessage, seen []*item) (*Turn, *misfit) {
	place := fmt.Sprintf("response %d", r.step)
	t := &Turn{run: r, response: raw, Step: r.step}
	if raw == nil {
		return t, malformed(keepNothing, place, "not completed")
	}
	var body map[string]json.RawMessage // a struct would take fields of other case, too
	var items []json.RawMessage
	if json.Unmarshal(raw, &body) != nil || decoded(body["status"]) != "completed" {
		return t, malformed(keepNothing, place, "not completed")
	}
	if json.Unmarshal(body["output"], &items) != nil || items == nil {
		return t, malformed(keepNothing, place, "without a list of items")
	}
	for _, raw := range items {
		t.items = append(t.items, newItem(raw))
	}
	var bad *misfit
	if r.opts.Eager {
		bad = r.compare(t.items, seen, place)
	} else {
		bad = r.inspectAll(t.items, place)
	}
	if bad != nil {
		return t, bad
	}
	answer := false
	for _, it := range t.items {
		if it.call != nil {
			t.calls = append(t.calls, it.call)
		}
		answer = answer || it.answers()
	}
	t.Final = len(t.calls) == 0
	if t.Final && !answer {
		return t, malformed(keepNothing, place, "neither a call nor an answer")
	}
	t.Response = &responses.Response{}
	if err := t.Response.UnmarshalJSON(raw); err != nil {
		return t, malformed(keepNothing, place, "malformed")
	}
	return t, nil
}

func (r *run) inspectAll(items []*item, place string) *misfit {
	for i, it := range items {
		if bad := r.inspect(it, fmt.Sprintf("%s: output[%d]", place, i)); bad != nil {
			return bad
		}
	}
	return nil
}

// compare checks that a finished response holds what was inspected, and perhaps carried out, while it came.
func (r *run) compare(items, seen []*item, place string) *misfit {
	if len(items) != len(seen) {
		return malformed(keepNothing, place, "not the items that were streamed")
	}
	for i, it := range items {
		if !seen[i].same(it) {
			return malformed(keepNothing, fmt.Sprintf("%s: output[%d]", place, i), "not the item that was streamed")
		}
		if missing(at(seen[i].fields, "id")) && !missing(at(it.fields, "id")) && r.enterID(textOf(it.fields["id"])) != "" {
			return malformed(keepNothing, fmt.Sprintf("%s: output[%d]", place, i), "an item id came before")
		}
		if it.call = seen[i].call; it.call != nil {
			it.call.item = it
		}
	}
	return nil
}
