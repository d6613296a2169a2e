package runner

import (
	"bytes"
	"fmt"
	"hash/maphash"
)

// DefaultRepeatLimit is a good [Options.RepeatLimit].
const DefaultRepeatLimit = 3

// repeats counts turns that are the same as the one before: the same computer calls, and the same pictures after them.
type repeats struct {
	seed  maphash.Seed
	last  uint64
	count int
}

// noteRepeats looks at a turn that was carried out. It returns what the model is to be told, or an error when telling it
// has not helped.
func (r *run) noteRepeats(t *Turn) (warning []string, err error) {
	if r.opts.RepeatLimit == 0 {
		return nil, nil
	}
	turn, ok := r.fingerprint(t)
	switch {
	case !ok:
		r.repeats.count = 0
		return nil, nil
	case r.repeats.count > 0 && turn == r.repeats.last:
		r.repeats.count++
	default:
		r.repeats.last, r.repeats.count = turn, 1
	}
	switch {
	case r.repeats.count > r.opts.RepeatLimit:
		return nil, stop(ReasonNoEffect, "the same computer calls %d times in succession, without effect", r.repeats.count)
	case r.repeats.count == r.opts.RepeatLimit:
		return []string{fmt.Sprintf("You have done the same %d times in succession, and the screen has stayed the same. "+
			"Do something else, or say what keeps you from going on.", r.repeats.count)}, nil
	}
	return nil, nil
}

// fingerprint stands for what the calls of a turn did and what could be seen after them. A turn that also called
// something else is never a repetition.
func (r *run) fingerprint(t *Turn) (sum uint64, ok bool) {
	var h maphash.Hash
	h.SetSeed(r.repeats.seed)
	for i, c := range t.calls {
		if c.kind != computerCall {
			return 0, false
		}
		h.Write(encode([]any{c.item.fields["action"], c.item.fields["actions"]}))
		before, after, _ := bytes.Cut(r.outputs[i].raw, encode(c.id)) // the id is always another
		h.Write(before)
		h.Write(after)
	}
	return h.Sum64(), true
}
