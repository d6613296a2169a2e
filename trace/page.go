package trace

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"image"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/deskagent/deskagent/driver"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// WritePage writes one page of HTML that shows the trace step by step: the picture that the model saw with its actions
// drawn on it, what was said and asked, and how long it took. The page has all in it, and its policy lets it load nothing.
// Without scripts it is a list. All text of the trace is escaped, and what cannot be seen in it is shown as an escape.
func (t *Trace) WritePage(w io.Writer) error {
	p := page{trace: t, Start: t.Start, End: t.End(), CSS: template.CSS(pageCSS), JS: template.JS(pageJS),
		Policy: fmt.Sprintf("default-src 'none'; img-src data:; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'",
			hash(pageCSS), hash(pageJS)), pictures: map[string]int{}}
	if err := p.build(); err != nil {
		return fmt.Errorf("making a page of the trace in %q: %w", t.dir, err)
	}
	if err := pageTemplate.Execute(w, &p); err != nil {
		return fmt.Errorf("writing a page of the trace in %q: %w", t.dir, err)
	}
	return nil
}

// hash names a script or a style in a Content-Security-Policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// A page is what the template shows.
type page struct {
	trace *Trace
	Start Start
	End   *End // nil when there is none
	// Sandboxes are those of the run: one, or none.
	Sandboxes []*Sandbox

	Policy string
	CSS    template.CSS
	JS     template.JS

	Settings  []setting
	Steps     []*step
	Pictures  []pictureData
	Sums      sums
	pictures  map[string]int // index+1 in Pictures by SHA-256
	pointer   *image.Point   // where the last action left it, in screen space
	seen      *Picture       // the last picture
	lastEvent time.Time
}

type setting struct{ Name, Value string }

// pictureData is a picture in the page. Every picture is there once, however many steps show it.
type pictureData struct {
	URL           template.URL
	Width, Height int
}

// sums are the figures of the whole run.
type sums struct {
	Usage                     Usage
	Calls, Asked, Declined    int
	Pictures, Different       int
	Model, Person, Work, Took time.Duration
}

// A step is a response with what came of it, or what was there before the first one and after the last.
type step struct {
	Number              int
	Anchor              string
	Usage               *Usage
	Texts               []Text
	Calls               []*pageCall
	Notes               []string
	Picture             *shown // with the actions drawn on it
	Model, Person, Work time.Duration
	Bad                 bool // something was declined or went wrong
}

// shown is a picture as a step shows it.
type shown struct {
	*Picture
	Data  int // number in Pictures; 0 when it was not kept
	After bool
	Marks []mark
	Unit  float64         // by how much marks are enlarged, so that they have one size in pages
	Where image.Rectangle // what changed before it, in its own space
}

type pageCall struct {
	Call
	Lines   []line
	Checks  []Approval
	Picture *Picture
}

// A line is an action in words.
type line struct {
	Number             int // of the mark; 0 when there is none
	Kind, What, Screen string
	Asked              *Approval
	Stage              *Stage
}

func (p *page) build() error {
	for _, name := range slices.Sorted(maps.Keys(p.Start.Settings)) {
		p.Settings = append(p.Settings, setting{name, p.Start.Settings[name]})
	}
	p.lastEvent = p.trace.Records[0].At
	for _, r := range p.trace.Records {
		if err := p.add(r); err != nil {
			return err
		}
	}
	if p.seen != nil {
		last := &step{Anchor: "end"}
		var err error
		if last.Picture, err = p.show(p.seen); err != nil {
			return err
		}
		last.Picture.After = true
		p.Steps = append(p.Steps, last)
	}
	p.Sums.Different = len(p.Pictures)
	if p.End != nil {
		p.Sums.Took = p.End.Took
	} else {
		p.Sums.Took = p.lastEvent.Sub(p.trace.Records[0].At)
	}
	return nil
}

// add takes in one record.
func (p *page) add(r Record) (err error) {
	since := r.At.Sub(p.lastEvent)
	if r.Stage == nil || r.Stage.Stage != "request" { // it ends just before its response is recorded
		p.lastEvent = r.At
	}
	if r.Sandbox != nil {
		p.Sandboxes = append(p.Sandboxes, r.Sandbox)
		return nil
	}
	if r.Response != nil {
		s := &step{Number: r.Step, Anchor: "step-" + strconv.Itoa(r.Step), Usage: r.Response.Usage, Texts: r.Response.Texts, Model: since}
		p.Steps = append(p.Steps, s)
		p.Sums.Model += since
		if u := r.Response.Usage; u != nil {
			p.Sums.Usage.Input += u.Input
			p.Sums.Usage.Output += u.Output
			p.Sums.Usage.Total += u.Total
		}
		if p.seen != nil {
			s.Picture, err = p.show(p.seen)
		}
		return err
	}
	if len(p.Steps) == 0 {
		if r.Call == nil && r.Note == "" {
			return nil
		}
		p.Steps = append(p.Steps, &step{Anchor: "step-0"}) // calls of a program, say, without a response
	}
	s := p.Steps[len(p.Steps)-1]
	var c *pageCall
	if len(s.Calls) > 0 {
		c = s.Calls[len(s.Calls)-1]
	}
	switch {
	case r.Note != "":
		s.Notes = append(s.Notes, r.Note)
	case r.Call != nil:
		p.addCall(s, *r.Call)
	case r.End != nil:
		s.Bad = s.Bad || r.End.Error != ""
	case r.Approval != nil:
		p.Sums.Asked++
		p.Sums.Person += r.Approval.Took
		s.Person += r.Approval.Took
		if !r.Approval.Allowed {
			p.Sums.Declined++
			s.Bad = true
		}
		switch l := c.next(); {
		case c != nil && r.Approval.Action == nil:
			c.Checks = append(c.Checks, *r.Approval)
		case l != nil:
			l.Asked = r.Approval
		}
	case r.Stage != nil && r.Stage.Stage == "action":
		p.Sums.Work += r.Stage.Took
		s.Work += r.Stage.Took
		s.Bad = s.Bad || r.Stage.Outcome != "completed"
		if l := c.next(); l != nil {
			l.Stage = r.Stage
		}
	case r.Picture != nil:
		p.Sums.Pictures++
		p.seen = r.Picture
		if c != nil {
			c.Picture = r.Picture
		}
		if s.Picture == nil { // the first one: there was none to act on
			if s.Picture, err = p.show(r.Picture); err == nil {
				s.Picture.After = true
			}
		}
	}
	return err
}

// next is the action that is going on. Screenshots that are not the last action are asked about and not taken.
func (c *pageCall) next() *line {
	if c == nil {
		return nil
	}
	for i := range c.Lines {
		l := &c.Lines[i]
		skipped := l.Kind == string(driver.KindScreenshot) && i < len(c.Lines)-1 && l.Asked != nil
		if l.Stage == nil && !skipped {
			return l
		}
	}
	return nil
}

func (p *page) addCall(s *step, call Call) {
	p.Sums.Calls++
	c := &pageCall{Call: call}
	s.Calls = append(s.Calls, c)
	for i, a := range call.Shown {
		l := line{Kind: string(a.Kind()), What: words(a.Action)}
		if i < len(call.Actions) {
			if screen := places(call.Actions[i].Action); screen != places(a.Action) {
				l.Screen = screen
			}
		}
		if s.Picture != nil {
			if m, ok := p.mark(s.Picture, a.Action); ok {
				m.Number = len(s.Picture.Marks) + 1
				l.Number = m.Number
				s.Picture.Marks = append(s.Picture.Marks, m)
			}
		}
		if i < len(call.Actions) {
			if points := driver.Points(call.Actions[i].Action); len(points) > 0 {
				p.pointer = &points[len(points)-1]
			}
		}
		c.Lines = append(c.Lines, l)
	}
}

// show prepares a picture for a step.
func (p *page) show(picture *Picture) (*shown, error) {
	s := &shown{Picture: picture, Unit: float64(max(picture.Width, picture.Height)) / 1280}
	if picture.Settling != nil {
		s.Where = s.area(image.Rectangle(picture.Settling.Changed))
	}
	if !picture.Kept {
		return s, nil
	}
	if p.pictures[picture.SHA256] == 0 {
		file, err := p.trace.File(picture)
		if errors.Is(err, fs.ErrNotExist) {
			return s, nil // somebody has made room; all else is there
		}
		if err != nil {
			return nil, err
		}
		p.Pictures = append(p.Pictures, pictureData{
			template.URL("data:image/" + picture.Format + ";base64," + base64.StdEncoding.EncodeToString(file)), picture.Width, picture.Height})
		p.pictures[picture.SHA256] = len(p.Pictures)
	}
	s.Data = p.pictures[picture.SHA256]
	return s, nil
}

// area takes an area of the screen to the picture.
func (s *shown) area(r image.Rectangle) image.Rectangle {
	crop := image.Rectangle(s.Area)
	if r = r.Intersect(crop); r.Empty() {
		return image.Rectangle{}
	}
	a, b := s.point(r.Min), s.point(r.Max)
	return image.Rectangle{Min: a, Max: b}
}

// point takes a point of the screen to the picture, for drawing; what counts is mapped by package scaling.
func (s *shown) point(screenPt image.Point) image.Point {
	crop := image.Rectangle(s.Area)
	p := screenPt.Sub(crop.Min)
	return image.Pt(p.X*s.Width/max(1, crop.Dx()), p.Y*s.Height/max(1, crop.Dy()))
}

// A mark is an action drawn on a picture, in the space of that picture.
type mark struct {
	Number  int
	Kind    string
	X, Y    int    // where it is drawn
	Trail   string // the way of the pointer to it, as the data of an SVG path
	Path    string // of a drag
	Button  string // that is not the left one
	Turn    int    // of a scroll: degrees, 0 to the right
	Caption string
	Before  bool // the caption is on the left
	Drop    int  // how far the number is lowered, since there are others at the same place
}

// captionLength is how many characters of a text are drawn; the list has all of it.
const captionLength = 48

// badgeHeight is the height of a mark's number.
const badgeHeight = 21

// mark draws an action. Waiting and screenshots are not drawn.
func (p *page) mark(s *shown, a driver.Action) (m mark, ok bool) {
	var from *image.Point
	if len(s.Marks) > 0 {
		from = s.Marks[len(s.Marks)-1].end()
	} else if p.pointer != nil && p.pointer.In(image.Rectangle(s.Area)) {
		at := s.point(*p.pointer)
		from = &at
	}
	m = mark{Kind: string(a.Kind())}
	at := image.Pt(s.Width/2, s.Height/2)
	if from != nil {
		at = *from
	}
	if points := driver.Points(a); len(points) > 0 {
		at = points[0]
		if from != nil && *from != at {
			m.Trail = path([]image.Point{*from, at})
		}
	}
	var caption string
	if keys := driver.HeldKeys(a); len(keys) > 0 {
		caption = strings.Join(keys, "+")
	}
	switch a := a.(type) {
	case driver.Wait, driver.Screenshot:
		return mark{}, false
	case driver.Click:
		if a.Button != driver.ButtonLeft {
			m.Button = a.Button.String()
		}
	case driver.Drag:
		m.Path = path(a.Path)
		if len(a.Path) > 0 {
			at = a.Path[len(a.Path)-1]
		}
	case driver.Scroll:
		m.Turn = turn(a.ScrollX, a.ScrollY)
	case driver.Type:
		quoted := strconv.Quote(a.Text)
		caption = quoted[1 : len(quoted)-1]
	case driver.Keypress:
		caption = strings.Join(a.Keys, "+")
	}
	if runes := []rune(caption); len(runes) > captionLength {
		caption = string(runes[:captionLength]) + "…"
	}
	m.X, m.Y, m.Caption, m.Before = at.X, at.Y, visible(caption), at.X > s.Width*3/5
	for _, other := range s.Marks {
		if *other.end() == at {
			m.Drop += badgeHeight
		}
	}
	return m, true
}

// Label is what stands beside the number.
func (m mark) Label() string { return strings.TrimSpace(m.Button + " " + m.Caption) }

// end is where the pointer is afterwards.
func (m mark) end() *image.Point { return &image.Point{X: m.X, Y: m.Y} }

func path(points []image.Point) string {
	var b strings.Builder
	for i, p := range points {
		fmt.Fprintf(&b, "%c%d %d", "ML"[min(i, 1)], p.X, p.Y)
	}
	return b.String()
}

// turn is the direction of a scroll in degrees, clockwise from the right, one of four.
func turn(x, y int) int {
	switch {
	case max(y, -y) >= max(x, -x) && y >= 0:
		return 90
	case max(y, -y) >= max(x, -x):
		return 270
	case x < 0:
		return 180
	}
	return 0
}

// words says what an action is, with points in the picture.
func words(a driver.Action) string {
	var parts []string
	switch a := a.(type) {
	case driver.Click:
		if a.Button != driver.ButtonLeft {
			parts = append(parts, a.Button.String())
		}
	case driver.Scroll:
		parts = append(parts, fmt.Sprintf("by %d, %d", a.ScrollX, a.ScrollY))
	case driver.Type:
		parts = append(parts, strconv.Quote(a.Text))
	case driver.Keypress:
		parts = append(parts, visible(strings.Join(a.Keys, "+")))
	}
	if at := places(a); at != "" {
		parts = append(parts, at)
	}
	if keys := driver.HeldKeys(a); len(keys) > 0 {
		parts = append(parts, "holding "+visible(strings.Join(keys, "+")))
	}
	return strings.Join(parts, " ")
}

// places are the first and the last point of an action.
func places(a driver.Action) string {
	points := driver.Points(a)
	switch n := len(points); n {
	case 0:
		return ""
	case 1:
		return "at " + points[0].String()
	default:
		return fmt.Sprintf("from %v to %v, %d points", points[0], points[n-1], n)
	}
}

// visible shows what cannot be seen, or would turn what stands beside it around, as an escape. Lines stay.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Visible is for text of the trace in the template.
func (*page) Visible(text string) string { return visible(text) }

// Seconds shows a duration.
func (*page) Seconds(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// Index is that of a picture with a number from 1.
func (*page) Index(number int) int { return number - 1 }

// Size shows a number of bytes.
func (*page) Size(n int) string { return fmt.Sprintf("%.0f kB", float64(n)/1000) }

// Share is d of all that a step took, in a thousand.
func (s *step) Share(d time.Duration) int64 {
	return int64(d) * 1000 / max(1, int64(s.Model+s.Person+s.Work))
}

// From is where the share of the work begins.
func (s *step) From() int64 { return s.Share(s.Model) + s.Share(s.Person) }

// Final reports whether the step is what is left on the screen.
func (s *step) Final() bool { return s.Anchor == "end" }

// Half is half of the height of a picture, for a text in its middle.
func (s *shown) Half() int { return s.Height / 2 }
