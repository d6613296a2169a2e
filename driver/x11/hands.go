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
	// apart says that the sink has a connection of its own, whose events may overtake what is asked over the driver's,
	// and the other way round. late says that the ward's record may be on its way still.
	apart, late bool
	down        []thing // in the order of the presses
	// let are the buttons that were let go of since the last action began.
	let []byte
	// aim is where the pointer was last sent to, if at all.
	aim   image.Point
	aimed bool
	// was is where it was when the action began.
	was image.Point
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

// record has the ward know of presses to come.
func (h *hands) record(things ...thing) error {
	var s ward.State
	for _, t := range things {
		if t.button != 0 {
			s.Buttons = append(s.Buttons, t.button)
		} else {
			s.Keys = append(s.Keys, t.key.Code)
		}
	}
	added, err := h.ward.Add(s)
	h.late = h.late || added && h.apart
	return err
}

// recorded asks whether all that was recorded is on the display, if that is not known. What it returns waits for the
// answer.
func (h *hands) recorded() (wait func() error) {
	if !h.late {
		return func() error { return nil }
	}
	h.late = false
	return h.ward.Ask()
}

// expect has the ward know of presses that come at once.
func (h *hands) expect(things ...thing) error {
	if err := h.record(things...); err != nil {
		return err
	}
	return h.recorded()()
}

// arrived makes sure that what is asked next over the driver's connection comes after what was sent.
func (h *hands) arrived() error {
	if h.apart {
		return h.sink.Sync()
	}
	return nil
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
		if t.button != 0 {
			h.let = append(h.let, t.button)
		}
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
	if late := h.sink.Sync(); err == nil {
		err = late
	}
	if err == nil {
		err = h.ward.Set(ward.State{Bound: h.ward.State().Bound, Locked: h.ward.State().Locked})
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
