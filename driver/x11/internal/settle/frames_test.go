package settle

import (
	"image"
	"slices"
	"testing"
)

// TestFrames compares frames of 50x40 pixels that are somewhere on a screen, with some pixels changed in between.
func TestFrames(t *testing.T) {
	bounds := image.Rect(100, 200, 150, 240)
	tests := []struct {
		name          string
		pixel, stride int // bytes
		changed       []image.Point
		want          []image.Rectangle
	}{
		{name: "nothing", pixel: 4, stride: 200},
		{name: "one pixel", pixel: 4, stride: 200, changed: []image.Point{{107, 203}}, want: []image.Rectangle{image.Rect(107, 203, 108, 204)}},
		{
			name: "corners", pixel: 4, stride: 200, changed: []image.Point{{100, 200}, {149, 239}},
			want: []image.Rectangle{image.Rect(100, 200, 101, 201), image.Rect(149, 239, 150, 240)},
		},
		{name: "near", pixel: 4, stride: 200, changed: []image.Point{{110, 205}, {120, 220}}, want: []image.Rectangle{image.Rect(110, 205, 121, 221)}},
		{name: "two bytes", pixel: 2, stride: 100, changed: []image.Point{{149, 201}}, want: []image.Rectangle{image.Rect(149, 201, 150, 202)}},
		{name: "padded", pixel: 4, stride: 208, changed: []image.Point{{149, 201}}, want: []image.Rectangle{image.Rect(149, 201, 150, 202)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pix := make([]byte, test.stride*bounds.Dy())
			f := &frames{grab: func() ([]byte, int, image.Rectangle, error) { return pix, test.stride, bounds, nil }}
			if got, screen, err := f.look(); err != nil || screen != bounds || !slices.Equal(got, []image.Rectangle{bounds}) {
				t.Fatalf("got %v on %v, %v at first, want all of %v", got, screen, err, bounds)
			}
			for _, p := range test.changed {
				at := p.Sub(bounds.Min)
				pix[at.Y*test.stride+at.X*test.pixel+1] ^= 0xff
			}
			for _, want := range [][]image.Rectangle{test.want, nil} { // The second time it is what there was.
				if got, _, err := f.look(); err != nil || !slices.Equal(got, want) {
					t.Errorf("got %v, %v, want %v", got, err, want)
				}
			}
			smaller := image.Rect(0, 0, 50, 20)
			f.grab = func() ([]byte, int, image.Rectangle, error) { return pix, test.stride, smaller, nil }
			if got, screen, err := f.look(); err != nil || screen != smaller || !slices.Equal(got, []image.Rectangle{smaller}) {
				t.Errorf("got %v on %v, %v, want all of %v", got, screen, err, smaller)
			}
		})
	}
}
