package toolset

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"maps"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/scaling"
)

// A computerCall is one computer_call that was checked.
type computerCall struct {
	id     string            // call_id
	fields object            // as received, unknown ones included; missing keys of double clicks are filled in
	checks []json.RawMessage // pending safety checks
	steps  []step            // ends with the capture that answers the call
}

// A step is one action of a call.
type step struct {
	action driver.Action // on the screen, once scaled; the value approved and executed
	shown  driver.Action // the same in the picture; nil when there is no difference
}

func (s step) asShown() driver.Action {
	if s.shown != nil {
		return s.shown
	}
	return s.action
}

var (
	callShape = fields{
		{"type", oneOf("computer_call")},
		{"status", oneOf("completed")},
		{"id", text},
		{"call_id", text},
	}
	checksShape = listOf(fields{
		{"id", text},
		{"code", optional(nullable(text))},
		{"message", optional(nullable(text))},
	}.check)
)

// decodeCall checks a whole call. Absent and null are different things in it.
func decodeCall(raw json.RawMessage) (*computerCall, error) {
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	c := &computerCall{id: parseText(o["call_id"]), fields: o}
	if err := c.decode(); err != nil {
		return nil, fmt.Errorf("call_id %q: %w", c.id, err)
	}
	return c, nil
}

func (c *computerCall) decode() error {
	if err := callShape.in(c.fields); err != nil {
		return err
	}
	single, isSingle := c.fields["action"]
	batch, isBatch := c.fields["actions"]
	if isSingle == isBatch {
		return errors.New("want either action or actions")
	}
	if checks, ok := c.fields["pending_safety_checks"]; ok || isSingle { // only a batch may leave them out
		if err := checksShape(checks); err != nil {
			return fmt.Errorf("pending_safety_checks: %w", err)
		}
		c.checks, _ = parseList(checks)
	}
	if isSingle {
		a, err := c.add(single)
		if err != nil {
			return fmt.Errorf("action: %w", err)
		}
		c.fields["action"] = a
	} else {
		items, err := parseList(batch)
		if err != nil {
			return fmt.Errorf("actions: %w", err)
		}
		if len(items) == 0 {
			return errors.New("actions: none in the list")
		}
		for i := range items {
			if items[i], err = c.add(items[i]); err != nil {
				return fmt.Errorf("actions[%d]: %w", i, err)
			}
		}
		c.fields["actions"] = marshal(items)
	}
	if c.steps[len(c.steps)-1].action.Kind() != driver.KindScreenshot {
		c.steps = append(c.steps, step{action: driver.Screenshot{}})
	}
	return nil
}

// add appends an action and returns its JSON: that of a double click always has keys, others stay as they came.
func (c *computerCall) add(raw json.RawMessage) (json.RawMessage, error) {
	a, err := driver.DecodeAction(raw)
	if err != nil {
		return nil, err
	}
	c.steps = append(c.steps, step{action: a})
	if a.Kind() == driver.KindDoubleClick {
		return a.MarshalJSON()
	}
	return raw, nil
}

// view is the call as approvers and observers are shown it: with a list of safety checks in any case.
func (c *computerCall) view() json.RawMessage {
	if _, ok := c.fields["pending_safety_checks"]; ok {
		return marshal(c.fields)
	}
	o := maps.Clone(c.fields)
	o["pending_safety_checks"] = json.RawMessage("[]")
	return marshal(o)
}

func (c *computerCall) safetyChecks() []approve.SafetyCheck {
	checks := make([]approve.SafetyCheck, len(c.checks))
	for i, raw := range c.checks {
		o, _ := parseObject(raw)
		checks[i] = approve.SafetyCheck{ID: parseText(o["id"]), Code: parseText(o["code"]), Message: parseText(o["message"])}
	}
	return checks
}

// output is the answer to the call. The checks go back as they came, unknown fields and duplicates included.
func (c *computerCall) output(p Picture) json.RawMessage {
	o := map[string]any{"type": "computer_call_output", "call_id": c.id, "output": p.output()}
	if len(c.checks) > 0 {
		o["acknowledged_safety_checks"] = c.checks
	}
	return marshal(o)
}

func (c *computerCall) hasPoints() bool {
	for _, s := range c.steps {
		if len(driver.Points(s.action)) > 0 {
			return true
		}
	}
	return false
}

// scale moves the actions from the picture to the screen. A single point outside the picture refuses the call.
func (c *computerCall) scale(m scaling.Mapping) error {
	for i := range c.steps {
		s := &c.steps[i]
		a, err := toScreen(s.action, m)
		if err != nil {
			return fmt.Errorf("actions[%d] (%s): %w", i, s.action.Kind(), err)
		}
		if !m.Identity() && len(driver.Points(a)) > 0 {
			s.shown = s.action
		}
		s.action = a
	}
	return nil
}

// toScreen returns the same action on the screen.
func toScreen(a driver.Action, m scaling.Mapping) (driver.Action, error) {
	var err error
	move := func(x, y *int) {
		p, moveErr := m.ToScreen(image.Pt(*x, *y))
		err = errors.Join(err, moveErr)
		*x, *y = p.X, p.Y
	}
	switch a := driver.Clone(a).(type) {
	case driver.Click:
		move(&a.X, &a.Y)
		return a, err
	case driver.DoubleClick:
		move(&a.X, &a.Y)
		return a, err
	case driver.Drag:
		for i := range a.Path {
			move(&a.Path[i].X, &a.Path[i].Y)
		}
		return a, err
	case driver.Move:
		move(&a.X, &a.Y)
		return a, err
	case driver.Scroll:
		move(&a.X, &a.Y)
		d := m.DistanceToScreen(image.Pt(a.ScrollX, a.ScrollY))
		a.ScrollX, a.ScrollY = d.X, d.Y
		return a, err
	}
	return a, nil
}

// CheckCall reports what is wrong with the shape of a computer_call, as [Toolset.Execute] would. Loops that hold
// other tools check a whole response with it before they carry out any of its calls.
func CheckCall(call json.RawMessage) error {
	_, err := decodeCall(call)
	return err
}
