package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/deskagent/deskagent/trace"
)

// inDocker is a run in a sandbox.
func inDocker(t *testing.T, program, api, key string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "DISPLAY=", keyVariable+"="+key, "OPENAI_BASE_URL="+api+"/v1")
	return cmd
}

// noneOf makes sure that nothing of the sandbox of a run is left.
func noneOf(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	filter := fmt.Sprintf("label=deskagent.sandbox=run-%d", cmd.Process.Pid)
	left, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter", filter).Output()
	if err != nil || len(left) > 0 {
		t.Errorf("got %v and the containers %s, want none left", err, left)
	}
}

// TestAgentInGuest lets an agent in a sandbox do what a model asks for, and brings the record out.
func TestAgentInGuest(t *testing.T) {
	program := staticProgram(t)
	api := serveAPI(t.Cleanup, []string{clickCall, doneMessage}) // wants the key
	dir := filepath.Join(t.TempDir(), "record")
	cmd := inDocker(t, program, api.URL, testKey, "--in", "docker", "--agent-in-guest", "--approve", "allow", "--trace", dir, "Click it")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	if out, err := cmd.Output(); err != nil || string(out) != "Done.\n" {
		t.Fatalf("got %q, %v: %s", out, err, talk.String())
	}
	noneOf(t, cmd)
	record, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	checkBox(t, record, fmt.Sprintf("run-%d", cmd.Process.Pid))
	calls, pictures := 0, 0
	for _, r := range record.Records {
		switch {
		case r.Call != nil:
			calls++
		case r.Picture != nil:
			pictures++
		}
	}
	if calls != 1 || pictures != 1 {
		t.Errorf("got a record with %d calls and %d pictures, want one of each", calls, pictures)
	}
}

// checkBox wants the sandbox of a run on record, with the tests of its limits.
func checkBox(t *testing.T, record *trace.Trace, name string) {
	t.Helper()
	var boxes []*trace.Sandbox
	for _, r := range record.Records {
		if r.Sandbox != nil {
			boxes = append(boxes, r.Sandbox)
		}
	}
	if len(boxes) != 1 || boxes[0].Name != name || boxes[0].Network != "none" || !boxes[0].Hold() || len(boxes[0].Tests) < 20 {
		t.Errorf("got the sandboxes %+v on record, want %s with its tests", boxes, name)
	}
}

// TestBoxOnRecord has a run in a sandbox that is up already test it anew, and keep that in its trace and its ledger.
func TestBoxOnRecord(t *testing.T) {
	program := staticProgram(t)
	name := sandboxUp(t, program, "recorded")
	api := serveAPI(t.Cleanup, []string{clickCall, doneMessage})
	traced, ledger := filepath.Join(t.TempDir(), "trace"), filepath.Join(t.TempDir(), "ledger")
	cmd := inDocker(t, program, api.URL, testKey, "--in", "docker:"+name, "--approve", "allow", "--trace", traced, "--ledger", ledger, "Click it")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	record, err := trace.Open(traced)
	if err != nil {
		t.Fatal(err)
	}
	checkBox(t, record, name)
	var kept trace.Sandbox
	data, err := os.ReadFile(filepath.Join(ledger, sandboxFile))
	if err != nil || json.Unmarshal(data, &kept) != nil || kept.Name != name || !kept.Hold() {
		t.Errorf("got %s, %v in the ledger, want the sandbox %s", data, err, name)
	}
}

// TestAgentInGuestEnds has it end in all the ways there are: the exit code and the words are those of any run.
func TestAgentInGuestEnds(t *testing.T) {
	program := staticProgram(t)
	t.Run("declined", func(t *testing.T) {
		api := serveAPI(t.Cleanup, []string{clickCall})
		cmd := inDocker(t, program, api.URL, testKey, "--in", "docker", "--agent-in-guest", "--approve", "deny", "Click it")
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != exitDeclined {
			t.Errorf("got exit code %d, want %d: %s", code, exitDeclined, out)
		}
	})
	t.Run("nobody to ask", func(t *testing.T) {
		api := serveAPI(t.Cleanup, []string{clickCall})
		cmd := inDocker(t, program, api.URL, testKey, "--in", "docker", "--agent-in-guest", "Click it")
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code == exitDone || !strings.Contains(string(out), "terminal") {
			t.Errorf("got exit code %d and %s, want it to miss a terminal", code, out)
		}
	})
	t.Run("asked", func(t *testing.T) {
		api := serveAPI(t.Cleanup, []string{clickCall, doneMessage})
		cmd := inDocker(t, program, api.URL, testKey, "--in", "docker", "--agent-in-guest", "Click it")
		terminal, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		var shown strings.Builder
		buf := make([]byte, 4096)
		for answered := 0; ; {
			n, err := terminal.Read(buf)
			shown.Write(buf[:n])
			if err != nil {
				break
			}
			if strings.Count(shown.String(), "everything: ") > answered {
				answered++
				io.WriteString(terminal, "y\r")
			}
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(shown.String(), "Done.") {
			t.Errorf("got %v, want the answer:\n%s", err, shown.String())
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		api := &scripted{answers: []string{clickCall}, kind: "application/json"}
		cmd := inDocker(t, program, api.start(t), testKey, "--in", "docker", "--agent-in-guest", "--approve", "allow", "Click it")
		var talk bytes.Buffer
		cmd.Stderr = &talk
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-api.arrived
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(talk.String(), "error: interrupted") {
			t.Errorf("got exit code %d, want %d: %s", code, exitFailed, talk.String())
		}
		noneOf(t, cmd)
		close(api.let)
	})
}

// TestAgentInGuestKilled kills the command while an agent of it is in a sandbox that stays: the agent ends as well.
func TestAgentInGuestKilled(t *testing.T) {
	program := staticProgram(t)
	name := sandboxUp(t, program, "killed")
	agents := func() int {
		out, err := exec.Command("docker", "top", "deskagent-"+name, "-eo", "pid,args").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(out), "deskagent run ") + strings.Count(string(out), "guest api")
	}
	api := &scripted{answers: []string{clickCall}, kind: "application/json"}
	cmd := inDocker(t, program, api.start(t), testKey, "--in", "docker:"+name, "--agent-in-guest", "--approve", "allow", "Click it")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-api.arrived
	if n := agents(); n != 2 {
		t.Fatalf("got %d processes of the agent, want 2", n)
	}
	cmd.Process.Kill()
	cmd.Wait()
	for deadline := time.Now().Add(10 * time.Second); agents() > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the agent is still there 10 s after the command was killed")
		}
	}
	close(api.let)
}

// needles are what a key may look like.
func needles(name, key string) map[string][]byte {
	all := map[string][]byte{
		"whole": []byte(key), "first half": []byte(key[:len(key)/2]), "second half": []byte(key[len(key)/2:]),
		"hex": []byte(hex.EncodeToString([]byte(key))), "HEX": []byte(strings.ToUpper(hex.EncodeToString([]byte(key)))),
	}
	for before := range 3 { // what comes before it shifts the letters, and touches the first and the last ones
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + key))
		all[fmt.Sprintf("base64 after %d", before)] = []byte(text[4 : len(text)-4])
	}
	named := make(map[string][]byte)
	for form, needle := range all {
		named[name+" "+form] = needle
	}
	return named
}

// scan looks for keys in all processes of a container, and in all files that they see, past whatever holds them there: it
// reads the memory and the files of the processes of this machine that they are. What it returns says where it found which.
func scan(t *testing.T, container string, keys map[string]string) (found []string) {
	t.Helper()
	all := make(map[string][]byte)
	for name, key := range keys {
		maps.Copy(all, needles(name, key))
	}
	longest := 0
	for _, needle := range all {
		longest = max(longest, len(needle))
	}
	look := func(where string, r io.Reader) {
		const chunk = 1 << 20
		buf, kept := make([]byte, longest+chunk), 0
		for {
			n, err := r.Read(buf[kept : kept+chunk])
			for name, needle := range all {
				if where != "" && bytes.Contains(buf[:kept+n], needle) {
					found = append(found, where+": "+name)
				}
			}
			if err != nil {
				return
			}
			rest := min(longest, kept+n)
			copy(buf, buf[kept+n-rest:kept+n])
			kept = rest
		}
	}
	top, err := exec.Command("docker", "top", container, "-eo", "pid,comm").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := ""
	for i, line := range strings.Split(strings.TrimSpace(string(top)), "\n") {
		if i == 0 {
			continue // the heading
		}
		pid, comm, _ := strings.Cut(strings.TrimSpace(line), " ")
		comm = strings.TrimSpace(comm)
		root = "/proc/" + pid + "/root/" // the slash leads through the link
		for _, name := range []string{"environ", "cmdline"} {
			data, err := os.ReadFile(filepath.Join("/proc", pid, name))
			if err != nil {
				t.Fatalf("reading the %s of %s: %v", name, comm, err)
			}
			look(comm+" "+name, bytes.NewReader(data))
		}
		parts, err := os.ReadFile(filepath.Join("/proc", pid, "maps"))
		if err != nil {
			t.Fatal(err)
		}
		memory, err := os.Open(filepath.Join("/proc", pid, "mem"))
		if err != nil {
			t.Fatal(err)
		}
		readable := 0
		for line := range strings.Lines(string(parts)) {
			fields := strings.Fields(line)
			from, to, _ := strings.Cut(fields[0], "-")
			begin, err1 := strconv.ParseInt(from, 16, 64)
			end, err2 := strconv.ParseInt(to, 16, 64)
			if err1 != nil || err2 != nil || fields[1][0] != 'r' || len(fields) == 6 && fields[5] == "[vvar]" {
				continue
			}
			readable++
			look(comm+" memory", io.NewSectionReader(memory, begin, end-begin))
		}
		memory.Close()
		if readable < 5 {
			t.Errorf("got %d parts of the memory of %s, want all", readable, comm)
		}
	}
	files := 0
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		inside := "/" + strings.TrimPrefix(path, root)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (inside == "/proc" || inside == "/sys"):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		files++
		look("file "+inside, bufio.NewReader(file))
		return nil
	})
	if err != nil || files < 1000 {
		t.Errorf("got %d files, %v, want all of the system", files, err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestNoKeyInGuest looks for the key in the guest, in the middle of a run, with the agent on this side and in there. That it
// would find one is made sure of with another key, which is put there in all the ways that keys get somewhere.
func TestNoKeyInGuest(t *testing.T) {
	program := staticProgram(t)
	if os.Getuid() != 0 {
		t.Skip("needs root, to read the memory of the guest's processes")
	}
	for name, more := range map[string][]string{"agent here": nil, "agent in guest": {"--agent-in-guest"}} {
		t.Run(name, func(t *testing.T) {
			key, planted := "sk-"+rand.Text()+rand.Text(), "sk-"+rand.Text()+rand.Text()
			api := &scripted{answers: []string{clickCall, doneMessage}, kind: "application/json"}
			cmd := inDocker(t, program, api.start(t), key, append([]string{"--in", "docker", "--approve", "allow", "Click it"}, more...)...)
			var out, talk bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &talk
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			next := func() { // waits for a request
				t.Helper()
				select {
				case <-api.arrived:
				case <-time.After(2 * time.Minute):
					t.Fatalf("no request came: %s", talk.String())
				}
			}
			next()
			api.let <- struct{}{}
			next() // the click has been done, and what came of it sent
			container := fmt.Sprintf("deskagent-run-%d", cmd.Process.Pid)
			listening, err := exec.Command("docker", "exec", container, "cat", "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6").CombinedOutput()
			if err != nil || strings.Count(string(listening), "\n") != 4 {
				t.Errorf("got %v and the sockets\n%s, want the headings alone: what listens there a page could reach", err, listening)
			}
			plant(t, container, planted)
			found := scan(t, container, map[string]string{"the key": key, "planted": planted})
			for _, where := range found {
				if strings.Contains(where, "the key") {
					t.Errorf("got %s", where)
				}
			}
			for _, want := range []string{"tail environ: planted whole", "sleep cmdline: planted whole", "bash memory: planted whole",
				"file /tmp/planted: planted whole", "file /tmp/coded: planted base64 after 0"} {
				if !slices.Contains(found, want) {
					t.Errorf("a key that was put there was found in %q, want %q among that", found, want)
				}
			}
			api.let <- struct{}{}
			if err := cmd.Wait(); err != nil || out.String() != "Done.\n" {
				t.Errorf("got %q, %v: %s", out.String(), err, talk.String())
			}
		})
	}
}

// plant puts a key into a guest: into the environment, an argument, a file, the memory of a process, and coded into a file.
func plant(t *testing.T, container, key string) {
	t.Helper()
	for _, start := range []struct {
		args  []string
		input string
	}{
		{[]string{"-e", "PLANTED=" + key, container, "tail", "-f", "/dev/null"}, ""},
		{[]string{container, "bash", "-c", "exec -a " + key + " sleep 600"}, ""},
		{[]string{container, "bash", "-c", "cat > /tmp/planted"}, key},
		{[]string{container, "bash", "-c", "base64 -w0 > /tmp/coded"}, key},
		{[]string{container, "bash", "-c", "read -r planted; while sleep 600; do :; done"}, key + "\n"},
	} {
		cmd := exec.Command("docker", append([]string{"exec", "--interactive"}, start.args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Stdin = strings.NewReader(start.input)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command("docker", "exec", container, "bash", "-c", "cat /tmp/planted; pgrep -c 'tail|sleep'").CombinedOutput()
		if text := string(out); strings.HasPrefix(text, key) && err == nil && strings.HasSuffix(strings.TrimSpace(text), "3") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not everything has been put into the guest: %s", out)
		}
	}
}
