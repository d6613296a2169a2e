package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// answer is a response with the given output items.
func answer(id string, items ...string) string {
	return fmt.Sprintf(`{"id":%q,"object":"response","status":"completed","output":[%s],"usage":{"input_tokens":5,"output_tokens":2,"total_tokens":7}}`,
		id, strings.Join(items, ","))
}

func message(text string) string {
	return fmt.Sprintf(`{"type":"message","id":"msg_%s","role":"assistant","status":"completed","content":[{"type":"output_text","text":%q,"annotations":[]}]}`,
		text, text)
}

// numbered is a call that differs from others by its ids.
func numbered(n int, actions string) string {
	return strings.NewReplacer("cu_1", fmt.Sprint("cu_", n), "call_1", fmt.Sprint("call_", n)).Replace(string(call(actions)))
}

// A model is a scripted Responses API. An answer that starts with a digit is a status.
type model struct {
	answers []string
	bodies  []string
	keys    []string
}

// client starts the model and returns a client for it.
func (m *model) client(t testing.TB, opts ...option.RequestOption) *openai.Client {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(m.bodies) == len(m.answers) || r.URL.Path != "/responses" {
			t.Errorf("got %s %s after %d requests, %v", r.Method, r.URL, len(m.bodies), err)
			w.WriteHeader(http.StatusTeapot)
			return
		}
		answer := m.answers[len(m.bodies)]
		m.bodies = append(m.bodies, string(body))
		m.keys = append(m.keys, r.Header.Get("Idempotency-Key"))
		w.Header().Set("Content-Type", "application/json")
		var status int
		if n, _ := fmt.Sscanf(answer, "%d", &status); n == 1 {
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(status)
			return
		}
		io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	client := openai.NewClient(append([]option.RequestOption{option.WithBaseURL(server.URL), option.WithAPIKey("none")}, opts...)...)
	return &client
}

func task(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: "computer-model",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)},
	}
}

var runUnasked = &toolset.RunOptions{Policy: toolset.Policy{Unasked: true}}

// TestL1 is row L1 of the field cases: a greeting is answered and that is all.
func TestL1(t *testing.T) {
	d := newDesk(10, 10)
	m := &model{answers: []string{answer("r1", message("Hello"))}}
	response, err := mustNew(t, d, nil).Run(t.Context(), m.client(t), task("Hello"), nil)
	if err != nil || response.OutputText() != "Hello" {
		t.Errorf("got %v, %v", response, err)
	}
	checkLog(t, d.log)
	if len(m.bodies) != 1 {
		t.Errorf("got %d requests, want 1", len(m.bodies))
	}
}

// TestA1Run is row A1 of the field cases for runs: without a policy the first call ends the run.
func TestA1Run(t *testing.T) {
	d := newDesk(10, 10)
	m := &model{answers: []string{answer("r1", numbered(1, shot))}}
	_, err := mustNew(t, d, nil).Run(t.Context(), m.client(t), task("Go."), nil)
	checkReason(t, err, toolset.ReasonActionDeclined)
	if !errors.Is(err, approve.ErrDenied) {
		t.Errorf("got %v, want ErrDenied", err)
	}
	checkLog(t, d.log)
}

// A retry of a request by the client repeats no action, and keeps the key of that request.
func TestRetriesRepeatNoAction(t *testing.T) {
	d := newDesk(10, 10)
	m := &model{answers: []string{"500", answer("r1", numbered(1, click(1, 1))), "429", "503", answer("r2", message("Done"))}}
	opts := *runUnasked
	opts.RequestOptions = []option.RequestOption{option.WithHeader("Idempotency-Key", "mine")}
	if _, err := mustNew(t, d, nil).Run(t.Context(), m.client(t), task("Go."), &opts); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(1, 1), shot)
	fresh := m.keys[2]
	if want := []string{"mine", "mine", fresh, fresh, fresh}; !slices.Equal(m.keys, want) || fresh == "" || fresh == "mine" {
		t.Errorf("got keys %q, want %q", m.keys, want)
	}
	if m.bodies[2] != m.bodies[4] {
		t.Errorf("got %s, then %s", m.bodies[2], m.bodies[4])
	}
}

func TestNoKeyIsInvented(t *testing.T) {
	m := &model{answers: []string{answer("r1", numbered(1, shot)), answer("r2", message("Done"))}}
	if _, err := mustNew(t, newDesk(1, 1), nil).Run(t.Context(), m.client(t), task("Go."), runUnasked); err != nil {
		t.Fatal(err)
	}
	if want := []string{"", ""}; !slices.Equal(m.keys, want) {
		t.Errorf("got keys %q, want none", m.keys)
	}
}

func TestRequestFailureIsTheClients(t *testing.T) {
	m := &model{answers: []string{"401"}}
	_, err := mustNew(t, newDesk(1, 1), nil).Run(t.Context(), m.client(t), task("Go."), runUnasked)
	checkReason(t, err, toolset.ReasonRequestFailed)
	var apiErr *openai.Error
	if !errors.As(err, &apiErr) || apiErr.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %v, want the API's error with its status", err)
	}
}

// The parameters count as they were at the start, and each response is shown before its actions.
func TestParamsAreReadOnceAndResponsesShownFirst(t *testing.T) {
	d := newDesk(10, 10)
	m := &model{answers: []string{answer("r1", numbered(1, click(1, 1))), answer("r2", message("Done"))}}
	params := responses.ResponseNewParams{
		Model:      "computer-model",
		ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: openai.Opt(responses.ToolChoiceOptionsRequired)},
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage("Press <save> & wait.", responses.EasyInputMessageRoleUser),
		}},
	}
	var usage toolset.Usage
	opts := *runUnasked
	opts.OnResponse = func(step int, response json.RawMessage) {
		d.log = append(d.log, fmt.Sprint("response ", step))
		usage.Add(response)
		clear(response)
		params.Input.OfInputItemList[0] = responses.ResponseInputItemParamOfMessage("Something else.", responses.EasyInputMessageRoleUser)
		if step == 2 {
			panic("boom")
		}
	}
	response, err := mustNew(t, d, nil).Run(t.Context(), m.client(t), params, &opts)
	if err != nil || response.ID != "r2" {
		t.Fatalf("got %v, %v", response, err)
	}
	checkLog(t, d.log, "response 1", click(1, 1), shot, "response 2")
	for i, choice := range []string{"required", "auto"} {
		var body struct {
			ToolChoice string `json:"tool_choice"`
			Input      []struct{ Content any }
		}
		if err := json.Unmarshal([]byte(m.bodies[i]), &body); err != nil || body.ToolChoice != choice || body.Input[0].Content != "Press <save> & wait." {
			t.Errorf("request %d: got %s, %v", i+1, m.bodies[i], err)
		}
	}
	if want := (toolset.Usage{InputTokens: 10, OutputTokens: 4, TotalTokens: 14}); usage != want {
		t.Errorf("got %+v, want %+v", usage, want)
	}
}

// Both calls of a response were made by the picture before it, also when the screen changes between them, and the
// next ones by the picture that was sent then, also when the screen changes again.
func TestRunMapsAWholeResponseByOnePicture(t *testing.T) {
	d := newDesk(200, 200)
	tools := mustNew(t, sizedDesk{d}, &toolset.Options{View: scaling.View{Size: image.Pt(100, 100)}})
	d.before = func(a driver.Action) error {
		if a.Kind() == driver.KindClick {
			d.screen = image.Rect(0, 0, 400, 400)
		}
		return nil
	}
	m := &model{answers: []string{
		answer("r1", numbered(1, click(10, 10)), numbered(2, click(10, 10))),
		answer("r2", numbered(3, click(10, 10))),
		answer("r3", message("Done")),
	}}
	opts := *runUnasked
	opts.OnResponse = func(int, json.RawMessage) { d.screen = image.Rect(0, 0, 200, 200) }
	if _, err := tools.Run(t.Context(), m.client(t), task("Go."), &opts); err != nil {
		t.Fatal(err)
	}
	checkLog(t, d.log, click(20, 20), shot, click(20, 20), shot, click(41, 41), shot)
}

// A later call that points outside the picture stops an earlier one of the same response.
func TestRunChecksAllPointsFirst(t *testing.T) {
	d := newDesk(200, 200)
	tools := mustNew(t, sizedDesk{d}, &toolset.Options{View: scaling.View{Size: image.Pt(100, 100)}})
	m := &model{answers: []string{answer("r1", numbered(1, click(10, 10)), numbered(2, click(100, 10)))}}
	_, err := tools.Run(t.Context(), m.client(t), task("Go."), runUnasked)
	checkReason(t, err, toolset.ReasonInvalidCall)
	if !errors.Is(err, scaling.ErrOutside) {
		t.Errorf("got %v, want ErrOutside", err)
	}
	checkLog(t, d.log)
}

// A run that is cancelled while the model thinks does not wait for it.
func TestCancelDuringRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &model{answers: []string{answer("r1", numbered(1, shot))}}
	client := m.client(t, option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		cancel()
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	_, err := mustNew(t, newDesk(1, 1), nil).Run(ctx, client, task("Go."), runUnasked)
	checkReason(t, err, toolset.ReasonCancelled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

func TestRunRefuses(t *testing.T) {
	m := &model{}
	tools := mustNew(t, newDesk(1, 1), nil)
	_, err := tools.Run(t.Context(), nil, task("Go."), runUnasked)
	checkReason(t, err, toolset.ReasonBadRequest)
	for _, params := range []string{
		`{"input":[null]}`, `{"input":5}`, `{"include":"all"}`, `{"tools":{"type":"computer"}}`, `{"stream":"yes"}`, `[]`,
	} {
		_, err := tools.Run(t.Context(), m.client(t), param.Override[responses.ResponseNewParams](json.RawMessage(params)), runUnasked)
		checkReason(t, err, toolset.ReasonBadRequest)
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name, response string
		want           toolset.Usage
	}{
		{"whole", `{"usage":{"input_tokens":3,"output_tokens":0,"total_tokens":3,"more":1}}`, toolset.Usage{InputTokens: 3, TotalTokens: 3}},
		{"none", `{}`, toolset.Usage{Incomplete: true}},
		{"null", `{"usage":null}`, toolset.Usage{Incomplete: true}},
		{"a figure missing", `{"usage":{"input_tokens":3,"output_tokens":1}}`, toolset.Usage{Incomplete: true}},
		{"negative", `{"usage":{"input_tokens":3,"output_tokens":-1,"total_tokens":2}}`, toolset.Usage{Incomplete: true}},
		{"fraction", `{"usage":{"input_tokens":3,"output_tokens":1.5,"total_tokens":4}}`, toolset.Usage{Incomplete: true}},
		{"no JSON", `oops`, toolset.Usage{Incomplete: true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got toolset.Usage
			if got.Add(json.RawMessage(test.response)); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
