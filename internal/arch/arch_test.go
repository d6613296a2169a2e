// Package arch keeps the arrows of ARCHITECTURE.md true: its test compares the tables there with what the source files
// import.
package arch

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module        = "github.com/deskagent/deskagent"
	insideHeader  = "| package | what it holds | imports from this module |"
	outsideHeader = "| package from outside | only in |"
)

func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := parseRules(string(doc))
	if err != nil {
		t.Fatalf("ARCHITECTURE.md: %v", err)
	}
	imports, err := readImports(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(imports["driver"]) == 0 {
		t.Fatalf("got no imports of driver in %v, want the whole module", root)
	}
	for _, violation := range rules.check(imports) {
		t.Error(violation)
	}
}

// TestImportsNotices makes sure that the test above can fail.
func TestImportsNotices(t *testing.T) {
	rules, err := parseRules("# Title\n" + insideHeader + `
| --- | --- | --- |
| ` + "`a`" + ` | leaf | nothing |
| ` + "`b`" + ` | branch | ` + "`a`, `b/internal/...`" + ` |
| ` + "`b/internal/...`" + ` | twigs | ` + "`a`" + ` |
| ` + "`e`" + ` | all | anything but ` + "`cmd/...`" + ` |
| ` + "`cmd/x`" + ` | command | anything |

` + outsideHeader + `
| --- | --- |
| ` + "`example.com/lib/...`" + ` | ` + "`b/internal/lib`, `cmd/...`" + ` |
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ importer, imported, want string }{
		{importer: "a", imported: "fmt"},
		{importer: "a", imported: module + "/b", want: `a imports b, ARCHITECTURE.md allows it nothing`},
		{importer: "b", imported: module + "/a"},
		{importer: "b", imported: module + "/b/internal/lib"},
		{importer: "b", imported: module + "/e", want: `b imports e, ARCHITECTURE.md allows it a, b/internal/...`},
		{importer: "b/internal/lib", imported: module + "/a"},
		{importer: "b/internal/lib", imported: module + "/b", want: `b/internal/lib imports b, ARCHITECTURE.md allows it a`},
		{importer: "b/other", want: `b/other has no row in ARCHITECTURE.md`},
		{importer: "e", imported: module + "/b"},
		{importer: "e", imported: module + "/cmd/x", want: `e imports cmd/x, ARCHITECTURE.md allows it anything but cmd/...`},
		{importer: "cmd/x", imported: module + "/e"},
		{importer: "b/internal/lib", imported: "example.com/lib/sub"},
		{importer: "cmd/x", imported: "example.com/lib"},
		{importer: "cmd/x", imported: "example.com/library"},
		{importer: "a", imported: "example.com/lib/sub", want: `a imports example.com/lib/sub, ARCHITECTURE.md keeps it to b/internal/lib, cmd/...`},
	} {
		var imports []string
		if tt.imported != "" {
			imports = []string{tt.imported}
		}
		got := strings.Join(rules.check(map[string][]string{tt.importer: imports}), "\n")
		if got != tt.want {
			t.Errorf("%s imports %s: got %q, want %q", tt.importer, tt.imported, got, tt.want)
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	outside := "\n" + outsideHeader + "\n| --- | --- |\n| `C` | `a` |\n"
	for _, doc := range []string{
		"", outside,
		insideHeader + "\n| --- | --- | --- |\n" + outside,
		insideHeader + "\n| --- | --- | --- |\n| `a` | leaf |\n" + outside,
		insideHeader + "\n| --- | --- | --- |\n| a | leaf | nothing |\n" + outside,
		insideHeader + "\n| --- | --- | --- |\n| `a` | leaf | something |\n" + outside,
		insideHeader + "\n| --- | --- | --- |\n| `a` | leaf | nothing |\n| `a` | leaf | anything |\n" + outside,
		insideHeader + "\n| --- | --- | --- |\n| `a` | leaf | nothing |\n",
	} {
		if rules, err := parseRules(doc); err == nil {
			t.Errorf("%q: got %+v, want an error", doc, rules)
		}
	}
}

// rules are the tables of ARCHITECTURE.md. Packages of this module are named without the module's path.
type rules struct {
	inside  map[string]permission // by the pattern of the importer
	outside map[string][]string   // patterns of the only importers, by the pattern of the imported
}

// A permission says what a package may import from this module: what matches may and does not match but.
type permission struct {
	text     string
	may, but []string
}

func parseRules(doc string) (rules, error) {
	r := rules{inside: map[string]permission{}, outside: map[string][]string{}}
	rows, err := table(doc, insideHeader)
	if err != nil {
		return rules{}, err
	}
	for _, row := range rows {
		names, err := patterns(row[0])
		if err != nil {
			return rules{}, err
		}
		p, err := parsePermission(row[2])
		if err != nil {
			return rules{}, err
		}
		for _, name := range names {
			if _, ok := r.inside[name]; ok {
				return rules{}, fmt.Errorf("two rows for %s", name)
			}
			r.inside[name] = p
		}
	}
	rows, err = table(doc, outsideHeader)
	if err != nil {
		return rules{}, err
	}
	for _, row := range rows {
		names, err := patterns(row[0])
		if err != nil {
			return rules{}, err
		}
		for _, name := range names {
			if r.outside[name], err = patterns(row[1]); err != nil {
				return rules{}, err
			}
		}
	}
	return r, nil
}

// table returns the cells of the rows below a header of a Markdown table.
func table(doc, header string) ([][]string, error) {
	_, rest, ok := strings.Cut(doc, header+"\n")
	if !ok {
		return nil, fmt.Errorf("no table %q", header)
	}
	var rows [][]string
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != strings.Count(header, "|")-1 {
			return nil, fmt.Errorf("%d cells in row %q of table %q", len(cells), line, header)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if strings.Trim(cells[0], "-") != "" {
			rows = append(rows, cells)
		}
	}
	if rows == nil {
		return nil, fmt.Errorf("table %q has no rows", header)
	}
	return rows, nil
}

func parsePermission(cell string) (p permission, err error) {
	p.text = strings.ReplaceAll(cell, "`", "")
	switch but, ok := strings.CutPrefix(cell, "anything but "); {
	case cell == "nothing":
	case cell == "anything":
		p.may = []string{"..."}
	case ok:
		p.may = []string{"..."}
		p.but, err = patterns(but)
	default:
		p.may, err = patterns(cell)
	}
	return p, err
}

// patterns reads names in backquotes with commas between them.
func patterns(cell string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(cell, ", ") {
		inner := strings.Trim(name, "`")
		if inner == "" || name != "`"+inner+"`" {
			return nil, fmt.Errorf("%q in %q: want a name in backquotes", name, cell)
		}
		names = append(names, inner)
	}
	return names, nil
}

// matches reports whether a pattern of the go command stands for pkg.
func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == above || strings.HasPrefix(pkg, above+"/")
	}
	return pkg == pattern
}

func anyMatches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, pkg) })
}

// check returns a sentence for each import that the rules do not allow and each package that has none.
func (r rules) check(imports map[string][]string) []string {
	var violations []string
	for _, importer := range slices.Sorted(maps.Keys(imports)) {
		longest := ""
		for pattern := range r.inside {
			if matches(pattern, importer) && len(pattern) > len(longest) {
				longest = pattern
			}
		}
		if longest == "" {
			violations = append(violations, fmt.Sprintf("%s has no row in ARCHITECTURE.md", importer))
			continue
		}
		p := r.inside[longest]
		for _, imported := range imports[importer] {
			if inside, ok := strings.CutPrefix(imported, module+"/"); ok && (!anyMatches(p.may, inside) || anyMatches(p.but, inside)) {
				violations = append(violations, fmt.Sprintf("%s imports %s, ARCHITECTURE.md allows it %s", importer, inside, p.text))
			}
			for pattern, only := range r.outside {
				if matches(pattern, imported) && !anyMatches(only, importer) {
					violations = append(violations, fmt.Sprintf("%s imports %s, ARCHITECTURE.md keeps it to %s", importer, imported, strings.Join(only, ", ")))
				}
			}
		}
	}
	return violations
}

// readImports returns what the source files of each package import, those of all systems and build tags together,
// without tests. It reads the files itself because the go command shows one system at a time.
func readImports(root string) (map[string][]string, error) {
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(dir)
		list := imports[pkg]
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			list = append(list, imported)
		}
		imports[pkg] = list // also when it is empty: the package needs a row
		return nil
	})
	for pkg, list := range imports {
		slices.Sort(list)
		imports[pkg] = slices.Compact(list)
	}
	return imports, err
}
