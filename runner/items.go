package runner

// The shapes of the items that a response may hold. The known fields are checked because items are sent back with the
// history, where a malformed one would spoil every later request.

var (
	logprob    = fields{"token": text, "logprob": number, "bytes": listOf(integer)}
	annotation = byType(map[string]fields{
		"file_citation": {"file_id": text, "filename": text, "index": integer},
		"url_citation":  {"url": text, "title": text, "start_index": integer, "end_index": integer},
		"container_file_citation": {"container_id": text, "file_id": text, "filename": text, "start_index": integer,
			"end_index": integer},
		"file_path": {"file_id": text, "index": integer},
	})
	outputText = fields{
		"text":        text,
		"annotations": listOf(annotation),
		"logprobs": maybe(listOf(both(logprob.open,
			fields{"top_logprobs": listOf(logprob.open)}.open))),
	}
	summaries = listOf(byType(map[string]fields{"summary_text": {"text": text}}))
	reasons   = listOf(byType(map[string]fields{"reasoning_text": {"text": text}}))
	progress  = oneOf("in_progress", "completed", "incomplete")
	caller    = byType(map[string]fields{"direct": {}, "program": {"caller_id": text}})

	// modelItems come from the model itself.
	modelItems = map[string]fields{
		"message": {
			"id":      text,
			"role":    oneOf("assistant"),
			"status":  oneOf("completed"),
			"phase":   maybe(oneOf("commentary", "final_answer")),
			"content": listOf(byType(map[string]fields{"output_text": outputText, "refusal": {"refusal": text}})),
		},
		"reasoning": {
			"id":                text,
			"summary":           summaries,
			"content":           optional(reasons),
			"encrypted_content": maybe(text),
			"status":            optional(progress),
		},
		"compaction": {"id": text, "encrypted_content": text},
		"function_call": {
			"call_id":   text,
			"name":      text,
			"arguments": text,
			"status":    maybe(oneOf("completed")),
			"id":        optional(text),
			"namespace": optional(text),
			"async":     optional(boolean),
			"caller":    maybe(caller),
		},
	}
)

// A hostedShape is what an item of a hosted tool looks like.
type hostedShape struct {
	tool   string // the item type under which the tool is declared
	done   shape  // of status, when the tool has done its work
	fields fields
}

var (
	completed = oneOf("completed")

	webAction = either(
		fields{"type": oneOf("search"), "query": optional(text), "queries": optional(listOf(text)),
			"sources": optional(listOf(fields{"type": oneOf("url"), "url": text}.open))}.open,
		fields{"type": oneOf("open_page"), "url": maybe(text)}.open,
		fields{"type": oneOf("find_in_page"), "pattern": text, "url": text}.open,
	)
	fileResult = fields{"file_id": optional(text), "filename": optional(text), "text": optional(text),
		"score": optional(finite), "attributes": maybe(mapOf(scalar))}

	hostedShapes = map[string]hostedShape{
		"web_search_call": {"web_search_call", completed, fields{"id": text, "action": webAction}},
		"file_search_call": {"file_search_call", completed, fields{"id": text, "queries": listOf(text),
			"results": maybe(listOf(fileResult.open))}},
		"code_interpreter_call": {"code_interpreter_call", completed, fields{"id": text, "container_id": text,
			"code": nullable(text), "outputs": nullable(listOf(byType(map[string]fields{
				"logs":  {"logs": text},
				"image": {"url": text},
			})))}},
		"image_generation_call": {"image_generation_call", completed, fields{"id": text, "result": nullable(text),
			"action": maybe(oneOf("generate", "edit", "auto")), "background": maybe(oneOf("transparent", "opaque", "auto")),
			"output_format":  maybe(oneOf("png", "webp", "jpeg", "gif", "svg")),
			"quality":        maybe(oneOf("low", "medium", "high", "xhigh", "max", "auto")),
			"revised_prompt": maybe(text), "size": maybe(text)}},
		"mcp_list_tools": {"mcp_call", optional(completed), fields{"id": text, "server_label": text,
			"tools": listOf(fields{"name": text, "input_schema": present, "description": maybe(text)}.open)}},
		"mcp_call": {"mcp_call", optional(completed), fields{"id": text, "server_label": text, "name": text,
			"arguments": text, "output": maybe(text), "approval_request_id": maybe(text)}},
		"mcp_approval_request": {"mcp_call", optional(completed), fields{"id": nonempty, "server_label": text, "name": text,
			"arguments": text}},
	}
)

func present(v any) bool { return !missing(v) }
