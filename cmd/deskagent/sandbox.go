package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/sandbox"
)

const sandboxHelp = `Brings up Linux desktops in Docker for a model to work on. A sandbox has no network unless hosts
are named, no privileges, nothing of this machine's files, and bounds on all that it uses; a
self-test from inside tries all of that at every start, and what gets through stops the start.

It works through the docker command, so contexts, DOCKER_HOST and Docker Desktop count.`

const sandboxExample = `  deskagent sandbox up
  deskagent sandbox exec desktop deskagent screenshot -o - > screen.png
  deskagent sandbox up --net allow=example.com,api.example.com:8443 browsing
  deskagent sandbox logs --net browsing
  deskagent sandbox down --all`

func newSandbox(c *command) *cobra.Command {
	b := &box{command: c}
	cmd := &cobra.Command{
		Use:     "sandbox",
		Short:   "Desktops in Docker, safe by default",
		Long:    sandboxHelp,
		Example: sandboxExample,
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&b.docker, "docker", "docker", "the docker command, arguments after blanks")
	cmd.AddCommand(b.newBuild(), b.newUp(), b.newList(), b.newExec(), b.newLogs(), b.newDown(), b.newDoctor())
	return cmd
}

// box is what the subcommands of sandbox share.
type box struct {
	*command
	docker, binary string
}

func (b *box) engine() *sandbox.Engine {
	return sandbox.New(&sandbox.Config{
		Docker:   strings.Fields(b.docker),
		Progress: func(step string) { fmt.Fprintln(b.err, step) },
	})
}

// binaryFlag is --binary, for the subcommands that may build the image.
func (b *box) binaryFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.binary, "binary", "",
		"static deskagent program for the guest (default this one, or deskagent-linux-ARCH beside it)")
}

func (b *box) buildOptions() *sandbox.BuildOptions {
	opts := &sandbox.BuildOptions{Binary: b.binary, Output: &buildSteps{out: b.err}}
	if b.verbose {
		opts.Output = b.err
	}
	return opts
}

// buildSteps passes on the lines by which a builder says which step it is at, and drops the rest.
type buildSteps struct {
	out  io.Writer
	line []byte // as much of it as has come
}

// buildStep matches what the classic builder says, such as "Step 2/9 : RUN", and BuildKit, such as "#6 [2/6] RUN".
var buildStep = regexp.MustCompile(`^(?:Step \d+/\d+ : |#\d+ \[\d+/\d+\] ).{0,60}`)

func (s *buildSteps) Write(p []byte) (int, error) {
	for chunk := range bytes.Lines(p) {
		s.line = append(s.line, chunk...)
		if s.line[len(s.line)-1] != '\n' {
			continue
		}
		if step := buildStep.Find(s.line); step != nil {
			fmt.Fprintf(s.out, "  %s\n", step)
		}
		s.line = s.line[:0]
	}
	return len(p), nil
}

const buildHelp = `Makes the image of the desktop, unless the engine has it already, and prints its name. "up" does
the same when it has to. The image is debian:bookworm-slim with Xvfb, openbox, Chromium, mousepad,
xterm, fonts and a deskagent program. That one has to be static and for the engine's architecture.
This program is, when it was built with CGO_ENABLED=0 on Linux. Otherwise build it and put it
beside this one, or name it with --binary:
  CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -o deskagent-linux-arm64 ./cmd/deskagent
Where no registry can be reached, scripts/base-image makes debian:bookworm-slim.`

func (b *box) newBuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Make the image",
		Long:  buildHelp,
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := b.engine().Build(cmd.Context(), b.buildOptions())
			if err != nil {
				return err
			}
			fmt.Fprintln(b.out, name)
			return nil
		},
	}
	b.binaryFlag(cmd)
	return cmd
}

const upHelp = `Starts a desktop (called "desktop" unless it is given a name), tests its limits, and prints its
name when it is ready. It stays until "down". Several can run side by side.

--net says what it may reach:
  none                      nothing; it has no network at all (default)
  allow=HOST[:PORT],...     exactly these, by way of a proxy whose log tells all that was tried; the
                            port is 443 unless given

If the start fails, nothing is left of it; --keep leaves the containers for a look, until "down".`

const upExample = `  deskagent sandbox up
  deskagent sandbox up --screen 1920x1080 --memory 4g big
  deskagent sandbox up --net allow=example.com,example.com:80 browsing`

func (b *box) newUp() *cobra.Command {
	var opts sandbox.Options
	var screen sizeFlag
	var network string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "up [NAME]",
		Short:   "Start a desktop",
		Long:    upHelp,
		Example: upExample,
		Args:    usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Name = "desktop"
			if len(args) > 0 {
				opts.Name = args[0]
			}
			var err error
			if opts.Net, err = sandbox.ParseNet(network); err != nil {
				return usageError{err}
			}
			opts.Screen, opts.Build, opts.Stays = image.Point(screen), b.buildOptions(), true
			s, err := b.engine().Up(cmd.Context(), &opts)
			if err != nil {
				return err
			}
			if b.verbose {
				for _, finding := range s.Report {
					fmt.Fprintln(b.err, finding)
				}
			}
			if asJSON {
				return json.NewEncoder(b.out).Encode(s)
			}
			fmt.Fprintln(b.out, s.Name)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.Var(&screen, "screen", "size of the screen (default 1280x800)")
	flags.StringVar(&network, "net", "none", "what may be reached: none, or allow=HOST[:PORT],...")
	flags.StringVar(&opts.Egress, "egress", "", "engine's network by which the proxy gets out (default bridge)")
	flags.StringVar(&opts.Limits.Memory, "memory", "", "most memory, without swap (default 2g)")
	flags.Float64Var(&opts.Limits.CPUs, "cpus", 0, "most processors (default 2)")
	flags.IntVar(&opts.Limits.PIDs, "pids", 0, "most processes and threads (default 512)")
	flags.StringVar(&opts.Limits.Temp, "temp", "", "size of /tmp and of the home directory, out of the memory (default 512m)")
	flags.StringVar(&opts.Image, "image", "", "image to start instead of the one that \"build\" makes")
	flags.BoolVar(&opts.Keep, "keep", false, "leave the containers when the start fails")
	flags.BoolVar(&asJSON, "json", false, "write what was started and the self-test's report as JSON")
	b.binaryFlag(cmd)
	return cmd
}

func (b *box) newList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the desktops",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := b.engine().List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(b.out).Encode(list)
			}
			table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tSTATE\tNETWORK\tSTATUS")
			for _, info := range list {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", info.Name, state(info), info.Net, info.Status)
			}
			return table.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON list instead of a table")
	return cmd
}

func state(info sandbox.Info) string {
	if info.Abandoned {
		return info.State + ", abandoned"
	}
	return info.State
}

const execHelp = `Runs a command in a desktop, as its ordinary user and on its display, with this command's standard
input and output, and ends with its exit code.`

const execExample = `  deskagent sandbox exec desktop xterm &
  deskagent sandbox exec desktop deskagent act '{"type":"click","x":40,"y":30,"button":"left"}'
  deskagent sandbox exec desktop bash`

func (b *box) newExec() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "exec NAME COMMAND [ARG...]",
		Short:   "Run a command in a desktop",
		Long:    execHelp,
		Example: execExample,
		Args:    usage(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := b.engine().Open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" && len(argv) > 1 { // as many write it
				argv = argv[1:]
			}
			terminal := isTerminal(b.in) && isTerminal(b.out)
			return b.hand(cmd.Context(), s.ExecArgv(sandbox.ExecOptions{Input: true, Terminal: terminal}, argv...))
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after NAME are the command's
	return cmd
}

// isTerminal tells whether a stream is a character device other than the null device, as nearly all of those are.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// hand lets a docker command have the streams, and ends as it does. An interrupt on the terminal reaches it by itself.
func (b *box) hand(ctx context.Context, argv []string) error {
	child := exec.CommandContext(ctx, argv[0], argv[1:]...)
	child.Stdin, child.Stdout, child.Stderr = b.in, b.out, b.err
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	err := child.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return asOurs(err)
}

// asOurs makes the exit code of a command that ran on the user's behalf ours.
func asOurs(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return childError{exit.ExitCode()}
	}
	return err
}

const logsHelp = `Shows what a desktop has said: when it was ready, and why it has ended if it has. --net shows the
audit log of its network instead, a JSON object for each thing that was tried: "allow", "deny",
"fail" for an allowed host that did not answer, and "end" with the bytes that went up and down.`

func (b *box) newLogs() *cobra.Command {
	var audit, follow bool
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show what a desktop has said, or tried to reach",
		Long:  logsHelp,
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			argv, err := b.engine().LogsArgv(cmd.Context(), args[0], audit, follow)
			if err != nil {
				return err
			}
			return b.hand(cmd.Context(), argv)
		},
	}
	cmd.Flags().BoolVar(&audit, "net", false, "show the audit log of the network")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	return cmd
}

func (b *box) newDown() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down [NAME...]",
		Short: "Take desktops down, with all that was in them",
		Args:  usage(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef("name the desktops to take down, or give --all")
			}
			e := b.engine()
			if all {
				list, err := e.List(cmd.Context())
				if err != nil {
					return err
				}
				for _, info := range list {
					args = append(args, info.Name)
				}
			}
			var errs []error
			for _, name := range args {
				if err := e.Down(cmd.Context(), name); err != nil && !(all && errors.Is(err, sandbox.ErrNotFound)) {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "take all of them down, whoever started them")
	return cmd
}

func (b *box) newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say whether desktops can be had here, and how to mend what is missing",
		Args:  usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(b.out, diagnoseEngine(cmd.Context(), b), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON list instead of lines")
	b.binaryFlag(cmd)
	return cmd
}

func diagnoseEngine(ctx context.Context, b *box) []check {
	e := b.engine()
	health, err := e.Health(ctx)
	if err != nil {
		return []check{{"engine", statusFail, err.Error(), hintFor(err)}}
	}
	engine := "Docker"
	if health.Podman {
		engine = "podman, which can do without a network only,"
	}
	checks := []check{{"engine", statusOK, fmt.Sprintf("%s %s, linux/%s", engine, health.Version, health.Arch), ""}}
	add := func(name string, ok bool, bad, good, otherwise, mend string) {
		c := check{name, statusOK, good, ""}
		if !ok {
			c = check{name, bad, otherwise, mend}
		}
		checks = append(checks, c)
	}
	add("system calls", health.Seccomp, statusFail, "filtered by seccomp", "not filtered", "use an engine and a kernel with seccomp")
	add("memory", health.MemoryLimit, statusFail, "limited", "the engine cannot limit it", "switch on the memory cgroup")
	add("processors", health.CPULimit, statusFail, "limited", "the engine cannot limit them", "switch on the cpu cgroup")
	add("processes", health.PIDsLimit, statusFail, "limited", "the engine cannot limit them", "switch on the pids cgroup")
	image, found, err := e.FindImage(ctx, b.buildOptions())
	switch {
	case err != nil:
		checks = append(checks, check{"image", statusFail, err.Error(), hintFor(err)})
	case !found:
		checks = append(checks, check{"image", statusWarn, image + " is not there yet", `"deskagent sandbox build" makes it, and so does "up"`})
	default:
		checks = append(checks, check{"image", statusOK, image, ""})
	}
	list, err := e.List(ctx)
	if err != nil {
		return append(checks, check{"desktops", statusFail, err.Error(), ""})
	}
	abandoned := 0
	for _, info := range list {
		if info.Abandoned {
			abandoned++
		}
	}
	add("desktops", abandoned == 0, statusWarn, fmt.Sprint(len(list)),
		fmt.Sprintf("%d, of which %d abandoned", len(list), abandoned), `the next "up" removes those`)
	return checks
}
