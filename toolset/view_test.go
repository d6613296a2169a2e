package toolset_test

import (
	"context"
	"fmt"
	"image"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/approve"
	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// A viewingDesk makes pictures of another size itself, and can tell whether they still hold.
type viewingDesk struct {
	*desk
	window driver.Window
}

func (d *viewingDesk) scene() driver.Scene { return driver.Scene{Screen: d.screen, Window: d.window} }

func (d *viewingDesk) View(_ context.Context, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (*driver.Frame, error) {
	area, size, err := choose(d.scene())
	if err != nil {
		return nil, err
	}
	d.log = append(d.log, fmt.Sprintf("view %v as %v", area, size))
	return &driver.Frame{Image: image.NewRGBA(image.Rectangle{Max: size}), Area: area, Scene: d.scene()}, nil
}

func (d *viewingDesk) Holds(_ context.Context, s driver.Scene) error {
	switch {
	case s.Screen != d.screen:
		return fmt.Errorf("%w: the screen is %v", driver.ErrStale, d.screen)
	case s.Window.ID != 0 && s.Window != d.window:
		return fmt.Errorf("%w: the window is at %v", driver.ErrStale, d.window.Bounds)
	}
	return nil
}

func newViewingDesk() *viewingDesk {
	bounds := image.Rect(100, 50, 300, 150)
	return &viewingDesk{newDesk(400, 200), driver.Window{ID: 7, Bounds: bounds, Visible: bounds.Union(image.Rect(100, 140, 200, 200))}}
}

// TestViewer checks that a driver that can make the picture is told what to show, and that points are mapped by it.
func TestViewer(t *testing.T) {
	for _, test := range []struct {
		name    string
		options toolset.Options
		change  func(*viewingDesk)
		want    []string
	}{
		{"all", toolset.Options{}, nil, []string{"view (0,0)-(400,200) as (400,200)", click(10, 10)}},
		{"smaller", toolset.Options{View: scaling.View{Most: image.Pt(100, 100)}}, nil, []string{"view (0,0)-(400,200) as (100,50)", click(41, 41)}},
		{"a part", toolset.Options{View: scaling.View{Crop: image.Rect(30, 40, 50, 60)}}, nil, []string{"view (30,40)-(50,60) as (20,20)", click(40, 50)}},
		{"the window", toolset.Options{Window: true}, nil, []string{"view (100,50)-(300,200) as (200,150)", click(110, 60)}},
		{"no window", toolset.Options{Window: true}, func(d *viewingDesk) { d.window = driver.Window{} }, []string{"view (0,0)-(400,200) as (400,200)", click(10, 10)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newViewingDesk()
			if test.change != nil {
				test.change(d)
			}
			tools := mustNew(t, d, &test.options)
			for _, actions := range []string{shot, click(10, 10)} {
				if _, err := tools.Execute(t.Context(), call(actions), unasked); err != nil {
					t.Fatal(err)
				}
			}
			checkLog(t, d.log, append(test.want, test.want[0])...)
		})
	}
}

// TestStalePicture checks that points of a picture whose geometry no longer holds are refused, at the latest moment too,
// and that nothing else is.
func TestStalePicture(t *testing.T) {
	resize := func(d *viewingDesk) { d.screen = image.Rect(0, 0, 300, 200) }
	move := func(d *viewingDesk) { d.window.Bounds = d.window.Bounds.Add(image.Pt(1, 0)) }
	for _, test := range []struct {
		name   string
		window bool
		change func(*viewingDesk)
		stale  bool
	}{
		{"nothing", true, func(*viewingDesk) {}, false},
		{"the screen", false, resize, true},
		{"the screen around a window", true, resize, true},
		{"the window", true, move, true},
		{"a window on the screen", false, move, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				d := newViewingDesk()
				tools := mustNew(t, d, &toolset.Options{Window: test.window})
				if _, err := tools.Execute(t.Context(), call(shot), unasked); err != nil {
					t.Fatal(err)
				}
				if !late {
					test.change(d)
				}
				asked := 0
				policy := toolset.Ask(approve.Func(func(context.Context, approve.Request) (approve.Decision, error) {
					if asked++; late && asked == 1 {
						test.change(d)
					}
					return approve.Allow, nil
				}))
				_, err := tools.Execute(t.Context(), call(click(5, 5)), &toolset.ExecuteOptions{Policy: policy})
				if !test.stale {
					if err != nil {
						t.Errorf("late %v: got %v", late, err)
					}
					continue
				}
				checkReason(t, err, toolset.ReasonStale)
				if want := map[bool]int{false: 0, true: 1}[late]; asked != want || strings.Contains(strings.Join(d.log, ""), "click") {
					t.Errorf("late %v: asked %d times, want %d, and the log is %q", late, asked, want, d.log)
				}
				if _, err := tools.Execute(t.Context(), call(`{"type":"wait"}`), unasked); err != nil {
					t.Errorf("late %v: a call without points: got %v", late, err)
				}
			}
		})
	}
}

func TestWindowRefuses(t *testing.T) {
	if _, err := toolset.New(newDesk(9, 9), &toolset.Options{Window: true}); err == nil {
		t.Error("a driver that makes no views: got no error")
	}
	if _, err := toolset.New(newViewingDesk(), &toolset.Options{Window: true, View: scaling.View{Crop: image.Rect(0, 0, 9, 9)}}); err == nil {
		t.Error("a window and a crop: got no error")
	}
	d := newViewingDesk()
	_, err := mustNew(t, d, &toolset.Options{Window: true}).Execute(t.Context(), call(click(5, 5)), unasked)
	checkReason(t, err, toolset.ReasonDriverFailed) // points of a window that was never shown
	d = newViewingDesk()
	_, err = mustNew(t, d, &toolset.Options{View: scaling.View{Crop: image.Rect(0, 0, 500, 9)}}).Execute(t.Context(), call(shot), unasked)
	checkReason(t, err, toolset.ReasonBadScreenshot)
	checkLog(t, d.log)
}

// A fileDesk has its pictures as files.
type fileDesk struct{ *viewingDesk }

func (d fileDesk) View(ctx context.Context, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (*driver.Frame, error) {
	frame, err := d.viewingDesk.View(ctx, choose)
	if err != nil {
		return nil, err
	}
	encoded, err := toolset.PNG(ctx, frame.Image)
	frame.Image, frame.DataURL = nil, encoded.ImageURL.Value
	return frame, err
}

// TestPictureAsFile checks that a file that the driver has is sent as it is, and decoded for a Present of the caller's.
func TestPictureAsFile(t *testing.T) {
	var shots []toolset.Shot
	keep := func(s toolset.Shot) { shots = append(shots, s) }
	d := fileDesk{newViewingDesk()}
	output, err := mustNew(t, d, &toolset.Options{OnPicture: keep}).Execute(t.Context(), call(shot), unasked)
	if err != nil {
		t.Fatal(err)
	}
	if got := shots[0]; got.Image != nil || got.Picture.ImageURL.Value != got.Frame.DataURL || !strings.Contains(string(output), got.Frame.DataURL) {
		t.Errorf("got pixels %v and the URL %.40q, want what the driver had: %.40q", got.Image != nil, got.Picture.ImageURL.Value, got.Frame.DataURL)
	}
	if _, err := mustNew(t, d, &toolset.Options{Present: toolset.PNG, OnPicture: keep}).Execute(t.Context(), call(shot), unasked); err != nil {
		t.Fatal(err)
	}
	if got := shots[1].Image; got == nil || got.Rect != image.Rect(0, 0, 400, 200) {
		t.Errorf("got pixels %v, want 400x200", got)
	}

	_, err = mustNew(t, lyingDesk{d}, nil).Execute(t.Context(), call(shot), unasked)
	checkReason(t, err, toolset.ReasonBadScreenshot)
}

// A lyingDesk has pictures of another size than it was asked for.
type lyingDesk struct{ fileDesk }

func (d lyingDesk) View(ctx context.Context, choose func(driver.Scene) (image.Rectangle, image.Point, error)) (*driver.Frame, error) {
	return d.fileDesk.View(ctx, func(s driver.Scene) (image.Rectangle, image.Point, error) {
		area, size, err := choose(s)
		return area, size.Add(image.Pt(1, 0)), err
	})
}
