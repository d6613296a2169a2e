package trace

import "image"

// Tolerance is by how much a channel of two pixels may differ, of 255, before the pixels count as different: what
// compression as JPEG does to sharp edges is mostly less.
const Tolerance = 32

// Differ returns how much of two pictures is different: the share of the pixels, from 0 to 1. Pictures of different sizes
// differ altogether.
func Differ(a, b image.Image) float64 {
	size := a.Bounds().Size()
	if size != b.Bounds().Size() || size.X == 0 || size.Y == 0 {
		return 1
	}
	different := 0
	for y := range size.Y {
		for x := range size.X {
			p, q := a.Bounds().Min, b.Bounds().Min
			r1, g1, b1, _ := a.At(p.X+x, p.Y+y).RGBA()
			r2, g2, b2, _ := b.At(q.X+x, q.Y+y).RGBA()
			if apart(r1, r2) || apart(g1, g2) || apart(b1, b2) {
				different++
			}
		}
	}
	return float64(different) / float64(size.X*size.Y)
}

// apart compares two values of a channel, of 16 bits.
func apart(a, b uint32) bool { return max(a, b)-min(a, b) > Tolerance<<8|Tolerance }
