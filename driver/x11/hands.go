package x11

import (
	"context"
	"image"
	"time"

	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/ward"
)

// hands press keys and buttons and remember what is down.
type hands struct {
	sink event.Sink
	// ward is told what may be down before it is, in case this process dies. It is nil in a dry run.
	ward *ward.Ward
	// apart says that the sink has a connection of its own, whose events may overtake the ward's requests.
	apart bool
	down  []thing // in the order of the presses
	// aim is where the pointer was last sent to, if at all.
	aim   image.Point
	aimed bool
}

// A thing is a key, or a button when its number is not 0.
type thing struct {
	button byte
	key    keyboard.Stroke
}

func (h *hands) set(t thing, down bool) error {
	if t.button != 0 {
		return h.sink.Button(t.button, down)
	}
	return h.sink.Key(t.key.Code, t.key.Symbol, down)
}

// record has the ward know of presses to come, and reports whether that is news to it: then it has to be on the display
// before the first of them.
func (h *hands) record(things ...thing) (added bool, err error) {
	var s ward.State
	for _, t := range things {
		if t.button != 0 {
			s.Buttons = append(s.Buttons, t.button)
		} else {
			s.Keys = append(s.Keys, t.key.Code)
		}
	}
	return h.ward.Add(s)
}

// expect is record for somebody who presses at once.
func (h *hands) expect(things ...thing) error {
	added, err := h.record(things...)
	if err == nil && added && h.apart {
		err = h.sink.Sync()
	}
	return err
}

// press notes the press before it makes it: one that went wrong half-way is released too.
func (h *hands) press(things ...thing) error {
	if err := h.expect(things...); err != nil {
		return err
	}
	for _, t := range things {
		h.down = append(h.down, t)
		if err := h.set(t, true); err != nil {
			return err
		}
	}
	return nil
}

// release releases the last n that were pressed, the last one first. It goes on when one of them fails, and
// returns the first error.
func (h *hands) release(n int) (first error) {
	for range n {
		last := len(h.down) - 1
		t := h.down[last]
		h.down = h.down[:last]
		if err := h.set(t, false); first == nil {
			first = err
		}
	}
	return first
}

// move sends the pointer to a point.
func (h *hands) move(to image.Point) error {
	h.aim, h.aimed = to, true
	return h.sink.Move(to)
}

// turn turns the wheel by some notches.
func (h *hands) turn(button byte, notches int) error {
	if err := h.expect(thing{button: button}); err != nil {
		return err
	}
	return h.sink.Wheel(button, notches)
}

// releaseAll leaves nothing down, and waits until the server has seen it. What went wrong stays on record.
func (h *hands) releaseAll() error {
	err := h.release(len(h.down))
	if err == nil {
		err = h.ward.Set(ward.State{Bound: h.ward.State().Bound, Locked: h.ward.State().Locked})
	}
	if late := h.sink.Sync(); err == nil {
		err = late
	}
	return err
}

// pause lets the server catch up and then waits, unless ctx ends first.
func (h *hands) pause(ctx context.Context, t time.Duration) error {
	if err := h.sink.Sync(); err != nil {
		return err
	}
	return sleep(ctx, t)
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
