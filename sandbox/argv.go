package sandbox

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/deskagent/deskagent/sandbox/proxy"
)

// The labels by which everything that belongs to a sandbox is found, and what is left of one is told from what is in
// use.
const (
	labelSandbox = "deskagent.sandbox" // its name
	labelRole    = "deskagent.role"    // roleDesktop, roleProxy or roleNetwork
	labelOwner   = "deskagent.owner"   // the process that made it, as owner.String writes it
	labelStays   = "deskagent.stays"   // "true" when it is to outlive its owner
	labelNet     = "deskagent.net"     // Net.String
	labelStart   = "deskagent.start"   // by chance, the same for all that one start has made
)

const (
	roleDesktop = "desktop"
	roleProxy   = "proxy"
	roleNetwork = "network"
)

// A container of a desktop has this after its name until its self-test has passed, and that when it has not and is kept
// for a look. A label would say it better, but labels cannot be changed.
const (
	suffixStarting = ".starting"
	suffixFailed   = ".failed"
)

// proxyAlias is the proxy's name on the network of a sandbox.
const proxyAlias = "proxy"

// names of what the engine has of a sandbox. User-chosen names have no dot, so these cannot meet.
func desktopName(name string) string { return "deskagent-" + name }
func proxyName(name string) string   { return "deskagent-" + name + ".proxy" }
func networkName(name string) string { return "deskagent-" + name + ".net" }

// container is what the arguments of docker create are made from.
type container struct {
	name    string // of the sandbox
	image   string
	owner   owner
	stays   bool
	start   string // what tells this start from another one of the same name
	net     Net
	limits  Limits
	seccomp string // path of the profile
	screen  string // WxH
	subnet  string // of the sandbox's network, for the proxy
	egress  string // network by which the proxy gets out
	podman  bool   // it is started by podman
}

func (c container) labels(role string) []string {
	labels := []string{
		"--label", labelSandbox + "=" + c.name,
		"--label", labelRole + "=" + role,
		"--label", labelOwner + "=" + c.owner.String(),
		"--label", labelNet + "=" + c.net.String(),
		"--label", labelStart + "=" + c.start,
	}
	if c.stays {
		labels = append(labels, "--label", labelStays+"=true")
	}
	return labels
}

// hardened are the flags of both containers.
func hardened(seccomp string) []string {
	return []string{
		// An image of this name that is not here must not be fetched from somewhere: nobody publishes it.
		"--pull", "never",
		"--user", "1000:1000",
		"--cap-drop", "ALL",
		// No program gains rights by being started, setuid or not.
		"--security-opt", "no-new-privileges",
		"--security-opt", "seccomp=" + seccomp,
		"--read-only",
		// A core dump goes to the host's handler, with all of the memory in it.
		"--ulimit", "core=0",
	}
}

// quiet blanks the proxy variables in all their spellings. The docker program sets them in every container when its
// configuration says so, and what it says may contain the password for a proxy of the host.
func quiet(value string) []string {
	var flags []string
	for _, name := range []string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy"} {
		flags = append(flags, "--env", name+"="+value, "--env", strings.ToUpper(name)+"="+value)
	}
	return append(flags, "--env", "no_proxy=", "--env", "NO_PROXY=")
}

// desktopArgs are the arguments of docker that create and start the desktop's container.
func desktopArgs(c container) []string {
	args := []string{"run", "--detach", "--name", desktopName(c.name) + suffixStarting, "--hostname", c.name}
	args = append(args, c.labels(roleDesktop)...)
	args = append(args, hardened(c.seccomp)...)
	own := "uid=1000,gid=1000"
	if c.podman {
		own = "U" // its word for the same
		// It would tell the guest the host's address by a name. There is no name for the guest itself then either.
		args = append(args, "--no-hosts")
	}
	args = append(args,
		// All that can be written is in memory, bounded, and gone with the container. Programs in /tmp and at home can
		// be run, as a task may need to; nothing there can be a device or gain rights.
		"--tmpfs", "/tmp:rw,nosuid,nodev,exec,size="+c.limits.Temp+",mode=1777",
		"--tmpfs", "/home/desk:rw,nosuid,nodev,exec,size="+c.limits.Temp+","+own+",mode=0700",
		"--tmpfs", "/run:rw,nosuid,nodev,noexec,size=16m,"+own+",mode=0755",
		// Chromium's processes share pictures here; the engine's 64 MB are too little for large pages.
		"--shm-size", "256m",
		"--pids-limit", strconv.Itoa(c.limits.PIDs),
		"--memory", c.limits.Memory,
		"--memory-swap", c.limits.Memory, // as much as the memory is: no swap
		"--cpus", strconv.FormatFloat(c.limits.CPUs, 'f', -1, 64),
		// What a guest writes to its log is kept by the host.
		"--log-driver", "json-file", "--log-opt", "max-size=4m", "--log-opt", "max-file=2",
		"--stop-timeout", "5")
	if c.net.None() {
		args = append(args, "--network", "none")
		args = append(args, quiet("")...)
	} else {
		args = append(args, "--network", networkName(c.name),
			// The engine's name server, which is in every container of a network, hands questions on to this address,
			// where nobody listens. Left to itself it hands them to a resolver on the host's loopback, if the host has
			// one, even from an internal network.
			"--dns", "127.0.0.1", "--dns-search", ".")
		args = append(args, quiet(fmt.Sprintf("http://%s:%d", proxyAlias, proxy.Port))...)
	}
	return append(args, c.image, "guest", "desktop", "--screen", c.screen)
}

// networkArgs are the arguments of docker that create the network of a sandbox. An internal network has no way out, but
// leaves the host reachable by its address on the bridge, and by those on all other bridges; so the bridge is given
// none. Switching off the traffic between its containers (enable_icc=false) would cut off the proxy too.
func networkArgs(c container) []string {
	args := []string{"network", "create", "--driver", "bridge", "--internal",
		"--opt", "com.docker.network.bridge.inhibit_ipv4=true",
		// --internal does not hold for IPv6 in engines of our time.
		"--ipv6=false"}
	return append(append(args, c.labels(roleNetwork)...), networkName(c.name))
}

// proxyArgs are the arguments of docker that create the proxy's container, on the way out. Before it starts it is
// connected to the sandbox's network as well.
func proxyArgs(c container) []string {
	args := []string{"create", "--name", proxyName(c.name), "--hostname", proxyAlias}
	args = append(args, c.labels(roleProxy)...)
	args = append(args, hardened(c.seccomp)...)
	args = append(args, "--network", c.egress, "--pids-limit", "64",
		"--memory", "128m", "--memory-swap", "128m", "--cpus", "1",
		// The audit log. A guest that wants to push its first lines out has to be refused some hundred thousand times.
		"--log-driver", "json-file", "--log-opt", "max-size=20m", "--log-opt", "max-file=3",
		"--stop-timeout", "2")
	args = append(args, quiet("")...)
	args = append(args, c.image, "guest", "proxy", "--from", c.subnet)
	for _, rule := range c.net.Allow {
		args = append(args, "--allow", rule.String())
	}
	return args
}

// connectArgs are the arguments of docker that connect the proxy to the sandbox's network.
func connectArgs(c container) []string {
	return []string{"network", "connect", "--alias", proxyAlias, networkName(c.name), proxyName(c.name)}
}

// execArgs are the arguments of docker that run a command in a container.
func execArgs(container string, opts ExecOptions, argv []string) []string {
	args := []string{"exec"}
	if opts.Input {
		args = append(args, "--interactive")
	}
	if opts.Terminal {
		args = append(args, "--tty")
	}
	return append(append(args, container), argv...)
}

// checkArgs are the arguments of docker that run the self-test.
func checkArgs(container string) []string {
	return execArgs(container, ExecOptions{Input: true}, []string{"deskagent", "guest", "check"})
}

// listFormat has one line for a container, its fields apart by tabs, which none of them contains.
var listFormat = strings.Join([]string{"{{.ID}}", "{{.Names}}", "{{.State}}", "{{.Status}}", "{{.Image}}",
	label(labelSandbox), label(labelRole), label(labelOwner), label(labelStays), label(labelNet), label(labelStart)}, "\t")

// label is a label's value. docker has a text and a method for it, podman a map and no method.
func label(name string) string {
	return fmt.Sprintf(`{{if eq (printf "%%T" .Labels) "string"}}{{.Label %[1]q}}{{else}}{{index .Labels %[1]q}}{{end}}`, name)
}

func listArgs() []string {
	return []string{"ps", "--all", "--no-trunc", "--filter", "label=" + labelSandbox, "--format", listFormat}
}

func listNetworksArgs() []string {
	return []string{"network", "ls", "--filter", "label=" + labelSandbox, "--format",
		strings.Join([]string{"{{.Name}}", label(labelSandbox), label(labelOwner), label(labelStart)}, "\t")}
}

// Net is what a guest may reach.
type Net struct {
	// Allow are the hosts, by way of the proxy. None means no network at all.
	Allow []proxy.Rule
}

// ParseNet reads "none" or "allow=HOST[:PORT],...".
func ParseNet(s string) (Net, error) {
	if s == "none" {
		return Net{}, nil
	}
	list, ok := strings.CutPrefix(s, "allow=")
	if !ok {
		return Net{}, fmt.Errorf("network %q: want none or allow=HOST[:PORT],...", s)
	}
	var n Net
	for host := range strings.SplitSeq(list, ",") {
		rule, err := proxy.ParseRule(host)
		if err != nil {
			return Net{}, err
		}
		n.Allow = append(n.Allow, rule)
	}
	return n, nil
}

// None tells whether there is no network at all.
func (n Net) None() bool { return len(n.Allow) == 0 }

func (n Net) String() string {
	if n.None() {
		return "none"
	}
	hosts := make([]string, len(n.Allow))
	for i, rule := range n.Allow {
		hosts[i] = rule.String()
	}
	return "allow=" + strings.Join(hosts, ",")
}

// MarshalText and UnmarshalText read and write a Net as ParseNet does.
func (n Net) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

func (n *Net) UnmarshalText(text []byte) (err error) {
	*n, err = ParseNet(string(text))
	return err
}
