package trace

import (
	"encoding/json"
	"fmt"
	"image"
	"slices"
	"time"

	"github.com/deskagent/deskagent/driver"
)

// Version is that of the format.
const Version = 1

// A Record is one line. Exactly one member besides the time and the step is there.
type Record struct {
	At   time.Time `json:"at"`
	Step int       `json:"step"` // responses so far, this one included

	Start    *Start    `json:"start,omitempty"`
	Sandbox  *Sandbox  `json:"sandbox,omitempty"`
	Response *Response `json:"response,omitempty"`
	Call     *Call     `json:"call,omitempty"`
	Approval *Approval `json:"approval,omitempty"`
	Stage    *Stage    `json:"stage,omitempty"`
	Picture  *Picture  `json:"picture,omitempty"`
	Note     string    `json:"note,omitempty"`
	End      *End      `json:"end,omitempty"`
}

// Start is what a run began with.
type Start struct {
	Version int    `json:"version"`
	Program string `json:"program"`        // name and version of what recorded it
	Task    string `json:"task,omitempty"` // what the model was told
	// Settings are whatever may have made a difference, by name.
	Settings map[string]string `json:"settings,omitempty"`
}

// A Sandbox is what kept the desktop of a run apart. Without such a record it was in none that the recorder knew of.
type Sandbox struct {
	Name    string `json:"name"`
	Image   string `json:"image"`
	Network string `json:"network"` // what could be reached, such as "none"
	Tests   []Test `json:"tests"`   // of its limits, from inside, before the run
}

// A Test is one thing that was tried.
type Test struct {
	Name   string `json:"name"`
	Target string `json:"target,omitempty"`
	OK     bool   `json:"ok"` // it is as it has to be
	Detail string `json:"detail"`
}

// Hold reports whether all limits were found to hold, and some were tried.
func (s *Sandbox) Hold() bool {
	return len(s.Tests) > 0 && !slices.ContainsFunc(s.Tests, func(t Test) bool { return !t.OK })
}

// A Response is what the model answered, but for its calls.
type Response struct {
	Usage *Usage `json:"usage,omitempty"` // nil when the response does not say
	Texts []Text `json:"texts,omitempty"`
}

// Usage is what a response cost, in tokens.
type Usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
	Total  int64 `json:"total_tokens"`
}

// A Text is something that the model said.
type Text struct {
	Kind string `json:"kind"` // "message", "refusal" or "reasoning"
	Text string `json:"text"`
}

// ReadResponse takes what is recorded out of a response in the API's form, and ignores all that it does not understand:
// whether the response is a proper one is for others to say.
func ReadResponse(response json.RawMessage) Response {
	type part struct{ Text, Refusal string }
	var raw struct {
		Usage  *Usage
		Output []struct {
			Type             string
			Content, Summary []part
		}
	}
	_ = json.Unmarshal(response, &raw) // fills in what has the right type
	r := Response{Usage: raw.Usage}
	add := func(kind, text string) {
		if text != "" {
			r.Texts = append(r.Texts, Text{kind, text})
		}
	}
	for _, item := range raw.Output {
		switch item.Type {
		case "message":
			for _, p := range item.Content {
				add("message", p.Text)
				add("refusal", p.Refusal)
			}
		case "reasoning":
			for _, p := range item.Summary {
				add("reasoning", p.Text)
			}
		}
	}
	return r
}

// A Call is a computer call. Shown and Actions have the same length.
type Call struct {
	ID      string   `json:"call_id"`
	Shown   []Action `json:"shown"`   // in the space of the picture that the model saw
	Actions []Action `json:"actions"` // in screen space
	Checks  []Check  `json:"checks,omitempty"`
	// Masked tells that text was replaced, so that the call cannot be done again.
	Masked bool `json:"masked,omitempty"`
}

// An Action is a driver.Action that can be read back.
type Action struct{ driver.Action }

// UnmarshalJSON reads the API's form of an action.
func (a *Action) UnmarshalJSON(data []byte) (err error) {
	a.Action, err = driver.DecodeAction(data)
	return err
}

// Actions puts actions into the form in which they are recorded.
func Actions(actions []driver.Action) []Action {
	list := make([]Action, len(actions))
	for i, a := range actions {
		list[i] = Action{a}
	}
	return list
}

// A Check is a safety check that the API raised about a call.
type Check struct {
	ID      string `json:"id"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// An Approval is a question, about an action or about the pending safety checks of a call, and the answer.
type Approval struct {
	CallID  string        `json:"call_id"`
	Action  *Action       `json:"action,omitempty"` // in screen space
	Checks  []Check       `json:"checks,omitempty"`
	Allowed bool          `json:"allowed"`
	Error   string        `json:"error,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

// A Stage is a part of the work that has been finished. The words are those of whoever reports it.
type Stage struct {
	API     string        `json:"api,omitempty"`
	Stage   string        `json:"stage"`
	Outcome string        `json:"outcome"`
	Member  string        `json:"member,omitempty"` // the action or the function that it is about
	CallID  string        `json:"call_id,omitempty"`
	Took    time.Duration `json:"took_ns"`
}

// A Picture is what the model was shown after a call.
type Picture struct {
	CallID   string    `json:"call_id"`
	Frame    uint64    `json:"frame"` // number of the driver's frame
	Taken    time.Time `json:"taken"`
	Area     Area      `json:"area"`  // the part of the screen that it shows
	Width    int       `json:"width"` // of the picture, in pixels
	Height   int       `json:"height"`
	Settling *Settling `json:"settling,omitempty"` // nil when nobody has looked
	Blank    string    `json:"blank,omitempty"`    // why there may be nothing to see

	// These are filled in by the Writer.
	SHA256 string `json:"sha256"` // of the file, in hexadecimal digits
	Format string `json:"format"` // "png" or "jpeg"
	Bytes  int    `json:"bytes"`  // of the file
	Kept   bool   `json:"kept"`   // whether the file is in the trace
}

// Settling says how the screen came to rest before a picture; see driver.Settling.
type Settling struct {
	State     driver.SettleState `json:"state"`
	Elapsed   time.Duration      `json:"elapsed_ns"`
	Changed   Area               `json:"changed"`
	Recurring Area               `json:"recurring"`
}

// NewPicture is the record of a frame that is shown to the model in the given size.
func NewPicture(callID string, f *driver.Frame, area image.Rectangle, size image.Point) Picture {
	p := Picture{CallID: callID, Frame: f.ID, Taken: f.Taken, Area: Area(area), Width: size.X, Height: size.Y, Blank: f.Blank}
	if s := f.Settling; s.State != "" {
		p.Settling = &Settling{s.State, s.Elapsed, Area(s.Changed), Area(s.Recurring)}
	}
	return p
}

// End is how a run ended.
type End struct {
	Error string        `json:"error,omitempty"` // empty when all went well
	Took  time.Duration `json:"took_ns"`
}

// An Area is a rectangle in screen space that is written as [x, y, width, height].
type Area image.Rectangle

// MarshalJSON writes the four numbers.
func (a Area) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]int{a.Min.X, a.Min.Y, a.Max.X - a.Min.X, a.Max.Y - a.Min.Y})
}

// UnmarshalJSON reads the four numbers.
func (a *Area) UnmarshalJSON(data []byte) error {
	var n []int
	if err := json.Unmarshal(data, &n); err != nil || len(n) != 4 {
		return fmt.Errorf("area %.60q: want [x, y, width, height]", data)
	}
	*a = Area{Min: image.Pt(n[0], n[1]), Max: image.Pt(n[0]+n[2], n[1]+n[3])}
	return nil
}

// String shows the area as "300x200+10+20".
func (a Area) String() string {
	return fmt.Sprintf("%dx%d%+d%+d", a.Max.X-a.Min.X, a.Max.Y-a.Min.Y, a.Min.X, a.Min.Y)
}
