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
	"slices"
	"strings"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/display"
)

// A Finder finds windows of one display. It belongs to the goroutine of its connection.
type Finder struct {
	conn *display.Conn

	activeWindow, clientList, name xproto.Atom
}

// Open prepares to find.
func Open(conn *display.Conn) (*Finder, error) {
	f := &Finder{conn: conn}
	for name, atom := range map[string]*xproto.Atom{
		"_NET_ACTIVE_WINDOW": &f.activeWindow, "_NET_CLIENT_LIST": &f.clientList, "_NET_WM_NAME": &f.name,
	} {
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
	clients, err := f.clients(frames, xproto.AtomWmTransientFor)
	if err != nil {
		return w, err
	}
	w = driver.Window{ID: uint32(id), Bounds: mine.bounds, Visible: mine.bounds}
	for _, other := range frames {
		if other.popup && f.owner(other.id) == f.owner(id) {
			w.Visible = w.Visible.Union(other.bounds)
		}
	}
	for _, dialogue := range clients {
		if dialogue.names(id) {
			w.Visible = w.Visible.Union(frames[dialogue.frame].bounds)
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
	clients, err := f.clients(frames, xproto.AtomWmClass)
	if err != nil {
		return nil, err
	}
	names, err := f.names(clients)
	if err != nil {
		return nil, err
	}
	named := make([]bool, len(frames))
	owners := make(map[xproto.Window]bool)
	for i, c := range clients {
		for _, text := range texts {
			if strings.Contains(strings.ToLower(names[i]), strings.ToLower(text)) {
				named[c.frame], owners[f.owner(c.id)] = true, true
			}
		}
	}
	for i, frame := range frames {
		if named[i] || frame.popup && owners[f.owner(frame.id)] {
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

// A client is a program's window in a frame, or the frame itself, with a property of it: nil if it does not have that.
type client struct {
	frame    int
	id       xproto.Window
	property *xproto.GetPropertyReply
}

// names reports whether the property is the ID of a window.
func (c client) names(id xproto.Window) bool {
	return c.property != nil && c.property.Format == 32 && c.property.ValueLen > 0 && xproto.Window(xgb.Get32(c.property.Value)) == id
}

// clients finds the windows in frames that may have a property: the frames themselves, and the windows that the manager
// says are in them. What is in a frame of which it says nothing is looked through until a window has the property. All
// windows of a level are asked about before the first answer is waited for.
func (f *Finder) clients(frames []frame, property xproto.Atom) ([]client, error) {
	clients, err := f.managed(frames)
	if err != nil {
		return nil, err
	}
	known := make([]bool, len(frames))
	for _, c := range clients {
		known[c.frame] = true
	}
	for i, frame := range frames {
		clients = append(clients, client{frame: i, id: frame.id})
	}
	if err := f.ask(clients, property); err != nil {
		return nil, err
	}
	level := slices.Clone(clients)
	for range depth {
		for _, c := range level {
			known[c.frame] = known[c.frame] || c.property != nil
		}
		level = slices.DeleteFunc(level, func(c client) bool { return known[c.frame] })
		if level, err = f.below(level); err != nil {
			return nil, err
		}
		if err := f.ask(level, property); err != nil {
			return nil, err
		}
		clients = append(clients, level...)
	}
	return clients, nil
}

// managed lists the windows that the window manager has in frames (_NET_CLIENT_LIST of the Extended Window Manager
// Hints), without a property. There are none where it does not say.
func (f *Finder) managed(frames []frame) (clients []client, err error) {
	const most = 1 << 12 // windows
	list, err := xproto.GetProperty(f.conn.X, false, f.conn.Screen.Root, f.clientList, xproto.AtomWindow, 0, most).Reply()
	if err != nil {
		return nil, display.Err(err)
	}
	if list.Format != 32 {
		return nil, nil
	}
	number := make(map[xproto.Window]int)
	for i, frame := range frames {
		number[frame.id] = i
	}
	type climber struct {
		id, at xproto.Window
		tree   xproto.QueryTreeCookie
	}
	var climbers []climber
	for value := list.Value; len(value) >= 4; value = value[4:] {
		id := xproto.Window(xgb.Get32(value))
		climbers = append(climbers, climber{id: id, at: id})
	}
	for range depth {
		var higher []climber
		for _, c := range climbers {
			if frame, ok := number[c.at]; !ok {
				c.tree = xproto.QueryTree(f.conn.X, c.at)
				higher = append(higher, c)
			} else if c.at != c.id { // A frame itself is among the clients anyhow.
				clients = append(clients, client{frame: frame, id: c.id})
			}
		}
		climbers = climbers[:0]
		for _, c := range higher {
			tree, err := c.tree.Reply()
			if gone(err) {
				continue
			}
			if err != nil {
				return nil, display.Err(err)
			}
			c.at = tree.Parent
			climbers = append(climbers, c)
		}
	}
	return clients, nil
}

// below lists the windows one level below some.
func (f *Finder) below(level []client) (below []client, err error) {
	trees := make([]xproto.QueryTreeCookie, len(level))
	for i, c := range level {
		trees[i] = xproto.QueryTree(f.conn.X, c.id)
	}
	for i, c := range level {
		tree, err := trees[i].Reply()
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, display.Err(err)
		}
		for _, id := range tree.Children {
			below = append(below, client{frame: c.frame, id: id})
		}
	}
	return below, nil
}

// ask fills in a property of windows.
func (f *Finder) ask(clients []client, property xproto.Atom) error {
	asked := make([]xproto.GetPropertyCookie, len(clients))
	for i, c := range clients {
		asked[i] = f.askProperty(c.id, property)
	}
	for i := range clients {
		r, err := asked[i].Reply()
		if err != nil && !gone(err) {
			return display.Err(err)
		}
		if err == nil && r.Format != 0 {
			clients[i].property = r
		}
	}
	return nil
}

func (f *Finder) askProperty(id xproto.Window, property xproto.Atom) xproto.GetPropertyCookie {
	const length = 1024 // in words, which is enough for the longest title
	return xproto.GetProperty(f.conn.X, false, id, property, xproto.AtomAny, 0, length)
}

// names returns the class and the titles of each client whose class was asked for.
func (f *Finder) names(clients []client) ([]string, error) {
	titles := [...]xproto.Atom{f.name, xproto.AtomWmName}
	asked := make([][len(titles)]xproto.GetPropertyCookie, len(clients))
	for i, c := range clients {
		for j, title := range titles {
			asked[i][j] = f.askProperty(c.id, title)
		}
	}
	names := make([]string, len(clients))
	for i, c := range clients {
		var parts []string
		if c.property != nil {
			parts = append(parts, string(c.property.Value))
		}
		for _, title := range asked[i] {
			r, err := title.Reply()
			if err != nil && !gone(err) {
				return nil, display.Err(err)
			}
			if err == nil && r.Format != 0 {
				parts = append(parts, string(r.Value))
			}
		}
		names[i] = strings.Join(parts, "\x00")
	}
	return names, nil
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
