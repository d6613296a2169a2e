package xtest

import (
	"image"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/driver/x11/internal/display"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/internal/xvfb"
)

var _ event.Sink = (*Sink)(nil)

// TestXError checks that the server's objection to one event comes with the next Sync, once, and that the events
// after it still count.
func TestXError(t *testing.T) {
	server := xvfb.ForTest(t, 640, 480)
	window := witness.ForTest(t, server.Display())
	conn, err := display.Open(server.Display())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sink, err := New(conn)
	if err != nil {
		t.Fatal(err)
	}
	const noSuchKey = 1
	if err := sink.Key(noSuchKey, 0, true); err != nil {
		t.Error(err)
	}
	if err := sink.Move(image.Pt(3, 4)); err != nil {
		t.Error(err)
	}
	if err := sink.Sync(); err == nil || !strings.Contains(err.Error(), "BadValue") {
		t.Errorf("got %v, want BadValue", err)
	}
	if err := sink.Sync(); err != nil {
		t.Errorf("got %v again", err)
	}
	events, err := window.Events()
	if err != nil || len(events) != 1 || events[0].At != image.Pt(3, 4) {
		t.Errorf("got %v, %v, want one motion to (3,4)", events, err)
	}
}
