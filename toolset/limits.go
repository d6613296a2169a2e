package toolset

import (
	"fmt"
	"image"
	"sort"

	"github.com/deskagent/deskagent/scaling"
)

// DefaultFit is a size for pictures to fit into that all models since gpt-5 see as they are sent, and one of those that the
// API's guide to computer use names. [scaling.View] does the fitting, and does not enlarge.
var DefaultFit = image.Pt(1440, 900)

// Limits say how large a picture may be before the API makes it smaller. It would not tell, and the points that the
// model then names would be of another picture than ours. A larger one is therefore refused. What is zero is not
// limited. The size of the file is not among them: the API refuses what is too much, as it does with a request.
type Limits struct {
	Long    int // pixels of the longer side
	Short   int // pixels of the shorter side
	Patches int // squares of 32 by 32 pixels that cover the picture
}

// The limits by model and by the detail that is asked for, as the API's guide to images says. The output of a computer call
// leaves the detail to the API. For gpt-5.4 that means high, hence [DefaultLimits]; later models see more by
// themselves.
//
//	limits           longer  shorter  patches  models
//	LimitsWhole      65535            30000    gpt-5.6, which refuses more instead of shrinking it
//	LimitsOriginal   6000             10000    gpt-5.5; gpt-5.4 where original detail is asked for
//	LimitsHigh       2048             2500     gpt-5.4
//	LimitsSmall      2048             1536     gpt-5.4-mini, -nano, gpt-5.2, gpt-5-mini, -nano, o4-mini
//	LimitsTiles      2048    768               computer-use-preview, gpt-4o, gpt-4.1
var (
	LimitsWhole    = Limits{Long: 65_535, Patches: 30_000}
	LimitsOriginal = Limits{Long: 6000, Patches: 10_000}
	LimitsHigh     = Limits{Long: 2048, Patches: 2500}
	LimitsSmall    = Limits{Long: 2048, Patches: 1536}
	LimitsTiles    = Limits{Long: 2048, Short: 768}
)

// DefaultLimits take the place of zero Limits in [Options].
var DefaultLimits = LimitsHigh

// Allow reports whether a picture of the given size is within the limits.
func (l Limits) Allow(size image.Point) bool {
	const patch = 32
	within := func(n, most int) bool { return most == 0 || n <= most }
	patches := ((size.X + patch - 1) / patch) * ((size.Y + patch - 1) / patch)
	return within(max(size.X, size.Y), l.Long) && within(min(size.X, size.Y), l.Short) && within(patches, l.Patches)
}

// Fit returns the largest size of the same shape as size that is within the limits, at least 1x1. What is within them
// already is not enlarged.
func (l Limits) Fit(size image.Point) image.Point {
	at := func(long int) image.Point { return scaling.Fit(size, image.Pt(long, long)) }
	tooLong := sort.Search(max(size.X, size.Y), func(n int) bool { return !l.Allow(at(n + 1)) })
	return at(max(1, tooLong))
}

// check refuses a picture that is not within the limits.
func (l Limits) check(size image.Point) error {
	if l.Allow(size) {
		return nil
	}
	fits := l.Fit(size)
	return fmt.Errorf("picture of %dx%d: the API would make it smaller and the model's points would be off; the largest it leaves alone is %dx%d (limits %+v)",
		size.X, size.Y, fits.X, fits.Y, l)
}
