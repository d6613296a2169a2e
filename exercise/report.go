package exercise

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/exercise/booking"
	"github.com/deskagent/deskagent/toolset"
)

// A Report tells how an exercise went.
type Report struct {
	Pass bool `json:"pass"`
	// Reason is why it did not pass, a line for each fault; empty when it passed.
	Reason string `json:"reason,omitempty"`
	// Answer is the model's final message; empty when there was none.
	Answer string `json:"answer,omitempty"`

	Seed    uint64   `json:"seed"`
	Display string   `json:"display"`
	Sink    x11.Sink `json:"sink"`
	Screen  string   `json:"screen"` // such as "1920x1080"
	Shown   string   `json:"shown"`  // which part of the screen the model saw, and in which size
	Window  string   `json:"window"` // size and place on the screen, such as "1000x640+140+80"

	// Errand is nil when there was none.
	Errand *Errand `json:"errand,omitempty"`

	Steps        int `json:"steps"`         // responses of the model
	Actions      int `json:"actions"`       // that it asked for
	Pictures     int `json:"pictures"`      // that it was sent
	PictureBytes int `json:"picture_bytes"` // of them all, as PNG
	Events       int `json:"events"`        // X events that the application received
	// Asked counts what the approver was asked about: the actions, the capture at the end of each call included,
	// and the safety checks.
	Asked struct {
		Actions int `json:"actions"`
		Checks  int `json:"checks"`
	} `json:"asked"`
	Tokens toolset.Usage `json:"tokens"`
	// Duration is that of the whole exercise, start and end of the display included.
	Duration time.Duration `json:"duration_ns"`
	// Kinds tells how often each kind of action was carried out, and how long that took.
	Kinds map[driver.Kind]Timing `json:"kinds"`
}

// An Errand is what came of the errand.
type Errand struct {
	Answer  string          `json:"answer,omitempty"` // the model's final message
	Booking booking.Booking `json:"booking"`          // what the page's server has stored
	Note    string          `json:"note"`             // what is in the file that was asked for
}

// A Timing sums up the actions of one kind. The screenshot's includes making the picture.
type Timing struct {
	Count int           `json:"count"`
	Total time.Duration `json:"total_ns"`
	Max   time.Duration `json:"max_ns"`
}

// fail adds a reason why the exercise did not pass; a nil err is none.
func (r *Report) fail(err error) {
	if err == nil {
		return
	}
	if r.Reason != "" {
		r.Reason += "\n"
	}
	r.Reason += err.Error()
}

func (r *Report) time(kind driver.Kind, d time.Duration) {
	t := r.Kinds[kind]
	t.Count++
	t.Total += d
	t.Max = max(t.Max, d)
	r.Kinds[kind] = t
}

// WriteTo writes the report for people to read.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, r.String())
	return int64(n), err
}

// String returns the report for people to read, a dozen lines. Text from outside is quoted.
func (r *Report) String() string {
	var b strings.Builder
	if r.Pass {
		fmt.Fprintln(&b, "PASS")
	} else {
		fmt.Fprintln(&b, "FAIL")
		for reason := range strings.SplitSeq(r.Reason, "\n") {
			fmt.Fprintln(&b, "  reason:", reason)
		}
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", d.Seconds()*1000) }
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if e := r.Errand; e != nil {
		fmt.Fprintf(t, "  booked\troom %q for %q\n  note\t%q in %q\n", e.Booking.Record.Room, e.Booking.Record.Name, e.Note, e.Booking.File)
	}
	for _, row := range [][2]any{
		{"answer", fmt.Sprintf("%q", r.Answer)},
		{"screen", fmt.Sprintf("%s, display %s, sink %s", r.Screen, r.Display, r.Sink)},
		{"shown", r.Shown},
		{"window", r.Window},
		{"seed", r.Seed},
		{"steps", fmt.Sprintf("%d, %d actions, %d X events", r.Steps, r.Actions, r.Events)},
		{"asked", fmt.Sprintf("about %d actions and %d safety checks", r.Asked.Actions, r.Asked.Checks)},
		{"pictures", fmt.Sprintf("%d, %.1f kB", r.Pictures, float64(r.PictureBytes)/1000)},
		{"tokens", fmt.Sprintf("%d in, %d out", r.Tokens.InputTokens, r.Tokens.OutputTokens)},
		{"time", fmt.Sprintf("%.1f s", r.Duration.Seconds())},
	} {
		fmt.Fprintf(t, "  %v\t%v\n", row[0], row[1])
	}
	_ = t.Flush() // a strings.Builder takes everything
	fmt.Fprintln(&b)
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  action\tcount\ttotal\tmean\tlongest\t")
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		k := r.Kinds[kind]
		fmt.Fprintf(t, "  %s\t%d\t%s\t%s\t%s\t\n", kind, k.Count, ms(k.Total), ms(k.Total/time.Duration(k.Count)), ms(k.Max))
	}
	_ = t.Flush()
	return b.String()
}

// write keeps the report as JSON.
func (r *Report) write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
