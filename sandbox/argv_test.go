package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func testContainer(t *testing.T, net string) container {
	t.Helper()
	n, err := ParseNet(net)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := Limits{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	return container{name: "box", image: "img:1", owner: owner{"host", 7, "boot.9"}, net: n, limits: limits, seccomp: "/tmp/s.json", start: "X",
		screen: "1280x800", subnet: "172.18.0.0/16", egress: "bridge"}
}

// words splits what a person would write; no argument here contains a blank.
func words(lines ...string) []string { return strings.Fields(strings.Join(lines, " ")) }

func check(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("argument %d: got %q, want %q, in\n%q", i, g, w, got)
		}
	}
}

const hardening = `--pull never --user 1000:1000 --cap-drop ALL --security-opt no-new-privileges --security-opt seccomp=/tmp/s.json
	--read-only --ulimit core=0`

func TestDesktopArgs(t *testing.T) {
	const limits = `--tmpfs /tmp:rw,nosuid,nodev,exec,size=512m,mode=1777
		--tmpfs /home/desk:rw,nosuid,nodev,exec,size=512m,uid=1000,gid=1000,mode=0700
		--tmpfs /run:rw,nosuid,nodev,noexec,size=16m,uid=1000,gid=1000,mode=0755
		--shm-size 256m --pids-limit 512 --memory 2g --memory-swap 2g --cpus 2
		--log-driver json-file --log-opt max-size=4m --log-opt max-file=2 --stop-timeout 5`
	check(t, desktopArgs(testContainer(t, "none")), words(
		`run --detach --name deskagent-box.starting --hostname box
		--label deskagent.sandbox=box --label deskagent.role=desktop --label deskagent.owner=host/7/boot.9 --label deskagent.net=none
		--label deskagent.start=X`,
		hardening, limits,
		`--network none
		--env http_proxy= --env HTTP_PROXY= --env https_proxy= --env HTTPS_PROXY= --env ftp_proxy= --env FTP_PROXY=
		--env all_proxy= --env ALL_PROXY= --env no_proxy= --env NO_PROXY=
		img:1 guest desktop --screen 1280x800`))
	c := testContainer(t, "none")
	c.podman = true
	got := strings.Join(desktopArgs(c), " ")
	for _, want := range []string{" --no-hosts ", " /home/desk:rw,nosuid,nodev,exec,size=512m,U,mode=0700 ", " /run:rw,nosuid,nodev,noexec,size=16m,U,mode=0755 "} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q for podman, want %q in it", got, want)
		}
	}
	c = testContainer(t, "allow=example.com,10.0.0.1:80")
	c.stays = true
	check(t, desktopArgs(c), words(
		`run --detach --name deskagent-box.starting --hostname box
		--label deskagent.sandbox=box --label deskagent.role=desktop --label deskagent.owner=host/7/boot.9
		--label deskagent.net=allow=example.com:443,10.0.0.1:80 --label deskagent.start=X --label deskagent.stays=true`,
		hardening, limits,
		`--network deskagent-box.net --dns 127.0.0.1 --dns-search .
		--env http_proxy=http://proxy:3128 --env HTTP_PROXY=http://proxy:3128 --env https_proxy=http://proxy:3128
		--env HTTPS_PROXY=http://proxy:3128 --env ftp_proxy=http://proxy:3128 --env FTP_PROXY=http://proxy:3128
		--env all_proxy=http://proxy:3128 --env ALL_PROXY=http://proxy:3128 --env no_proxy= --env NO_PROXY=
		img:1 guest desktop --screen 1280x800`))
}

func TestProxyArgs(t *testing.T) {
	c := testContainer(t, "allow=example.com,example.org:80")
	check(t, networkArgs(c), words(`network create --driver bridge --internal --opt com.docker.network.bridge.inhibit_ipv4=true --ipv6=false
		--label deskagent.sandbox=box --label deskagent.role=network --label deskagent.owner=host/7/boot.9
		--label deskagent.net=allow=example.com:443,example.org:80 --label deskagent.start=X deskagent-box.net`))
	check(t, proxyArgs(c), words(`create --name deskagent-box.proxy --hostname proxy
		--label deskagent.sandbox=box --label deskagent.role=proxy --label deskagent.owner=host/7/boot.9
		--label deskagent.net=allow=example.com:443,example.org:80 --label deskagent.start=X`, hardening,
		`--network bridge --pids-limit 64 --memory 128m --memory-swap 128m --cpus 1
		--log-driver json-file --log-opt max-size=20m --log-opt max-file=3 --stop-timeout 2
		--env http_proxy= --env HTTP_PROXY= --env https_proxy= --env HTTPS_PROXY= --env ftp_proxy= --env FTP_PROXY=
		--env all_proxy= --env ALL_PROXY= --env no_proxy= --env NO_PROXY=
		img:1 guest proxy --from 172.18.0.0/16 --allow example.com:443 --allow example.org:80`))
	check(t, connectArgs(c), words("network connect --alias proxy deskagent-box.net deskagent-box.proxy"))
}

// TestNothingOfTheHost looks in every call for what must never be in one.
func TestNothingOfTheHost(t *testing.T) {
	c := testContainer(t, "allow=example.com")
	for _, args := range [][]string{desktopArgs(testContainer(t, "none")), desktopArgs(c), proxyArgs(c), networkArgs(c), connectArgs(c), buildArgs("img:1")} {
		for _, arg := range args {
			flag, _, _ := strings.Cut(arg, "=")
			if slices.Contains([]string{"--privileged", "--cap-add", "-v", "--volume", "--mount", "--volumes-from", "-p", "--publish", "-P",
				"--publish-all", "--device", "--pid", "--ipc", "--uts", "--userns", "--env-file", "--add-host", "--group-add"}, flag) ||
				strings.Contains(arg, "docker.sock") || arg == "host" {
				t.Errorf("%q has %s", args, arg)
			}
		}
	}
}

func TestExecArgs(t *testing.T) {
	s := &Sandbox{Name: "box", engine: New(&Config{Docker: []string{"docker", "--context", "far"}})}
	check(t, s.ServeArgv(), words("docker --context far exec --interactive deskagent-box deskagent serve --approve allow"))
	check(t, s.ExecArgv(ExecOptions{Input: true, Terminal: true}, "bash"), words("docker --context far exec --interactive --tty deskagent-box bash"))
	check(t, s.ExecArgv(ExecOptions{}, "-x"), words("docker --context far exec deskagent-box -x"))
	check(t, checkArgs("c"), words("exec --interactive c deskagent guest check"))
}

func TestParseNet(t *testing.T) {
	for in, want := range map[string]string{
		"none":                       "none",
		"allow=example.com":          "allow=example.com:443",
		"allow=A.example:80,[::1]:2": "allow=a.example:80,[::1]:2",
	} {
		n, err := ParseNet(in)
		if err != nil || n.String() != want {
			t.Errorf("%q: got %v, %v, want %s", in, n, err, want)
		}
		if again, err := ParseNet(n.String()); err != nil || again.String() != want {
			t.Errorf("%q: got %v, %v the second time, want %s", in, again, err, want)
		}
	}
	for _, in := range []string{"", "all", "allow", "allow=", "allow=a.example,", "allow=*", "None"} {
		if n, err := ParseNet(in); err == nil {
			t.Errorf("%q: got %v, want an error", in, n)
		}
	}
}
