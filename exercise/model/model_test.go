package model_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/exercise/internal/palette"
	"github.com/deskagent/deskagent/exercise/model"
)

// picture is a data URL of a screen with marks one below the other.
func picture(t *testing.T, marks ...palette.Mark) string {
	t.Helper()
	p := image.NewRGBA(image.Rect(0, 0, 300, 300))
	draw.Draw(p, p.Rect, image.White, image.Point{}, draw.Src)
	for i, m := range marks {
		for x, column := range m.Columns() {
			for y, cell := range column {
				at := image.Pt(20+x*palette.Cell, 20+i*40+y*palette.Cell)
				draw.Draw(p, image.Rectangle{Min: at, Max: at.Add(image.Pt(palette.Cell, palette.Cell))}, image.NewUniform(color.RGBA(cell)), image.Point{}, draw.Src)
			}
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

// client is a careful client of the model.
type client struct {
	t     *testing.T
	url   string
	input []any
}

func newClient(t *testing.T) *client {
	t.Helper()
	s, err := model.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &client{t, s.URL(), []any{map[string]any{"role": "user", "content": "go"}}}
}

// send posts a body and returns the status and the answer.
func (c *client) send(body any, key string) (int, map[string]any) {
	c.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/responses", bytes.NewReader(data))
	if err != nil {
		c.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err = io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(data, &answer); err != nil {
		c.t.Fatalf("%s: %v", data, err)
	}
	return response.StatusCode, answer
}

func (c *client) body() map[string]any {
	return map[string]any{"model": "m", "tools": []any{map[string]any{"type": "computer"}}, "input": c.input}
}

// next sends the conversation as it stands and takes down what the model says.
func (c *client) next() (item map[string]any, usage map[string]any) {
	c.t.Helper()
	status, answer := c.send(c.body(), "k")
	if status != http.StatusOK {
		c.t.Fatalf("got status %d, %v", status, answer)
	}
	item = answer["output"].([]any)[0].(map[string]any)
	c.input = append(c.input, item)
	return item, answer["usage"].(map[string]any)
}

func output(callID any, url string, checks any) map[string]any {
	o := map[string]any{"type": "computer_call_output", "call_id": callID, "output": map[string]any{"type": "computer_screenshot", "image_url": url}}
	if checks != nil {
		o["acknowledged_safety_checks"] = checks
	}
	return o
}

// TestConversation goes through a whole one.
func TestConversation(t *testing.T) {
	c := newClient(t)
	first, _ := c.next()
	if got := fmt.Sprint(first["actions"]); got != "[map[type:screenshot]]" {
		t.Errorf("got actions %s before the first picture, want a screenshot", got)
	}
	c.input = append(c.input, output(first["call_id"], picture(t, palette.Mark{Kind: palette.CheckBox}, palette.Mark{Kind: palette.Save}), nil))
	second, usage := c.next()
	if got := fmt.Sprint(second["actions"]); got != "[map[button:left type:click x:40 y:30]]" {
		t.Errorf("got actions %s, want a click on the check box", got)
	}
	for _, name := range []string{"input_tokens", "output_tokens", "total_tokens"} {
		if usage[name].(float64) < 1 {
			t.Errorf("got usage %v, want %s in it", usage, name)
		}
	}
	c.input = append(c.input, output(second["call_id"], picture(t, palette.Mark{Kind: palette.CheckBox, Lamp: palette.Done}, palette.Mark{Kind: palette.Save}), nil))
	third, _ := c.next()
	checks, _ := third["pending_safety_checks"].([]any)
	if got := fmt.Sprint(third["actions"]); got != "[map[button:left type:click x:40 y:70]]" || len(checks) != 2 {
		t.Errorf("got actions %s and checks %v, want a click on the save button with two checks", got, checks)
	}
	c.input = append(c.input, output(third["call_id"], picture(t, palette.Mark{Kind: palette.Save, Lamp: palette.Done}), checks))
	last, _ := c.next()
	if last["type"] != "message" {
		t.Errorf("got %v, want a message", last)
	}
	if status, answer := c.send(c.body(), "k"); status != http.StatusBadRequest {
		t.Errorf("got status %d, %v after the end, want it refused", status, answer)
	}
}

// TestRefuses sends what the real API would not take, or what tells of a client that lost or changed something. A
// refused request changes nothing: the right one is answered after it.
func TestRefuses(t *testing.T) {
	input := func(body map[string]any) []any { return body["input"].([]any) }
	for _, test := range []struct {
		name   string
		change func(t *testing.T, body map[string]any)
		want   string
	}{
		{"no model", func(_ *testing.T, b map[string]any) { delete(b, "model") }, "model is missing"},
		{"no tools", func(_ *testing.T, b map[string]any) { delete(b, "tools") }, "computer 0 times"},
		{"two computers", func(_ *testing.T, b map[string]any) {
			b["tools"] = []any{map[string]any{"type": "computer"}, map[string]any{"type": "computer"}}
		}, "computer 2 times"},
		{"stream", func(_ *testing.T, b map[string]any) { b["stream"] = true }, "stream"},
		{"stored", func(_ *testing.T, b map[string]any) { b["previous_response_id"] = "resp_1" }, "whole history"},
		{"no answer", func(_ *testing.T, b map[string]any) { b["input"] = input(b)[:2] }, "input has 2 items, want 3"},
		{"two answers", func(_ *testing.T, b map[string]any) { b["input"] = append(slices.Clone(input(b)), input(b)[2]) }, "input has 4 items, want 3"},
		{"history changed", func(_ *testing.T, b map[string]any) {
			b["input"] = append([]any{map[string]any{"role": "user", "content": "stop"}}, input(b)[1:]...)
		}, "input[0] is not what it was"},
		{"call changed", func(_ *testing.T, b map[string]any) {
			b["input"] = []any{input(b)[0], map[string]any{"type": "computer_call", "call_id": "call_1"}, input(b)[2]}
		}, "input[1] is not what it was"},
		{"wrong call", func(t *testing.T, b map[string]any) {
			b["input"] = append(slices.Clone(input(b)[:2]), output("call_9", picture(t), nil))
		}, `for call "call_9"`},
		{"no picture", func(_ *testing.T, b map[string]any) {
			b["input"] = append(slices.Clone(input(b)[:2]), output("call_1", "https://example.com/a.png", nil))
		}, "not a data URL"},
		{"broken picture", func(_ *testing.T, b map[string]any) {
			b["input"] = append(slices.Clone(input(b)[:2]), output("call_1", "data:image/png;base64,AAAA", nil))
		}, "reading the picture"},
		{"checks that nobody raised", func(t *testing.T, b map[string]any) {
			b["input"] = append(slices.Clone(input(b)[:2]), output("call_1", picture(t), []any{map[string]any{"id": "sc_1"}}))
		}, "acknowledged_safety_checks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t)
			first, _ := c.next()
			c.input = append(c.input, output(first["call_id"], picture(t, palette.Mark{Kind: palette.CheckBox}), nil))
			body := c.body()
			test.change(t, body)
			status, answer := c.send(body, "k")
			message := fmt.Sprint(answer["error"])
			if status != http.StatusBadRequest || !strings.Contains(message, test.want) {
				t.Errorf("got status %d, %s, want %q", status, message, test.want)
			}
			c.next()
		})
	}
}

// TestA3 is row A3 of the field cases, seen from the other side: checks that come back other than all as they were
// have been lost on the way.
func TestA3(t *testing.T) {
	c := newClient(t)
	first, _ := c.next()
	c.input = append(c.input, output(first["call_id"], picture(t, palette.Mark{Kind: palette.Save}), nil))
	save, _ := c.next()
	checks := save["pending_safety_checks"].([]any)
	for _, back := range []any{nil, []any{}, checks[:1], []any{checks[1], checks[0]}} {
		body := c.body()
		body["input"] = append(slices.Clone(c.input), output(save["call_id"], picture(t, palette.Mark{Kind: palette.Save, Lamp: palette.Done}), back))
		if status, answer := c.send(body, "k"); status != http.StatusBadRequest {
			t.Errorf("checks %v: got status %d, %v, want it refused", back, status, answer)
		}
	}
}

func TestNeedsKey(t *testing.T) {
	c := newClient(t)
	if status, answer := c.send(c.body(), ""); status != http.StatusUnauthorized {
		t.Errorf("got status %d, %v, want it refused", status, answer)
	}
	response, err := http.Get(c.url + "/models")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("got status %d of another path, want it refused", response.StatusCode)
	}
}
