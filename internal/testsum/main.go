// Command testsum reads the output of one "go test -json" or of several, one after the other, and sums it up: a line
// for each package, the whole output of what failed, and the tests that skipped and passed in none of the runs. It exits
// with 1 when a test failed, when one skipped, or when none ran: it is for a place where everything that tests need is
// provided. A regular expression as its argument tells the tests that may skip all the same.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json; see "go doc test2json".
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

func main() {
	maySkip := regexp.MustCompile("^$")
	if len(os.Args) > 1 {
		maySkip = regexp.MustCompile(os.Args[1])
	}
	ok, err := sum(os.Stdin, os.Stdout, maySkip)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum: error:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func sum(in io.Reader, out io.Writer, maySkip *regexp.Regexp) (ok bool, err error) {
	passed, failed, brokenPackages := 0, 0, 0
	output := map[string][]string{} // by package and test, as are the others
	hasPassed, skipped := map[string]bool{}, map[string]string{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return false, fmt.Errorf("%q is no line of go test -json: %w", lines.Text(), err)
		}
		id := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "output":
			output[id] = append(output[id], e.Output)
			if strings.HasPrefix(e.Output, "conformance: ") {
				fmt.Fprint(out, e.Output)
			}
		case "pass", "fail", "skip":
			if e.Test == "" {
				fmt.Fprintf(out, "%-4s %s %.1fs\n", map[string]string{"pass": "ok", "fail": "FAIL", "skip": "none"}[e.Action], e.Package, e.Elapsed)
				if e.Action == "fail" {
					brokenPackages++
					fmt.Fprint(out, strings.Join(output[id], ""))
				}
				break
			}
			switch e.Action {
			case "pass":
				passed++
				hasPassed[id] = true
			case "fail":
				failed++
				fmt.Fprint(out, strings.Join(output[id], ""))
			case "skip":
				if !maySkip.MatchString(e.Test) {
					skipped[id] = strings.Join(output[id], " ")
				}
			}
			delete(output, id)
		}
	}
	maps.DeleteFunc(skipped, func(id, _ string) bool { return hasPassed[id] })
	for _, id := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(out, "skipped where nothing should: %s: %s\n", id, skipped[id])
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, len(skipped))
	return passed > 0 && failed == 0 && len(skipped) == 0 && brokenPackages == 0, lines.Err()
}
