package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

// An endless server answers each request with one more call until there were enough. What it takes for that is not the
// runner's time, and neither is reading what it is sent.
type endless struct {
	turns, step int
	sent        int64
	spent       time.Duration
}

func (e *endless) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	defer func() { e.spent += time.Since(start) }()
	e.sent += r.ContentLength
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength {
		return nil, fmt.Errorf("reading the request: got %d of %d bytes: %w", n, r.ContentLength, err)
	}
	r.Body.Close()
	item := page(fmt.Sprint("c", e.step), "screenshot")
	if e.step++; e.step > e.turns {
		item = said("m")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(completed(item)))}, nil
}

// A gallery is a browser whose pictures have been encoded before. Its time is not the runner's either.
type gallery struct {
	picture string
	spent   time.Duration
}

func (*gallery) Tools() []responses.FunctionToolParam {
	return []responses.FunctionToolParam{{Name: "browser_screenshot"}}
}

func (g *gallery) ExecuteCall(_ context.Context, call json.RawMessage, _ runner.BrowserOptions) (runner.BrowserResult, error) {
	start := time.Now()
	defer func() { g.spent += time.Since(start) }()
	_, id, _ := strings.Cut(string(call), `"call_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	output := fmt.Appendf(nil, `{"type":"function_call_output","call_id":%q,"output":[{"type":"input_image","image_url":"%s"}]}`, id, g.picture)
	return runner.BrowserResult{Output: output, OK: true, Images: 1}, nil
}

// costOfTurn makes a run of n turns, each with a picture of so many bytes, and returns what a turn costs here without
// the server and the browser, and how much was sent.
func costOfTurn(tb testing.TB, n, picture int, opts runner.Options) (cost time.Duration, sent int64) {
	pictures := &gallery{picture: strings.Repeat("A", picture)}
	r, err := runner.New(runner.Registration{Browser: pictures})
	if err != nil {
		tb.Fatal(err)
	}
	server := &endless{turns: n}
	client := openai.NewClient(option.WithBaseURL("http://api.example/v1/"), option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: server}))
	opts.MaxSteps = n + 1
	start := time.Now()
	if _, err := r.Run(context.Background(), &client, request("Go."), opts); err != nil {
		tb.Fatal(err)
	}
	return (time.Since(start) - server.spent - pictures.spent) / time.Duration(n), server.sent
}

// BenchmarkTurn shows what a turn costs in runs of several lengths: with pictures of a megabyte, without the model, the
// network and the encoding of the pictures.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{10, 50, 100, 500} {
		for name, opts := range map[string]runner.Options{
			"plain":  {},
			"budget": {ContextBudget: &runner.ContextBudget{MaxInputBytes: 1 << 40, MaxInputImages: 1 << 20}},
		} {
			b.Run(fmt.Sprintf("%s/turns=%d", name, n), func(b *testing.B) {
				var total time.Duration
				var sent int64
				for range b.N {
					cost, bytes := costOfTurn(b, n, 1<<20, opts)
					total += cost
					sent = bytes
				}
				b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/turn")
				b.ReportMetric(float64(sent)/float64(n)/(1<<20), "MB-sent/turn")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// What a turn costs must not grow with the turns before it: compared within one run of the test, as times vary. If the
// history were encoded anew in every turn, the long run would cost about fifty times as much.
func TestTurnsCostTheSame(t *testing.T) {
	const picture = 100_000
	for name, opts := range map[string]runner.Options{
		"plain":  {},
		"budget": {ContextBudget: &runner.ContextBudget{MaxInputBytes: 1 << 30, MaxInputImages: 1000}},
	} {
		best := func(n int) time.Duration {
			cost := time.Hour
			for range 3 {
				c, _ := costOfTurn(t, n, picture, opts)
				cost = min(cost, c)
			}
			return cost
		}
		short, long := best(20), best(320)
		t.Logf("%s: %v a turn in a run of 20, %v in one of 320", name, short, long)
		if long > 8*short {
			t.Errorf("%s: got %v a turn in a run of 320 and %v in one of 20, want about the same", name, long, short)
		}
	}
}
