// Package toolset carries out computer calls of the Responses API on a [driver.Driver]: it reads one call, moves
// its points from the picture the model saw to the screen, asks, acts, takes a picture and returns the
// computer_call_output. [Toolset.Run] is the loop around that for a model that has no other tools;
// [Toolset.Execute] serves loops of the caller's own.
//
// # Nothing happens by accident
//
// A call is checked whole, on the JSON as it arrived, before anything is asked or done. Every action is put to an
// [approve.Approver] just before it runs, and the value approved is the very value executed. A missing approver,
// an error, a panic: each is a no. The zero [Policy] allows nothing.
//
// # Points
//
// The pictures are made as [scaling.View] says. A call is mapped by the picture that the model last saw, that is,
// by the last one returned to it, whatever has been captured since. With the zero View the picture is the screen
// itself; points then pass unchanged and it is the driver that knows which of them exist. Where the driver is a
// [driver.Holder], points are refused once the screen has another size than in that picture, or the window that it
// showed another place.
//
// # Errors
//
// All errors of calls and runs are of type [*Error] and carry a [Reason]. Errors of drivers, approvers and
// requests, and the cause of a cancellation, stay in the chain for errors.Is and errors.As.
package toolset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"sync"

	"github.com/openai/openai-go/v3/packages/param"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/scaling"
)

// Options are the choices of a Toolset. The zero value means the documented defaults. The observers (On...) are
// called synchronously and get copies; nothing they do to them, nor a panic, has any effect.
type Options struct {
	// View says how pictures for the model are made from the screen. Zero: the whole screen, pixel for pixel.
	View scaling.View
	// Window has pictures show the active window alone, with its menus and dialogues, or all that View shows when no
	// window is active. The driver has to be a [driver.Viewer]. View must have no Crop.
	Window bool
	// Limits are what pictures must be within; larger ones are refused. Zero: [DefaultLimits].
	Limits Limits
	// Present turns a finished picture, its origin at (0,0), into what the API can be sent: a data URL or the
	// id of an uploaded file. It must not keep the picture. Nil: that of the zero [Encoding], or what the driver has as
	// a PNG file already, as it is.
	Present func(ctx context.Context, picture *image.RGBA) (Picture, error)

	// OnCall gets each call after it was checked and scaled, before anything is asked.
	OnCall func(Call)
	// OnPicture gets each picture after it was taken and presented.
	OnPicture func(Shot)
	// OnDiagnostic gets the records of calls and runs that have no OnDiagnostic of their own.
	OnDiagnostic func(Diagnostic)
	// OnError gets each error that [Toolset.Execute] returns. It is for a person who watches: who called Execute may
	// have to keep to himself what drivers and approvers say.
	OnError func(error)
	// Logger gets each record at debug level, and panics of observers as warnings. Nil discards.
	Logger *slog.Logger
}

// A Call is one computer call about to be carried out.
type Call struct {
	ID  string          // the call_id
	Raw json.RawMessage // the call in the API's form
	// Shown are the actions as the model put them, in the space of the picture; Actions are the same ones on the
	// screen. Where the call does not end with a screenshot, the final capture has been added to both.
	Shown, Actions []driver.Action
}

// A Shot is one picture for the model.
type Shot struct {
	CallID  string
	Frame   *driver.Frame   // what the driver captured
	Mapping scaling.Mapping // from the picture to the screen
	// Image is the picture: that of the Frame where the driver is a [driver.Viewer], and nil where that had a file which
	// is sent as it is. Frame.Pixels has it then.
	Image   *image.RGBA
	Picture Picture // what is sent
}

// Policy says who is asked. The zero Policy declines everything.
type Policy struct {
	// SafetyChecks is asked once for a call with pending safety checks, before anything else of that call.
	// Nil: declined. Its yes approves no action.
	SafetyChecks approve.Approver
	// Actions is asked before every action, a screenshot and the final capture included. Nil: declined.
	Actions approve.Approver
	// Unasked lets actions run without being asked about when Actions is nil. Pending safety checks are still
	// asked about.
	Unasked bool
}

// Ask is the Policy that puts both kinds of question to one approver.
func Ask(a approve.Approver) Policy { return Policy{SafetyChecks: a, Actions: a} }

// Status is what [Toolset.Close] reports.
type Status string

// The states after Close.
const (
	Closed   Status = "closed"   // nothing runs and nothing will
	Draining Status = "draining" // the running call or run goes on to its end
)

// A Toolset carries out the computer calls of one desktop, one at a time: while a call or a run is going on,
// others get [ErrBusy], also from inside its own callbacks. It neither opens nor closes the driver. Its methods
// are safe to use from several goroutines.
type Toolset struct {
	driver driver.Driver
	opts   Options
	asIs   bool // whether a PNG file that the driver has is presented as it is

	mu     sync.Mutex // guards what follows
	active bool
	closed bool

	// These belong to the one call or run that is active.
	seen   sight // the picture the model saw when it made the calls at hand
	latest sight // the last picture returned to it
}

// A sight is what stays of a picture when it has been sent. The zero sight stands for no picture.
type sight struct {
	mapping scaling.Mapping
	scene   driver.Scene // as far as the picture depends on it
}

// New returns a Toolset that acts on d. Options may be nil and are copied.
func New(d driver.Driver, opts *Options) (*Toolset, error) {
	if d == nil {
		return nil, errors.New("making a computer toolset: no driver")
	}
	t := &Toolset{driver: d}
	if opts != nil {
		t.opts = *opts
	}
	if t.opts.Window {
		if _, ok := d.(driver.Viewer); !ok {
			return nil, fmt.Errorf("making a computer toolset: pictures of the active window: %w by this driver", driver.ErrUnsupported)
		}
		if t.opts.View.Crop != (image.Rectangle{}) {
			return nil, fmt.Errorf("making a computer toolset: want pictures of the active window or of %v, not both", t.opts.View.Crop)
		}
	}
	// The screen is not known yet; the crop itself, or a single pixel, will do to find what no screen could fit.
	probe := t.opts.View.Crop
	if probe == (image.Rectangle{}) {
		probe = image.Rect(0, 0, 1, 1)
	}
	if _, err := t.opts.View.Mapping(probe); err != nil {
		return nil, fmt.Errorf("making a computer toolset: view: %w", err)
	}
	if t.opts.Limits == (Limits{}) {
		t.opts.Limits = DefaultLimits
	}
	if t.asIs = t.opts.Present == nil; t.asIs {
		present, err := Encoding{}.Presenter()
		if err != nil {
			return nil, fmt.Errorf("making a computer toolset: %w", err)
		}
		t.opts.Present = present
	}
	if t.opts.Logger == nil {
		t.opts.Logger = slog.New(slog.DiscardHandler)
	}
	return t, nil
}

// Close refuses all further calls and runs, with [ErrClosed]. It returns at once, and may be called from inside a
// callback and repeatedly: Draining while something is still running, Closed when nothing is. Only then may the
// desktop be given to someone else.
func (t *Toolset) Close() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.active {
		return Draining
	}
	return Closed
}

func (t *Toolset) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return &Error{ReasonClosed, ErrClosed}
	case t.active:
		return &Error{ReasonBusy, ErrBusy}
	}
	t.active = true
	return nil
}

func (t *Toolset) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active = false
}

// ExecuteOptions are the choices of one call.
type ExecuteOptions struct {
	Policy Policy
	// SameTurn says that the call comes from the same response as the one executed before it, so that the model
	// made it before it saw the picture which that one returned.
	SameTurn bool
	// OnDiagnostic takes the place of that of [Options].
	OnDiagnostic func(Diagnostic)
}

// Execute carries out one computer_call, given as JSON as it came from the API, and returns the
// computer_call_output to send back, as JSON too. A nil opts declines everything. ctx reaches the driver and the
// approvers; when it is done, Execute stops before the next step and returns an error that wraps its cause.
//
// After an error the actions before the failing one have happened; nothing is repeated or undone.
func (t *Toolset) Execute(ctx context.Context, call json.RawMessage, opts *ExecuteOptions) (output json.RawMessage, err error) {
	defer func() {
		if err != nil && t.opts.OnError != nil {
			t.observe("errors", func() { t.opts.OnError(err) })
		}
	}()
	if err := t.begin(); err != nil {
		return nil, err
	}
	defer t.end()
	if opts == nil {
		opts = &ExecuteOptions{}
	}
	c, err := decodeCall(call)
	if err != nil {
		return nil, fail(ReasonInvalidCall, "computer call: %w", err)
	}
	if !opts.SameTurn {
		t.seen = t.latest
	}
	outputs, err := t.perform(ctx, []*computerCall{c}, t.gate(opts.Policy, opts.OnDiagnostic))
	if err != nil {
		return nil, err
	}
	return outputs[0], nil
}

// perform carries out the decoded calls of one response. The order of the steps is the point of this package: no
// question is put before every call of the response has been decoded and scaled, nothing is done that was not
// approved just before, and the picture comes last.
func (t *Toolset) perform(ctx context.Context, calls []*computerCall, g gate) (outputs []json.RawMessage, err error) {
	for _, c := range calls {
		if err := t.scale(ctx, c); err != nil {
			return nil, err
		}
	}
	var shot Shot
	for _, c := range calls {
		t.observeCall(c)
		if err := g.approveChecks(ctx, c); err != nil {
			return nil, err
		}
		for i, s := range c.steps {
			if err := g.approveAction(ctx, c, s); err != nil {
				return nil, err
			}
			if s.action.Kind() != driver.KindScreenshot {
				err = t.do(ctx, c, s, g)
			} else if i == len(c.steps)-1 { // an earlier screenshot would never be seen: it is only asked about
				shot, err = t.capture(ctx, c, g)
			}
			if err != nil {
				return nil, err
			}
		}
		outputs = append(outputs, c.output(shot.Picture))
	}
	if err := cancelled(ctx); err != nil { // by the last observer
		return nil, err
	}
	t.latest = sight{shot.Mapping, t.dependsOn(shot.Frame.Scene)}
	return outputs, nil
}

// scale works out where on the screen the points of c are.
func (t *Toolset) scale(ctx context.Context, c *computerCall) error {
	if err := cancelled(ctx); err != nil {
		return err
	}
	if !c.hasPoints() {
		return nil
	}
	if err := t.holds(ctx); err != nil {
		return t.stale(ctx, c, err)
	}
	unseen := t.seen == sight{}
	switch {
	case t.opts.View == scaling.View{} && !t.opts.Window && (unseen || t.seen.mapping.Identity()):
		return nil // the picture is the screen, and its bounds are the driver's business
	case unseen:
		m, err := t.expected(ctx)
		if stopped := cancelled(ctx); stopped != nil {
			return stopped
		}
		if err != nil {
			return fail(ReasonDriverFailed, "computer call %q names points before any picture was shown: %w", c.id, err)
		}
		t.seen.mapping = m
	}
	if err := c.scale(t.seen.mapping); err != nil {
		return fail(ReasonInvalidCall, "computer call %q: %w", c.id, err)
	}
	return nil
}

// dependsOn is the part of a scene that the meaning of points depends on.
func (t *Toolset) dependsOn(s driver.Scene) driver.Scene {
	if !t.opts.Window {
		s.Window = driver.Window{}
	}
	return s
}

// holds makes sure that points of the picture that the model saw still mean what they meant.
func (t *Toolset) holds(ctx context.Context) error {
	holder, ok := t.driver.(driver.Holder)
	if !ok || t.seen.scene == (driver.Scene{}) {
		return nil
	}
	return guard(func() error { return holder.Holds(ctx, t.seen.scene) })
}

// stale is the error about a call whose picture no longer holds, or of which that cannot be told.
func (t *Toolset) stale(ctx context.Context, c *computerCall, err error) error {
	reason := ReasonDriverFailed
	if errors.Is(err, driver.ErrStale) {
		reason = ReasonStale
	}
	return cmp.Or(cancelled(ctx), fail(reason, "computer call %q: %w", c.id, err))
}

// expected is the mapping of the picture that would be taken now.
func (t *Toolset) expected(ctx context.Context) (m scaling.Mapping, err error) {
	if t.opts.Window {
		return m, errors.New("which window was meant is not known")
	}
	sizer, ok := t.driver.(driver.Sizer)
	if !ok {
		return m, errors.New("the driver cannot tell the size of its screen")
	}
	err = guard(func() error {
		bounds, err := sizer.Bounds(ctx)
		if err != nil {
			return err
		}
		m, err = t.mapping(t.opts.View, bounds)
		return err
	})
	return m, err
}

// do performs one action on a copy of it.
func (t *Toolset) do(ctx context.Context, c *computerCall, s step, g gate) error {
	return g.stage(ctx, c, StageAction, s.action.Kind(), func() (Reason, error) {
		if len(driver.Points(s.action)) > 0 {
			// Once more: it may have been asked for long, and the actions before may have changed it.
			if err := t.holds(ctx); errors.Is(err, driver.ErrStale) {
				return ReasonStale, err
			} else if err != nil {
				return ReasonDriverFailed, err
			}
		}
		return ReasonDriverFailed, guard(func() error {
			_, err := driver.Do(ctx, t.driver, driver.Clone(s.action))
			return err
		})
	})
}

// capture takes the picture that answers c.
func (t *Toolset) capture(ctx context.Context, c *computerCall, g gate) (Shot, error) {
	shot := Shot{CallID: c.id}
	err := g.stage(ctx, c, StageAction, driver.KindScreenshot, func() (Reason, error) {
		if reason, err := t.grab(ctx, &shot); err != nil {
			return reason, err
		}
		return ReasonBadScreenshot, guard(func() error { return t.present(ctx, &shot) })
	})
	if err != nil {
		return Shot{}, err
	}
	if t.opts.OnPicture != nil {
		t.observe("picture", func() { t.opts.OnPicture(shot) })
	}
	return shot, nil
}

// grab has the driver take the frame of s, and make the picture of it if it can.
func (t *Toolset) grab(ctx context.Context, s *Shot) (Reason, error) {
	viewer, ok := t.driver.(driver.Viewer)
	if !ok {
		return ReasonDriverFailed, guard(func() (err error) {
			s.Frame, err = t.driver.Screenshot(ctx)
			return err
		})
	}
	var noView error
	err := guard(func() (err error) {
		s.Frame, err = viewer.View(ctx, func(scene driver.Scene) (image.Rectangle, image.Point, error) {
			s.Mapping, noView = t.mapping(t.view(scene), scene.Screen)
			return s.Mapping.Crop(), s.Mapping.Size(), noView
		})
		return err
	})
	if noView != nil {
		return ReasonBadScreenshot, err
	}
	return ReasonDriverFailed, err
}

// view is the view of a scene.
func (t *Toolset) view(scene driver.Scene) scaling.View {
	v := t.opts.View
	if t.opts.Window {
		v.Crop = scene.Window.Visible
	}
	return v
}

// mapping is that of a picture of the given screen, which must be within the limits.
func (t *Toolset) mapping(v scaling.View, screen image.Rectangle) (scaling.Mapping, error) {
	m, err := v.Mapping(screen)
	if err != nil {
		return scaling.Mapping{}, err
	}
	return m, t.opts.Limits.check(m.Size())
}

// present makes the picture of the frame in s, unless the driver has, and what is sent of it.
func (t *Toolset) present(ctx context.Context, s *Shot) (err error) {
	if s.Frame == nil {
		return errors.New("the driver returned no picture")
	}
	_, made := t.driver.(driver.Viewer)
	if made && t.asIs && s.Frame.DataURL != "" {
		s.Picture = Picture{Type: PictureType, ImageURL: param.NewOpt(s.Frame.DataURL)}
		return s.Picture.check(s.Mapping.Size())
	}
	if s.Image, err = s.Frame.Pixels(); err != nil {
		return err
	}
	if !made {
		if s.Mapping, err = t.mapping(t.opts.View, s.Image.Rect); err != nil {
			return err
		}
		if s.Image, err = s.Mapping.Picture(s.Image); err != nil {
			return err
		}
	}
	if got, want := s.Image.Rect, (image.Rectangle{Max: s.Mapping.Size()}); got != want {
		return fmt.Errorf("the driver returned a picture of %v, want %v", got, want)
	}
	if s.Picture, err = t.opts.Present(ctx, s.Image); err != nil {
		return fmt.Errorf("presenting a picture of %dx%d: %w", s.Image.Rect.Dx(), s.Image.Rect.Dy(), err)
	}
	return s.Picture.check(s.Mapping.Size())
}

// observeCall tells the observer about c.
func (t *Toolset) observeCall(c *computerCall) {
	if t.opts.OnCall == nil {
		return
	}
	seen := Call{ID: c.id, Raw: c.view()}
	for _, s := range c.steps {
		seen.Shown = append(seen.Shown, driver.Clone(s.asShown()))
		seen.Actions = append(seen.Actions, driver.Clone(s.action))
	}
	t.observe("call", func() { t.opts.OnCall(seen) })
}

// observe calls an observer, whose panic is nobody else's trouble.
func (t *Toolset) observe(what string, call func()) {
	if err := guard(func() error { call(); return nil }); err != nil {
		t.opts.Logger.Warn("an observer failed", "of", what, "err", err)
	}
}
