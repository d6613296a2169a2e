package main

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	child "github.com/deskagent/deskagent/internal/run"
	"github.com/deskagent/deskagent/sandbox"
	"github.com/deskagent/deskagent/sandbox/gateway"
)

const agentInGuestHelp = `--agent-in-guest has all of this done in the sandbox, not only the hands: the conversation, the questions
to you, the record. Only requests to the API leave it, through this command, which adds the key; the
key is never in there. Of the API nothing else can be reached from there than responses of the model,
with the tools that are named here, and as many as --max-steps allows, each tried three times at most.
Programs in the sandbox are the agent's equals there, and so may use that, and may meddle with what you
are asked; without the flag neither can be.`

// guestSockets is where sockets to the API are in a guest.
const guestSockets = "/run/deskagent"

// patience is how long an agent in a guest may take to end when it is told to.
const patience = 3 * time.Second

// hereOnly are the flags of run that are not for an agent in a guest; those that cannot be given with it say why.
var hereOnly = map[string]string{
	"in": "", "net": "", "agent-in-guest": "", "base-url": "", "trace": "", "allow-host": "", "in-sandbox": "",
	"display": "the agent has the desktop of the sandbox",
	"remote":  "the agent has the desktop of the sandbox",
	"prices":  "the file is not in the sandbox",
	"ledger":  "it would go with the sandbox, and there is nothing to resume then",
}

// guestRun is the command of the agent in a guest: that of this process, as far as it concerns the agent.
func guestRun(flags *pflag.FlagSet, task, socket, trace string) (argv []string, err error) {
	argv = []string{"deskagent", "run", "--base-url=unix:" + socket}
	if trace != "" {
		argv = append(argv, "--trace="+trace)
	}
	flags.Visit(func(f *pflag.Flag) {
		why, here := hereOnly[f.Name]
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		switch {
		case here && why != "":
			err = cmp.Or(err, usagef("--%s with --agent-in-guest: %s", f.Name, why))
		case !here:
			for _, value := range values {
				argv = append(argv, "--"+f.Name+"="+value)
			}
		}
	})
	return append(argv, "--", task), err
}

// runInGuest lets an agent in a sandbox do the task, and gives it the way to the API.
func (r *runTask) runInGuest(ctx context.Context, task string) (err error) {
	id := strings.ToLower(rand.Text()[:12])
	socket, trace := path.Join(guestSockets, id), ""
	if r.tracing.dir != "" {
		trace = "/home/desk/.deskagent-trace-" + id
	}
	argv, err := guestRun(r.tracing.flags, task, socket, trace)
	if err != nil {
		return err
	}
	if !r.guest.given() {
		return usagef("--agent-in-guest: say where the guest is, as --in docker")
	}
	way, err := r.gateway()
	if err != nil {
		return err
	}
	if trace != "" {
		if err := emptyFolder(r.tracing.dir); err != nil {
			return usagef("--trace %s: %w", r.tracing.dir, err)
		}
	}
	box, end, err := r.openBox(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	link, err := openLink(ctx, way, box, socket)
	if err != nil {
		return err
	}
	defer link.close()
	if trace != "" {
		record, err := json.Marshal(recordOf(box))
		if err != nil {
			return err
		}
		argv = slices.Insert(argv, 2, "--in-sandbox="+string(record))
		defer func() { err = errors.Join(err, copyTrace(box, trace, r.tracing.dir, r.tracing.megabytes<<20)) }()
	}
	if r.deadline > 0 { // The agent knows it, too, and ends by itself if it can.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.deadline+patience, errDeadline)
		defer cancel()
	}
	return r.follow(ctx, link, box, argv)
}

// emptyFolder makes a folder, if there is none, and makes sure that nothing is in it.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return cmp.Or(err, errors.New("there is something in it, want an empty folder, or none"))
	}
	return nil
}

// gateway is the way to the API, for what the flags say.
func (r *runTask) gateway() (*gateway.Gateway, error) {
	key, err := apiKey()
	if err != nil {
		return nil, err
	}
	address, err := apiAddress(r.baseURL)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(cmp.Or(address, "https://api.openai.com/v1"))
	if err != nil {
		return nil, err
	}
	if base.Scheme == "unix" {
		return nil, usagef("address of the API %q: with --agent-in-guest, want https", address)
	}
	header := http.Header{"Authorization": {"Bearer " + key}}
	for name, variable := range map[string]string{"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"} {
		if value := os.Getenv(variable); value != "" {
			header.Set(name, value)
		}
	}
	declared, err := r.hosted.declarations()
	if err != nil {
		return nil, err
	}
	var tools []json.RawMessage
	for _, tool := range declared {
		raw, err := json.Marshal(tool)
		if err != nil {
			return nil, err
		}
		tools = append(tools, raw)
	}
	const tries = 3 // of the API's client, for each request
	return gateway.New(&gateway.Options{
		Base: base, Header: header, Model: r.model, Tools: tools, Responses: tries * r.maxSteps, Audit: r.logger(),
	})
}

// A link is the connection of a gateway into a guest.
type link struct {
	cut     func()
	process *child.Process
	served  chan struct{}
}

// openLink connects, and returns when the guest's end listens.
func openLink(ctx context.Context, g *gateway.Gateway, box *sandbox.Sandbox, socket string) (*link, error) {
	ctx, cut := context.WithCancel(ctx)
	argv := box.ExecArgv(sandbox.ExecOptions{Input: true}, "deskagent", "guest", "api", socket)
	process, conn, err := child.Connect(ctx, argv, nil)
	if err != nil {
		cut()
		return nil, err
	}
	l := &link{cut: cut, process: process, served: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(l.served)
		_ = g.Serve(ctx, conn, sync.OnceFunc(func() { close(ready) })) // its end is the end of the run
	}()
	select {
	case <-ready:
		return l, nil
	case <-l.process.Done():
		err = l.process.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.close()
	return nil, fmt.Errorf("opening the way to the API: %w", err)
}

// close ends the connection, by which the agent in the guest ends if it has not yet.
func (l *link) close() {
	l.cut()
	<-l.served
	l.process.Stop()
}

// follow runs the agent, with the terminal if all streams are on it, and returns how it ended. When ctx is over the way to
// the API is cut, by which the agent knows that it has to let go of everything and end.
func (r *runTask) follow(ctx context.Context, l *link, box *sandbox.Sandbox, argv []string) error {
	terminal := isTerminal(r.in) && isTerminal(r.out) && isTerminal(r.err)
	full := box.ExecArgv(sandbox.ExecOptions{Input: true, Terminal: terminal}, argv...)
	agent := exec.Command(full[0], full[1:]...)
	agent.Stdout, agent.Stderr = r.out, r.err
	if terminal {
		agent.Stdin = r.in
	}
	if err := agent.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	select {
	case err := <-ended:
		return asOurs(err)
	case <-ctx.Done():
		l.cut()
		select {
		case <-ended:
		case <-time.After(patience):
			agent.Process.Kill()
			<-ended
		}
		return context.Cause(ctx)
	}
}

// copyTrace brings the record of a run out of the guest. What programs there made of it does not matter: it is files in one
// folder, of a bounded size.
func copyTrace(box *sandbox.Sandbox, from, to string, most int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	read, write := io.Pipe()
	argv := box.ExecArgv(sandbox.ExecOptions{}, "tar", "-C", from, "-cf", "-", ".")
	process, err := child.Start(ctx, argv, &child.Options{Result: write})
	if err == nil {
		go func() { write.CloseWithError(process.Err()) }()
		err = unpack(read, to, most)
		read.Close()
		process.Stop()
	}
	if err != nil {
		return fmt.Errorf("bringing the record of the run out of the sandbox: %w", err)
	}
	return nil
}

// unpack makes the files of an archive in a folder, and in folders in that. Other things than files and folders are left out,
// names that lead out of the folder are an error, as is more than a number of bytes.
func unpack(archive io.Reader, dir string, most int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		switch {
		case header.Typeflag == tar.TypeDir && name != ".":
			err = root.Mkdir(name, 0o700)
		case header.Typeflag == tar.TypeReg:
			if most -= header.Size; most < 0 {
				return fmt.Errorf("%s is too large", name)
			}
			err = unpackFile(root, name, files)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, content io.Reader) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
