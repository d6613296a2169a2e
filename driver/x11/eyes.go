package x11

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"slices"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/capture"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/settle"
	"github.com/deskagent/deskagent/driver/x11/internal/windows"
	"github.com/deskagent/deskagent/scaling"
)

// A Mask is what is black in every picture: an area of the screen, windows, or both.
type Mask struct {
	// Area is in screen space.
	Area image.Rectangle
	// Window is a part of the class or the title of the windows that are meant, in whatever case. Their menus and
	// other popups are black too.
	Window string
}

func (m Mask) check() error {
	if m.Window == "" && m.Area.Empty() {
		return fmt.Errorf("mask of the area %v and no window: want one of them", m.Area)
	}
	if m.Window != "" {
		return windows.Check(m.Window)
	}
	return nil
}

// eyes take pictures, and know when.
type eyes struct {
	grabber capture.Grabber
	watcher *settle.Watcher
	finder  *windows.Finder

	// ready waits until what was on the screen before the action is told from what comes.
	ready  func()
	frames uint64 // pictures so far
	blank  string // what was said of the last one
	// acted says that there was an action after the last look at the screen, and rested that it came to rest then.
	acted, rested bool
	settling      driver.Settling // the last one
}

// openEyes opens them on the display of a connection.
func openEyes(ctx context.Context, conn *display.Conn, o *Options) (_ *eyes, err error) {
	e := &eyes{}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	open := func() (capture.Grabber, error) { return capture.Open(ctx, conn.Name, o.Logger) }
	switch o.Capture {
	case CaptureKbinani:
		e.grabber, err = capture.NewKbinani(conn)
	case CaptureDirect:
		e.grabber, err = capture.NewDirect(ctx, conn.Name)
	default:
		e.grabber, err = open()
	}
	if err != nil {
		return nil, err
	}
	if e.finder, err = windows.Open(conn); err != nil {
		return nil, err
	}
	if e.watcher, err = settle.Open(conn.Name); errors.Is(err, driver.ErrUnsupported) {
		e.watcher, err = compareFrames(ctx, open)
	}
	return e, err
}

// compareFrames watches a screen whose server does not say what changes. The pictures for it come another way than
// those for others, as they are taken by another goroutine.
func compareFrames(ctx context.Context, open func() (capture.Grabber, error)) (*settle.Watcher, error) {
	grabber, err := open()
	if err != nil {
		return nil, err
	}
	w, err := settle.OpenFrames(func() ([]byte, int, image.Rectangle, error) {
		raw, err := grabber.Grab(ctx, image.Rectangle{})
		if err != nil {
			return nil, 0, image.Rectangle{}, err
		}
		return raw.Pix, raw.Stride, raw.Bounds, nil
	})
	if err != nil {
		grabber.Close()
	}
	return w, err
}

// close may be called again.
func (e *eyes) close() (err error) {
	if e.watcher != nil {
		err = e.watcher.Close()
	}
	if e.grabber != nil {
		err = cmp.Or(err, e.grabber.Close())
	}
	e.watcher, e.grabber = nil, nil
	return err
}

// begin comes before an action is prepared, ready before its first event, and end after the last one.
func (e *eyes) begin() {
	e.ready = e.watcher.Mark()
	e.acted, e.rested = true, false
}

func (e *eyes) end() { e.watcher.Touch() }

// settle waits until the screen has come to rest.
func (e *eyes) settle(ctx context.Context, t settle.Timing) error {
	r, err := e.watcher.Wait(ctx, t)
	if err != nil {
		return err
	}
	states := map[settle.State]driver.SettleState{
		settle.Settled: driver.Settled, settle.Unchanged: driver.Unchanged, settle.Changing: driver.Changing,
	}
	e.settling = driver.Settling{State: states[r.State], Elapsed: r.Elapsed, Changed: r.Changed, Recurring: r.Recurring}
	e.acted, e.rested = false, r.State != settle.Changing
	return nil
}

// Wait is [driver.Driver]'s; the section on coming to rest above says what it waits for.
func (d *Driver) Wait(ctx context.Context, _ driver.Wait) error {
	return d.do(ctx, "waiting", func(ctx context.Context, k *desk) error {
		return k.eyes.settle(ctx, settle.Timing{
			Grace: d.opts.WaitTime, Quiet: d.opts.WaitTime / 2, Deadline: max(d.opts.SettleDeadline, d.opts.WaitTime),
		})
	})
}

// Screenshot is [driver.Driver]'s. The picture shows the whole root window, all monitors, or the one of
// [Options].Monitor.
func (d *Driver) Screenshot(ctx context.Context) (*driver.Frame, error) {
	frame, err := d.look(ctx, "taking a screenshot", func(s driver.Scene) (image.Rectangle, image.Point, error) {
		return s.Screen, s.Screen.Size(), nil
	})
	if err == nil {
		frame.Image.Rect = frame.Area
	}
	return frame, err
}

// View is [driver.Viewer]'s.
func (d *Driver) View(ctx context.Context, choose func(driver.Scene) (area image.Rectangle, size image.Point, err error)) (*driver.Frame, error) {
	return d.look(ctx, "taking a picture", choose)
}

func (d *Driver) look(ctx context.Context, name string, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (frame *driver.Frame, err error) {
	err = d.do(ctx, name, func(ctx context.Context, k *desk) (err error) {
		if err := k.comeToRest(ctx); err != nil {
			return err
		}
		frame, err = k.picture(ctx, choose)
		return err
	})
	return frame, err
}

// comeToRest waits for the effect of what was done, if anything was, and else until nothing moves.
func (k *desk) comeToRest(ctx context.Context) error {
	if k.eyes.rested {
		return nil
	}
	t := settle.Timing{Grace: k.opts.SettleGrace, Quiet: k.opts.SettleQuiet, Deadline: k.opts.SettleDeadline}
	if !k.eyes.acted {
		t.Grace = t.Quiet
	}
	if err := k.eyes.settle(ctx, t); err != nil {
		return err
	}
	s := k.eyes.settling
	k.opts.Logger.Debug("the screen", "is", s.State, "after", s.Elapsed, "changed", s.Changed, "recurring", s.Recurring)
	return nil
}

// picture takes a picture. What was known before it is looked at again after it: a window that was moved in between
// would be in another place than was thought, and show what is to be black.
func (k *desk) picture(ctx context.Context, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (*driver.Frame, error) {
	const attempts = 10
	for range attempts {
		scene, root, err := k.scene()
		if err != nil {
			return nil, err
		}
		area, size, err := choose(scene)
		if err != nil {
			return nil, err
		}
		mapping, err := scaling.New(area, size)
		if err != nil {
			return nil, err
		}
		masks, err := k.masks()
		if err != nil {
			return nil, err
		}
		raw, err := k.eyes.grabber.Grab(ctx, area)
		if errors.Is(err, driver.ErrOutOfBounds) && !area.In(root) {
			return nil, err
		}
		if errors.Is(err, driver.ErrOutOfBounds) || err == nil && raw.Screen != root {
			continue
		}
		if err != nil {
			return nil, err
		}
		if again, err := k.masks(); err != nil {
			return nil, err
		} else if !slices.Equal(again, masks) {
			continue
		}
		frame := &driver.Frame{Taken: time.Now(), Area: area, Scene: scene, Settling: k.eyes.settling}
		if raw, frame.Blank, err = k.blank(ctx, raw); err != nil {
			return nil, err
		}
		for _, mask := range masks {
			black(raw, mask)
		}
		if frame.Image, err = k.draw(raw, mapping); err != nil {
			return nil, err
		}
		k.eyes.frames++
		frame.ID = k.eyes.frames
		k.eyes.watcher.Mark() // What changes from now on is not in it.
		return frame, nil
	}
	return nil, fmt.Errorf("the size of the screen, or what is to be black, was another after each of %d pictures than before it", attempts)
}

// scene asks what there is to show, and for the area of the root window.
func (k *desk) scene() (s driver.Scene, root image.Rectangle, err error) {
	if root, err = k.conn.Bounds(); err != nil {
		return s, root, err
	}
	if s.Screen, err = k.screen(root); err != nil {
		return s, root, err
	}
	s.Window, err = k.eyes.finder.Active(s.Screen)
	return s, root, err
}

// screen is the part of the root window that pictures show.
func (k *desk) screen(root image.Rectangle) (image.Rectangle, error) {
	if k.opts.Monitor == "" {
		return root, nil
	}
	monitors, err := capture.Monitors(k.conn)
	if err != nil {
		return image.Rectangle{}, err
	}
	var names []string
	for _, m := range monitors {
		if m.Name == k.opts.Monitor {
			return m.Bounds.Intersect(root), nil
		}
		names = append(names, m.Name)
	}
	return image.Rectangle{}, fmt.Errorf("monitor %q: %w, want one of %q", k.opts.Monitor, driver.ErrUnsupported, names)
}

// masks are the areas that are to be black, as they are now.
func (k *desk) masks() (areas []image.Rectangle, err error) {
	var names []string
	for _, m := range k.opts.Masks {
		if !m.Area.Empty() {
			areas = append(areas, m.Area)
		}
		if m.Window != "" {
			names = append(names, m.Window)
		}
	}
	if len(names) == 0 {
		return areas, nil
	}
	found, err := k.eyes.finder.Named(names)
	return append(areas, found...), err
}

// blank says what is the matter with a picture that shows nothing. It is no error: there are black screens. A server
// that has just started is black for a moment, so the first picture is given some time, and taken again.
func (k *desk) blank(ctx context.Context, raw *capture.Raw) (_ *capture.Raw, why string, err error) {
	const dawn, interval = 300 * time.Millisecond, 20 * time.Millisecond
	why, err = capture.Blank(k.conn, raw)
	for start := time.Now(); err == nil && why != "" && k.eyes.frames == 0 && time.Since(start) < dawn; {
		if err := sleep(ctx, interval); err != nil {
			return nil, "", err
		}
		if raw, err = k.eyes.grabber.Grab(ctx, raw.Bounds); err != nil {
			return nil, "", err
		}
		why, err = capture.Blank(k.conn, raw)
	}
	if why != k.eyes.blank && why != "" {
		k.opts.Logger.Warn("the picture is blank", "why", why)
	}
	k.eyes.blank = why
	return raw, why, err
}

// black makes an area of a picture black.
func black(r *capture.Raw, area image.Rectangle) {
	part := area.Intersect(r.Bounds)
	size := r.Format.Bytes()
	for y := part.Min.Y; y < part.Max.Y && !part.Empty(); y++ {
		from := (y-r.Bounds.Min.Y)*r.Stride + (part.Min.X-r.Bounds.Min.X)*size
		clear(r.Pix[from : from+size*part.Dx()])
	}
}

// draw makes the picture, in one pass over what the server gave where it can be: the pixels of depth 24, without the
// pointer.
func (k *desk) draw(raw *capture.Raw, m scaling.Mapping) (*image.RGBA, error) {
	source := scaling.Source{Pix: raw.Pix, Stride: raw.Stride, Bounds: raw.Bounds, Order: scaling.BGRX}
	if raw.Format != capture.BGRX8888 || k.opts.Pointer {
		screen := image.NewRGBA(raw.Bounds)
		raw.RGBA(screen)
		if k.opts.Pointer {
			pointer, err := capture.Cursor(k.conn)
			if err != nil {
				return nil, err
			}
			pointer.Draw(screen)
		}
		source = scaling.Source{Pix: screen.Pix, Stride: screen.Stride, Bounds: screen.Rect}
	}
	picture := image.NewRGBA(image.Rectangle{Max: m.Size()})
	return picture, m.Draw(picture, source)
}

// Bounds returns the area of the screen as it is now: what a Screenshot shows.
func (d *Driver) Bounds(ctx context.Context) (bounds image.Rectangle, err error) {
	err = d.do(ctx, "asking for the size of the screen", func(_ context.Context, k *desk) error {
		root, err := k.conn.Bounds()
		if err == nil {
			bounds, err = k.screen(root)
		}
		return err
	})
	return bounds, err
}

// Holds is [driver.Holder]'s.
func (d *Driver) Holds(ctx context.Context, s driver.Scene) error {
	return d.do(ctx, "looking at a picture's geometry again", func(_ context.Context, k *desk) error {
		root, err := k.conn.Bounds()
		if err != nil {
			return err
		}
		screen, err := k.screen(root)
		if err != nil {
			return err
		}
		if screen != s.Screen {
			return fmt.Errorf("%w: the screen was %v and is %v", driver.ErrStale, s.Screen, screen)
		}
		if s.Window.ID == 0 {
			return nil
		}
		bounds, err := k.eyes.finder.Bounds(s.Window.ID)
		switch {
		case err != nil:
			return err
		case bounds.Empty():
			return fmt.Errorf("%w: its window can no longer be seen", driver.ErrStale)
		case bounds != s.Window.Bounds:
			return fmt.Errorf("%w: its window was at %v and is at %v", driver.ErrStale, s.Window.Bounds, bounds)
		}
		return nil
	})
}
