// Package windows finds windows on the screen: the active one, and those that are not for everybody's eyes.
//
// Window managers put frames around windows, so the windows that programs know are children of others; it is the
// frames that have a place on the screen. Menus, tooltips and the like are frames of their own, which no window manager
// touches and which mostly carry no name. But the server gives each program a range of IDs, and so tells by the ID
// whose window it is.
package windows

import (
	"cmp"
	"fmt"
	"image"
	"strings"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// A Finder finds windows of one display. It belongs to the goroutine of its connection.
type Finder struct {
	conn *display.Conn

	activeWindow, name xproto.Atom
}

// Open prepares to find.
func Open(conn *display.Conn) (*Finder, error) {
	f := &Finder{conn: conn}
	for name, atom := range map[string]*xproto.Atom{"_NET_ACTIVE_WINDOW": &f.activeWindow, "_NET_WM_NAME": &f.name} {
		r, err := xproto.InternAtom(conn.X, false, uint16(len(name)), name).Reply()
		if err != nil {
			return nil, display.Err(err)
		}
		*atom = r.Atom
	}
	return f, nil
}

// A frame is a child of the root window that can be seen, with the place it has on the screen, border included.
type frame struct {
	id     xproto.Window
	bounds image.Rectangle
	// popup says that window managers leave it alone: a menu, a tooltip.
	popup bool
}

// Active finds the active window: the one that the window manager names (_NET_ACTIVE_WINDOW of the Extended Window
// Manager Hints), or else the one that has the keyboard focus. It returns the zero Window when there is none.
func (f *Finder) Active(screen image.Rectangle) (w driver.Window, err error) {
	id, err := f.active()
	if err != nil || id == xproto.WindowNone {
		return w, err
	}
	frames, err := f.frames()
	if err != nil {
		return w, err
	}
	mine, err := f.frameOf(id, frames)
	if err != nil || mine == nil {
		return w, err
	}
	w = driver.Window{ID: uint32(id), Bounds: mine.bounds, Visible: mine.bounds}
	for _, other := range frames {
		belongs := other.popup && f.owner(other.id) == f.owner(id)
		if !belongs && other.id != mine.id {
			if belongs, err = f.isTransientFor(other.id, id); err != nil {
				return w, err
			}
		}
		if belongs {
			w.Visible = w.Visible.Union(other.bounds)
		}
	}
	if w.Visible = w.Visible.Intersect(screen); w.Visible.Empty() {
		return driver.Window{}, nil
	}
	return w, nil
}

// Bounds finds the place of a window that was active. It is empty when the window can no longer be seen.
func (f *Finder) Bounds(id uint32) (image.Rectangle, error) {
	frames, err := f.frames()
	if err != nil {
		return image.Rectangle{}, err
	}
	mine, err := f.frameOf(xproto.Window(id), frames)
	if err != nil || mine == nil {
		return image.Rectangle{}, err
	}
	return mine.bounds, nil
}

// Named returns where the windows are that have one of the given texts in their class or title, in whatever case, and
// the popups of the same programs. Parts of them may be off the screen.
func (f *Finder) Named(texts []string) (found []image.Rectangle, err error) {
	frames, err := f.frames()
	if err != nil {
		return nil, err
	}
	named := make(map[xproto.Window]bool) // by frame
	owners := make(map[xproto.Window]bool)
	for _, frame := range frames {
		id, names, err := f.names(frame.id)
		if err != nil {
			return nil, err
		}
		for _, text := range texts {
			if strings.Contains(strings.ToLower(names), strings.ToLower(text)) {
				named[frame.id], owners[f.owner(id)] = true, true
			}
		}
	}
	for _, frame := range frames {
		if named[frame.id] || frame.popup && owners[f.owner(frame.id)] {
			found = append(found, frame.bounds)
		}
	}
	return found, nil
}

// active returns the ID of the active window, or none.
func (f *Finder) active() (xproto.Window, error) {
	r, err := xproto.GetProperty(f.conn.X, false, f.conn.Screen.Root, f.activeWindow, xproto.AtomWindow, 0, 1).Reply()
	if err != nil {
		return 0, display.Err(err)
	}
	if r.Format == 32 && r.ValueLen == 1 {
		return xproto.Window(xgb.Get32(r.Value)), nil
	}
	focus, err := xproto.GetInputFocus(f.conn.X).Reply()
	if err != nil {
		return 0, display.Err(err)
	}
	if focus.Focus == xproto.InputFocusPointerRoot || focus.Focus == f.conn.Screen.Root {
		return xproto.WindowNone, nil
	}
	return focus.Focus, nil
}

// owner is the program that made a window, by the part of the ID that all of its windows have in common.
func (f *Finder) owner(id xproto.Window) xproto.Window {
	return id &^ xproto.Window(f.conn.Setup.ResourceIdMask)
}

// frames lists what can be seen, the topmost last. All is asked for before the first answer is waited for.
func (f *Finder) frames() ([]frame, error) {
	tree, err := xproto.QueryTree(f.conn.X, f.conn.Screen.Root).Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	attributes := make([]xproto.GetWindowAttributesCookie, len(tree.Children))
	geometries := make([]xproto.GetGeometryCookie, len(tree.Children))
	for i, id := range tree.Children {
		attributes[i] = xproto.GetWindowAttributes(f.conn.X, id)
		geometries[i] = xproto.GetGeometry(f.conn.X, xproto.Drawable(id))
	}
	var frames []frame
	for i, id := range tree.Children {
		a, errA := attributes[i].Reply()
		g, errG := geometries[i].Reply()
		if err := cmp.Or(errA, errG); gone(err) {
			continue
		} else if err != nil {
			return nil, display.Err(err)
		}
		if a.MapState != xproto.MapStateViewable || a.Class != xproto.WindowClassInputOutput {
			continue
		}
		border := 2 * int(g.BorderWidth)
		at := image.Pt(int(g.X), int(g.Y))
		frames = append(frames, frame{
			id:     id,
			bounds: image.Rectangle{Min: at, Max: at.Add(image.Pt(int(g.Width)+border, int(g.Height)+border))},
			popup:  a.OverrideRedirect,
		})
	}
	return frames, nil
}

// frameOf finds the frame that a window is in, or is. It is nil when it is in none that can be seen.
func (f *Finder) frameOf(id xproto.Window, frames []frame) (*frame, error) {
	for id != f.conn.Screen.Root && id != xproto.WindowNone {
		for i := range frames {
			if frames[i].id == id {
				return &frames[i], nil
			}
		}
		tree, err := xproto.QueryTree(f.conn.X, id).Reply()
		if gone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, display.Err(err)
		}
		id = tree.Parent
	}
	return nil, nil
}

// depth is how far below a frame a program's window may be. Window managers use up to three levels.
const depth = 4

// client finds the window in a frame that has a property, beginning with the frame itself. It returns none where there
// is no such window.
func (f *Finder) client(in xproto.Window, property xproto.Atom) (xproto.Window, *xproto.GetPropertyReply, error) {
	level := []xproto.Window{in}
	for range depth {
		var below []xproto.Window
		for _, id := range level {
			r, err := f.property(id, property)
			if err != nil {
				return xproto.WindowNone, nil, err
			}
			if r != nil {
				return id, r, nil
			}
			tree, err := xproto.QueryTree(f.conn.X, id).Reply()
			if gone(err) {
				continue
			}
			if err != nil {
				return xproto.WindowNone, nil, display.Err(err)
			}
			below = append(below, tree.Children...)
		}
		level = below
	}
	return xproto.WindowNone, nil, nil
}

// property returns a property of a window, nil if it has none of that name.
func (f *Finder) property(id xproto.Window, property xproto.Atom) (*xproto.GetPropertyReply, error) {
	const length = 1024 // in words, which is enough for the longest title
	r, err := xproto.GetProperty(f.conn.X, false, id, property, xproto.AtomAny, 0, length).Reply()
	if gone(err) || err == nil && r.Format == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, display.Err(err)
	}
	return r, nil
}

// isTransientFor reports whether the window in a frame is a dialogue of another one.
func (f *Finder) isTransientFor(frame, id xproto.Window) (bool, error) {
	_, r, err := f.client(frame, xproto.AtomWmTransientFor)
	return err == nil && r != nil && r.Format == 32 && r.ValueLen > 0 && xproto.Window(xgb.Get32(r.Value)) == id, err
}

// names returns the class and the titles of the window in a frame, and its ID.
func (f *Finder) names(frame xproto.Window) (id xproto.Window, names string, err error) {
	id, class, err := f.client(frame, xproto.AtomWmClass)
	if err != nil {
		return id, "", err
	}
	var parts []string
	if class == nil {
		id = frame
	} else {
		parts = append(parts, string(class.Value))
	}
	for _, atom := range []xproto.Atom{f.name, xproto.AtomWmName} {
		title, err := f.property(id, atom)
		if err != nil {
			return id, "", err
		}
		if title != nil {
			parts = append(parts, string(title.Value))
		}
	}
	return id, strings.Join(parts, "\x00"), nil
}

// gone reports whether a window that was asked about has ended in the meantime.
func gone(err error) bool {
	switch err.(type) {
	case xproto.WindowError, xproto.DrawableError:
		return true
	}
	return false
}

// Check refuses a text that would name every window.
func Check(text string) error {
	if strings.TrimSpace(text) == "" || strings.Contains(text, "\x00") {
		return fmt.Errorf("window %q: want a part of its class or title", text)
	}
	return nil
}
