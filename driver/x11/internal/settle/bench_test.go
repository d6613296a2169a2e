package settle

import (
	"slices"
	"testing"
	"time"

	"github.com/deskagent/deskagent/internal/xvfb"
)

// BenchmarkSettle is how late the answer is, with the default timing: after the mark where nothing changes, and after the
// last change otherwise. Use -benchtime with a number of rounds, such as 50x.
func BenchmarkSettle(b *testing.B) {
	for _, kind := range []string{"damage", "frames"} {
		for _, test := range []struct {
			name  string
			paint func(room) (last func() time.Time) // begins to paint
			state State
		}{
			{"static", func(r room) func() time.Time {
				marked := time.Now()
				return func() time.Time { return marked }
			}, Unchanged},
			{"instant", func(r room) func() time.Time {
				r.paint(label)
				painted := time.Now()
				return func() time.Time { return painted }
			}, Settled},
			{"animation", func(r room) func() time.Time {
				done := make(chan time.Time, 1)
				go func() {
					ticker := time.NewTicker(16 * time.Millisecond)
					defer ticker.Stop()
					for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); <-ticker.C {
						r.paint(window)
					}
					r.paint(window)
					done <- time.Now()
				}()
				return func() time.Time { return <-done }
			}, Settled},
		} {
			b.Run(kind+"/"+test.name, func(b *testing.B) {
				r := newRoom(b, kind)
				var late []time.Duration
				for b.Loop() {
					r.Mark()()
					r.Touch()
					time.Sleep(2 * time.Millisecond) // as the quickest program takes
					last := test.paint(r)
					got, err := r.Wait(b.Context(), Timing{})
					answered := time.Now()
					if err != nil {
						b.Fatal(err)
					}
					if got.State != test.state {
						b.Errorf("got %+v, want %v", got, test.state)
					}
					late = append(late, answered.Sub(last()))
				}
				slices.Sort(late)
				b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(late[len(late)*95/100].Microseconds())/1000, "p95-ms")
			})
		}
	}
}

// BenchmarkLook is what one look costs, on a screen that changes in many places before each.
func BenchmarkLook(b *testing.B) {
	server := xvfb.ForTest(b, 1920, 1080)
	p := newPainter(b, server.Display())
	byDamage, err := openDamage(server.Display())
	if err != nil {
		b.Fatal(err)
	}
	defer byDamage.close()
	for name, source := range map[string]source{"damage": byDamage, "frames": &frames{grab: newGrab(b, server.Display())}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				p.paint(tiles(56)...)
				b.StartTimer()
				if _, _, err := source.look(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
