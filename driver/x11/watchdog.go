package x11

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/keyboard"
	"github.com/deskagent/deskagent/driver/x11/internal/ward"
	"github.com/deskagent/deskagent/internal/run"
)

// A watchdog is the process that looks after the display when this one dies.
type watchdog struct {
	process *run.Process
	ended   chan struct{}
	killed  atomic.Bool // by us
}

// startWatchdog starts the command. It is not waited for: one that comes too late finds the record.
func startWatchdog(argv []string, displayName string, place *ward.Ward, logger *slog.Logger) (*watchdog, error) {
	argv = append(slices.Clone(argv), displayName, strconv.FormatUint(uint64(place.Owner()), 10))
	process, err := run.Start(context.Background(), argv, &run.Options{Outlives: true})
	if err != nil {
		return nil, fmt.Errorf("starting the watchdog: %w", err)
	}
	w := &watchdog{process: process, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		if err := process.Err(); err != nil && !w.killed.Load() {
			logger.Warn("there is no watchdog any more", "err", err)
		}
	}()
	return w, nil
}

// end waits for the end of the process, which comes with that of the driver's connection.
func (w *watchdog) end() {
	select {
	case <-w.ended:
	case <-time.After(grace):
		w.killed.Store(true)
		w.process.Kill()
		<-w.ended
	}
}

// Watch is the work of a watchdog, the process that [Options].Watchdog starts: it waits on a display until a driver
// is gone, and then clears away what it left behind, if anything. The names of the two are the arguments that were
// added to the command. The caller keeps away the signals that are meant for the driver's process. Watch returns
// early, with the cause, when ctx ends.
func Watch(ctx context.Context, displayName, driverName string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("watching driver %q on display %q: %w", driverName, displayName, err)
		}
	}()
	number, err := strconv.ParseUint(driverName, 10, 32)
	if err != nil {
		return fmt.Errorf("%w: want the number of a window", driver.ErrInvalidAction)
	}
	conn, err := display.Open(displayName)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, conn.X.Close)()
	if err := awaitEnd(conn, xproto.Window(number)); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	// robotgo has a connection of its own, of whose end nothing tells, and an event may be on its way there. The
	// server takes it within a moment.
	time.Sleep(onTheWay)
	_, err = ward.Recover(conn, keyboard.Restore)
	return err
}

const onTheWay = 30 * time.Millisecond

// awaitEnd waits until a window is gone.
func awaitEnd(conn *display.Conn, window xproto.Window) error {
	err := xproto.ChangeWindowAttributesChecked(conn.X, window, xproto.CwEventMask, []uint32{xproto.EventMaskStructureNotify}).Check()
	if _, ok := err.(xproto.WindowError); ok {
		return nil
	}
	for err == nil {
		event, fault := conn.X.WaitForEvent()
		if gone, ok := event.(xproto.DestroyNotifyEvent); ok && gone.Window == window {
			return nil
		}
		switch {
		case fault != nil:
			err = fault
		case event == nil:
			return driver.ErrDisplayLost
		}
	}
	return display.Err(err)
}
