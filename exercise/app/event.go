package app

import (
	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// An EventKind names what an X event is about.
type EventKind string

// The kinds of events that the application logs.
const (
	KeyPress      EventKind = "key_press"
	KeyRelease    EventKind = "key_release"
	ButtonPress   EventKind = "button_press"
	ButtonRelease EventKind = "button_release"
	Motion        EventKind = "motion"
	Expose        EventKind = "expose"
	Focus         EventKind = "focus"
	Structure     EventKind = "structure" // mapped, moved, resized, reparented and the like
	Mapping       EventKind = "mapping"   // the keyboard map or the order of buttons changed
	Other         EventKind = "other"
)

// An Event is one X event as the application received it, and one line of its log.
type Event struct {
	Kind EventKind `json:"kind"`
	// Time is the server's clock in milliseconds; 0 where the event has none.
	Time uint32 `json:"time,omitempty"`
	// Detail is the keycode or the button.
	Detail int `json:"detail,omitempty"`
	// State holds the modifiers and buttons just before the event, as the X protocol's SETofKEYBUTMASK.
	State uint16 `json:"state"`
	// X and Y are where the pointer was, in screen space.
	X int `json:"x"`
	Y int `json:"y"`
	// Keysym is what the key meant in that state, Plain what it means without modifiers.
	Keysym uint32 `json:"keysym,omitempty"`
	Plain  uint32 `json:"plain,omitempty"`
	// Name is the X library's name of an event that has no kind of its own.
	Name string `json:"name,omitempty"`
}

// newEvent describes an X event.
func newEvent(e xgb.Event, k keyboard) Event {
	key := func(kind EventKind, code xproto.Keycode, state uint16, time xproto.Timestamp, x, y int16) Event {
		keysym, plain := k.lookup(code, state)
		return Event{Kind: kind, Time: uint32(time), Detail: int(code), State: state, X: int(x), Y: int(y), Keysym: keysym, Plain: plain}
	}
	switch e := e.(type) {
	case xproto.KeyPressEvent:
		return key(KeyPress, e.Detail, e.State, e.Time, e.RootX, e.RootY)
	case xproto.KeyReleaseEvent:
		return key(KeyRelease, e.Detail, e.State, e.Time, e.RootX, e.RootY)
	case xproto.ButtonPressEvent:
		return Event{Kind: ButtonPress, Time: uint32(e.Time), Detail: int(e.Detail), State: e.State, X: int(e.RootX), Y: int(e.RootY)}
	case xproto.ButtonReleaseEvent:
		return Event{Kind: ButtonRelease, Time: uint32(e.Time), Detail: int(e.Detail), State: e.State, X: int(e.RootX), Y: int(e.RootY)}
	case xproto.MotionNotifyEvent:
		return Event{Kind: Motion, Time: uint32(e.Time), State: e.State, X: int(e.RootX), Y: int(e.RootY)}
	case xproto.ExposeEvent:
		return Event{Kind: Expose}
	case xproto.FocusInEvent:
		return Event{Kind: Focus, Name: "in"}
	case xproto.FocusOutEvent:
		return Event{Kind: Focus, Name: "out"}
	case xproto.MapNotifyEvent, xproto.UnmapNotifyEvent, xproto.ConfigureNotifyEvent, xproto.ReparentNotifyEvent, xproto.DestroyNotifyEvent:
		return Event{Kind: Structure, Name: eventName(e)}
	case xproto.MappingNotifyEvent:
		return Event{Kind: Mapping}
	}
	return Event{Kind: Other, Name: eventName(e)}
}
