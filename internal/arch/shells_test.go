package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// interpreters run text as a program.
var interpreters = []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "cmd.exe", "powershell", "pwsh", "python", "python3", "perl",
	"ruby", "node", "awk", "xargs", "env", "eval", "sudo", "su"}

// TestZ8 is row Z8 of the field cases: what a model says is never run as a program. No source file of the program names
// an interpreter, so there is none to hand text to; ARCHITECTURE.md keeps os/exec out of all that touches what a model
// said. The applications that only tests start are left out.
func TestZ8(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(root, path)
		switch {
		case err != nil || relErr != nil:
			return err
		case entry.IsDir() && (rel == filepath.Join("internal", "apptest") || strings.HasPrefix(entry.Name(), ".") && rel != "."):
			return fs.SkipDir
		case !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		for _, name := range named(file) {
			t.Errorf("%s names the interpreter %q", rel, name)
		}
		return nil
	})
	if err != nil || files < 50 {
		t.Fatalf("got %d files, %v, want those of the whole module", files, err)
	}
}

// TestZ8Notices makes sure that the test above can fail.
func TestZ8Notices(t *testing.T) {
	for source, want := range map[string]int{
		`package p; var argv = []string{"/bin/sh", "-c", text}`: 1,
		"package p; var argv = []string{`bash`, `-lc`}":         1,
		`package p; var s = "sh -c x"`:                          1,
		`package p; var s = "a sharp knife"`:                    0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := named(file); len(got) != want {
			t.Errorf("%s: got %q, want %d", source, got, want)
		}
	}
}

// named are the interpreters that a file's string literals begin with.
func named(file *ast.File) []string {
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			words := strings.Fields(text)
			alone := len(words) == 1 || len(words) > 1 && strings.HasPrefix(words[1], "-")
			if err == nil && alone && slices.Contains(interpreters, filepath.Base(words[0])) {
				found = append(found, words[0])
			}
		}
		return true
	})
	return found
}
