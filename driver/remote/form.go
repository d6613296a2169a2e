package remote

import (
	"errors"
	"image"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/deskagent/deskagent/driver"
)

// The tools that are no actions. They serve [driver.Sizer], [driver.Viewer] and [driver.Holder].
const (
	toolBounds = "bounds"
	toolScene  = "scene"
	toolView   = "view"
	toolHolds  = "holds"
)

// What the metadata of a result that is an error may have.
const (
	metaErrors = "deskagent/errors" // names of sentinels, see below
	metaScene  = "deskagent/scene"  // the scene as it is, where it is not the one that a picture was asked for
)

// ErrDeclined is wrapped by the error of an action that [ServerOptions].Approve did not let pass.
var ErrDeclined = errors.New("declined at the desktop")

// sentinels are the errors that are told apart on the other side, with their names on the wire.
var sentinels = map[string]error{
	"no_display":     driver.ErrNoDisplay,
	"display_lost":   driver.ErrDisplayLost,
	"out_of_bounds":  driver.ErrOutOfBounds,
	"unknown_key":    driver.ErrUnknownKey,
	"unknown_button": driver.ErrUnknownButton,
	"unsupported":    driver.ErrUnsupported,
	"invalid_action": driver.ErrInvalidAction,
	"held":           driver.ErrHeld,
	"interference":   driver.ErrInterference,
	"stale":          driver.ErrStale,
	"declined":       ErrDeclined,
}

// failure is the result of a call that went wrong.
func failure(err error) *mcp.CallToolResult {
	names := []string{}
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			names = append(names, name)
		}
	}
	return &mcp.CallToolResult{
		IsError: true,
		Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}},
		Meta:    mcp.Meta{metaErrors: names},
	}
}

// A farError is an error of the other side: its words, and the sentinels that it wraps.
type farError struct {
	text string
	is   []error
}

func (e *farError) Error() string   { return e.text }
func (e *farError) Unwrap() []error { return e.is }

// failed is the error in a result, nil when there is none.
func failed(r *mcp.CallToolResult) error {
	if !r.IsError {
		return nil
	}
	e := farError{text: "the other side does not say why"}
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			e.text = plain(text.Text)
			break
		}
	}
	names, _ := r.Meta[metaErrors].([]any)
	for _, name := range names {
		name, _ := name.(string)
		if sentinel, ok := sentinels[name]; ok {
			e.is = append(e.is, sentinel)
		}
	}
	return &e
}

// plain makes words from the other side, which need not be well-meaning, fit for one line of a message.
func plain(text string) string {
	const most = 2000
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// area is an image.Rectangle in a form that a model reads without thinking, and exact even for an empty one.
type area struct {
	X      int `json:"x"`
	Y      int `json:"y"`
	Width  int `json:"width"`
	Height int `json:"height"`
}

func areaOf(r image.Rectangle) area { return area{r.Min.X, r.Min.Y, r.Dx(), r.Dy()} }

func (a area) rectangle() image.Rectangle {
	min := image.Pt(a.X, a.Y)
	return image.Rectangle{Min: min, Max: min.Add(image.Pt(a.Width, a.Height))}
}

// size is a size in pixels.
type size struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// scene is a driver.Scene.
type scene struct {
	Screen area    `json:"screen"`
	Window *window `json:"window,omitempty"` // nil when none is active
}

type window struct {
	ID      uint32 `json:"id"`
	Bounds  area   `json:"bounds"`
	Visible area   `json:"visible"`
}

func sceneOf(s driver.Scene) scene {
	out := scene{Screen: areaOf(s.Screen)}
	if w := s.Window; w != (driver.Window{}) {
		out.Window = &window{w.ID, areaOf(w.Bounds), areaOf(w.Visible)}
	}
	return out
}

func (s scene) scene() driver.Scene {
	out := driver.Scene{Screen: s.Screen.rectangle()}
	if w := s.Window; w != nil {
		out.Window = driver.Window{ID: w.ID, Bounds: w.Bounds.rectangle(), Visible: w.Visible.rectangle()}
	}
	return out
}

// frame is a driver.Frame but for its pixels.
type frame struct {
	ID       uint64    `json:"id,omitempty"`
	Taken    time.Time `json:"taken"`
	Area     area      `json:"area"`
	Size     size      `json:"size"`
	Scene    scene     `json:"scene"`
	Settling *settling `json:"settling,omitempty"`
	Blank    string    `json:"blank,omitempty"`
}

type settling struct {
	State        driver.SettleState `json:"state"`
	Milliseconds float64            `json:"elapsed_ms"`
	Changed      area               `json:"changed"`
	Recurring    area               `json:"recurring"`
}

func frameOf(f *driver.Frame) frame {
	out := frame{ID: f.ID, Taken: f.Taken, Area: areaOf(f.Area), Scene: sceneOf(f.Scene), Blank: f.Blank,
		Size: size{f.Image.Rect.Dx(), f.Image.Rect.Dy()}}
	if s := f.Settling; s != (driver.Settling{}) {
		out.Settling = &settling{s.State, milliseconds(s.Elapsed), areaOf(s.Changed), areaOf(s.Recurring)}
	}
	return out
}

func (f frame) frame() *driver.Frame {
	out := &driver.Frame{ID: f.ID, Taken: f.Taken, Area: f.Area.rectangle(), Scene: f.Scene.scene(), Blank: f.Blank}
	if s := f.Settling; s != nil {
		out.Settling = driver.Settling{State: s.State, Elapsed: duration(s.Milliseconds), Changed: s.Changed.rectangle(), Recurring: s.Recurring.rectangle()}
	}
	return out
}

// milliseconds and duration are exact both ways, for less than a month.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func duration(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}
