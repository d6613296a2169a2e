package toolset_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openai/openai-go/v3/packages/param"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// A desk is a driver that writes down what it is told, as JSON, among what others write down.
type desk struct {
	screen image.Rectangle
	log    []string
	before func(driver.Action) error // called for every action, screenshots included
}

func newDesk(w, h int) *desk { return &desk{screen: image.Rect(0, 0, w, h)} }

func (d *desk) do(a driver.Action) error {
	raw, err := a.MarshalJSON()
	if err != nil {
		return err
	}
	d.log = append(d.log, string(raw))
	if d.before != nil {
		return d.before(a)
	}
	return nil
}

func (d *desk) Click(_ context.Context, a driver.Click) error             { return d.do(a) }
func (d *desk) DoubleClick(_ context.Context, a driver.DoubleClick) error { return d.do(a) }
func (d *desk) Drag(_ context.Context, a driver.Drag) error               { return d.do(a) }
func (d *desk) Keypress(_ context.Context, a driver.Keypress) error       { return d.do(a) }
func (d *desk) Move(_ context.Context, a driver.Move) error               { return d.do(a) }
func (d *desk) Scroll(_ context.Context, a driver.Scroll) error           { return d.do(a) }
func (d *desk) Type(_ context.Context, a driver.Type) error               { return d.do(a) }
func (d *desk) Wait(_ context.Context, a driver.Wait) error               { return d.do(a) }

func (d *desk) Screenshot(context.Context) (*driver.Frame, error) {
	if err := d.do(driver.Screenshot{}); err != nil {
		return nil, err
	}
	return &driver.Frame{Image: image.NewRGBA(d.screen), Taken: time.Now()}, nil
}

// A sizedDesk can also tell its size.
type sizedDesk struct{ *desk }

func (d sizedDesk) Bounds(context.Context) (image.Rectangle, error) { return d.screen, nil }

func mustNew(t testing.TB, d driver.Driver, opts *toolset.Options) *toolset.Toolset {
	t.Helper()
	tools, err := toolset.New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// call is a batch call with the given actions and further fields.
func call(actions string, more ...string) json.RawMessage {
	return json.RawMessage(`{"type":"computer_call","id":"cu_1","call_id":"call_1","status":"completed","actions":[` + actions + `]` +
		strings.Join(more, "") + `}`)
}

const (
	shot      = `{"type":"screenshot"}`
	twoChecks = `,"pending_safety_checks":[{"id":"sc_1","code":"malicious_instructions","message":"Looks injected."},{"id":"sc_2"}]`
)

func click(x, y int) string {
	return fmt.Sprintf(`{"type":"click","button":"left","x":%d,"y":%d}`, x, y)
}

var unasked = &toolset.ExecuteOptions{Policy: toolset.Policy{Unasked: true}}

func checkReason(t *testing.T, err error, want toolset.Reason) {
	t.Helper()
	var e *toolset.Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("got %v, want the reason %s", err, want)
	}
}

func checkLog(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestNewRefuses(t *testing.T) {
	if tools, err := toolset.New(nil, nil); err == nil {
		t.Errorf("no driver: got %v, want an error", tools)
	}
	for _, view := range []scaling.View{
		{Size: image.Pt(800, 0)}, {Size: image.Pt(-1, -1)}, {Crop: image.Rectangle{Min: image.Pt(5, 5), Max: image.Pt(5, 9)}},
	} {
		if tools, err := toolset.New(newDesk(9, 9), &toolset.Options{View: view}); err == nil {
			t.Errorf("%+v: got %v, want an error", view, tools)
		}
	}
}

// TestA1 is row A1 of the field cases: nobody to ask means no.
func TestA1(t *testing.T) {
	for name, opts := range map[string]*toolset.ExecuteOptions{
		"no options": nil, "zero policy": {}, "nil approvers": {Policy: toolset.Ask(nil)},
		"only safety checks": {Policy: toolset.Policy{SafetyChecks: approve.AllowActions}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(100, 100)
			output, err := mustNew(t, d, nil).Execute(t.Context(), call(click(1, 2)), opts)
			checkReason(t, err, toolset.ReasonActionDeclined)
			if !errors.Is(err, approve.ErrDenied) || output != nil {
				t.Errorf("got %s, %v, want ErrDenied alone", output, err)
			}
			checkLog(t, d.log)
		})
	}
}

// TestA2 is row A2 of the field cases: only a clear yes approves, and what was not approved leaves no trace on
// the desktop, not even a picture.
func TestA2(t *testing.T) {
	tests := []struct {
		name    string
		approve approve.Func
		reason  toolset.Reason
	}{
		{"no", func(context.Context, approve.Request) (approve.Decision, error) { return approve.Deny, nil }, toolset.ReasonActionDeclined},
		{"no answer", func(context.Context, approve.Request) (d approve.Decision, err error) { return }, toolset.ReasonActionDeclined},
		{"yes with an error", func(context.Context, approve.Request) (approve.Decision, error) { return approve.Allow, errPolicy },
			toolset.ReasonPolicyFailed},
		{"panic with an error", func(context.Context, approve.Request) (approve.Decision, error) { panic(errPolicy) },
			toolset.ReasonPolicyFailed},
		{"panic", func(context.Context, approve.Request) (approve.Decision, error) { panic("gone") }, toolset.ReasonPolicyFailed},
		{"never", func(ctx context.Context, _ approve.Request) (approve.Decision, error) {
			<-ctx.Done()
			return approve.Allow, nil
		}, toolset.ReasonCancelled},
	}
	for _, checks := range []string{"", twoChecks} {
		for _, test := range tests {
			t.Run(fmt.Sprintf("%s, checks %v", test.name, checks != ""), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					d := newDesk(100, 100)
					tools := mustNew(t, d, nil)
					_, err := tools.Execute(ctx, call(shot, checks), &toolset.ExecuteOptions{Policy: toolset.Ask(test.approve)})
					reason := test.reason
					if reason == toolset.ReasonActionDeclined && checks != "" {
						reason = toolset.ReasonSafetyNotApproved
					}
					checkReason(t, err, reason)
					checkLog(t, d.log)
					if reason == toolset.ReasonCancelled && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want the deadline in its chain", err)
					}
					if reason == toolset.ReasonPolicyFailed && strings.Contains(test.name, "error") && !errors.Is(err, errPolicy) {
						t.Errorf("got %v, want the approver's own error in its chain", err)
					}
					if _, err := tools.Execute(t.Context(), call(shot), unasked); err != nil {
						t.Errorf("afterwards: got %v", err)
					}
				})
			})
		}
	}
}

// askingIn lets answer decide, and writes each question in the log of d.
func askingIn(d *desk, answer approve.Decision) *toolset.ExecuteOptions {
	return &toolset.ExecuteOptions{Policy: toolset.Ask(approve.Func(func(_ context.Context, q approve.Request) (approve.Decision, error) {
		if q.Action == nil {
			d.log = append(d.log, fmt.Sprintf("checks? %+v", q.Checks))
			return answer, nil
		}
		raw, err := q.Action.MarshalJSON()
		d.log = append(d.log, "action? "+string(raw))
		return answer, err
	}))}
}

const bothChecks = "checks? [{ID:sc_1 Code:malicious_instructions Message:Looks injected.} {ID:sc_2 Code: Message:}]"

// TestA3 is row A3 of the field cases: both checks are shown, in one question, before anything runs.
func TestA3(t *testing.T) {
	d := newDesk(100, 100)
	_, err := mustNew(t, d, nil).Execute(t.Context(), call(click(1, 2), twoChecks), askingIn(d, approve.Deny))
	checkReason(t, err, toolset.ReasonSafetyNotApproved)
	checkLog(t, d.log, bothChecks)
}

// TestA4 is row A4 of the field cases: checks are acknowledged only because somebody said yes to them.
func TestA4(t *testing.T) {
	d := newDesk(100, 100)
	output, err := mustNew(t, d, nil).Execute(t.Context(), call(click(1, 2), twoChecks), unasked)
	checkReason(t, err, toolset.ReasonSafetyNotApproved)
	if output != nil {
		t.Errorf("got %s, want nothing acknowledged", output)
	}
	checkLog(t, d.log)

	output, err = mustNew(t, d, nil).Execute(t.Context(), call(click(1, 2), twoChecks), askingIn(d, approve.Allow))
	want := `"acknowledged_safety_checks":[{"id":"sc_1","code":"malicious_instructions","message":"Looks injected."},{"id":"sc_2"}]`
	if err != nil || !strings.Contains(string(output), want) {
		t.Errorf("got %s, %v, want %s in it", output, err, want)
	}
}

// TestA11 is row A11 of the field cases: every question comes before what it is about.
func TestA11(t *testing.T) {
	d := newDesk(100, 100)
	if _, err := mustNew(t, d, nil).Execute(t.Context(), call(click(1, 2)+","+click(3, 4), twoChecks), askingIn(d, approve.Allow)); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, bothChecks, "action? "+click(1, 2), click(1, 2), "action? "+click(3, 4), click(3, 4), "action? "+shot, shot)
}

// TestA6 is row A6 of the field cases: a batch may leave the list out, null is not a list, and whoever is asked
// sees a list in any case.
func TestA6(t *testing.T) {
	for more, ok := range map[string]bool{"": true, `,"pending_safety_checks":[]`: true, `,"pending_safety_checks":null`: false} {
		var shown string
		policy := toolset.Policy{Actions: approve.Func(func(_ context.Context, q approve.Request) (approve.Decision, error) {
			shown = string(q.Call)
			return approve.Allow, nil
		})}
		output, err := mustNew(t, newDesk(9, 9), nil).Execute(t.Context(), call(shot, more), &toolset.ExecuteOptions{Policy: policy})
		if !ok {
			checkReason(t, err, toolset.ReasonInvalidCall)
			continue
		}
		if err != nil || strings.Contains(string(output), "acknowledged") {
			t.Errorf("%q: got %s, %v, want no acknowledgement", more, output, err)
		}
		if !strings.Contains(shown, `"pending_safety_checks":[]`) {
			t.Errorf("%q: got %s, want an empty list shown", more, shown)
		}
	}
}

// TestX3 is row X3 of the field cases: bounds are those of the picture. A single point outside refuses the whole
// call before anything is asked or done.
func TestX3(t *testing.T) {
	d := newDesk(1920, 1080)
	tools := mustNew(t, sizedDesk{d}, &toolset.Options{View: scaling.View{Size: image.Pt(1280, 720)}})
	for _, outside := range []image.Point{{X: 1280}, {Y: 720}, {X: -1}, {X: 1919, Y: 1079}} {
		asked := 0
		policy := toolset.Ask(approve.Func(func(context.Context, approve.Request) (approve.Decision, error) {
			asked++
			return approve.Allow, nil
		}))
		_, err := tools.Execute(t.Context(), call(click(1, 1)+","+click(outside.X, outside.Y), twoChecks), &toolset.ExecuteOptions{Policy: policy})
		checkReason(t, err, toolset.ReasonInvalidCall)
		if !errors.Is(err, scaling.ErrOutside) || asked != 0 {
			t.Errorf("%v: got %v after %d questions, want ErrOutside after none", outside, err, asked)
		}
	}
	checkLog(t, d.log)
	if _, err := tools.Execute(t.Context(), call(click(1279, 719)), unasked); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(1919, 1079), shot)
}

// TestX7 is row X7 of the field cases: scale first, then add the crop's offset. All kinds with points are moved,
// scroll distances are scaled, and whoever is asked sees both spaces.
func TestX7(t *testing.T) {
	tests := []struct{ shown, action string }{
		{click(10, 20), click(320, 240)},
		{`{"type":"double_click","x":0,"y":0,"keys":null}`, `{"type":"double_click","x":300,"y":200,"keys":null}`},
		{`{"type":"move","x":399,"y":299,"z":[1]}`, `{"type":"move","x":1098,"y":798,"z":[1]}`},
		{`{"type":"drag","path":[{"x":1,"y":1},{"x":2,"y":3}],"keys":["SHIFT"]}`,
			`{"type":"drag","path":[{"x":302,"y":202},{"x":304,"y":206}],"keys":["SHIFT"]}`},
		{`{"type":"scroll","scroll_x":-5,"scroll_y":100,"x":10,"y":20}`, `{"type":"scroll","scroll_x":-10,"scroll_y":200,"x":320,"y":240}`},
		{`{"type":"type","text":"10,20"}`, `{"type":"type","text":"10,20"}`},
	}
	for _, test := range tests {
		d := newDesk(1600, 1200)
		tools := mustNew(t, d, &toolset.Options{View: scaling.View{Crop: image.Rect(300, 200, 1100, 800), Size: image.Pt(400, 300)}})
		if _, err := tools.Execute(t.Context(), call(shot), unasked); err != nil {
			t.Fatal(err)
		}
		var asked approve.Request
		policy := toolset.Ask(approve.Func(func(_ context.Context, q approve.Request) (approve.Decision, error) {
			if q.Action.Kind() != driver.KindScreenshot {
				asked = q
			}
			return approve.Allow, nil
		}))
		if _, err := tools.Execute(t.Context(), call(test.shown), &toolset.ExecuteOptions{Policy: policy}); err != nil {
			t.Errorf("%s: %v", test.shown, err)
			continue
		}
		checkLog(t, d.log, shot, test.action, shot)
		if got, _ := asked.Action.MarshalJSON(); string(got) != test.action {
			t.Errorf("%s: asked about %s, want %s", test.shown, got, test.action)
		}
		if test.shown == test.action {
			if asked.Shown != nil {
				t.Errorf("%s: got %v as shown, want nil for what is the same in both spaces", test.shown, asked.Shown)
			}
		} else if got, _ := asked.Shown.MarshalJSON(); string(got) != test.shown {
			t.Errorf("%s: got %s as shown", test.shown, got)
		}
	}
}

// checkRefused executes a call with a good action and then a bad one, and wants nothing done and the error.
func checkRefused(t *testing.T, action string, want error) {
	t.Helper()
	d := newDesk(100, 100)
	_, err := mustNew(t, d, nil).Execute(t.Context(), call(click(5, 5)+","+action), unasked)
	checkReason(t, err, toolset.ReasonInvalidCall)
	if want != nil && !errors.Is(err, want) {
		t.Errorf("%s: got %v, want it to wrap %v", action, err, want)
	}
	checkLog(t, d.log)
}

// TestX10 is row X10 of the field cases: a coordinate that is no whole number is refused, and nothing is done.
func TestX10(t *testing.T) {
	for _, x := range []string{`1.5`, `"1"`, `1e99`, `-1e400`, `null`, `[1]`} {
		checkRefused(t, `{"type":"click","y":1,"button":"left","x":`+x+`}`, driver.ErrInvalidAction)
	}
	checkRefused(t, `{"type":"click","y":1,"button":"left","x":NaN}`, nil) // not even JSON
}

// TestM2 is row M2 of the field cases: an unknown button is no left click.
func TestM2(t *testing.T) {
	for _, button := range []string{"side", "", "Left", "middle"} {
		checkRefused(t, fmt.Sprintf(`{"type":"click","x":1,"y":1,"button":%q}`, button), driver.ErrUnknownButton)
	}
}

// A model that names points before it was shown anything means the picture it would be shown.
func TestPointsBeforeAnyPicture(t *testing.T) {
	view := &toolset.Options{View: scaling.View{Size: image.Pt(50, 50)}}
	d := newDesk(100, 100)
	if _, err := mustNew(t, sizedDesk{d}, view).Execute(t.Context(), call(click(10, 10)), unasked); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(20, 20), shot)

	d = newDesk(100, 100)
	tools := mustNew(t, d, view) // cannot tell its size
	_, err := tools.Execute(t.Context(), call(click(10, 10)), unasked)
	checkReason(t, err, toolset.ReasonDriverFailed)
	if _, err := tools.Execute(t.Context(), call(`{"type":"wait"}`), unasked); err != nil {
		t.Errorf("a call without points: got %v", err)
	}
	checkLog(t, d.log, `{"type":"wait"}`, shot)
}

// A point is mapped by the picture that was returned last, not by the screen as it is now, nor by a picture that
// was taken and never returned.
func TestMappingIsThatOfThePictureSeen(t *testing.T) {
	d := newDesk(200, 200)
	tools := mustNew(t, sizedDesk{d}, &toolset.Options{View: scaling.View{Size: image.Pt(100, 100)}})
	execute := func(actions string, sameTurn bool) error {
		t.Helper()
		d.log = nil
		_, err := tools.Execute(t.Context(), call(actions), &toolset.ExecuteOptions{Policy: unasked.Policy, SameTurn: sameTurn})
		return err
	}
	if err := execute(shot, false); err != nil { // the model sees 200x200
		t.Fatal(err)
	}
	d.screen = image.Rect(0, 0, 400, 400)
	ctx, cancel := context.WithCancel(t.Context())
	d.before = func(driver.Action) error { cancel(); return nil }
	if _, err := tools.Execute(ctx, call(shot), unasked); !errors.Is(err, context.Canceled) { // taken, not returned
		t.Fatal(err)
	}
	d.before = nil
	if err := execute(click(10, 10), false); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(20, 20), shot)
	if err := execute(click(10, 10), true); err != nil { // made before the model saw 400x400
		t.Fatal(err)
	}
	checkLog(t, d.log, click(20, 20), shot)
	if err := execute(click(10, 10), false); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(41, 41), shot) // the lower one of the two pixels in the middle, 4x4: 40 to 43
}

// With the zero View points pass as they are, unless the picture shown does not begin at the screen's origin.
func TestZeroView(t *testing.T) {
	d := newDesk(100, 100)
	d.screen = image.Rect(50, 0, 150, 100)
	tools := mustNew(t, d, nil)
	if _, err := tools.Execute(t.Context(), call(click(-7, 1000)), unasked); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.Execute(t.Context(), call(click(10, 10)), unasked); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(-7, 1000), shot, click(60, 10), shot)
}

func TestPanicsAreFailuresOfTheirStage(t *testing.T) {
	boom := func(driver.Action) error { panic("boom") }
	d := newDesk(10, 10)
	d.before = boom
	tools := mustNew(t, d, nil)
	for _, action := range []string{click(1, 1), shot} {
		_, err := tools.Execute(t.Context(), call(action), unasked)
		checkReason(t, err, toolset.ReasonDriverFailed)
		if err == nil || !strings.Contains(err.Error(), "boom") {
			t.Errorf("got %v, want it to tell of the panic", err)
		}
	}
	d.before = nil

	presenting := mustNew(t, d, &toolset.Options{Present: func(context.Context, *image.RGBA) (toolset.Picture, error) { panic("boom") }})
	_, err := presenting.Execute(t.Context(), call(shot), unasked)
	checkReason(t, err, toolset.ReasonBadScreenshot)

	var log bytes.Buffer
	observed := mustNew(t, d, &toolset.Options{
		OnCall: func(toolset.Call) { panic("call") }, OnPicture: func(toolset.Shot) { panic("shot") },
		OnDiagnostic: func(toolset.Diagnostic) { panic("record") }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	want, err := tools.Execute(t.Context(), call(click(1, 1)), unasked)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := observed.Execute(t.Context(), call(click(1, 1)), unasked); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %s, %v, want panicking observers to change nothing", got, err)
	}
	if got := strings.Count(log.String(), "an observer failed"); got != 4 {
		t.Errorf("got %d warnings, want 4:\n%s", got, &log)
	}
}

// TestErrorsAreTold: whoever watches gets the very errors that Execute returns, and none when there is none.
func TestErrorsAreTold(t *testing.T) {
	var told []error
	tools := mustNew(t, newDesk(100, 60), &toolset.Options{OnError: func(err error) { told = append(told, err) }})
	if _, err := tools.Execute(t.Context(), call(click(1, 1)), unasked); err != nil || told != nil {
		t.Errorf("got %v, told %v, want no error", err, told)
	}
	_, declined := tools.Execute(t.Context(), call(click(1, 1)), nil)
	_, malformed := tools.Execute(t.Context(), []byte("{"), unasked)
	if declined == nil || malformed == nil || !slices.Equal(told, []error{declined, malformed}) {
		t.Errorf("got %v, want %v, %v", told, declined, malformed)
	}
}

func TestObserversSeeBothSpacesAndThePicture(t *testing.T) {
	var calls []toolset.Call
	var shots []toolset.Shot
	d := newDesk(100, 60)
	tools := mustNew(t, sizedDesk{d}, &toolset.Options{
		View:      scaling.View{Size: image.Pt(50, 30)},
		OnCall:    func(c toolset.Call) { calls = append(calls, c) },
		OnPicture: func(s toolset.Shot) { shots = append(shots, s) },
	})
	if _, err := tools.Execute(t.Context(), call(click(1, 1)+","+shot), unasked); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 1 || len(shots) != 1 {
		t.Fatalf("got %d calls and %d pictures, want one each", len(calls), len(shots))
	}
	got := fmt.Sprint(calls[0].ID, driver.Points(calls[0].Shown[0]), driver.Points(calls[0].Actions[0]), len(calls[0].Actions))
	if want := "call_1[(1,1)] [(2,2)] 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := shots[0]
	if s.CallID != "call_1" || s.Frame.Image.Rect != d.screen || s.Image.Rect.Max != image.Pt(50, 30) || s.Mapping.Size() != image.Pt(50, 30) ||
		!strings.HasPrefix(s.Picture.ImageURL.Value, "data:image/png;base64,") {
		t.Errorf("got %+v", s)
	}
}

func TestPNG(t *testing.T) {
	picture := image.NewRGBA(image.Rect(0, 0, 3, 2))
	picture.Set(2, 1, color.RGBA{1, 2, 3, 255})
	p, err := toolset.PNG(t.Context(), picture)
	if err != nil || p.Type != toolset.PictureType || !param.IsOmitted(p.FileID) {
		t.Fatalf("got %+v, %v", p, err)
	}
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.ImageURL.Value, "data:image/png;base64,"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := png.Decode(bytes.NewReader(data))
	if err != nil || got.Bounds() != picture.Rect || color.RGBAModel.Convert(got.At(2, 1)) != (color.RGBA{1, 2, 3, 255}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// A picture of another size than the mapping's would send every click astray.
func TestPictureOfWrongSize(t *testing.T) {
	for _, size := range []image.Point{{X: 20, Y: 10}, {X: 10, Y: 5}} {
		tools := mustNew(t, newDesk(20, 10), &toolset.Options{Present: func(ctx context.Context, _ *image.RGBA) (toolset.Picture, error) {
			return toolset.PNG(ctx, image.NewRGBA(image.Rectangle{Max: size}))
		}})
		_, err := tools.Execute(t.Context(), call(shot), unasked)
		if size == image.Pt(20, 10) {
			if err != nil {
				t.Errorf("the right size: got %v", err)
			}
			continue
		}
		checkReason(t, err, toolset.ReasonBadScreenshot)
	}
}

func TestCropOutsideTheScreen(t *testing.T) {
	tools := mustNew(t, newDesk(20, 10), &toolset.Options{View: scaling.View{Crop: image.Rect(15, 0, 25, 10)}})
	_, err := tools.Execute(t.Context(), call(shot), unasked)
	checkReason(t, err, toolset.ReasonBadScreenshot)
}

// Only one of many callers at a time gets through, and Close waits for nobody.
func TestBusyAndClosed(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	d := newDesk(10, 10)
	d.before = func(driver.Action) error { entered <- true; <-leave; return nil }
	tools := mustNew(t, d, nil)
	done := make(chan error)
	go func() {
		_, err := tools.Execute(t.Context(), call(shot), unasked)
		done <- err
	}()
	<-entered
	if _, err := tools.Execute(t.Context(), call(shot), unasked); !errors.Is(err, toolset.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	if got := tools.Close(); got != toolset.Draining {
		t.Errorf("got %s, want draining", got)
	}
	if _, err := tools.Execute(t.Context(), call(shot), unasked); !errors.Is(err, toolset.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("the running call: got %v", err)
	}
	if got := tools.Close(); got != toolset.Closed {
		t.Errorf("got %s, want closed", got)
	}
}

// FuzzExecute feeds calls of any form: what is refused leaves the desk alone, what is accepted is answered with
// one picture, and each action done is one that the call names.
func FuzzExecute(f *testing.F) {
	f.Add([]byte(call(click(1, 2)+","+shot, twoChecks)))
	f.Add([]byte(call(`{"type":"drag","path":[{"x":1e1,"y":2.0,"t":null}],"keys":null},{"type":"double_click","x":1,"y":1}`)))
	f.Add([]byte(`{"type":"computer_call","id":"","call_id":"\ud800","status":"completed","action":{"type":"wait"},"pending_safety_checks":[{"id":"","code":null}]}`))
	f.Add([]byte(`{"actions":null,"action":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := newDesk(4, 4)
		asked := 0
		policy := toolset.Ask(approve.Func(func(_ context.Context, q approve.Request) (approve.Decision, error) {
			asked++
			if !json.Valid(q.Call) {
				t.Errorf("%q: shown as %q", data, q.Call)
			}
			return approve.Allow, nil
		}))
		given := bytes.Clone(data)
		output, err := mustNew(t, d, nil).Execute(t.Context(), data, &toolset.ExecuteOptions{Policy: policy})
		if !bytes.Equal(data, given) {
			t.Errorf("%q became %q", given, data)
		}
		if err != nil {
			if checkReason(t, err, toolset.ReasonInvalidCall); asked != 0 || len(d.log) != 0 {
				t.Errorf("%q: refused after %d questions and %q", data, asked, d.log)
			}
			return
		}
		var answer struct {
			Type   string
			CallID *string `json:"call_id"`
		}
		if json.Unmarshal(output, &answer) != nil || answer.Type != "computer_call_output" || answer.CallID == nil {
			t.Errorf("%q: got %s", data, output)
		}
		if n := len(d.log); n == 0 || !strings.Contains(d.log[n-1], `"screenshot"`) || asked < n {
			t.Errorf("%q: %d questions for %q", data, asked, d.log)
		}
	})
}
