package x11_test

import (
	"fmt"
	"slices"
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
		for _, test := range []struct {
			name    string
			actions [2]driver.Action // that take turns
		}{
			{"move", [2]driver.Action{driver.Move{X: 9, Y: 9}, driver.Move{X: 300, Y: 200}}},
			{"click", [2]driver.Action{
				driver.Click{X: 5, Y: 5, Button: driver.ButtonLeft}, driver.Click{X: 300, Y: 200, Button: driver.ButtonLeft},
			}},
			{"chord", [2]driver.Action{driver.Keypress{Keys: []string{"CTRL", "C"}}, driver.Keypress{Keys: []string{"CTRL", "SHIFT", "T"}}}},
		} {
			b.Run(fmt.Sprintf("%s/%s", d.Sink(), test.name), func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					begin := time.Now()
					if _, err := driver.Do(b.Context(), d, test.actions[len(took)%2]); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(begin))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			})
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
