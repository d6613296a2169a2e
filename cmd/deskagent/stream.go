package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/openai/openai-go/v3/responses"
)

// streamed shows what the model says and thinks as it arrives. Every line begins with a mark, so that no text of a model
// looks like a line of ours.
type streamed struct {
	out  io.Writer
	mark string // of the line that is open; empty between lines
}

// The marks of lines.
const (
	saysMark   = "  | "
	thinksMark = "  ~ "
)

func (s *streamed) event(e responses.ResponseStreamEventUnion) {
	switch e.Type {
	case "response.output_text.delta", "response.refusal.delta":
		s.write(saysMark, e.Delta)
	case "response.reasoning_summary_text.delta":
		s.write(thinksMark, e.Delta)
	case "response.output_text.done", "response.refusal.done", "response.reasoning_summary_text.done",
		"response.completed", "response.failed", "response.incomplete":
		s.end()
	}
}

func (s *streamed) write(mark, text string) {
	if s.mark != mark {
		s.end()
	}
	for line := range strings.Lines(printable(text)) {
		if s.mark == "" {
			fmt.Fprint(s.out, mark)
		}
		fmt.Fprint(s.out, line)
		if s.mark = mark; strings.HasSuffix(line, "\n") {
			s.mark = ""
		}
	}
}

// end ends the line that is open.
func (s *streamed) end() {
	if s.mark != "" {
		fmt.Fprintln(s.out)
		s.mark = ""
	}
}

// summarises reports whether a model can be asked for summaries of its reasoning; one that does not reason refuses.
func summarises(model string) bool { return !strings.HasPrefix(model, "gpt-4") }
