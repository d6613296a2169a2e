package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/openai/openai-go/v3/responses"
)

// A reader reads the stream of one response. In an eager run it carries out calls on the way.
type reader struct {
	*run
	raws     map[int]json.RawMessage // finished items by output_index
	items    map[int]*item           // the same, inspected; of eager runs
	next     int                     // the index that continues the list
	deferred bool                    // nothing more runs early
	group    []*independentCall      // running beside the stream

	returning sync.Mutex // guards receipts.completed while the group runs
}

// An independentCall is a function that runs beside the stream.
type independentCall struct {
	done   chan struct{}
	output entry
	err    error
}

// An event is a stream event, field by field. The client's own type is lenient, and its values belong to OnEvent.
type event map[string]json.RawMessage

// read reads the stream to its end, and returns the completed response, nil if there was none. Whatever runs beside it
// has ended when it returns.
func (s *reader) read(ctx context.Context, input []entry) (json.RawMessage, error) {
	s.raws, s.items = map[int]json.RawMessage{}, map[int]*item{}
	response, err := s.readEvents(ctx, input)
	if settled := s.settle(ctx); err == nil {
		err = settled
	}
	return response, err
}

func (s *reader) readEvents(ctx context.Context, input []entry) (json.RawMessage, error) {
	stream := s.requests.stream(ctx, s.step, input)
	defer stream.Close()
	began := false
	for stream.Next() {
		began = true
		if err := cancelled(ctx); err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal([]byte(stream.Current().RawJSON()), &e); err != nil {
			return nil, stop(ReasonInvalidResponse, "response %d: a malformed event", s.step)
		}
		kind := textOf(decoded(e["type"]))
		if kind == "error" {
			return nil, requestFailed(s.step, nil)
		}
		if err := s.show(ctx, stream.Current()); err != nil {
			return nil, err
		}
		switch kind {
		case "response.output_item.done":
			if err := s.finished(ctx, e); err != nil {
				return nil, err
			}
		case "response.completed":
			return s.complete(e["response"]), nil
		case "response.failed", "response.incomplete":
			return nil, nil
		}
	}
	if err := stream.Err(); err != nil || !began {
		return nil, requestFailed(s.step, err)
	}
	return nil, nil // cut short, which the client does not notice
}

func (s *reader) show(ctx context.Context, e responses.ResponseStreamEventUnion) error {
	if s.opts.OnEvent == nil {
		return nil
	}
	err := guard(func() error { return s.opts.OnEvent(ctx, e) })
	if err != nil {
		err = stop(ReasonFailed, "response %d: showing an event", s.step)
	}
	return orCancelled(ctx, err)
}

// complete is a finished response, with its items even if it came without.
func (s *reader) complete(response json.RawMessage) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(response, &o) != nil || o == nil || o["output"] != nil && string(o["output"]) != "null" {
		return response
	}
	list := []json.RawMessage{}
	for _, i := range slices.Sorted(maps.Keys(s.raws)) {
		list = append(list, s.raws[i])
	}
	o["output"] = encode(list)
	return encode(o)
}

// inspected are the items of an eager run in the order of the finished list.
func (s *reader) inspected() []*item {
	var list []*item
	for _, i := range slices.Sorted(maps.Keys(s.items)) {
		list = append(list, s.items[i])
	}
	return list
}

// finished takes in an item that has arrived whole.
func (s *reader) finished(ctx context.Context, e event) error {
	index, err := strconv.Atoi(string(e["output_index"]))
	if s.opts.Eager && (err != nil || index < 0 || s.raws[index] != nil) {
		return stop(ReasonInvalidResponse, "response %d: an item with an index that is none, or came before", s.step)
	}
	s.raws[index] = e["item"]
	if !s.opts.Eager {
		return nil
	}
	if index != s.next {
		s.deferred = true // what comes before it is not known yet
	}
	s.next++

	it := newItem(s.raws[index])
	s.items[index] = it
	before := s.pending
	s.pending = append(slices.Clip(before), it.raw)
	if bad := s.inspect(it, fmt.Sprintf("response %d: output[%d]", s.step, index)); bad != nil {
		if bad.keep == keepBefore {
			s.pending = before
		}
		_ = s.settle(ctx) // before a save; the misfit came first
		return s.keepMisfit(ctx, bad)
	}
	if it.call != nil {
		if err := s.prepare([]*call{it.call}); err != nil {
			return err
		}
	}
	if _, hosted := hostedShapes[it.kind]; hosted || len(s.pending) == 1 {
		if err := s.save(ctx, PhasePending, nil); err != nil {
			return err
		}
	}
	return s.runEarly(ctx, it)
}

// runEarly carries out the call of an item, if there is one and it may run now.
func (s *reader) runEarly(ctx context.Context, it *item) error {
	c := it.call
	if c != nil && c.kind != approvalRequest && s.lastStep() {
		return s.noStepLeft()
	}
	switch {
	case s.deferred:
		return nil
	case c == nil:
		return s.settle(ctx)
	case c.kind == approvalRequest, !s.mayBeEarly(c):
		s.deferred = true
		return nil
	}
	if ok, err := s.mayRun(ctx, c); err != nil || !ok {
		s.deferred = true
		return err
	}
	if c.kind == functionCall && c.tool.function.Independent && s.opts.Ledger == nil {
		return s.begin(ctx, c)
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	return s.dispatch(ctx, c, nil)
}

// mayRun asks whether a call that may run early is to.
func (s *reader) mayRun(ctx context.Context, c *call) (bool, error) {
	if s.opts.BeforeEarlyCall == nil {
		return true, nil
	}
	var decision EarlyDecision
	err := guard(func() (err error) {
		decision, err = s.opts.BeforeEarlyCall(ctx, EarlyCall{CallID: c.id, Name: c.name, Item: bytes.Clone(c.item.raw)})
		return err
	})
	if err != nil || decision != ExecuteEarly && decision != DeferCall {
		err = stop(ReasonFailed, "response %d: deciding about an early call", s.step)
	}
	return decision == ExecuteEarly, orCancelled(ctx, err)
}

// begin starts an independent function. When no more may run, it waits for all of them.
func (s *reader) begin(ctx context.Context, c *call) error {
	if err := s.attempt(ctx, c); err != nil {
		return err
	}
	running := &independentCall{done: make(chan struct{})}
	s.group = append(s.group, running)
	go func() {
		defer close(running.done)
		if running.output, running.err = s.execute(ctx, c); running.err == nil {
			s.returning.Lock()
			defer s.returning.Unlock()
			s.receipts.completed = append(s.receipts.completed, c.id)
		}
	}()
	if len(s.group) < s.opts.MaxConcurrentCalls {
		return nil
	}
	return s.settle(ctx)
}

// settle waits for the functions that run beside the stream. Outputs, and the first error, count in the order in which
// the functions were started.
func (s *reader) settle(ctx context.Context) (err error) {
	for _, running := range s.group {
		<-running.done
		if running.err == nil {
			s.outputs = append(s.outputs, running.output)
		} else if err == nil {
			err = running.err
		}
	}
	settled := len(s.group) > 0
	s.group = nil
	if settled {
		return orCancelled(ctx, err)
	}
	return nil
}
