package x11_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11"
	"github.com/deskagent/deskagent/internal/xvfb"
)

// BenchmarkOwnTime is what actions take without the pauses that are there on purpose.
func BenchmarkOwnTime(b *testing.B) {
	server := xvfb.ForTest(b, 640, 480)
	const none = time.Nanosecond
	for _, sink := range []x11.Sink{x11.SinkAuto, x11.SinkXTEST} {
		d, err := x11.Open(b.Context(), &x11.Options{Display: server.Display(), Sink: sink, Hold: none, DoubleClickGap: none})
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range []driver.Action{
			driver.Move{X: 9, Y: 9}, driver.Click{X: 5, Y: 5, Button: driver.ButtonLeft}, driver.Keypress{Keys: []string{"CTRL", "SHIFT", "T"}},
		} {
			b.Run(fmt.Sprintf("%s/%s", d.Sink(), a.Kind()), func(b *testing.B) {
				for b.Loop() {
					if _, err := driver.Do(b.Context(), d, a); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
