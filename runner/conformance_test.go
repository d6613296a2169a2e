package runner_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// vectorsPath finds the conformance vectors: $DESKAGENT_RUNNER_VECTORS, or the project's own copy. Relative paths start
// at the project's root.
func vectorsPath() string {
	path := cmp.Or(os.Getenv("DESKAGENT_RUNNER_VECTORS"), filepath.Join("testdata", "conformance", "responses_runner.json"))
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join("..", path)
}

// inexpressible lists what a dynamically typed caller can do and a Go caller cannot, by case. Only cases tagged
// dynamic_value may be skipped for one of these reasons.
var inexpressible = map[string]string{
	"admission/steps_fraction":      "Options.MaxSteps is a whole number",
	"mcp_approval/answer_null":      "the answer of ApproveMCP is a yes or a no",
	"mcp_approval/answer_text":      "the answer of ApproveMCP is a yes or a no",
	"mcp_approval/answer_object":    "the answer of ApproveMCP is a yes or a no",
	"budget_bounds/bytes_fraction":  "bounds are whole numbers",
	"budget_bounds/images_missing":  "a bound that is not set is zero, and no images is a valid bound",
	"budget_compact/extra_field":    "a Compaction is a struct",
	"budget_compact/summary_number": "a Compaction's Summary is a text",
	"budget_compact/nothing":        "a Compaction is not a pointer; dropping nothing is another case",
}

type vector struct {
	Name, Kind string
	Tags       []string
	Input      script
	Expected   map[string]any
}

func TestConformance(t *testing.T) {
	data, err := os.ReadFile(vectorsPath())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Format int
		Cases  []json.RawMessage
	}
	if err := json.Unmarshal(data, &file); err != nil || file.Format != 1 {
		t.Fatalf("got vectors of format %d, %v, want 1", file.Format, err)
	}
	passed, failed, skipped := 0, 0, 0
	for _, raw := range file.Cases {
		var head struct {
			Name string
			Tags []string
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		t.Run(head.Name, func(t *testing.T) {
			defer func() {
				switch {
				case t.Skipped():
					skipped++
				case t.Failed():
					failed++
				default:
					passed++
				}
			}()
			if reason, ok := inexpressible[head.Name]; ok && slices.Contains(head.Tags, "dynamic_value") {
				t.Skip(reason)
			}
			var v vector
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			v.test(t)
		})
	}
	fmt.Printf("conformance: %d passed, %d failed, %d skipped\n", passed, failed, skipped)
}

// test plays the case as it is and, unless in a hurry, by iterating and without an observer, which must make no other
// difference.
func (v vector) test(t *testing.T) {
	v.play(t, false, true)
	if testing.Short() {
		return
	}
	if v.Kind == "run" {
		v.play(t, true, true)
	}
	if v.Kind != "register" && v.Input.Options.Observer == nil {
		v.play(t, false, false)
	}
}

func (v vector) play(t *testing.T, iterate, observed bool) {
	w := &world{}
	w.stage = newStage(t, w, v.Input)
	registration := v.Input.Registration
	err := w.build(registration)
	if v.Kind == "register" {
		result := map[string]any{"outcome": "ok"}
		if err != nil {
			result["outcome"], result["error_class"] = "error", w.class(err)
		} else {
			result["closed"] = string(w.runner.Close())
		}
		compare(t, "", result, v.Expected, observed)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	operations := v.Input.Operations
	if v.Kind != "sequence" {
		v.Input.Op = v.Kind
		operations = []script{v.Input}
	}
	var results []map[string]any
	for _, s := range operations {
		s.Registration = registration
		w.stage = newStage(t, w, s)
		results = append(results, w.play(iterate, observed))
	}
	want := v.Expected
	switch {
	case v.Kind == "sequence":
		want := v.Expected["operations"].([]any)
		if len(want) != len(results) {
			t.Fatalf("got %d operations, want %d", len(results), len(want))
		}
		for i := range want {
			compare(t, fmt.Sprintf("operation %d: ", i), results[i], want[i].(map[string]any), observed)
		}
		return
	case slices.Contains(v.Tags, "spec_deviation"):
		want = ours(v.Expected)
	case slices.Contains(v.Tags, "client_accumulator"):
		want = maps.Clone(want)
		delete(want, "order")
		delete(want, "diagnostics")
	case slices.Contains(v.Tags, "concurrent"):
		want = maps.Clone(want)
		checkPairs(t, w.order, want["happens_before"].([]any))
		sortCompleted(results[0])
		sortCompleted(want)
		for _, name := range []string{"order", "happens_before", "diagnostics"} {
			delete(want, name)
		}
	}
	if !iterate && v.Kind == "run" {
		want = maps.Clone(want)
		delete(want, "turns")
	}
	if headers, ok := want["request_headers"]; ok {
		compareHeaders(t, w.header, headers.([]any))
	}
	compare(t, "", results[0], want, observed)
}

// ours is what the specification expects where it differs from the reference: all that is in ours, and where something
// of a turn is in ours, the rest of the reference too.
func ours(expected map[string]any) map[string]any {
	want := maps.Clone(expected["ours"].(map[string]any))
	delete(want, "note")
	if want["turns"] == nil {
		return want
	}
	all := maps.Clone(expected["reference"].(map[string]any))
	for i, turn := range want["turns"].([]any) {
		maps.Copy(all["turns"].([]any)[i].(map[string]any), turn.(map[string]any))
	}
	return all
}

// sortCompleted makes comparable the ids of calls that ran beside each other, and could have ended in any order.
func sortCompleted(result map[string]any) {
	turns, _ := result["turns"].([]any)
	for _, v := range append([]any{result}, turns...) {
		o := v.(map[string]any)
		switch ids := o["completed_call_ids"].(type) {
		case []any:
			slices.SortFunc(ids, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		case []string:
			slices.Sort(ids)
		}
	}
}

// checkPairs checks that the first of each pair comes before the second. Two calls are the exception: goroutines that
// are started in some order need not get to run in it.
func checkPairs(t *testing.T, order []string, pairs []any) {
	for _, pair := range pairs {
		first, second := pair.([]any)[0].(string), pair.([]any)[1].(string)
		if strings.HasPrefix(first, "call:") && strings.HasPrefix(second, "call:") {
			continue
		}
		if i, j := slices.Index(order, first), slices.Index(order, second); i < 0 || j < 0 || i > j {
			t.Errorf("got %s at %d and %s at %d of %v, want them in this order", first, i, second, j, order)
		}
	}
}

// compare checks every field of want.
func compare(t *testing.T, where string, got, want map[string]any, observed bool) {
	for name, w := range want {
		switch name {
		case "error_detail", "error_kind", "request_headers": // for orientation only, or compared apart
			continue
		case "diagnostics", "usage":
			if !observed {
				continue
			}
		case "order":
			if !observed {
				w = slices.DeleteFunc(slices.Clone(w.([]any)), func(entry any) bool {
					return strings.HasPrefix(entry.(string), "diagnostic:")
				})
			}
		case "inside":
			w = insides(w.([]any))
		}
		g := marked(value(t, got[name]))
		if g == nil {
			g = []any{} // a list to which nothing was added
		}
		if !matches(g, w) {
			t.Errorf("%s%s (observed: %v):\n got %s\nwant %s", where, name, observed, toJSON(t, g), toJSON(t, w))
		}
	}
	if _, ok := want["error_class"]; !ok && got["error_class"] != nil {
		t.Errorf("%sgot an error of class %v, want none", where, got["error_class"])
	}
}

// insides are the operations from the inside without what a refused one would have recorded.
func insides(list []any) []any {
	var kept []any
	for _, v := range list {
		o := map[string]any{}
		for _, name := range []string{"at", "op", "target", "status", "outcome", "error_class"} {
			if v, ok := v.(map[string]any)[name]; ok {
				o[name] = v
			}
		}
		kept = append(kept, o)
	}
	return kept
}

// marked puts marks in the place of browser declarations.
func marked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if name, _ := v["name"].(string); v["type"] == "function" && strings.HasPrefix(name, "browser_") && v["strict"] == true {
			return map[string]any{"$browser_tool": name}
		}
		for name := range v {
			v[name] = marked(v[name])
		}
	case []any:
		for i := range v {
			v[i] = marked(v[i])
		}
	}
	return v
}

// matches compares two values, where a mark stands for a text of our own.
func matches(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for name, w := range want {
			v, there := g[name]
			if !there || !matches(v, w) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(g, want, matches)
	case string:
		g, ok := got.(string)
		if mark, isReceipt := strings.CutPrefix(want, "<receipt "); ok && isReceipt {
			var values map[string]string
			if json.Unmarshal([]byte(strings.TrimSuffix(mark, ">")), &values) != nil {
				return false
			}
			for _, v := range values {
				ok = ok && strings.Contains(g, v)
			}
			return ok
		}
		if summary, isSummary := strings.CutPrefix(want, "<summary "); ok && isSummary {
			return strings.Contains(g, strings.TrimSuffix(summary, ">"))
		}
		if strings.HasPrefix(want, "{") { // a text that is JSON
			var v, w any
			if json.Unmarshal([]byte(g), &v) == nil && json.Unmarshal([]byte(want), &w) == nil {
				return reflect.DeepEqual(v, w)
			}
		}
	}
	return reflect.DeepEqual(got, want)
}

func compareHeaders(t *testing.T, got []http.Header, want []any) {
	if len(got) != len(want) {
		t.Fatalf("got headers of %d requests, want %d", len(got), len(want))
	}
	fresh := map[string]string{} // by mark
	for i, w := range want {
		for name, text := range w.(map[string]any) {
			g := got[i].Get(name)
			mark, isMark := text.(string), strings.HasPrefix(text.(string), "<fresh")
			switch {
			case !isMark && g != text:
				t.Errorf("request %d, %s: got %q, want %q", i+1, name, g, text)
			case isMark && fresh[mark] == "":
				if g == "" || slices.Contains(slices.Collect(maps.Values(fresh)), g) {
					t.Errorf("request %d, %s: got %q, want a new key", i+1, name, g)
				}
				fresh[mark] = g
			case isMark && fresh[mark] != g:
				t.Errorf("request %d, %s: got %q, want %q again", i+1, name, g, fresh[mark])
			}
		}
	}
}
