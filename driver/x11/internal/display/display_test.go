package display

import (
	"errors"
	"fmt"
	"image"
	"io"
	"testing"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// TestSilent is a part of row C7 of the field cases: nothing but the error is said.
func TestSilent(t *testing.T) {
	if got := xgb.Logger.Writer(); got != io.Discard {
		t.Errorf("xgb logs to %v, want it to be silent", got)
	}
}

// TestScreens checks that a display name may choose one of several screens, and only one that is there.
func TestScreens(t *testing.T) {
	server := xvfb.StartForTest(t, &xvfb.Options{Width: 640, Height: 480, Args: []string{"-screen", "1", "320x240x24"}})
	for screen, want := range []image.Rectangle{image.Rect(0, 0, 640, 480), image.Rect(0, 0, 320, 240)} {
		conn, err := Open(fmt.Sprintf("%s.%d", server.Display(), screen))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := conn.Bounds(); err != nil || got != want {
			t.Errorf("screen %d: got %v, %v, want %v", screen, got, err, want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(server.Display() + ".2"); !errors.Is(err, driver.ErrNoDisplay) {
		t.Errorf("got %v, want no third screen", err)
	}
}

// TestFault checks that the error of a request without a reply comes with the next Sync, once.
func TestFault(t *testing.T) {
	conn, err := Open(xvfb.ForTest(t, 640, 480).Display())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const noSuchWindow = 1
	xproto.MapWindow(conn.X, noSuchWindow)
	if _, err := conn.Bounds(); err != nil {
		t.Errorf("got %v from another request", err)
	}
	if err := conn.Sync(); err == nil {
		t.Error("got no error from Sync")
	}
	if err := conn.Sync(); err != nil {
		t.Errorf("got %v from Sync again", err)
	}
}
