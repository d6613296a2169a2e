package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// runCommand is the run command with flags, as they are given on the command line.
func runCommand(t *testing.T, args ...string) *cobra.Command {
	t.Helper()
	root := newRoot(streams{})
	cmd, rest, err := root.Find(append([]string{"run"}, args...))
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return cmd
}

// TestGuestRun has the agent in the guest get all that the user asks for: each flag of run with a value other than the
// default is the same after it was read a second time, there.
func TestGuestRun(t *testing.T) {
	values := map[string]string{
		"verbose": "true", "model": "gpt-5.5", "repeat-limit": "7", "deadline": "3m0s", "stream": "true", "max-cost": "0.5", "max-tokens": "1000",
		"context-images": "4", "context-bytes": "4000", "approve": "allow", "acknowledge-checks": "one,two",
		"size": "640x480", "crop": "10,20,300,400", "focus": "window", "zoom": "10,20,100,100", "format": "jpeg", "quality": "70", "pictures": "inline",
		"limits": "whole", "trace-limit": "10", "trace-mask-text": "true", "tools": "web_search,code_interpreter",
		"mcp": "mail=https://mail.example", "allow-mcp": "mail", "max-steps": "12", "settle": "100ms,50ms,2s", "mask": "KeePass",
		"monitor": "DP-1", "pointer": "true", "hold": "30ms", "paste": "ctrl+v", "sink": "xtest",
	}
	var untried []string
	runCommand(t).Flags().VisitAll(func(f *pflag.Flag) {
		if _, here := hereOnly[f.Name]; here || f.Name == "help" {
			return
		}
		value, ok := values[f.Name]
		if !ok {
			switch f.Value.Type() {
			case "bool":
				value = "true"
			case "int", "int64", "uint64":
				value = "3"
			case "duration":
				value = "70ms"
			default:
				untried = append(untried, f.Name+" "+f.Value.Type())
				return
			}
		}
		flags := runCommand(t, "--"+f.Name+"="+value).Flags()
		argv, err := guestRun(flags, "-- do it", "/s", "")
		if err != nil || len(argv) < 6 {
			t.Errorf("--%s=%s: got %q, %v", f.Name, value, argv, err)
			return
		}
		if got, want := argv[:3], []string{"deskagent", "run", "--base-url=unix:/s"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q first", got, want)
		}
		if got, want := argv[len(argv)-2:], []string{"--", "-- do it"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q last", got, want)
		}
		there := runCommand(t, argv[2:len(argv)-2]...).Flags().Lookup(f.Name)
		if here := flags.Lookup(f.Name); !there.Changed || there.Value.String() != here.Value.String() {
			t.Errorf("--%s=%s: got %q there, by %q, want %q", f.Name, value, there.Value, argv, here.Value)
		}
	})
	if len(untried) > 0 {
		t.Errorf("no values to try for %q", untried)
	}
	// Texts that are lists, and those that look like some.
	argv, err := guestRun(runCommand(t, "--mcp=a=https://a.example/?x=1,2", "--mcp", "b=https://b.example", "--tools=web_search,file_search=vs_1",
		"--mask=Key Ring", "--mask", "1,2,3,4").Flags(), "x", "/s", "/t")
	want := []string{"deskagent", "run", "--base-url=unix:/s", "--trace=/t", "--mcp=a=https://a.example/?x=1,2", "--mcp=b=https://b.example",
		"--mask=Key Ring", "--mask=1,2,3,4", "--tools=web_search", "--tools=file_search=vs_1", "--", "x"}
	if err != nil || !slices.Equal(got(argv), got(want)) {
		t.Errorf("got %q, %v, want %q", argv, err, want)
	}
}

// got sorts the flags of a command, whose order is of no importance but for lists.
func got(argv []string) []string {
	sorted := slices.Clone(argv)
	slices.SortStableFunc(sorted[2:len(sorted)-2], func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(nameA, nameB)
	})
	return sorted
}

// TestGuestRunRefused names what an agent in a guest cannot have.
func TestGuestRunRefused(t *testing.T) {
	for _, flag := range []string{"display", "remote", "ledger", "prices"} {
		argv, err := guestRun(runCommand(t, "--"+flag, "x").Flags(), "do it", "/s", "")
		if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("got %q, %v, want it to name --%s", argv, err, flag)
		}
	}
}

// TestUnpack reads archives as a program in a guest could make them.
func TestUnpack(t *testing.T) {
	type entry struct {
		name string
		kind byte
		text string
	}
	for _, test := range []struct {
		name    string
		entries []entry
		bad     bool
		want    []string
	}{
		{"a record", []entry{{"./", tar.TypeDir, ""}, {"./trace.jsonl", tar.TypeReg, "{}"}, {"./pictures/", tar.TypeDir, ""}, {"./pictures/1.png", tar.TypeReg, "p"}},
			false, []string{"pictures/1.png", "trace.jsonl"}},
		{"above", []entry{{"../x", tar.TypeReg, "x"}}, true, nil},
		{"absolute", []entry{{"/tmp/x", tar.TypeReg, "x"}}, true, nil},
		{"links", []entry{{"l", tar.TypeSymlink, "/etc/passwd"}, {"h", tar.TypeLink, "/etc/passwd"}, {"f", tar.TypeFifo, ""}}, false, nil},
		{"too large", []entry{{"x", tar.TypeReg, strings.Repeat("x", 101)}}, true, nil},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, e := range test.entries {
			header := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o777}
			if e.kind == tar.TypeReg {
				header.Size = int64(len(e.text))
			} else {
				header.Linkname = e.text
			}
			if err := w.WriteHeader(header); err != nil {
				t.Fatal(err)
			}
			if e.kind == tar.TypeReg {
				w.Write([]byte(e.text))
			}
		}
		w.Close()
		dir := filepath.Join(t.TempDir(), "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unpack(&archive, dir, 100); (err != nil) != test.bad {
			t.Errorf("%s: got %v", test.name, err)
		}
		var got []string
		filepath.WalkDir(filepath.Dir(dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				name, _ := filepath.Rel(dir, path)
				got = append(got, name)
			}
			return err
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got the files %q, want %q", test.name, got, test.want)
		}
	}
}
