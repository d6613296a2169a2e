package runner_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/runner"
)

// A stand-in for the API: it asks for the weather, and then tells it.
var weather = []string{
	`{"id":"resp_1","status":"completed","output":[{"type":"function_call","id":"fc_1","call_id":"call_1","name":"forecast",
		"arguments":"{\"city\":\"Oslo\",\"days\":2}","status":"completed"}]}`,
	`{"id":"resp_2","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed",
		"content":[{"type":"output_text","text":"Take an umbrella.","annotations":[]}]}]}`,
}

func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, weather[0])
		weather = weather[1:]
	}))
	defer server.Close()
	client := openai.NewClient(option.WithBaseURL(server.URL), option.WithAPIKey("key"))

	type place struct {
		City string `json:"city"`
		Days int    `json:"days"`
	}
	forecast, err := runner.Typed(responses.FunctionToolParam{
		Name:   "forecast",
		Strict: openai.Bool(true),
		Parameters: map[string]any{
			"type":                 "object",
			"properties":           map[string]any{"city": map[string]any{"type": "string"}, "days": map[string]any{"type": "integer"}},
			"required":             []string{"city", "days"},
			"additionalProperties": false,
		},
	}, func(_ context.Context, p place) (runner.Output, error) {
		fmt.Printf("asked about %d days in %s\n", p.Days, p.City)
		return runner.Output{OfString: openai.String("rain")}, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := runner.New(runner.Registration{Functions: []runner.Function{forecast}})
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := r.Run(context.Background(), &client, responses.ResponseNewParams{
		Model: "gpt-5.2",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("What should I pack for a weekend in Oslo?")},
	}, runner.Options{MaxSteps: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(response.OutputText())
	// Output:
	// asked about 2 days in Oslo
	// Take an umbrella.
}
