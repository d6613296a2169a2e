package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/internal/witness"
	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

// targetColour is all that a gallery and an agent have in common.
var targetColour = color.RGBA{0xff, 0x00, 0xff, 0xff}

// likeness is how much of a pixel has the colour of targets, from 255 to 0 and below: it has red and blue, and no green.
// A mixture with grey, such as the pixels at an edge in a picture that was made smaller, has as much of it as the
// target has of the mixture.
func likeness(c color.RGBA) int { return min(int(c.R), int(c.B)) - int(c.G) }

// A shot is what became of a target: where the click came, by the event that the window got.
type shot struct {
	target image.Rectangle
	at     image.Point
}

func (s shot) hit() bool { return s.at.In(s.target) }

func (s shot) String() string { return fmt.Sprintf("%v by a click at %v", s.target, s.at) }

// A gallery is a window that shows targets. A click, wherever it is, makes the next one appear in place of the last.
type gallery struct {
	window *witness.Window
	ground *image.RGBA
}

// newGallery covers a screen, whose upper left corner is (0,0), with a desktop.
func newGallery(window *witness.Window, screen image.Rectangle) (*gallery, error) {
	g := &gallery{window, drawDesktop(screen.Size())}
	return g, window.Show(g.ground)
}

// show takes one target away and puts another in its place; either may be empty.
func (g *gallery) show(old, next image.Rectangle) error {
	if err := g.window.Show(g.ground.SubImage(old).(*image.RGBA)); err != nil {
		return err
	}
	target := canvas{RGBA: image.NewRGBA(next)}
	target.fill(next, targetColour)
	return g.window.Show(target.RGBA)
}

// visit shows targets to an agent, each until it has clicked.
func (g *gallery) visit(ctx context.Context, a *agent, targets []image.Rectangle) (shots []shot, err error) {
	if err := g.show(image.Rectangle{}, targets[0]); err != nil {
		return nil, err
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	for i, target := range targets {
		var next image.Rectangle
		if i+1 < len(targets) {
			next = targets[i+1]
		}
		reaction := g.react(target, next)
		err := a.shoot(ctx)
		if err != nil {
			g.window.Close() // There will be no click to react to.
		}
		r := <-reaction
		if err = errors.Join(err, r.err); err != nil {
			return nil, err
		}
		shots = append(shots, shot{target, r.at})
	}
	return shots, nil
}

// reaction is where a click came, and what went wrong.
type reaction struct {
	at  image.Point
	err error
}

// react waits for one click and shows the next target, as a program would that is under the agent's hands. It sends one
// reaction, at the latest when the window is closed.
func (g *gallery) react(old, next image.Rectangle) <-chan reaction {
	const patience = 30 * time.Second // for a picture of a large screen on a busy machine
	c := make(chan reaction, 1)
	go func() {
		var r reaction
		if r.err = g.window.WaitFor(witness.ButtonUp, patience); r.err == nil {
			if r.at, r.err = g.click(); r.err == nil {
				r.err = g.show(old, next)
			}
		}
		c <- r
	}()
	return c
}

// click is where the window was clicked since the last time.
func (g *gallery) click() (at image.Point, err error) {
	events, err := g.window.Events()
	if err != nil {
		return at, err
	}
	presses := 0
	for _, e := range events {
		if e.Kind == witness.ButtonDown {
			presses++
			at = e.At
		}
	}
	if presses != 1 {
		return at, fmt.Errorf("the window was clicked %d times for one target", presses)
	}
	return at, nil
}

// An agent finds targets in pictures and clicks on them, as a model does: through calls of the API, of which it sees
// nothing but the pictures that they return.
type agent struct {
	driver driver.Driver
	screen image.Rectangle
	size   image.Point // of the pictures of the whole screen
	zoom   bool        // look again at the place where the target is

	desk    *toolset.Toolset
	picture *image.RGBA // of the whole screen, the latest
}

// open begins with a picture.
func (a *agent) open(ctx context.Context) (err error) {
	if a.desk, err = toolset.New(a.driver, &toolset.Options{View: scaling.View{Size: a.size}}); err != nil {
		return err
	}
	a.picture, err = call(ctx, a.desk, driver.Screenshot{})
	return err
}

// shoot clicks on the target, and gets the picture that comes of it.
func (a *agent) shoot(ctx context.Context) (err error) {
	if !a.zoom {
		a.picture, err = call(ctx, a.desk, clickOn(find(a.picture)))
		return err
	}
	mapping, err := scaling.New(a.screen, a.size)
	if err != nil {
		return err
	}
	screenPt, err := mapping.ToScreen(find(a.picture))
	if err != nil {
		return err
	}
	closer, err := toolset.New(a.driver, &toolset.Options{View: scaling.View{Crop: around(screenPt, a.screen)}})
	if err != nil {
		return err
	}
	picture, err := call(ctx, closer, driver.Screenshot{})
	if err != nil {
		return err
	}
	if _, err := call(ctx, closer, clickOn(find(picture))); err != nil {
		return err
	}
	a.picture, err = call(ctx, a.desk, driver.Screenshot{})
	return err
}

// around is the part of a screen to zoom at, with a point in the middle as far as the edges allow.
func around(screenPt image.Point, screen image.Rectangle) image.Rectangle {
	size := image.Pt(min(320, screen.Dx()), min(200, screen.Dy()))
	at := screenPt.Sub(size.Div(2))
	at.X = min(max(at.X, screen.Min.X), screen.Max.X-size.X)
	at.Y = min(max(at.Y, screen.Min.Y), screen.Max.Y-size.Y)
	return image.Rectangle{Min: at, Max: at.Add(size)}
}

func clickOn(picturePt image.Point) driver.Action {
	return driver.Click{X: picturePt.X, Y: picturePt.Y, Button: driver.ButtonLeft}
}

// call makes a computer call with one action, as it comes from the API, and returns the picture that goes there.
func call(ctx context.Context, t *toolset.Toolset, action driver.Action) (*image.RGBA, error) {
	raw, err := json.Marshal(map[string]any{
		"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed", "actions": []driver.Action{action},
	})
	if err != nil {
		return nil, err
	}
	answer, err := t.Execute(ctx, raw, &toolset.ExecuteOptions{Policy: toolset.Policy{Unasked: true}})
	if err != nil {
		return nil, err
	}
	var output struct {
		Output struct {
			URL string `json:"image_url"`
		}
	}
	if err := json.Unmarshal(answer, &output); err != nil {
		return nil, err
	}
	return decodeURL(output.Output.URL)
}

// find returns the pixel of a picture that has the centre of the target in it: of all pixels that look like one, each
// with the weight of its likeness. Where there are none, it is the middle of the picture.
func find(picture *image.RGBA) image.Point {
	const least = 32  // the noise of rounding is below that, and so is all that is no target
	var sum, x, y int // of likeness, and of places in half pixels
	for i := 0; i < len(picture.Pix); i += 4 {
		p := picture.Pix[i:][:4]
		if l := likeness(color.RGBA{p[0], p[1], p[2], p[3]}); l >= least {
			at := image.Pt(i%picture.Stride/4, i/picture.Stride)
			sum, x, y = sum+l, x+l*(2*at.X+1), y+l*(2*at.Y+1)
		}
	}
	if sum == 0 {
		return picture.Rect.Size().Div(2)
	}
	return image.Pt(x/(2*sum), y/(2*sum))
}
