package settle

import (
	"bytes"
	"fmt"
	"image"
)

// A Grab takes a frame of a screen: rows of pixels, stride bytes apart, and the area they show. All pixels have the same
// whole number of bytes, and nothing but pixels differs from row to row. The pixels stay as they are until the next
// call. A watcher calls it from a goroutine of its own.
type Grab func() (pix []byte, stride int, bounds image.Rectangle, err error)

// rowGap is how many rows that are the same end a rectangle of changes. Small things that change at the same time are so
// told apart, if one is above the other.
const rowGap = 16

// A frames is a source that compares each frame with the last.
type frames struct {
	grab   Grab
	last   []byte
	stride int
	bounds image.Rectangle
}

func (f *frames) look() (changed []image.Rectangle, screen image.Rectangle, err error) {
	pix, stride, bounds, err := f.grab()
	if err != nil {
		return nil, screen, err
	}
	if bounds.Empty() || stride < bounds.Dx() || len(pix) < stride*bounds.Dy() {
		return nil, screen, fmt.Errorf("comparing frames: got %d bytes in rows of %d for %v", len(pix), stride, bounds)
	}
	pix = pix[:stride*bounds.Dy()]
	if bounds == f.bounds && stride == f.stride {
		changed = f.compare(pix)
	} else {
		changed = []image.Rectangle{bounds}
	}
	f.last, f.stride, f.bounds = append(f.last[:0], pix...), stride, bounds
	return changed, bounds, nil
}

// compare returns where a frame differs from the last one, from the top down.
func (f *frames) compare(pix []byte) (changed []image.Rectangle) {
	pixel := f.stride / f.bounds.Dx() // bytes; what a row is padded with is less than one for each pixel
	var band image.Rectangle
	for y := range f.bounds.Dy() {
		now, then := pix[y*f.stride:(y+1)*f.stride], f.last[y*f.stride:(y+1)*f.stride]
		if bytes.Equal(now, then) {
			continue
		}
		from, to := difference(now, then)
		row := image.Rect(from/pixel, y, (to+pixel-1)/pixel, y+1).Add(f.bounds.Min)
		if !band.Empty() && row.Min.Y-band.Max.Y > rowGap {
			changed = append(changed, band)
			band = image.Rectangle{}
		}
		band = band.Union(row)
	}
	if !band.Empty() {
		changed = append(changed, band)
	}
	return changed
}

// difference returns where two rows that differ begin and end to do so.
func difference(a, b []byte) (from, to int) {
	for a[from] == b[from] {
		from++
	}
	for to = len(a); a[to-1] == b[to-1]; to-- {
	}
	return from, to
}

func (f *frames) close() error { return nil }
