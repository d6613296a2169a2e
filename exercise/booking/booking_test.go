package booking

import (
	"bytes"
	"encoding/base64"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// TestChallenge has every seed ask for something that marks can carry, and for a room that does not show at first.
func TestChallenge(t *testing.T) {
	seen := map[Record]bool{}
	for seed := range uint64(200) {
		c := NewChallenge(seed)
		rooms := slices.Clone(c.Rooms)
		slices.Sort(rooms)
		if len(c.Wish) > palette.MaxText || len(c.Name) > palette.MaxText || c.Room < hidden || len(slices.Compact(rooms)) != len(c.Rooms) {
			t.Errorf("seed %d: got %+v", seed, c)
		}
		seen[c.Want()] = true
	}
	if len(seen) < 190 {
		t.Errorf("got %d different challenges of 200 seeds", len(seen))
	}
}

// marks reads the marks in a page.
func marks(t *testing.T, page string) (found []palette.Mark) {
	t.Helper()
	for _, data := range regexp.MustCompile(`data:image/png;base64,([^"]+)`).FindAllStringSubmatch(page, -1) {
		picture, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(strings.ReplaceAll(data[1], "&#43;", "+"))))
		if err != nil {
			t.Fatal(err)
		}
		var columns []palette.Column
		for x := palette.Cell / 2; x < picture.Bounds().Dx(); x += palette.Cell {
			var column palette.Column
			for row := range column {
				column[row] = color.RGBAModel.Convert(picture.At(x, row*palette.Cell+palette.Cell/2)).(color.RGBA)
			}
			columns = append(columns, column)
		}
		mark, ok := palette.Decode(columns)
		if !ok {
			t.Fatal("got a picture that is no mark")
		}
		found = append(found, mark)
	}
	return found
}

func get(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("got %d, %v: %s", r.StatusCode, err, body)
	}
	return string(bytes.TrimSpace(body))
}

// TestServer books as a browser does.
func TestServer(t *testing.T) {
	s, err := Start(5, "/home/desk")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := NewChallenge(5)
	if _, err := s.Booked(); err == nil {
		t.Error("got a booking before there was one")
	}
	page, err := http.Get(s.URL())
	form := marks(t, get(t, page, err))
	for _, want := range []palette.Mark{
		{Kind: palette.TextField, Text: c.Name}, {Kind: palette.TextField, Lamp: palette.Done, Text: c.Name}, {Kind: palette.TextArea, Text: c.Wish},
		{Kind: palette.CheckBox}, {Kind: palette.List, Text: c.Rooms[c.Room]}, {Kind: palette.ListItem, Text: c.Rooms[0]}, {Kind: palette.Save},
	} {
		if !slices.Contains(form, want) {
			t.Errorf("got %+v, want %+v among it", form, want)
		}
	}
	fields := url.Values{"name": {c.Name}, "wish": {strings.ReplaceAll(c.Wish, "\n", "\r\n")}, "room": {c.Rooms[c.Room]}, "terms": {"on"}, "untrusted": {"0"}}
	page, err = http.PostForm(s.URL(), fields)
	thanks := marks(t, get(t, page, err))
	b, err := s.Booked()
	if err != nil || b.Record != c.Want() {
		t.Errorf("got %+v, %v, want %+v", b, err, c.Want())
	}
	for _, want := range []palette.Mark{{Kind: palette.Save, Lamp: palette.Done}, {Kind: palette.Note, Text: b.Note}, {Kind: palette.NoteFile, Text: b.File}} {
		if !slices.Contains(thanks, want) {
			t.Errorf("got %+v, want %+v among it", thanks, want)
		}
	}
	select {
	case <-s.Shown():
		t.Error("the form is said to have been painted, by nobody")
	default:
	}
	page, err = http.Post(s.URL()+"shown", "", nil)
	get(t, page, err)
	<-s.Shown()
	page, err = http.PostForm(s.URL(), fields)
	get(t, page, err)
	if b, err := s.Booked(); err == nil {
		t.Errorf("got %+v of two bookings, want an error", b)
	}
}

func TestStartRefused(t *testing.T) {
	if s, err := Start(1, "/home/somebody"); err == nil {
		s.Close()
		t.Error("got a server for a folder that no mark can carry")
	}
}
