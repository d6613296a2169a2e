package encode

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/jpeg"
	"sync"
)

// Format is a file format of pictures.
type Format int

// The formats.
const (
	PNG Format = iota
	JPEG
)

// String is the format's name, as in its media type.
func (f Format) String() string {
	switch f {
	case PNG:
		return "png"
	case JPEG:
		return "jpeg"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

// ParseFormat returns the format of a name that String gives.
func ParseFormat(name string) (Format, error) {
	for f := PNG; f <= JPEG; f++ {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("unknown picture format %q: want png or jpeg", name)
}

// DefaultQuality is that of a JPEG for which nobody asked for another.
const DefaultQuality = 85

// Options say how pictures are encoded. The zero value is PNG.
type Options struct {
	Format Format
	// Quality is that of a JPEG, from 1 to 100; zero means DefaultQuality. PNG has none.
	Quality int
}

// check fills in what is left out, and reports what there is no such thing as.
func (o *Options) check() error {
	switch {
	case o.Format != PNG && o.Format != JPEG:
		return fmt.Errorf("unknown picture format %v", o.Format)
	case o.Format == PNG && o.Quality != 0:
		return fmt.Errorf("quality %d for PNG, which has none", o.Quality)
	case o.Quality < 0 || o.Quality > 100:
		return fmt.Errorf("JPEG quality %d: want from 1 to 100, or 0 for %d", o.Quality, DefaultQuality)
	}
	if o.Format == JPEG && o.Quality == 0 {
		o.Quality = DefaultQuality
	}
	return nil
}

// AppendJPEG appends a picture to dst as a JPEG file of a quality from 1 to 100. Colours have half the resolution. Alpha
// is not looked at. It may be called from several goroutines. The only error is a picture without pixels, or with more
// than a JPEG can have.
func AppendJPEG(dst []byte, picture *image.RGBA, quality int) ([]byte, error) {
	if picture.Rect.Empty() {
		return dst, fmt.Errorf("encoding a picture of %v as JPEG: no pixels", picture.Rect.Size())
	}
	b := bytes.NewBuffer(dst)
	// image/jpeg reads an image.RGBA directly, so nothing is won by converting its colours here.
	if err := jpeg.Encode(b, picture, &jpeg.Options{Quality: quality}); err != nil {
		return dst, fmt.Errorf("encoding a picture of %v as JPEG: %w", picture.Rect.Size(), err)
	}
	return b.Bytes(), nil
}

// AppendDataURL appends a file to dst as a data URL.
func AppendDataURL(dst []byte, format Format, file []byte) []byte {
	dst = append(append(append(dst, "data:image/"...), format.String()...), ";base64,"...)
	return base64.StdEncoding.AppendEncode(dst, file)
}

// An Encoder makes data URLs of pictures, and gives the last one again while the picture has not changed. To tell, it
// keeps a copy of the last picture, its URL and what it took to make it: for 1280x720, 3.7 MB, about three times the file,
// and 1 MiB for each processor. Its methods are safe to use from several goroutines, one at a time.
type Encoder struct {
	opts Options

	mu   sync.Mutex // guards what follows
	last image.RGBA // its rows without gaps
	url  string     // of last; "" before the first
	png  pngEncoder
	file []byte
	text []byte
}

// New returns an Encoder. Options may be nil and are copied.
func New(opts *Options) (*Encoder, error) {
	e := new(Encoder)
	if opts != nil {
		e.opts = *opts
	}
	if err := e.opts.check(); err != nil {
		return nil, err
	}
	return e, nil
}

// DataURL returns a picture as a data URL. Alpha is not looked at, but to compare pictures. The picture is not kept.
func (e *Encoder) DataURL(picture *image.RGBA) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.url != "" && e.unchanged(picture) {
		return e.url, nil
	}
	var err error
	if e.opts.Format == JPEG {
		e.file, err = AppendJPEG(e.file[:0], picture, e.opts.Quality)
	} else {
		e.file, err = e.png.append(e.file[:0], picture)
	}
	if err != nil {
		return "", err
	}
	e.text = AppendDataURL(e.text[:0], e.opts.Format, e.file)
	e.remember(picture)
	e.url = string(e.text)
	return e.url, nil
}

// unchanged reports whether a picture has the same pixels as the last one.
func (e *Encoder) unchanged(picture *image.RGBA) bool {
	if picture.Rect.Size() != e.last.Rect.Size() {
		return false
	}
	for y := range e.last.Rect.Dy() {
		if !bytes.Equal(row(picture, y), row(&e.last, y)) {
			return false
		}
	}
	return true
}

// remember makes a picture the last one.
func (e *Encoder) remember(picture *image.RGBA) {
	e.last.Rect = image.Rectangle{Max: picture.Rect.Size()}
	e.last.Stride = 4 * e.last.Rect.Dx()
	e.last.Pix = e.last.Pix[:0]
	for y := range e.last.Rect.Dy() {
		e.last.Pix = append(e.last.Pix, row(picture, y)...)
	}
}

// row returns the pixels of a row, counted from the top of the picture.
func row(picture *image.RGBA, y int) []byte {
	return picture.Pix[y*picture.Stride:][:4*picture.Rect.Dx()]
}
