package uploads

import (
	"bytes"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/deskagent/deskagent/driver/drivertest"
	"github.com/deskagent/deskagent/internal/filesapi"
	"github.com/deskagent/deskagent/runner"
	"github.com/deskagent/deskagent/toolset"
)

// counted counts what comes in over the connections of a listener: headers, bodies and all.
type counted struct {
	net.Listener
	bytes *atomic.Int64
}

type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.bytes}, err
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// desktop returns a driver that shows a busy desktop on which there is another window in each picture.
func desktop(t *testing.T) *drivertest.Fake {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "desktop.png"))
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	screen := image.NewRGBA(image.Rect(0, 0, 1280, 720))
	draw.Draw(screen, screen.Rect, decoded, decoded.Bounds().Min, draw.Src)
	n := 0
	return &drivertest.Fake{Screen: screen.Rect, Picture: func() *image.RGBA {
		window := image.Rect(0, 0, 40, 40).Add(image.Pt(n%30*40, n/30*40))
		draw.Draw(screen, window, shade(n), image.Point{}, draw.Src)
		n++
		return screen
	}}
}

// A talk is a model that asks for so many screenshots and then ends, and says what comes before each answer.
type talk struct {
	t     *testing.T
	files filesapi.Server
	steps int // that are left
	most  int // references in one request
	check bool
}

func (s *talk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/responses" {
		s.files.ServeHTTP(w, r)
		return
	}
	if s.check {
		body, err := io.ReadAll(r.Body)
		n, missing := s.files.Check(body)
		if err != nil || missing != nil {
			s.t.Errorf("a request that refers to nothing: %v, %v", err, missing)
		}
		s.most = max(s.most, n)
	} else if _, err := io.Copy(io.Discard, r.Body); err != nil {
		s.t.Error(err)
	}
	s.steps--
	item := `{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Done.","annotations":[]}]}`
	if s.steps > 0 {
		item = fmt.Sprintf(`{"type":"computer_call","id":"cu_%d","call_id":"c%[1]d","status":"completed","pending_safety_checks":[],"actions":[{"type":"screenshot"}]}`, s.steps)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"r","object":"response","status":"completed","output":[%s]}`, item)
}

// bytesSent makes a run of that many requests, and returns what the client has sent, deleting included, and how many
// pictures it has uploaded.
func bytesSent(t *testing.T, steps int, opts *Options) (sent int64, uploaded int) {
	t.Helper()
	api := &talk{t: t, steps: steps, check: opts != nil && !opts.Auto}
	server := httptest.NewUnstartedServer(api)
	var count atomic.Int64
	server.Listener = counted{server.Listener, &count}
	server.Start()
	defer server.Close()
	client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("none"))

	present, err := toolset.Encoding{}.Presenter()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "list")
	var u *Uploads
	if opts != nil {
		u = open(t, &client, path, opts)
		present = u.Present(present)
	}
	tools, err := toolset.New(desktop(t), &toolset.Options{Present: present})
	if err != nil {
		t.Fatal(err)
	}
	r, err := runner.New(runner.Registration{Computer: tools})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Run(t.Context(), &client, responses.ResponseNewParams{Model: "m",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Look.")}},
		runner.Options{MaxSteps: steps, Computer: toolset.Policy{Unasked: true}})
	if err != nil {
		t.Fatal(err)
	}
	if api.check && api.most != steps-1 {
		t.Errorf("got %d pictures by reference, want %d", api.most, steps-1)
	}
	if u != nil {
		wantClosed(t, u, &api.files, path)
	}
	return count.Load(), api.files.Uploaded()
}

// TestBytesSent shows what is sent in runs of several lengths, and makes sure that by reference it grows with the number
// of steps, and inline with its square.
func TestBytesSent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	lengths := []int{5, 20, 100}
	sent := map[string]map[int]float64{}
	var table strings.Builder
	for _, way := range []struct {
		name string
		opts *Options
	}{{"inline", nil}, {"auto", &Options{Auto: true}}, {"upload", &Options{}}} {
		sent[way.name] = map[int]float64{}
		fmt.Fprintf(&table, "\n| `%s` |", way.name)
		for _, steps := range lengths {
			n, uploaded := bytesSent(t, steps, way.opts)
			sent[way.name][steps] = float64(n)
			fmt.Fprintf(&table, " %.1f MB, %d uploads |", float64(n)/1e6, uploaded)
		}
	}
	t.Log(table.String())
	if got := sent["inline"][20] / sent["inline"][5]; got < 10 {
		t.Errorf("inline: got %.1f times as much for 20 steps as for 5, want about 19", got)
	}
	for _, steps := range lengths[1:] {
		if got, most := sent["upload"][steps]/sent["upload"][5], float64(steps)/4*1.5; got > most {
			t.Errorf("upload: got %.1f times as much for %d steps as for 5, want no more than %.1f", got, steps, most)
		}
		if got := sent["auto"][steps] / sent["inline"][steps]; got > 0.75 {
			t.Errorf("auto: got %.2f of what inline takes for %d steps, want less than 0.75", got, steps)
		}
	}
}
