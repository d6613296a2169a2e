// Package scaling relates the picture that a model sees to the screen it was made from: an optional crop, then a
// change of size. It is arithmetic on points and pictures; it knows no screen and no model.
//
// # The two spaces
//
// Screen space is the pixels of the screen, as in package driver. Picture space is the pixels of one picture:
// valid points run from (0,0) to (w-1,h-1) and others are refused, never clamped. A [Mapping] takes points from
// one to the other. It belongs to one picture: a point that a model names is mapped by the picture it looked at,
// whatever has been captured since.
//
// # The rounding rule
//
// Pixel centres are mapped, not corners. The centre of picture pixel p is p+½; on a screen part of S pixels shown
// in P it lies at c = (p+½)·S/P. The screen pixel that holds c is the result; where c falls exactly between two,
// the lower one. So a picture of half the size doubles coordinates exactly, an unscaled one keeps them, and the
// result always lies in the screen cell that the picture pixel was made from. The crop's offset is added last.
// The way back maps the centre of the screen pixel in the same manner. All arithmetic is on integers.
package scaling

import (
	"errors"
	"fmt"
	"image"
	"image/draw"
)

// ErrOutside is wrapped by the error about a point that is not in the picture, or not in the part of the screen
// that the picture shows.
var ErrOutside = errors.New("outside the picture")

// maxSide keeps every product within 64 bits; X screens have at most 32767 pixels a side.
const maxSide = 1 << 20

// A Mapping relates a picture to the part of a screen that it shows. The zero Mapping has no points. Mappings are
// values and safe to use from several goroutines.
type Mapping struct {
	crop image.Rectangle // screen space
	size image.Point     // of the picture
}

// New returns the mapping of a picture of the given size that shows the given part of the screen.
func New(crop image.Rectangle, size image.Point) (Mapping, error) {
	if crop.Empty() || crop.Dx() > maxSide || crop.Dy() > maxSide {
		return Mapping{}, fmt.Errorf("part of the screen %v: want from 1x1 to %dx%d pixels", crop, maxSide, maxSide)
	}
	if size.X < 1 || size.Y < 1 || size.X > maxSide || size.Y > maxSide {
		return Mapping{}, fmt.Errorf("picture size %dx%d: want from 1x1 to %dx%d pixels", size.X, size.Y, maxSide, maxSide)
	}
	return Mapping{crop: crop, size: size}, nil
}

// A View says how pictures of a screen are made. The zero View shows the whole screen, pixel for pixel.
type View struct {
	// Crop is the part to show, in screen space; empty means the whole screen.
	Crop image.Rectangle
	// Size is the size of the picture in pixels; zero means that of the part shown.
	Size image.Point
	// Most is what a picture without a Size is made to fit into, in its shape: see [Fit]. Zero means any size.
	Most image.Point
}

// Mapping returns the mapping of a picture of the given screen. A crop that is not inside the screen is an
// error: nothing is cut off silently.
func (v View) Mapping(screen image.Rectangle) (Mapping, error) {
	crop := v.Crop
	if crop.Empty() {
		if crop != (image.Rectangle{}) {
			return Mapping{}, fmt.Errorf("crop %v is empty", crop)
		}
		crop = screen
	}
	if !crop.In(screen) {
		return Mapping{}, fmt.Errorf("crop %v is not inside the screen %v", crop, screen)
	}
	size := v.Size
	if size == (image.Point{}) {
		size = crop.Size()
		if v.Most != (image.Point{}) {
			if v.Most.X < 1 || v.Most.Y < 1 {
				return Mapping{}, fmt.Errorf("pictures of at most %dx%d: want 1x1 or more", v.Most.X, v.Most.Y)
			}
			size = Fit(size, v.Most)
		}
	}
	return New(crop, size)
}

// Fit returns the largest size of the same shape as size that fits into most, rounded to the nearest pixel and at
// least 1x1. What fits already is not enlarged.
func Fit(size, most image.Point) image.Point {
	if size.X <= most.X && size.Y <= most.Y {
		return size
	}
	nearest := func(a, b, of int) int { return max(1, (2*a*b+of)/(2*of)) }
	if size.X*most.Y > size.Y*most.X { // wider than most
		return image.Pt(most.X, nearest(size.Y, most.X, size.X))
	}
	return image.Pt(nearest(size.X, most.Y, size.Y), most.Y)
}

// Crop returns the part of the screen that the picture shows, in screen space.
func (m Mapping) Crop() image.Rectangle { return m.crop }

// Size returns the size of the picture in pixels.
func (m Mapping) Size() image.Point { return m.size }

// Identity reports whether the picture shows its part of the screen pixel for pixel from the screen's origin.
func (m Mapping) Identity() bool { return m.crop.Min == image.Point{} && m.crop.Max == m.size }

// ToScreen maps a point of the picture to the screen. The error for a point that is not in the picture wraps
// [ErrOutside].
func (m Mapping) ToScreen(picturePt image.Point) (image.Point, error) {
	if !picturePt.In(image.Rectangle{Max: m.size}) {
		return image.Point{}, fmt.Errorf("point %v: %w, valid are (0,0) to %v", picturePt, ErrOutside, m.size.Sub(image.Pt(1, 1)))
	}
	return image.Pt(
		mapCentre(picturePt.X, m.size.X, m.crop.Dx()),
		mapCentre(picturePt.Y, m.size.Y, m.crop.Dy()),
	).Add(m.crop.Min), nil
}

// ToPicture maps a point of the screen to the picture. The error for a point that the picture does not show
// wraps [ErrOutside].
func (m Mapping) ToPicture(screenPt image.Point) (image.Point, error) {
	if !screenPt.In(m.crop) {
		return image.Point{}, fmt.Errorf("screen point %v: %w, which shows %v", screenPt, ErrOutside, m.crop)
	}
	p := screenPt.Sub(m.crop.Min)
	return image.Pt(mapCentre(p.X, m.crop.Dx(), m.size.X), mapCentre(p.Y, m.crop.Dy(), m.size.Y)), nil
}

// mapCentre applies the rounding rule: the pixel of n that holds (p+½)·n/of, the lower one of two.
func mapCentre(p, of, n int) int {
	return ((2*p+1)*n - 1) / (2 * of)
}

// DistanceToScreen scales a distance in picture pixels, such as that of a scroll, to screen pixels, rounded to
// the nearest and half away from zero, so that opposite distances stay opposite. Distances beyond 2^40 count as
// 2^40, which keeps the result in range.
func (m Mapping) DistanceToScreen(d image.Point) image.Point {
	return image.Pt(scaleDistance(d.X, m.size.X, m.crop.Dx()), scaleDistance(d.Y, m.size.Y, m.crop.Dy()))
}

func scaleDistance(d, of, n int) int {
	if of == n || of == 0 {
		return d
	}
	if d < 0 {
		return -scaleDistance(-d, of, n)
	}
	d = min(d, 1<<40)
	return d/of*n + (2*(d%of)*n+of)/(2*of)
}

// Picture makes the picture of a screen: src holds the pixels of the screen, its bounds in screen space, and must
// cover the crop. The picture has its own memory and its origin at (0,0). It is made as [Mapping.Draw] says, and opaque:
// what is not opaque in src is as on black.
func (m Mapping) Picture(src image.Image) (*image.RGBA, error) {
	if !m.crop.In(src.Bounds()) || m.crop.Empty() {
		return nil, fmt.Errorf("pixels of %v do not cover the part to show, %v", src.Bounds(), m.crop)
	}
	rgba, ok := src.(*image.RGBA)
	if !ok {
		rgba = image.NewRGBA(m.crop)
		draw.Draw(rgba, m.crop, src, m.crop.Min, draw.Src)
	}
	dst := image.NewRGBA(image.Rectangle{Max: m.size})
	if err := m.Draw(dst, Source{Pix: rgba.Pix, Stride: rgba.Stride, Bounds: rgba.Rect}); err != nil {
		return nil, err
	}
	return dst, nil
}

// String shows the mapping as "1920x1080+0+0 as 1280x720".
func (m Mapping) String() string {
	return fmt.Sprintf("%dx%d%+d%+d as %dx%d", m.crop.Dx(), m.crop.Dy(), m.crop.Min.X, m.crop.Min.Y, m.size.X, m.size.Y)
}
