package x11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// grace is how long a call whose context is done waits for the worker to release what is down. It is needed in
// full only when the server does not answer.
const grace = time.Second

// A job is one call of a method on its way to the worker.
type job struct {
	ctx  context.Context
	name string
	acts bool // and so may change what is on the screen
	run  func(context.Context, *desk) error
	done chan error // buffered, as the caller may have gone
}

// do runs one call on the worker, after those before it. Its error says what was being done.
func (d *Driver) do(ctx context.Context, name string, run func(context.Context, *desk) error) error {
	return d.call(job{ctx: ctx, name: name, run: run})
}

// act is do for actions that send input.
func (d *Driver) act(ctx context.Context, name string, run func(context.Context, *desk) error) error {
	return d.call(job{ctx: ctx, name: name, acts: true, run: run})
}

func (d *Driver) call(j job) error {
	j.done = make(chan error, 1)
	if err := d.wait(j.ctx, j); err != nil {
		return fmt.Errorf("%s: %w", j.name, err)
	}
	return nil
}

func (d *Driver) wait(ctx context.Context, j job) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case d.jobs <- j:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.closing.Done():
		return ErrClosed
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
	case <-d.closing.Done():
	}
	select {
	case err := <-j.done:
		return err
	case <-time.After(grace):
		why := context.Cause(ctx)
		if why == nil {
			why = ErrClosed
		}
		return fmt.Errorf("%w: the display has not answered for %v, and keys and buttons may be down", why, grace)
	}
}

// work is the goroutine that owns the display.
func (d *Driver) work(opened chan<- error) {
	defer close(d.ended)
	desk, err := d.open()
	opened <- err
	if err != nil {
		return
	}
	for d.closing.Err() == nil {
		select {
		case j := <-d.jobs:
			j.done <- d.perform(j, desk)
		case <-d.closing.Done():
		}
	}
	if d.closeErr = cmp.Or(desk.close(), desk.conn.Close()); d.closeErr == nil && d.watchdog != nil {
		d.watchdog.end()
	}
}

// perform runs one job and leaves nothing pressed, whatever happens.
func (d *Driver) perform(j job, k *desk) error {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(j.ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.closing, func() { cancel(ErrClosed) })()
	if j.acts {
		k.eyes.begin()
	}
	err := d.guard(j.name, func() error { return j.run(ctx, k) })
	release := d.guard(j.name, func() error { return k.end(ctx, j.acts) })
	switch {
	case err == nil:
		err = release
	case release != nil && !errors.Is(err, driver.ErrDisplayLost): // A server that is gone has released everything.
		err = fmt.Errorf("%w; and releasing keys and buttons: %w", err, release)
	}
	d.opts.Logger.Debug(j.name, "took", time.Since(start), "err", err)
	return err
}

// guard turns a panic into an error, so that what is down is released and the worker stays.
func (d *Driver) guard(name string, f func() error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			d.opts.Logger.Error(name, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	return f()
}
