package runner_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// build makes the runner of the case.
func (w *world) build(r registration) (err error) {
	var reg runner.Registration
	if r.Computer != nil {
		if w.desktop, err = toolset.New((*computer)(w), &toolset.Options{Present: w.present}); err != nil {
			return err
		}
		reg.Computer = w.desktop
	}
	if r.Browser != nil {
		w.browser = &fakeBrowser{members: r.Browser.Members,
			do: func(ctx context.Context, member string, arguments map[string]any) (any, error) {
				return w.browse(ctx, member, arguments)
			},
			ask: func(ctx context.Context, question, about string) (bool, error) {
				w.trace("%s:%s", question, about)
				rules := r.Browser.Confirm
				if question == "url_policy" {
					rules = r.Browser.URLPolicy
				}
				return w.yes(w.enter(question, rules, inOrder(rules)))
			},
		}
		reg.Browser = w.browser
	}
	for _, f := range r.Functions {
		tool := param.Override[responses.FunctionToolParam](json.RawMessage(bytes.Clone(f.Tool)))
		function := runner.Function{Tool: tool}
		name := fmt.Sprint(value(w.t, f.Tool).(map[string]any)["name"])
		execute := func(ctx context.Context, arguments map[string]any) (runner.Output, error) {
			return w.call(runner.CallID(ctx), name, f.Answers, arguments)
		}
		if f.Typed {
			if err := json.Unmarshal(f.Tool, &tool); err != nil {
				return err
			}
			if function, err = runner.Typed(tool, execute); err != nil {
				return err
			}
		} else if !f.NoExecute {
			function.Execute = execute
		}
		function.AllowOutputOverride, function.Independent = f.AllowOutputOverride, f.Independent
		reg.Functions = append(reg.Functions, function)
	}
	if r.Early != nil {
		reg.Early = &runner.Early{Functions: r.Early.Functions, Computer: r.Early.Computer}
	}
	if w.runner, err = runner.New(reg); err != nil {
		return err
	}
	if r.ScribbleAfter {
		for i := range reg.Functions {
			reg.Functions[i] = runner.Function{}
		}
		if reg.Early != nil && len(reg.Early.Functions) > 0 {
			reg.Early.Functions[0] = "#"
		}
	}
	return nil
}

// call is what every function does.
func (st *stage) call(id, name string, answers []rule, arguments map[string]any) (runner.Output, error) {
	n := st.count("call " + name)
	if st.s.TraceEnds { // calls may overlap, and begin in any order
		n = st.place(id, name)
	}
	st.note("function_calls", map[string]any{"name": name, "arguments": value(st.t, arguments)})
	st.trace("call:%s:%d", name, n)
	var r rule
	if n <= len(answers) {
		r = answers[n-1]
	}
	st.enter("call:"+name, nil, nil)
	if r.Scribble {
		for key := range arguments {
			if inner, ok := arguments[key].(map[string]any); ok {
				clear(inner)
			}
			arguments[key] = "#"
		}
	}
	if err := st.leave(r); err != nil {
		return runner.Output{}, err
	}
	if st.s.TraceEnds {
		st.trace("end:%s:%d", name, n)
	}
	if r.returned {
		return param.Override[runner.Output](r.Return), nil
	}
	return runner.Output{OfString: openai.String(fmt.Sprintf("%s result %d", name, n))}, nil
}

// place is the place of a call among those of its function in the order in which they arrive.
func (st *stage) place(id, name string) (n int) {
	for _, r := range st.s.Responses {
		for _, raw := range r.Events {
			var e struct {
				Type string
				Item struct {
					CallID string `json:"call_id"`
					Name   string
				}
			}
			if err := json.Unmarshal(raw, &e); err != nil {
				st.t.Fatal(err)
			}
			if e.Type != "response.output_item.done" || e.Item.Name != name {
				continue
			}
			if n++; e.Item.CallID == id {
				return n
			}
		}
	}
	st.t.Errorf("got a call %q of %s that never came", id, name)
	return 0
}

func (st *stage) browse(_ context.Context, member string, arguments map[string]any) (any, error) {
	st.trace("browser:%s", member)
	if member != "state" {
		st.note("browser_calls", map[string]any{"member": member, "arguments": value(st.t, arguments)})
	}
	var rules []rule
	for _, r := range st.world.s.Registration.Browser.Driver {
		if r.Method == member {
			rules = append(rules, r)
		}
	}
	r := st.enter("browser:"+member, rules, byNth)
	if err := st.leave(r); err != nil {
		return nil, err
	}
	switch {
	case r.returned:
		return value(st.t, r.Return), nil
	case member == "screenshot":
		return fmt.Sprintf("picture:page %d", st.counts["enter browser:screenshot"]), nil
	}
	return fmt.Sprintf("%s text %d", member, st.counts["enter browser:"+member]), nil
}

// computer is the driver.
type computer world

func (c *computer) do(a driver.Action) error {
	st := c.stage
	method := string(a.Kind())
	shown := map[string]any{"method": method}
	if a.Kind() != driver.KindScreenshot {
		shown["action"] = value(st.t, a)
	}
	st.note("driver_calls", shown)
	st.trace("driver:%s", method)
	var rules []rule
	for _, r := range c.s.Registration.Computer.Driver {
		if r.Method == method {
			rules = append(rules, r)
		}
	}
	r := st.enter("driver:"+method, rules, byNth)
	if r.returned {
		st.counts["return"] = 1
		st.shown["return"] = []any{value(st.t, r.Return)}
	}
	return st.leave(r)
}

func (c *computer) Click(_ context.Context, a driver.Click) error             { return c.do(a) }
func (c *computer) DoubleClick(_ context.Context, a driver.DoubleClick) error { return c.do(a) }
func (c *computer) Drag(_ context.Context, a driver.Drag) error               { return c.do(a) }
func (c *computer) Keypress(_ context.Context, a driver.Keypress) error       { return c.do(a) }
func (c *computer) Move(_ context.Context, a driver.Move) error               { return c.do(a) }
func (c *computer) Scroll(_ context.Context, a driver.Scroll) error           { return c.do(a) }
func (c *computer) Type(_ context.Context, a driver.Type) error               { return c.do(a) }
func (c *computer) Wait(_ context.Context, a driver.Wait) error               { return c.do(a) }

func (c *computer) Screenshot(context.Context) (*driver.Frame, error) {
	if err := c.do(driver.Screenshot{}); err != nil {
		return nil, err
	}
	return &driver.Frame{Image: image.NewRGBA(image.Rect(0, 0, 4, 3))}, nil
}

// present is the picture of the screenshot taken last.
func (w *world) present(context.Context, *image.RGBA) (toolset.Picture, error) {
	p := toolset.Picture{Type: toolset.PictureType}
	if scripted := w.shown["return"]; scripted != nil {
		delete(w.shown, "return")
		o, _ := scripted[0].(map[string]any)
		for name, source := range map[string]*param.Opt[string]{"image_url": &p.ImageURL, "file_id": &p.FileID} {
			if text, ok := o[name].(string); ok {
				*source = param.NewOpt(text)
			}
		}
		return p, nil
	}
	name := fmt.Sprintf("capture %d", w.counts["enter driver:screenshot"])
	p.ImageURL = param.NewOpt("data:image/png;base64," + base64.StdEncoding.EncodeToString([]byte(name)))
	return p, nil
}
