package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/drivertest"
	"github.com/deskagent/deskagent/driver/remote"
)

// stranger connects a client that knows nothing of deskagent, of a revision of MCP, with the transport of the SDK.
func stranger(t *testing.T, d driver.Driver, version string) *mcp.ClientSession {
	t.Helper()
	s := offer(t, d, &remote.ServerOptions{Approve: remote.Allow, Version: "1.2.3"})
	session, err := mcp.NewClient(&mcp.Implementation{Name: "stranger", Version: "1"}, nil).
		Connect(t.Context(), &mcp.IOTransport{Reader: s.fromServer, Writer: s.toServer}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		if err := s.end(t); err != nil {
			t.Error(err)
		}
	})
	return session
}

// resolve makes a schema that came over the wire one to check values with.
func resolve(t *testing.T, schema any) *jsonschema.Resolved {
	t.Helper()
	data, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// TestAnyClient uses a server as a client does that goes by its descriptions alone.
func TestAnyClient(t *testing.T) {
	for _, version := range mcp.SupportedProtocolVersions() {
		t.Run(version, func(t *testing.T) {
			want := painted(image.Rect(0, 0, 64, 48))
			f := &drivertest.Fake{Screen: want.Rect, Picture: func() *image.RGBA { return want }}
			session := stranger(t, f, version)
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			tools := map[string]*mcp.Tool{}
			for _, tool := range list.Tools {
				tools[tool.Name] = tool
				if tool.Description == "" || tool.OutputSchema == nil || tool.Annotations == nil {
					t.Errorf("%s: got no description, output schema or annotations", tool.Name)
				}
			}
			for _, kind := range driver.Kinds() {
				if tools[string(kind)] == nil {
					t.Errorf("there is no tool %s", kind)
				}
			}
			if got, want := len(tools), len(driver.Kinds())+4; got != want {
				t.Errorf("got %d tools, want %d", got, want)
			}
			call := func(name, arguments string) *mcp.CallToolResult {
				t.Helper()
				r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
				if err != nil {
					t.Fatal(err)
				}
				if !r.IsError {
					if err := resolve(t, tools[name].OutputSchema).Validate(r.StructuredContent); err != nil {
						t.Errorf("%s: got %v, which is not as its schema says: %v", name, r.StructuredContent, err)
					}
				}
				return r
			}

			if r := call("click", `{"x":10,"y":20,"button":"wheel","keys":["CTRL"]}`); r.IsError {
				t.Errorf("click: got %s", text(r))
			}
			if got, want := strings.Join(f.Events(), ", "), "key Control_L down, button 2 down (10,20), button 2 up (10,20), key Control_L up"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if r := call("click", `{"x":64,"y":20,"button":"left"}`); !r.IsError || text(r) != "click: point (64,20): outside the screen of (0,0)-(64,48)" {
				t.Errorf("a click outside: got %s", text(r))
			}
			shot := call("screenshot", `{}`)
			if got := decoded(t, shot); !slices.Equal(got.Pix, want.Pix) {
				t.Error("screenshot: got other pixels")
			}
			if r := call("scene", `{}`); text(r) != `{"screen":{"x":0,"y":0,"width":64,"height":48}}` {
				t.Errorf("scene: got %s", text(r))
			}
			part := call("view", `{"scene":{"screen":{"x":0,"y":0,"width":64,"height":48}},"area":{"x":8,"y":8,"width":16,"height":8},"size":{"width":16,"height":8}}`)
			if got := decoded(t, part); got.Rect.Size() != image.Pt(16, 8) || got.RGBAAt(0, 0) != want.RGBAAt(8, 8) {
				t.Errorf("view: got another part, of %v", got.Rect)
			}
			other := call("view", `{"scene":{"screen":{"x":0,"y":0,"width":65,"height":48}},"area":{"x":8,"y":8,"width":16,"height":8},"size":{"width":16,"height":8}}`)
			if !other.IsError || !strings.Contains(text(other), "the scene is another by now") {
				t.Errorf("view of another scene: got %s", text(other))
			}
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "exec"}); err == nil {
				t.Error("a tool that is none: got no error")
			}
		})
	}
}

func text(r *mcp.CallToolResult) string {
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			return text.Text
		}
	}
	return "no text"
}

// decoded is the picture in a result.
func decoded(t *testing.T, r *mcp.CallToolResult) *image.RGBA {
	t.Helper()
	content, ok := r.Content[0].(*mcp.ImageContent)
	if !ok || content.MIMEType != "image/png" {
		t.Fatalf("got %#v, want a PNG first", r.Content[0])
	}
	picture, err := png.Decode(bytes.NewReader(content.Data))
	if err != nil {
		t.Fatal(err)
	}
	return picture.(*image.RGBA)
}

// TestStrict checks what tools are given that is not as it should be: it is refused with an error that says so, and
// nothing is done. Their schemas say the same.
func TestStrict(t *testing.T) {
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 64, 48)}
	session := stranger(t, f, "2025-11-25")
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]*jsonschema.Resolved{}
	for _, tool := range list.Tools {
		schemas[tool.Name] = resolve(t, tool.InputSchema)
	}
	const scene = `{"screen":{"x":0,"y":0,"width":64,"height":48}}`
	for _, test := range []struct {
		tool, arguments string
		says            string // empty where it is as it should be
	}{
		{"move", `{"x":1,"y":2}`, ""},
		{"move", `{"x":1.0,"y":2e0}`, ""},
		{"move", `{"x":1,"y":2,"keys":null}`, ""},
		{"move", `{"x":1,"y":2,"keys":[]}`, ""},
		{"move", `{"x":1}`, "y is missing"},
		{"move", `{"x":1,"y":null}`, "y: "},
		{"move", `{"x":1.5,"y":2}`, "1.5"},
		{"move", `{"x":"1","y":2}`, "whole number"},
		{"move", `{"x":1,"y":2,"z":3}`, `unknown field "z"`},
		{"move", `{"X":1,"x":1,"y":2}`, `unknown field "X"`},
		{"move", `{"x":1,"y":2,"type":"move"}`, `unknown field "type"`},
		{"move", `{"x":1,"y":2,"keys":"CTRL"}`, "list"},
		{"move", `{"x":1,"y":2,"keys":[1]}`, "string"},
		{"move", `[1,2]`, "move"},
		{"click", `{"x":1,"y":2}`, "button is missing"},
		{"click", `{"x":1,"y":2,"button":"side"}`, "unknown button"},
		{"click", `{"x":1,"y":2,"button":"Left"}`, "unknown button"},
		{"double_click", `{"x":1,"y":2,"button":"left"}`, `unknown field "button"`},
		{"drag", `{"path":[{"x":1,"y":2},{"x":3,"y":4}]}`, ""},
		{"drag", `{"path":[{"x":1,"y":2},{"x":3,"y":4,"z":5}]}`, "unknown fields in the path"},
		{"drag", `{"path":[[1,2],[3,4]]}`, "path[0]"},
		{"drag", `{}`, "path is missing"},
		{"keypress", `{"keys":"A"}`, "keys"},
		{"scroll", `{"x":1,"y":2,"scroll_y":100}`, "scroll_x is missing"},
		{"type", `{"text":"x","keys":["CTRL"]}`, `unknown field "keys"`},
		{"type", `{"text":7}`, "text"},
		{"wait", `{"seconds":3}`, `unknown field "seconds"`},
		{"screenshot", `{}`, ""},
		{"screenshot", `{"area":1}`, `unknown field "area"`},
		{"bounds", `{}`, ""},
		{"bounds", `{"x":1}`, "bounds"},
		{"scene", `{"x":1}`, "scene"},
		{"holds", `{"scene":` + scene + `}`, ""},
		{"holds", `{}`, "scene"},
		{"holds", `{"scene":{"screen":{"x":0,"y":0,"width":64}}}`, "height"},
		{"view", `{"scene":` + scene + `,"area":{"x":0,"y":0,"width":9,"height":9}}`, "size"},
		{"view", `{"scene":` + scene + `,"area":{"x":0,"y":0,"width":9,"height":9},"size":{"width":9,"height":9,"depth":9}}`, "depth"},
	} {
		t.Run(test.tool+" "+test.arguments, func(t *testing.T) {
			before := len(f.Actions())
			r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: json.RawMessage(test.arguments)})
			if err != nil {
				t.Fatal(err)
			}
			if good := test.says == ""; r.IsError == good || !strings.Contains(text(r), test.says) {
				t.Errorf("got %v, %s, want %q", r.IsError, text(r), test.says)
			}
			if r.IsError {
				if got, want := r.Meta["deskagent/errors"], []any{"invalid_action"}; !reflect.DeepEqual(got, want) && !strings.Contains(test.says, "button") {
					t.Errorf("got the errors %v, want %v", got, want)
				}
				if got := f.Actions()[before:]; len(got) > 0 {
					t.Errorf("did %v, want nothing", got)
				}
			}
			var value any
			if err := json.Unmarshal([]byte(test.arguments), &value); err != nil {
				t.Fatal(err)
			}
			if err := schemas[test.tool].Validate(value); (err == nil) != (test.says == "") {
				t.Errorf("by the schema: %v", err)
			}
		})
	}
}

// TestLies is about a server that means harm, or is broken: what it says is an error, in one line that is safe to print,
// and neither a panic nor a hang.
func TestLies(t *testing.T) {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewNRGBA64(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	good, err := json.Marshal(map[string]any{"taken": "2026-01-02T03:04:05Z", "size": map[string]int{"width": 8, "height": 8},
		"area": map[string]int{"x": 0, "y": 0, "width": 8, "height": 8}, "scene": map[string]any{"screen": map[string]int{}}})
	if err != nil {
		t.Fatal(err)
	}
	picture := func(data []byte) []mcp.Content {
		return []mcp.Content{&mcp.ImageContent{Data: data, MIMEType: "image/png"}}
	}
	for _, test := range []struct {
		name   string
		result *mcp.CallToolResult
		says   string
	}{
		{"nothing", &mcp.CallToolResult{}, "screenshot: "},
		{"no picture", &mcp.CallToolResult{StructuredContent: json.RawMessage(good)}, "no picture"},
		{"no PNG", &mcp.CallToolResult{StructuredContent: json.RawMessage(good), Content: picture([]byte("GIF89a, and something more than that"))}, "not a PNG"},
		{"cut short", &mcp.CallToolResult{StructuredContent: json.RawMessage(good), Content: picture(file.Bytes()[:40])}, "unexpected EOF"},
		{"with alpha", &mcp.CallToolResult{StructuredContent: json.RawMessage(good), Content: picture(file.Bytes())}, "without alpha"},
		{"of another size", &mcp.CallToolResult{StructuredContent: json.RawMessage(bytes.Replace(good, []byte(`"width":8`), []byte(`"width":9`), -1)), Content: picture(file.Bytes())}, "was said to be"},
		{"no form", &mcp.CallToolResult{StructuredContent: 7, Content: picture(file.Bytes())}, "reading a result"},
		{"words for a terminal", &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "\x1b]0;you\a\nare"}}}, `"\x1b]0;you\a\nare"`},
		{"no words", &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"deskagent/errors": "stale"}}, "does not say why"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "liar", Version: "1"}, nil)
			server.AddTool(&mcp.Tool{Name: "screenshot", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return test.result, nil
			})
			in, toServer := pipe(t)
			fromServer, out := pipe(t)
			session, err := server.Connect(t.Context(), &mcp.IOTransport{Reader: in, Writer: out}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			d, err := remote.New(t.Context(), fromServer, toServer)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			_, err = d.Screenshot(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("got %q, want %q in one line", err, test.says)
			}
			// There is no such tool.
			if err := d.Move(t.Context(), driver.Move{}); err == nil || errors.Is(err, driver.ErrDisplayLost) || !strings.Contains(err.Error(), "move") {
				t.Errorf("a tool that is not there: got %v, want it said, and the connection go on", err)
			}
		})
	}
}
