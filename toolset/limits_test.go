package toolset_test

import (
	"image"
	"strings"
	"testing"
	"unsafe"

	"github.com/deskagent/deskagent/scaling"
	"github.com/deskagent/deskagent/toolset"
)

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits toolset.Limits
		size   image.Point
		fits   image.Point // the same where it is allowed
	}{
		{"none", toolset.Limits{}, image.Pt(30000, 20000), image.Pt(30000, 20000)},
		{"the default view", toolset.LimitsSmall, toolset.DefaultFit, toolset.DefaultFit},
		{"the patches, exactly", toolset.LimitsSmall, image.Pt(48*32, 32*32), image.Pt(48*32, 32*32)},
		{"a column of patches more", toolset.LimitsSmall, image.Pt(48*32+1, 32*32), image.Pt(48*32, 1023)},
		{"1080p", toolset.LimitsHigh, image.Pt(1920, 1080), image.Pt(1920, 1080)},
		{"1080p for small models", toolset.LimitsSmall, image.Pt(1920, 1080), image.Pt(1650, 928)}, // 52x29 patches,
		{"1440p", toolset.LimitsHigh, image.Pt(2560, 1440), image.Pt(2048, 1152)},
		{"4K in full", toolset.LimitsOriginal, image.Pt(3840, 2160), image.Pt(3840, 2160)},
		{"long and thin", toolset.LimitsHigh, image.Pt(100, 2049), image.Pt(100, 2048)},
		{"tiles", toolset.LimitsTiles, image.Pt(1440, 900), image.Pt(1229, 768)},
		{"so little that nothing fits", toolset.Limits{Long: -1}, image.Pt(10, 10), image.Pt(1, 1)},
	} {
		if got := tt.limits.Allow(tt.size); got != (tt.size == tt.fits) {
			t.Errorf("%s: got %v allowed: %v", tt.name, tt.size, got)
		}
		if got := tt.limits.Fit(tt.size); got != tt.fits {
			t.Errorf("%s: got %v to fit, want %v", tt.name, got, tt.fits)
		}
	}
}

// TestPictureBeyondLimits checks that such a picture is not sent, and that it is not a matter of the screen's size.
func TestPictureBeyondLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   toolset.Options
		refuse string
	}{
		{"a large screen", toolset.Options{}, "picture of 2560x1440"},
		{"a large screen, small limits", toolset.Options{Limits: toolset.LimitsSmall}, "leaves alone is 1650x928"},
		{"a large screen, limits lifted", toolset.Options{Limits: toolset.LimitsOriginal}, ""},
		{"shown smaller", toolset.Options{View: scaling.View{Most: toolset.DefaultFit}}, ""},
		{"shown larger", toolset.Options{View: scaling.View{Crop: image.Rect(0, 0, 100, 100), Size: image.Pt(2049, 2049)}}, "picture of 2049x2049"},
	} {
		presented := false
		tt.opts.OnPicture = func(toolset.Shot) { presented = true }
		tools := mustNew(t, newDesk(2560, 1440), &tt.opts)
		_, err := tools.Execute(t.Context(), call(shot), unasked)
		if tt.refuse == "" {
			if err != nil || !presented {
				t.Errorf("%s: got %v", tt.name, err)
			}
			continue
		}
		checkReason(t, err, toolset.ReasonBadScreenshot)
		if err == nil || !strings.Contains(err.Error(), tt.refuse) || presented {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.refuse)
		}
	}
}

func TestEncoding(t *testing.T) {
	for _, tt := range []struct {
		encoding toolset.Encoding
		want     string
	}{
		{toolset.Encoding{}, "data:image/png;base64,"},
		{toolset.Encoding{Format: "png"}, "data:image/png;base64,"},
		{toolset.Encoding{Format: "jpeg", Quality: 50}, "data:image/jpeg;base64,"},
	} {
		present, err := tt.encoding.Presenter()
		if err != nil {
			t.Fatal(err)
		}
		p, err := present(t.Context(), image.NewRGBA(image.Rect(0, 0, 4, 3)))
		if err != nil || p.Type != toolset.PictureType || !strings.HasPrefix(p.ImageURL.Value, tt.want) {
			t.Errorf("%+v: got %+v, %v", tt.encoding, p, err)
		}
		if _, err := present(t.Context(), new(image.RGBA)); err == nil {
			t.Errorf("%+v: got no error for a picture without pixels", tt.encoding)
		}
	}
	for _, e := range []toolset.Encoding{{Format: "webp"}, {Format: "PNG"}, {Quality: 80}, {Format: "jpeg", Quality: 101}} {
		if _, err := e.Presenter(); err == nil {
			t.Errorf("%+v: got no error", e)
		}
	}
}

// TestUnchangedPictureIsEncodedOnce looks at the text of two calls on a screen that does not change: it is the same one.
func TestUnchangedPictureIsEncodedOnce(t *testing.T) {
	var urls []string
	tools := mustNew(t, newDesk(64, 48), &toolset.Options{OnPicture: func(s toolset.Shot) { urls = append(urls, s.Picture.ImageURL.Value) }})
	for range 2 {
		if _, err := tools.Execute(t.Context(), call(shot), unasked); err != nil {
			t.Fatal(err)
		}
	}
	if unsafe.StringData(urls[0]) != unsafe.StringData(urls[1]) {
		t.Error("got another text for the same picture")
	}
}
