// Package settle tells when the screen has come to rest after an action, so that a picture shows the action's effect
// and not what was there before it, or half of it.
//
// # What counts as rest
//
// [Watcher.Mark] is called just before the first event of an action, [Watcher.Touch] right after the last one, and
// [Watcher.Wait] gives one of three answers:
//
//   - [Settled]: something has changed since the mark, and then nothing for Timing.Quiet.
//   - [Unchanged]: nothing has changed since the mark, and Timing.Grace has passed since the last event.
//   - [Changing]: Timing.Deadline has passed since Wait was called, and the screen still changes.
//
// What changed before Touch may be only the beginning, as when a button lights up under the pointer, or is pushed in; so
// then, too, the grace is given for what the last event brings about. A change that comes after Touch is taken for
// the reaction, and ends the grace. Another one that follows it is waited for when it begins within Timing.Quiet. A
// program that first shows something and then thinks for longer is missed, and so is one that shows nothing
// within the grace: nothing on the display tells it from one that has nothing to do. The answer is then Settled or
// Unchanged, and the caller may wait again.
//
// # What changes all the time
//
// A caret that blinks, a clock, the small wheel that turns while something is loaded: none of them is waited for. The
// watcher calls a place recurring when it is
//
//   - small: all recurring places together cover at most 1/16 of the screen, a square of 250 pixels on 1280x800;
//   - steady: for a second of watching without input, changes have come back to it, three at least, and none of
//     them went over its edge. Text that is being printed, a bar that fills and whatever else moves along does go over the
//     edge, and is waited for. So is what input brings about, as with the echo of a text, and whatever fades in less than a
//     second.
//
// Changes within a recurring place hold up nothing, and Result.Recurring reports them. One that began before the mark is
// no change at all; one that began after it is, at the moment when it began. So the first answer beside a small
// animation may take a second more. After that its place is remembered for as long as it goes on, and forgotten when it
// was not seen to change for 1.5s, longer than a caret is on or off. A small animation that ends after more than a second is
// taken for one that goes on.
//
// A toolkit may paint the same place for a blinking caret and for what is typed there. So a place that changes less often
// than every 150ms, and does so within 150ms of input, has changed because of that, even if it is recurring. Now and then it
// only was the caret's time, and the answer is Settled where Unchanged would be right; so it is beside a fast animation
// that is only known from looks a second apart.
//
// # How changes are seen
//
// By the DAMAGE extension ([Open]): the server adds up in a region what is painted, and the watcher takes it over every
// 5ms. Or by comparing frames ([OpenFrames]) every 25ms, where there is no DAMAGE; that sees no pixels that are painted
// as they were, but costs much more. Either is done from a mark or a touch until an answer, and for 3s at most when nobody
// waits. At other times it is done once a second, to learn what recurs, and because the region would
// become ever more intricate otherwise, which is the server's burden. The pointer is no part of the screen here.
package settle

import (
	"context"
	"errors"
	"fmt"
	"image"
	"sync"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// Timing says how long to wait for what. The zero value means the defaults.
type Timing struct {
	// Grace is how long a reaction may take to begin, from the last event of the action; default 200ms. GTK was seen to
	// take 3 to 20ms, Chromium 20 to 100 for a page, and 200 and more for a new tab.
	Grace time.Duration
	// Quiet is for how long nothing must change; default 80ms. Pauses within one reaction are to be shorter: Chromium was
	// seen to make some of 55 to 75ms when it opens a menu, and of 75 to 130 when it loads a page anew.
	Quiet time.Duration
	// Deadline is when the answer is given in any case, from the call of Wait; default 3s.
	Deadline time.Duration
}

func (t Timing) withDefaults() (Timing, error) {
	for _, setting := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"Grace", &t.Grace, 200 * time.Millisecond},
		{"Quiet", &t.Quiet, 80 * time.Millisecond},
		{"Deadline", &t.Deadline, 3 * time.Second},
	} {
		if *setting.value < 0 {
			return t, fmt.Errorf("%s is %v, want 0 for the default or more", setting.name, *setting.value)
		}
		if *setting.value == 0 {
			*setting.value = setting.standard
		}
	}
	return t, nil
}

// A State is what became of the screen.
type State string

// The states; the package comment says when.
const (
	Settled   State = "settled"
	Unchanged State = "unchanged"
	Changing  State = "changing"
)

// A Result is what a wait came to. Rectangles are in screen space.
type Result struct {
	State State
	// Elapsed is the time from the mark to the answer, and LastChange that from the mark to the last change that counts, 0
	// when there was none. Changes are known as exactly as the watcher looks: see the package comment.
	Elapsed, LastChange time.Duration
	// Changed bounds all that has changed since the mark, but for what was recurring before. It is empty exactly if
	// nothing has.
	Changed image.Rectangle
	// Recurring bounds the recurring places that have changed since the mark, and is empty if none has.
	Recurring image.Rectangle
}

// ErrClosed is wrapped by the errors of a Watcher after Close, and of a Wait that Close cut short.
var ErrClosed = errors.New("watcher is closed")

const (
	// damageInterval keeps what a look costs, about 0.1ms of the server and of this process, at a few percent of a core.
	damageInterval = 5 * time.Millisecond
	// frameInterval does the same for frames, which cost 2ms to grab and compare at 1920x1080.
	frameInterval = 25 * time.Millisecond
	// idleInterval is between looks when nobody wants to know.
	idleInterval = time.Second
	// attention is for how long changes are looked for when nobody waits.
	attention = 3 * time.Second
	// patience is how long a look may take before the display counts as lost, and closeGrace how long Close waits for it.
	patience, closeGrace = 3 * time.Second, time.Second
)

var errHangs = fmt.Errorf("%w: no look at the screen has ended for %v", driver.ErrDisplayLost, patience)

// A source finds changes. It belongs to the goroutine of its watcher.
type source interface {
	// look returns what has changed since the last look, and the area of the screen.
	look() (changed []image.Rectangle, screen image.Rectangle, err error)
	close() error
}

// A Watcher watches one screen. It has a goroutine of its own, which owns the rest. One goroutine calls its
// methods; Close may be called from any.
type Watcher struct {
	source   source
	interval time.Duration
	calls    chan func() // buffered, so that nobody waits for the goroutine who need not
	closing  chan struct{}
	ended    chan struct{}
	close    func() error // once

	history history
	waiter  *waiter   // who waits, if anybody does
	until   time.Time // when to look less often when nobody waits
}

// A waiter is a call of Wait.
type waiter struct {
	ctx    context.Context
	timing Timing
	asked  time.Time
	due    time.Time   // when the answer is, unless something changes
	answer chan answer // buffered, as the caller may have gone
}

type answer struct {
	Result
	error
}

// Open watches the screen of the given name, such as ":3", over a connection of its own. The error wraps
// [driver.ErrUnsupported] when the server has no DAMAGE extension, and [driver.ErrNoDisplay] when there is no server.
func Open(displayName string) (*Watcher, error) {
	source, err := openDamage(displayName)
	if err != nil {
		return nil, fmt.Errorf("watching display %q for changes: %w", displayName, err)
	}
	return open(source, damageInterval)
}

// OpenFrames watches a screen by comparing frames of it.
func OpenFrames(grab Grab) (*Watcher, error) {
	return open(&frames{grab: grab}, frameInterval)
}

func open(source source, interval time.Duration) (*Watcher, error) {
	w := &Watcher{source: source, interval: interval, calls: make(chan func(), 4), closing: make(chan struct{}), ended: make(chan struct{})}
	w.close = sync.OnceValue(w.end)
	if err := w.look(); err != nil { // What was there before is no change.
		source.close()
		return nil, fmt.Errorf("looking for changes: %w", err)
	}
	w.history = history{screen: w.history.screen}
	w.history.mark(time.Now())
	go w.watch()
	return w, nil
}

// Mark forgets what has changed until now, but for recurring places. It is called just before the first event of an
// action. The function that it returns waits until the server has noted it, or for 3s when it does not answer; in the
// meantime the action can be prepared. What goes wrong is told by the next Wait.
func (w *Watcher) Mark() (wait func()) {
	noted := w.note((*history).mark)
	return func() {
		select {
		case <-noted:
		case <-w.closing:
		case <-time.After(patience):
		}
	}
}

// Touch says that the last event of the action has been sent just now, from which the grace is counted. Waiting for the
// program first, as for an answer to a ping, would take its reaction for a part of the input. Without a Touch, Mark
// counts. It does not wait.
func (w *Watcher) Touch() { w.note((*history).touch) }

// note looks for changes, so that they are told from those after now, and notes the time. The channel is closed when that
// is done.
func (w *Watcher) note(what func(*history, time.Time)) (done <-chan struct{}) {
	noted := make(chan struct{})
	w.call(context.Background(), func() { // The error is that it is closed.
		defer close(noted)
		w.look() // Wait will find out what is wrong.
		now := time.Now()
		what(&w.history, now)
		w.until = now.Add(attention)
	})
	return noted
}

// Wait waits until the screen is at rest, counted from the last Mark, or the opening, and Touch. It returns at once
// when that is so already. Its error wraps context.Cause(ctx), [ErrClosed], or [driver.ErrDisplayLost], or is that of
// a grab. A server that has gone is noticed at once; one that is there and does not answer, 3s after the deadline.
func (w *Watcher) Wait(ctx context.Context, t Timing) (Result, error) {
	r, err := w.wait(ctx, t)
	if err != nil {
		return Result{}, fmt.Errorf("waiting for the screen to settle: %w", err)
	}
	return r, nil
}

func (w *Watcher) wait(ctx context.Context, t Timing) (r Result, err error) {
	if err := context.Cause(ctx); err != nil {
		return r, err
	}
	if t, err = t.withDefaults(); err != nil {
		return r, err
	}
	me := &waiter{ctx: ctx, timing: t, asked: time.Now(), answer: make(chan answer, 1)}
	if err := w.call(ctx, func() { w.waiter = me; w.serve() }); err != nil {
		return r, err
	}
	select {
	case a := <-me.answer:
		return a.Result, a.error
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case <-w.closing:
		return r, ErrClosed
	case <-time.After(t.Deadline + patience):
		return r, errHangs
	}
}

// Close ends the goroutine and the connection, if there is one, and waits for both, but no longer than a second for each
// when the server is alive and does not answer: that is the error. Closing again does nothing.
func (w *Watcher) Close() error { return w.close() }

func (w *Watcher) end() error {
	close(w.closing)
	select {
	case <-w.ended:
	case <-time.After(closeGrace):
		return errors.Join(fmt.Errorf("closing a watcher: no look at the screen has ended for %v", closeGrace), w.source.close())
	}
	return w.source.close()
}

// call hands something to the goroutine that is to be done there.
func (w *Watcher) call(ctx context.Context, f func()) error {
	select {
	case w.calls <- f:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.closing:
		return ErrClosed
	case <-time.After(patience):
		return errHangs
	}
}

// watch is the goroutine.
func (w *Watcher) watch() {
	defer close(w.ended)
	for {
		select {
		case <-w.closing:
			return
		case f := <-w.calls:
			f()
		case <-w.next():
			w.serve()
		}
	}
}

// next tells when to look again.
func (w *Watcher) next() <-chan time.Time {
	switch {
	case w.waiter != nil:
		return time.After(min(w.interval, time.Until(w.waiter.due)))
	case time.Now().Before(w.until):
		return time.After(w.interval)
	}
	return time.After(idleInterval)
}

// serve looks for changes and answers who waits, if it is time.
func (w *Watcher) serve() {
	err := w.look()
	me := w.waiter
	if me == nil {
		return
	}
	now := time.Now()
	r, due := w.history.verdict(now, me.asked, me.timing)
	if me.due = due; err == nil && me.ctx.Err() == nil && now.Before(due) {
		return
	}
	me.answer <- answer{r, err}
	w.waiter, w.until = nil, time.Time{}
}

// look passes on to the history what the source has seen.
func (w *Watcher) look() error {
	changed, screen, err := w.source.look()
	if err == nil {
		w.history.see(time.Now(), changed, screen)
	}
	return err
}
