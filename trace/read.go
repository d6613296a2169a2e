package trace

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // the formats of pictures
	_ "image/png"
	"io"
	"os"
	"path/filepath"
)

// A Trace is a trace that was read.
type Trace struct {
	dir     string
	Start   Start
	Records []Record // all of them, the start included
}

// Open reads the trace in dir, up to the last complete line, also while it is being written.
func Open(dir string) (*Trace, error) {
	t := &Trace{dir: dir}
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("reading the trace in %q: %w", dir, err)
	}
	return t, nil
}

func (t *Trace) read() error {
	file, err := os.Open(filepath.Join(t.dir, recordsFile))
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break // what is there of a line was not finished
		}
		if err != nil {
			return err
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if r.Picture != nil {
			if err := r.Picture.check(); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		t.Records = append(t.Records, r)
	}
	if len(t.Records) == 0 || t.Records[0].Start == nil {
		return errors.New("it has no start")
	}
	t.Start = *t.Records[0].Start
	if t.Start.Version != Version {
		return fmt.Errorf("it is of version %d, want %d", t.Start.Version, Version)
	}
	return nil
}

// End is how the run ended, nil for one that was killed or still goes on.
func (t *Trace) End() *End { return t.Records[len(t.Records)-1].End }

// check makes sure that the picture's name is that of a file in its folder, and the size that of a picture.
func (p *Picture) check() error {
	sum, err := hex.DecodeString(p.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return fmt.Errorf("picture %.80q: want a SHA-256", p.SHA256)
	}
	if p.Format != "png" && p.Format != "jpeg" {
		return fmt.Errorf("picture of format %.20q: want png or jpeg", p.Format)
	}
	if p.Width < 1 || p.Height < 1 {
		return fmt.Errorf("picture of %dx%d", p.Width, p.Height)
	}
	return nil
}

// File returns the file of a picture. One that was not kept is an error.
func (t *Trace) File(p *Picture) ([]byte, error) {
	if !p.Kept {
		return nil, fmt.Errorf("picture %s was not kept", p.SHA256)
	}
	file, err := os.ReadFile(filepath.Join(t.dir, picturesFolder, p.name()))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(file)
	if want, _ := hex.DecodeString(p.SHA256); !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("picture %s has the hash %x", p.name(), sum)
	}
	return file, nil
}

// Image returns the pixels of a picture.
func (t *Trace) Image(p *Picture) (image.Image, error) {
	file, err := t.File(p)
	if err != nil {
		return nil, err
	}
	picture, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("picture %s: %w", p.name(), err)
	}
	return picture, nil
}

// A Turn is a call with what came of it.
type Turn struct {
	Step    int
	Call    Call
	Picture *Picture // nil when there was none: the call was declined, failed or was cut short
}

// Turns returns the calls in their order.
func (t *Trace) Turns() []Turn {
	var turns []Turn
	for _, r := range t.Records {
		switch last := len(turns) - 1; {
		case r.Call != nil:
			turns = append(turns, Turn{Step: r.Step, Call: *r.Call})
		case r.Picture != nil && last >= 0 && r.Picture.CallID == turns[last].Call.ID:
			turns[last].Picture = r.Picture
		}
	}
	return turns
}
