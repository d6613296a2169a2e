package settle

import (
	"image"
	"slices"
	"time"
)

// What makes a place recurring; the package comment says why.
const (
	smallShare   = 16 // all recurring places together cover at most one part in so many of the screen
	steadyTime   = time.Second
	steadyHits   = 3
	steadyMemory = 1500 * time.Millisecond
	echoTime     = 150 * time.Millisecond
)

const (
	// margin is how far apart, in pixels, two changes may be that belong to one place: the parts of a thing that turns.
	margin = 8
	// maxPieces and maxSpots bound the work for a screen that changes in very many places at once: it is then seen as
	// changing all over.
	maxPieces, maxSpots = 64, 32
)

// A history is what is known of the changes on a screen. Time is given to it, never asked for, and never goes back.
type history struct {
	screen          image.Rectangle
	seen            time.Time // the last look
	marked, touched time.Time
	spots           []*spot
	wide            image.Rectangle // what has changed since the mark and is in no spot
	wideLast        time.Time       // when, the last time; zero for never
}

// A spot is a small place that has changed.
type spot struct {
	bounds image.Rectangle
	first  time.Time // change since the mark; zero for none
	last   time.Time // change
	// hits are the changes since one has gone over its edge or input was sent, and steady is the first of them.
	hits   int
	steady time.Time
	// recurring is whether it changes all the time, every period or so, and old whether it did so before the mark, or may
	// have done.
	recurring, old bool
	period         time.Duration
}

// hit notes a change within the spot. What comes in several pieces at a time is one.
func (s *spot) hit(now time.Time) {
	if s.last != now {
		if s.hits == 0 {
			s.steady = now
		}
		s.hits++
	}
	s.last = now
	if s.first.IsZero() {
		s.first = now
	}
}

// see notes what has changed between the last look and now.
func (h *history) see(now time.Time, changed []image.Rectangle, screen image.Rectangle) {
	h.seen = now
	if screen != h.screen {
		h.screen, h.spots, h.wide = screen, nil, image.Rectangle{} // What was where is of no use now.
		changed = []image.Rectangle{screen}
	}
	if len(changed) > maxPieces {
		var all image.Rectangle
		for _, r := range changed {
			all = all.Union(r)
		}
		changed = []image.Rectangle{all}
	}
	for _, r := range changed {
		if s := h.spotFor(now, r); s != nil {
			s.hit(now)
		} else {
			h.wide, h.wideLast = h.wide.Union(r), now
		}
	}
	for _, s := range h.spots {
		long := s.last.Sub(s.steady)
		if s.hits >= steadyHits && long >= steadyTime && (s.recurring || h.small(append(h.recurring(), s.bounds)...)) {
			s.recurring, s.period = true, long/time.Duration(s.hits-1)
		}
	}
}

// spotFor returns the spot that a change belongs to: one that it lies within, or one that is not known to recur and which
// it makes larger, or a new one; none when it is not small.
func (h *history) spotFor(now time.Time, r image.Rectangle) *spot {
	for _, s := range h.spots {
		if r.In(s.bounds) {
			return s
		}
	}
	for _, s := range h.spots {
		all := s.bounds.Union(r)
		if s.recurring || !r.Overlaps(s.bounds.Inset(-margin)) || !h.small(all) {
			continue
		}
		s.bounds, s.hits = all, 0
		if s.old {
			s.first, s.old = now, false // What has grown since the mark is not what was there before.
		}
		return s
	}
	if !h.small(r) || len(h.spots) == maxSpots {
		return nil
	}
	s := &spot{bounds: r}
	h.spots = append(h.spots, s)
	return s
}

// recurring are the places that are so.
func (h *history) recurring() (places []image.Rectangle) {
	for _, s := range h.spots {
		if s.recurring {
			places = append(places, s.bounds)
		}
	}
	return places
}

// small reports whether places together are of the size of what may recur.
func (h *history) small(places ...image.Rectangle) bool {
	area := 0
	for _, r := range places {
		area += r.Dx() * r.Dy()
	}
	return area*smallShare <= h.screen.Dx()*h.screen.Dy()
}

// mark forgets all changes, but remembers the spots that have changed by themselves just now, and the recurring ones
// that may go on. The caller has looked for changes just before.
func (h *history) mark(now time.Time) {
	h.spots = slices.DeleteFunc(h.spots, func(s *spot) bool {
		return now.Sub(s.last) > steadyMemory || !s.recurring && s.last != h.seen
	})
	for _, s := range h.spots {
		s.first, s.old = time.Time{}, true
	}
	h.marked, h.wide, h.wideLast = now, image.Rectangle{}, time.Time{}
	h.touch(now)
}

// touch notes that input was sent until now. What changed since the mark may be its effect, and is no sign of anything
// that recurs.
func (h *history) touch(now time.Time) {
	h.touched = now
	for _, s := range h.spots {
		s.hits, s.recurring = 0, s.recurring && s.old
	}
}

// verdict says how things stand at some time for one who asked at another, and when that is the answer, unless something
// changes.
func (h *history) verdict(now, asked time.Time, t Timing) (r Result, due time.Time) {
	r = Result{State: Unchanged, Elapsed: now.Sub(h.marked), Changed: h.wide}
	last := h.wideLast
	for _, s := range h.spots {
		if s.first.IsZero() {
			continue
		}
		change := s.last
		if s.recurring {
			r.Recurring = r.Recurring.Union(s.bounds)
			if s.old && !h.echo(s) {
				continue
			}
			change = s.first
		}
		r.Changed = r.Changed.Union(s.bounds)
		if change.After(last) {
			last = change
		}
	}
	due = h.touched.Add(t.Grace)
	if !last.IsZero() {
		r.State, r.LastChange = Settled, last.Sub(h.marked)
		if quiet := last.Add(t.Quiet); last.After(h.touched) || quiet.After(due) {
			due = quiet
		}
	}
	if deadline := asked.Add(t.Deadline); deadline.Before(due) {
		if due = deadline; r.State == Settled {
			r.State = Changing
		}
	}
	return r, due
}

// echo reports whether a recurring spot has changed because of input, to all appearance: one that changes now and then, and
// has done so just after.
func (h *history) echo(s *spot) bool {
	return s.period > echoTime && h.touched.After(h.marked) && s.first.Sub(h.touched) <= echoTime
}
