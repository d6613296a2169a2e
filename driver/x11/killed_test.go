package x11_test

import (
	"bufio"
	"context"
	"fmt"
	"image"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/apptest"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestMain lets the test binary be a watchdog, and an actor: a process with a driver that is there to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "watchdog" {
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		if err := x11.Watch(context.Background(), os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 5 && os.Args[1] == "actor" {
		fmt.Fprintln(os.Stderr, perform(os.Args[2], x11.Sink(os.Args[3]), os.Args[4]))
		os.Exit(1)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // With the race detector a watchdog would take a second to exit.
	os.Exit(m.Run())
}

// feats are what an actor does over and over.
var feats = map[string]func() driver.Action{
	"type": func() driver.Action {
		return driver.Type{Text: "Aa{Bb} Ññ Жж 日本 @ " + strings.Repeat("xY", 20)}
	},
	"chord":    func() driver.Action { return driver.Keypress{Keys: []string{"CTRL", "SHIFT", "ALT", "A"}} },
	"shortcut": func() driver.Action { return driver.Keypress{Keys: []string{"CTRL", "C"}} },
	"drag":     func() driver.Action { return zigzag() },
	"scroll": func() driver.Action {
		return driver.Scroll{X: 9, Y: 9, ScrollX: -700, ScrollY: 900, Keys: []string{"CTRL"}}
	},
	"click": func() driver.Action {
		return driver.Click{X: 9, Y: 9, Button: driver.ButtonBack, Keys: []string{"SHIFT"}}
	},
}

// perform is an actor. It says on standard output when it begins, and does not end.
func perform(display string, sink x11.Sink, feat string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d, err := x11.Open(context.Background(), &x11.Options{
		Display: display, Sink: sink, Watchdog: []string{self, "watchdog"}, Hold: 3 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	fmt.Println("begins")
	for {
		if _, err := driver.Do(context.Background(), d, feats[feat]()); err != nil {
			return err
		}
	}
}

// An actor is a process that performs a feat, with a watchdog.
type actor struct {
	cmd      *exec.Cmd
	watchdog *os.Process
}

func startActor(t *testing.T, display string, sink x11.Sink, feat string) actor {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := actor{cmd: exec.Command(self, "actor", display, string(sink), feat)}
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the actor said %q: %v, %v", line, err, a.cmd.Wait())
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.cmd.Process.Pid))
	for _, list := range lists {
		if children, err := os.ReadFile(list); err == nil && len(children) > 0 {
			pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
			if err != nil {
				t.Fatalf("children %q, want one", children)
			}
			a.watchdog, _ = os.FindProcess(pid)
		}
	}
	if a.watchdog == nil {
		t.Fatal("the actor has no watchdog")
	}
	return a
}

// kill kills the actor, with its watchdog or without.
func (a actor) kill(withWatchdog bool) {
	if withWatchdog {
		a.watchdog.Kill()
	}
	a.cmd.Process.Kill()
	a.cmd.Wait()
}

// A stage is a display to be left clean.
type stage struct {
	server *xvfb.Server
	window *witness.Window
	conn   *xgb.Conn
	keymap [2]any // before
}

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{server: xvfb.ForTest(t, 640, 480)}
	s.window = witness.ForTest(t, s.server.Display())
	conn, err := xgb.NewConnDisplay(s.server.Display())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	s.conn = conn
	s.keymap = s.readKeymap(t)
	return s
}

func (s stage) readKeymap(t *testing.T) [2]any {
	t.Helper()
	setup := xproto.Setup(s.conn)
	symbols, err := xproto.GetKeyboardMapping(s.conn, setup.MinKeycode, byte(setup.MaxKeycode-setup.MinKeycode+1)).Reply()
	if err != nil {
		t.Fatal(err)
	}
	modifiers, err := xproto.GetModifierMapping(s.conn).Reply()
	if err != nil {
		t.Fatal(err)
	}
	return [2]any{symbols.Keysyms, modifiers.Keycodes}
}

// trace says what is not as it was; nothing when the display is clean.
func (s stage) trace(t *testing.T) string {
	t.Helper()
	held, err := s.window.Held()
	if err != nil {
		t.Fatal(err)
	}
	if len(held) > 0 {
		return fmt.Sprintf("%v down", held)
	}
	if !reflect.DeepEqual(s.readKeymap(t), s.keymap) {
		return "another keyboard map"
	}
	return ""
}

// seeded returns a source of random numbers that can be had again.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64() >> 33
	if s := os.Getenv("DESKAGENT_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("DESKAGENT_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// instant is a random one in the middle of a feat.
func instant(random *rand.Rand) { time.Sleep(time.Duration(random.IntN(60_000)) * time.Microsecond) }

// TestK4 is row K4 of the field cases: the process is killed at any instant, and its watchdog sees to it that nothing
// stays down and the keyboard is what it was.
func TestK4(t *testing.T) {
	long(t)
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		if sink == x11.SinkRobotgo && !cgo {
			t.Skip("this build has no robotgo")
		}
		s, random := newStage(t), seeded(t)
		var longest time.Duration
		left := 0
		for range 10 {
			for feat := range feats {
				a := startActor(t, s.server.Display(), sink, feat)
				instant(random)
				a.kill(false)
				killed := time.Now()
				trace := s.trace(t)
				if trace != "" {
					left++
				}
				for ; trace != "" && time.Since(killed) < 5*time.Second; trace = s.trace(t) {
					time.Sleep(time.Millisecond)
				}
				if trace != "" {
					t.Fatalf("%s: %s", feat, trace)
				}
				longest = max(longest, time.Since(killed))
				for a.watchdog.Signal(syscall.Signal(0)) == nil && !isZombie(a.watchdog.Pid) {
					if time.Since(killed) > 5*time.Second {
						t.Fatal("the watchdog stays")
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
		if left == 0 {
			t.Error("nothing was ever left behind, so that nothing was tested")
		}
		t.Logf("%d times something was left behind, for %v at most", left, longest)
		if longest > 2*time.Second {
			t.Errorf("it took %v", longest)
		}
	})
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestKilledWithWatchdog kills the watchdog too: what is left behind stays until the next driver is opened.
func TestKilledWithWatchdog(t *testing.T) {
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		if sink == x11.SinkRobotgo && !cgo {
			t.Skip("this build has no robotgo")
		}
		s, random := newStage(t), seeded(t)
		left := 0
		for range 4 {
			for feat := range feats {
				a := startActor(t, s.server.Display(), sink, feat)
				instant(random)
				a.kill(true)
				time.Sleep(20 * time.Millisecond) // robotgo's last event may be on its way
				if s.trace(t) != "" {
					left++
				}
				d, err := x11.Open(t.Context(), &x11.Options{Display: s.server.Display(), Sink: x11.SinkXTEST})
				if err != nil {
					t.Fatal(err)
				}
				if trace := s.trace(t); trace != "" {
					t.Errorf("%s: %s", feat, trace)
				}
				if held := d.HeldAtStart(); len(held) > 0 {
					t.Errorf("%s: got %v down at the start, want it released before", feat, held)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if left == 0 {
			t.Error("nothing was ever left behind, so that nothing was tested")
		}
		t.Logf("%d times something was left behind", left)
	})
}

// TestKilledInShortcut kills the process while it gives a key of a keyboard without Latin letters another meaning for the
// time of a chord. Its watchdog, or else the next driver, gives it back its own, to the byte.
func TestKilledInShortcut(t *testing.T) {
	desktop := apptest.NewDesktop(t)
	window := witness.ForTest(t, desktop.Display())
	desktop.SetKeyboard(t, apptest.Keyboard{Layout: "ru,gr"})
	before, random, left := desktop.Keymap(t), seeded(t), 0
	for i := range 12 {
		withWatchdog := i%2 == 0
		a := startActor(t, desktop.Display(), x11.SinkXTEST, "shortcut")
		// A chord waits 240 ms for the window before it changes the key, and as long before it changes it back.
		time.Sleep(time.Duration(150+random.IntN(400)) * time.Millisecond)
		a.kill(!withWatchdog)
		killed := time.Now()
		if desktop.Keymap(t) != before {
			left++
		}
		if !withWatchdog {
			if err := open(t, x11.Options{Display: desktop.Display(), Sink: x11.SinkXTEST}).Close(); err != nil {
				t.Fatal(err)
			}
		}
		for desktop.Keymap(t) != before {
			if time.Since(killed) > 5*time.Second {
				t.Fatalf("the keyboard is not as it was, with a watchdog: %v", withWatchdog)
			}
		}
		if held, err := window.Held(); err != nil || len(held) > 0 {
			t.Errorf("%v down, %v", held, err)
		}
	}
	if left == 0 {
		t.Error("nothing was ever left behind, so that nothing was tested")
	}
	t.Logf("%d times something was left behind", left)
}

// TestRandomActions does actions at random, valid and invalid, and cancels some at random: nothing is left down, and
// the keyboard stays what it is.
func TestRandomActions(t *testing.T) {
	long(t)
	eachSink(t, func(t *testing.T, sink x11.Sink) {
		s, random := newStage(t), seeded(t)
		d := open(t, x11.Options{
			Display: s.server.Display(), Sink: sink, Hold: time.Millisecond, DoubleClickGap: time.Millisecond, DoubleClickTime: 20 * time.Millisecond,
			WaitTime: time.Millisecond,
		})
		for i := range 150 {
			a := randomAction(random)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if random.IntN(2) == 0 {
				ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(20_000))*time.Microsecond)
			}
			_, err := driver.Do(ctx, d, a)
			cancel()
			if trace := s.trace(t); trace != "" {
				t.Fatalf("action %d, %T %.200v, %v: %s", i, a, a, err, trace)
			}
		}
	})
}

func randomAction(random *rand.Rand) driver.Action {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	point := func() image.Point { return image.Pt(random.IntN(660)-10, random.IntN(500)-10) }
	keys := func() (keys []string) {
		for range random.IntN(4) {
			keys = append(keys, pick("CTRL", "SHIFT", "ALT", "a", "B", "F13", "é", "ENTER", "+", "NOPE", "CMD"))
		}
		return keys
	}
	at := point()
	switch random.IntN(8) {
	case 0:
		return driver.Click{X: at.X, Y: at.Y, Button: driver.Button(random.IntN(7)), Keys: keys()}
	case 1:
		return driver.DoubleClick{X: at.X, Y: at.Y, Keys: keys()}
	case 2:
		path := make([]image.Point, random.IntN(5))
		for i := range path {
			path[i] = point()
		}
		return driver.Drag{Path: path, Keys: keys()}
	case 3:
		return driver.Keypress{Keys: keys()}
	case 4:
		return driver.Move{X: at.X, Y: at.Y, Keys: keys()}
	case 5:
		return driver.Scroll{X: at.X, Y: at.Y, ScrollX: random.IntN(2000) - 1000, ScrollY: random.IntN(2000) - 1000, Keys: keys()}
	case 6:
		return driver.Type{Text: pick("", "abc", "ÄÖ", "Привет", "a\x00b", strings.Repeat("Ab1日", 200), "\n\t")}
	}
	return driver.Wait{}
}
