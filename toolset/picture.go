package toolset

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // these, to read the size of what Present returns
	_ "image/png"
	"strings"
	"unicode"

	"github.com/openai/openai-go/v3/packages/param"

	"github.com/deskagent/deskagent/internal/encode"
)

// PictureType is the only type of [Picture] that the API takes in an output.
const PictureType = "computer_screenshot"

// A Picture is a picture in a form that can be sent. It needs the type [PictureType] and at least one source. A
// source is left out, or a string that is not blank; null is refused. Sources are sent as they are.
type Picture struct {
	Type     string
	ImageURL param.Opt[string]
	FileID   param.Opt[string]
}

// output is a checked picture in the API's form.
func (p Picture) output() map[string]string {
	o := map[string]string{"type": p.Type}
	if p.ImageURL.Valid() {
		o["image_url"] = p.ImageURL.Value
	}
	if p.FileID.Valid() {
		o["file_id"] = p.FileID.Value
	}
	return o
}

// check refuses what cannot be sent, and a picture that is not of the given size where that can be told: the
// model would name points of another picture than the one that was made.
func (p Picture) check(want image.Point) error {
	if p.Type != PictureType {
		return fmt.Errorf("picture of type %q, want %q", p.Type, PictureType)
	}
	if param.IsOmitted(p.ImageURL) && param.IsOmitted(p.FileID) {
		return errors.New("picture without image_url and file_id")
	}
	for name, source := range map[string]param.Opt[string]{"image_url": p.ImageURL, "file_id": p.FileID} {
		if param.IsOmitted(source) {
			continue
		}
		if !source.Valid() || strings.TrimFunc(source.Value, blank) == "" {
			return fmt.Errorf("picture with a blank or null %s", name)
		}
	}
	if _, data, ok := strings.Cut(p.ImageURL.Value, ";base64,"); ok {
		config, _, err := image.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
		if got := image.Pt(config.Width, config.Height); err == nil && got != want {
			return fmt.Errorf("picture was presented as %dx%d, want %dx%d", got.X, got.Y, want.X, want.Y)
		}
	}
	return nil
}

// blank reports whether r counts as white space to the API's clients: Unicode's spaces and line breaks but for
// U+0085, and the byte order mark.
func blank(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\uFEFF', '\u2028', '\u2029':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}

// An Encoding says how pictures are presented as data URLs. The zero value is PNG, which is exact, and quicker to make than
// JPEG. JPEG is for slow links: it has less than half of the bytes, and less than half of the colour.
type Encoding struct {
	Format  string // "png" or "jpeg"; empty means "png"
	Quality int    // of JPEG, from 1 to 100; zero means 85
}

// Presenter returns a function for [Options].Present. It gives the same text again while the picture does not change; for
// that it keeps the last one, as pixels and encoded, a few megabytes. It is safe to use from several goroutines, one
// at a time, and may serve several toolsets, but each does better with its own.
func (e Encoding) Presenter() (func(context.Context, *image.RGBA) (Picture, error), error) {
	format, err := encode.ParseFormat(cmp.Or(e.Format, "png"))
	if err != nil {
		return nil, err
	}
	encoder, err := encode.New(&encode.Options{Format: format, Quality: e.Quality})
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, picture *image.RGBA) (Picture, error) {
		url, err := encoder.DataURL(picture)
		if err != nil {
			return Picture{}, err
		}
		return Picture{Type: PictureType, ImageURL: param.NewOpt(url)}, nil
	}, nil
}

// PNG presents a picture as a data URL and keeps nothing: see [Encoding] for more.
func PNG(_ context.Context, picture *image.RGBA) (Picture, error) {
	file, err := encode.AppendPNG(nil, picture)
	if err != nil {
		return Picture{}, err
	}
	url := string(encode.AppendDataURL(nil, encode.PNG, file))
	return Picture{Type: PictureType, ImageURL: param.NewOpt(url)}, nil
}
