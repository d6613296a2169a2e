package sandbox

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

var update = flag.Bool("update", false, "write seccomp.json anew")

// TestSeccompProfile checks that the profile is the engine's default plus exactly clone, unshare and chroot.
func TestSeccompProfile(t *testing.T) {
	if *update {
		profile := seccomp.DefaultProfile()
		profile.Syscalls = append(profile.Syscalls, &seccomp.Syscall{
			LinuxSyscall: specs.LinuxSyscall{Names: []string{"chroot", "clone", "unshare"}, Action: specs.ActAllow},
			Comment:      "Chromium's own sandbox",
		})
		data, err := json.MarshalIndent(profile, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("seccomp.json", append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		seccompProfile = data
	}
	var got, want any
	if err := json.Unmarshal(seccompProfile, &got); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(seccomp.DefaultProfile())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	rules := got.(map[string]any)["syscalls"].([]any)
	last := rules[len(rules)-1]
	got.(map[string]any)["syscalls"] = rules[:len(rules)-1]
	if !reflect.DeepEqual(got, want) {
		t.Error("without its last rule the profile is not the engine's default; -update makes it anew")
	}
	one := map[string]any{"names": []any{"chroot", "clone", "unshare"}, "action": "SCMP_ACT_ALLOW", "comment": "Chromium's own sandbox"}
	if !reflect.DeepEqual(last, one) {
		t.Errorf("got %v as the rule more, want %v", last, one)
	}
}

// TestSeccompEffect checks the difference on the profile as the engine reads it, for a container without any
// capability: what is allowed whatever the arguments is the default's and three more.
func TestSeccompEffect(t *testing.T) {
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}}
	loaded, err := seccomp.LoadProfile(string(seccompProfile), spec)
	if err != nil {
		t.Fatal(err)
	}
	standard, err := seccomp.GetDefaultProfile(spec)
	if err != nil {
		t.Fatal(err)
	}
	got, want := unconditional(loaded), unconditional(standard)
	for _, name := range []string{"chroot", "clone", "unshare"} {
		if want[name] {
			t.Errorf("the default allows %s already", name)
		}
		want[name] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %d calls allowed, want %d", len(got), len(want))
	}
	for _, name := range []string{"mount", "setns", "bpf", "keyctl", "clone3"} {
		if got[name] {
			t.Errorf("%s is allowed", name)
		}
	}
	if bytes.Contains(seccompProfile, []byte("SCMP_ACT_TRACE")) || loaded.DefaultAction != specs.ActErrno {
		t.Errorf("got default action %s, want %s", loaded.DefaultAction, specs.ActErrno)
	}
}

// unconditional are the system calls that a profile allows with any arguments.
func unconditional(profile *specs.LinuxSeccomp) map[string]bool {
	calls := map[string]bool{}
	for _, rule := range profile.Syscalls {
		if rule.Action == specs.ActAllow && len(rule.Args) == 0 {
			for _, name := range rule.Names {
				calls[name] = true
			}
		}
	}
	return calls
}
