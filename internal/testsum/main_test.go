package main

import (
	"regexp"
	"strings"
	"testing"
)

func TestSum(t *testing.T) {
	maySkip := regexp.MustCompile("^TestMay/")
	const pass = `{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":0.5}
`
	tests := []struct {
		name, in, want string
		ok             bool
	}{
		{"all passed", pass, "ok   p 0.5s\n1 passed, 0 failed, 0 skipped\n", true},
		{"none ran", `{"Action":"skip","Package":"p"}`, "none p 0.0s\n0 passed, 0 failed, 0 skipped\n", false},
		{"one failed", pass + `{"Action":"output","Package":"p","Test":"TestB","Output":"why\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestB"}`,
			"ok   p 0.5s\nwhy\n1 passed, 1 failed, 0 skipped\n", false},
		{"one skipped", pass + `{"Action":"output","Package":"p","Test":"TestB","Output":"needs X"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestB"}`,
			"ok   p 0.5s\nskipped where nothing should: p TestB: needs X\n1 passed, 0 failed, 1 skipped\n", false},
		{"skipped in one run, passed in another", `{"Action":"skip","Package":"p","Test":"TestA"}` + "\n" + pass, "ok   p 0.5s\n1 passed, 0 failed, 0 skipped\n", true},
		{"one skipped that may", pass + `{"Action":"skip","Package":"p","Test":"TestMay/b"}`, "ok   p 0.5s\n1 passed, 0 failed, 0 skipped\n", true},
		{"a package did not build", pass + `{"Action":"build-output","ImportPath":"q","Output":"syntax error\n"}` + "\n" + `{"Action":"fail","Package":"q"}`,
			"ok   p 0.5s\nsyntax error\nFAIL q 0.0s\n1 passed, 0 failed, 0 skipped\n", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := sum(strings.NewReader(test.in), &out, maySkip)
			if ok != test.ok || err != nil || out.String() != test.want {
				t.Errorf("got %v, %v:\n%swant %v:\n%s", ok, err, out.String(), test.ok, test.want)
			}
		})
	}
	if ok, err := sum(strings.NewReader("PASS\n"), &strings.Builder{}, maySkip); ok || err == nil {
		t.Errorf("got %v, %v, want plain text refused", ok, err)
	}
}
