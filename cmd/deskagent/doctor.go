package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/shm"
	"github.com/jezek/xgb/xproto"
	"github.com/jezek/xgb/xtest"
	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
)

const doctorHelp = `Checks what deskagent needs, one line each: what works, what does not, and how to mend it.
Lines that begin with FAIL are about something without which no desktop can be driven, and make
the exit status 1; "warn" is worth knowing. Nothing is changed, and no key is ever shown.`

const doctorExample = `  deskagent doctor
  deskagent doctor --display :1 --json`

func newDoctor(c *command) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what works here, and how to mend what does not",
		Long:    doctorHelp,
		Example: doctorExample,
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(c.out, diagnose(cmd.Context(), c), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write one JSON list instead of lines")
	return cmd
}

// report writes a doctor's checks, and is an error when one of them failed.
func report(w io.Writer, checks []check, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(w).Encode(checks); err != nil {
			return err
		}
	} else {
		for _, check := range checks {
			fmt.Fprintln(w, check)
		}
	}
	for _, check := range checks {
		if check.Status == statusFail {
			return fmt.Errorf("%s: %w", check.Name, errReported)
		}
	}
	return nil
}

// The outcomes of a check.
const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "FAIL"
)

// check is one line of the doctor's report.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"`
}

func (c check) String() string {
	line := fmt.Sprintf("%-4s  %-15s  %s", c.Status, c.Name, oneLine(c.Detail))
	if c.Mend != "" {
		line += "; " + c.Mend
	}
	return line
}

func diagnose(ctx context.Context, c *command) []check {
	return append(displayChecks(c), inputCheck(ctx, c), keyCheck())
}

func displayChecks(c *command) []check {
	const mend = `start an X server and set DISPLAY, or give --display; "deskagent exercise" brings its own`
	name, err := c.displayName()
	if err != nil {
		return []check{{"display", statusFail, err.Error(), mend}}
	}
	conn, err := xgb.NewConnDisplay(name)
	if err != nil {
		return []check{{"display", statusFail, fmt.Sprintf("%s: %v", name, err), mend}}
	}
	// A server that hangs must not hang the doctor.
	timeout := time.AfterFunc(5*time.Second, conn.Close)
	defer conn.Close()
	defer timeout.Stop()
	return probe(conn, name)
}

func probe(conn *xgb.Conn, name string) []check {
	setup := xproto.Setup(conn)
	screen := setup.DefaultScreen(conn)
	display := check{"display", statusOK, fmt.Sprintf("%s, %dx%d, depth %d, %s %d", name, screen.WidthInPixels, screen.HeightInPixels,
		screen.RootDepth, setup.Vendor, setup.ReleaseNumber), ""}
	if !slices.Contains([]byte{16, 24, 30}, screen.RootDepth) {
		display.Status, display.Mend = statusFail, "pictures need depth 24, 16 or 30: start the server with -depth 24, or Xvfb with -screen 0 WxHx24"
	}
	return []check{display, xtestCheck(conn), sharedMemoryCheck(conn), damageCheck(conn), keyboardCheck(conn, setup), managerCheck(conn, screen.Root)}
}

func xtestCheck(conn *xgb.Conn) check {
	err := xtest.Init(conn)
	if err == nil {
		var version *xtest.GetVersionReply
		if version, err = xtest.GetVersion(conn, 2, 2).Reply(); err == nil {
			return check{"XTEST", statusOK, fmt.Sprintf("%d.%d", version.MajorVersion, version.MinorVersion), ""}
		}
	}
	return check{"XTEST", statusFail, err.Error(), "without it no input can be sent: start the server without -extension XTEST"}
}

func sharedMemoryCheck(conn *xgb.Conn) check {
	err := shm.Init(conn)
	if err == nil {
		var version *shm.QueryVersionReply
		if version, err = shm.QueryVersion(conn).Reply(); err == nil {
			is := fmt.Sprintf("MIT-SHM %d.%d", version.MajorVersion, version.MinorVersion)
			if version.MajorVersion == 1 && version.MinorVersion < 2 {
				return check{"shared memory", statusWarn, is, "pictures are slower without MIT-SHM 1.2: servers since 2013 have it"}
			}
			return check{"shared memory", statusOK, is, ""}
		}
	}
	return check{"shared memory", statusWarn, err.Error(), "pictures are slower without: start the server with +extension MIT-SHM"}
}

func damageCheck(conn *xgb.Conn) check {
	const name = "DAMAGE"
	r, err := xproto.QueryExtension(conn, uint16(len(name)), name).Reply()
	if err == nil && !r.Present {
		err = errors.New("the server has no such extension")
	}
	if err != nil {
		return check{name, statusWarn, err.Error(), "what changes is found by comparing pictures instead: start the server with +extension DAMAGE"}
	}
	return check{name, statusOK, "the server tells what changes", ""}
}

// keyboardCheck looks for what a keyboard map is needed for: the Latin letters, Return and Control.
func keyboardCheck(conn *xgb.Conn, setup *xproto.SetupInfo) check {
	const name, mend = "keyboard map", "load one, such as: setxkbmap us"
	count := byte(setup.MaxKeycode - setup.MinKeycode + 1)
	reply, err := xproto.GetKeyboardMapping(conn, setup.MinKeycode, count).Reply()
	if err != nil {
		return check{name, statusFail, err.Error(), mend}
	}
	have := map[xproto.Keysym]bool{}
	for _, sym := range reply.Keysyms {
		have[sym] = true
	}
	var missing []string
	for sym := xproto.Keysym('a'); sym <= 'z'; sym++ {
		if !have[sym] {
			missing = append(missing, string(rune(sym)))
		}
	}
	for sym, key := range map[xproto.Keysym]string{0xff0d: "Return", 0xffe3: "Control_L"} {
		if !have[sym] {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return check{name, statusFail, fmt.Sprintf("lacks %v", missing), mend}
	}
	return check{name, statusOK, fmt.Sprintf("keycodes %d to %d, %d symbols each", setup.MinKeycode, setup.MaxKeycode, reply.KeysymsPerKeycode), ""}
}

// managerCheck follows the Extended Window Manager Hints: the root window names a window of the manager, which
// names itself and the manager.
func managerCheck(conn *xgb.Conn, root xproto.Window) check {
	const name = "window manager"
	none := check{name, statusWarn, "none found", "windows may not get the keyboard without: start one, such as openbox"}
	window, ok := property(conn, root, "_NET_SUPPORTING_WM_CHECK")
	if !ok || len(window) != 4 {
		return none
	}
	manager := xproto.Window(xgb.Get32(window))
	if itself, ok := property(conn, manager, "_NET_SUPPORTING_WM_CHECK"); !ok || string(itself) != string(window) {
		return none // one that has ended leaves its property behind
	}
	called, _ := property(conn, manager, "_NET_WM_NAME")
	return check{name, statusOK, fmt.Sprintf("%q", called), ""}
}

func property(conn *xgb.Conn, window xproto.Window, name string) ([]byte, bool) {
	atom, err := xproto.InternAtom(conn, true, uint16(len(name)), name).Reply()
	if err != nil || atom.Atom == xproto.AtomNone {
		return nil, false
	}
	reply, err := xproto.GetProperty(conn, false, window, atom.Atom, xproto.GetPropertyTypeAny, 0, 64).Reply()
	if err != nil || reply.Format == 0 {
		return nil, false
	}
	return reply.Value, true
}

// inputCheck opens the driver just as the other commands do.
func inputCheck(ctx context.Context, c *command) check {
	const name = "input"
	display, err := c.displayName()
	if err != nil {
		return check{name, statusFail, err.Error(), "it needs a display first"}
	}
	d, err := x11.Open(ctx, &x11.Options{Display: display})
	switch {
	case errors.Is(err, driver.ErrUnsupported) && runtime.GOOS != "linux":
		return check{name, statusFail, err.Error(), "drive a Linux guest from here"}
	case err != nil:
		return check{name, statusFail, err.Error(), "the lines above say what is missing"}
	}
	defer d.Close()
	return check{name, statusOK, fmt.Sprintf("by %s", d.Sink()), ""}
}

func keyCheck() check {
	if os.Getenv(keyVariable) == "" {
		return check{"API key", statusWarn, keyVariable + " is not set", `"deskagent run" needs it, nothing else does`}
	}
	return check{"API key", statusOK, keyVariable + " is set", ""}
}
