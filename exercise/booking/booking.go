// Package booking is the practice page: a form in which a room is booked, served on the loopback interface for a browser
// on the same machine. What is to be booked is drawn at random and shown on the page alone, in the marks of package palette
// beside plain words. The server keeps what was submitted as it came, and gives it a number that nobody can know before;
// the page that confirms asks for a note with that number.
package booking

import (
	"bytes"
	crand "crypto/rand"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"image"
	"image/png"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deskagent/deskagent/exercise/internal/palette"
)

// A Challenge is what is to be booked.
type Challenge struct {
	Name  string
	Wish  string   // has a newline
	Rooms []string // the codes of the rooms there are
	Room  int      // the index in Rooms
}

const (
	rooms  = 18
	hidden = 6 // of the first rooms, which show without scrolling and are never the one
)

// NewChallenge draws the challenge of a seed; the same seed gives the same challenge.
func NewChallenge(seed uint64) Challenge {
	random := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	c := Challenge{
		Name: pick("Ada", "Blaise", "Carl", "Emmy", "Kurt", "Sofia") + " " + pick("Noether", "Lovelace", "Gauss", "Euler", "Goedel"),
		Wish: pick("by window", "top floor", "quiet") + "\nup to " + strconv.Itoa(2+random.IntN(97)) + " EUR",
		Room: hidden + random.IntN(rooms-hidden),
	}
	for _, i := range random.Perm(26 * 9)[:rooms] {
		c.Rooms = append(c.Rooms, fmt.Sprintf("%c%d", 'A'+i/9, 1+i%9))
	}
	return c
}

// A Record is what the server stored of a form that was submitted. Two records are compared with ==.
type Record struct {
	Name  string `json:"name"`
	Wish  string `json:"wish"` // lines end as browsers send them, with \r\n
	Room  string `json:"room"`
	Terms bool   `json:"terms"`
	// Untrusted is how many events of the form did not come from an input device, as the browser says.
	Untrusted int `json:"untrusted"`
}

// Want returns the record that meets the challenge.
func (c Challenge) Want() Record {
	return Record{Name: c.Name, Wish: strings.ReplaceAll(c.Wish, "\n", "\r\n"), Room: c.Rooms[c.Room], Terms: true}
}

// A Booking is a record with the number that it was given, and the note that was asked for.
type Booking struct {
	Record Record `json:"record"`
	Note   string `json:"note"` // its text
	File   string `json:"file"` // where it is to be
}

//go:embed page.html
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{"mark": mark}).ParseFS(files, "page.html"))

// A Server serves the page. Its methods may be used from several goroutines.
type Server struct {
	challenge Challenge
	folder    string
	listener  net.Listener
	http      http.Server
	served    chan struct{}
	shown     chan struct{} // closed when a browser has painted the form
	show      func()

	mu       sync.Mutex
	bookings []Booking
}

// Start starts a server on a free port of the loopback interface. The note is asked for in a folder, which has to be
// short enough for a mark: at most ten characters.
func Start(seed uint64, folder string) (*Server, error) {
	if len(folder) > 10 {
		return nil, fmt.Errorf("folder %q for the note: want at most ten characters", folder)
	}
	s := &Server{challenge: NewChallenge(seed), folder: folder, served: make(chan struct{}), shown: make(chan struct{})}
	s.show = sync.OnceFunc(func() { close(s.shown) })
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting the practice page: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.form)
	mux.HandleFunc("POST /shown", func(http.ResponseWriter, *http.Request) { s.show() })
	mux.HandleFunc("POST /{$}", s.book)
	s.http = http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(s.listener) // ends with Close
	}()
	return s, nil
}

// URL is the address of the form.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/" }

// Shown is closed when a browser has painted the form.
func (s *Server) Shown() <-chan struct{} { return s.shown }

// Booked returns what was booked. It is an error when that was nothing, or more than once.
func (s *Server) Booked() (Booking, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch len(s.bookings) {
	case 0:
		return Booking{}, errors.New("nothing was booked")
	case 1:
		return s.bookings[0], nil
	}
	return Booking{}, fmt.Errorf("it was booked %d times, want once", len(s.bookings))
}

// Close ends the server.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.served
	return err
}

// view is what the page shows: the form, or what was booked.
type view struct {
	Challenge
	Booked *Booking
}

func (s *Server) form(w http.ResponseWriter, _ *http.Request) {
	s.write(w, view{Challenge: s.challenge})
}

func (s *Server) book(w http.ResponseWriter, r *http.Request) {
	const most = 64 << 10
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	untrusted, err := strconv.Atoi(r.PostForm.Get("untrusted"))
	if err != nil {
		http.Error(w, "no count of events", http.StatusBadRequest)
		return
	}
	b := Booking{Record: Record{
		Name: r.PostForm.Get("name"), Wish: r.PostForm.Get("wish"), Room: r.PostForm.Get("room"),
		Terms: r.PostForm.Get("terms") == "on", Untrusted: untrusted,
	}}
	b.Note = "Booking " + crand.Text()[:6] + "\nRoom " + b.Record.Room
	b.File = s.folder + "/" + strings.ToLower(crand.Text()[:6]) + ".txt"
	s.mu.Lock()
	s.bookings = append(s.bookings, b)
	s.mu.Unlock()
	s.write(w, view{s.challenge, &b})
}

func (s *Server) write(w http.ResponseWriter, v view) {
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(b.Bytes())
}

// kinds are the names of marks in the page.
var kinds = map[string]palette.Kind{
	"text": palette.TextField, "area": palette.TextArea, "box": palette.CheckBox, "list": palette.List, "item": palette.ListItem,
	"save": palette.Save, "note": palette.Note, "file": palette.NoteFile,
}

// mark is a mark as a picture, for the page: one that is to be done, or one that is done.
func mark(kind, text string, done bool) (template.URL, error) {
	k, ok := kinds[kind]
	if !ok {
		return "", fmt.Errorf("no kind of mark %q", kind)
	}
	m := palette.Mark{Kind: k, Text: text}
	if done {
		m.Lamp = palette.Done
	}
	picture := image.NewRGBA(image.Rectangle{Max: m.Size()})
	m.Draw(picture, image.Point{})
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		return "", err
	}
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())), nil
}
