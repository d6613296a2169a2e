package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/toolset"
)

// A sender makes the requests of one run. The client encodes a request by going through every byte of it more than
// once, which would be most of what a long run with pictures does here. So it is given the parameters alone, with a
// mark for the input, and the input takes the place of the mark on the way out. All that the client does to the
// parameters and to the request is done as ever.
type sender struct {
	client  *openai.Client
	params  responses.ResponseNewParams
	mark    []byte // a JSON string that comes nowhere else
	options []option.RequestOption
}

func newSender(client *openai.Client, body map[string]json.RawMessage, opts Options, hasMCP bool) *sender {
	s := &sender{client: client, mark: encode("input-" + rand.Text())}
	body["input"] = s.mark
	s.params = param.Override[responses.ResponseNewParams](encode(body))
	s.options = slices.Clone(opts.RequestOptions)
	for name, value := range opts.Headers {
		s.options = append(s.options, option.WithHeader(name, value))
	}
	if opts.Timeout > 0 {
		s.options = append(s.options, option.WithRequestTimeout(opts.Timeout))
	}
	// What an MCP server was asked to do may have been done although the request failed, and a ledger counts
	// requests: neither may be repeated unseen.
	if hasMCP || opts.Ledger != nil {
		s.options = append(s.options, option.WithMaxRetries(0))
	}
	return s
}

func (s *sender) optionsFor(step int, input []entry) []option.RequestOption {
	options := append(slices.Clip(s.options), option.WithMiddleware(s.fill(input)))
	if step > 1 {
		options = append(options, option.WithMiddleware(toolset.FreshKey()))
	}
	return options
}

func (s *sender) send(ctx context.Context, step int, input []entry) (*responses.Response, error) {
	return s.client.Responses.New(ctx, s.params, s.optionsFor(step, input)...)
}

func (s *sender) stream(ctx context.Context, step int, input []entry) *ssestream.Stream[responses.ResponseStreamEventUnion] {
	return s.client.Responses.NewStreaming(ctx, s.params, s.optionsFor(step, input)...)
}

// fill puts the input where the mark is.
func (s *sender) fill(input []entry) option.Middleware {
	return func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body.Close()
		before, after, found := bytes.Cut(body, s.mark)
		parts := net.Buffers{before}
		if found { // else a request option has put something else there
			parts = append(parts, []byte("["))
			for i, e := range input {
				if i > 0 {
					parts = append(parts, []byte(","))
				}
				parts = append(parts, e.raw)
			}
			parts = append(parts, []byte("]"), after)
		}
		r.ContentLength = 0
		for _, p := range parts {
			r.ContentLength += int64(len(p))
		}
		r.GetBody = func() (io.ReadCloser, error) {
			copied := slices.Clone(parts) // reading consumes them
			return io.NopCloser(&copied), nil
		}
		r.Body, _ = r.GetBody()
		return next(r)
	}
}
