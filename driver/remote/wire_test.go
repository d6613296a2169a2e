package remote

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"image"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/drivertest"
)

func TestReadLine(t *testing.T) {
	const long = 100 << 10 // more than the reader's buffer
	tests := []struct {
		name, stream string
		want         []string
		end          error
	}{
		{"nothing", "", nil, io.EOF},
		{"lines", "a\nbc\r\n", []string{"a\n", "bc\r\n"}, io.EOF},
		{"empty lines", "\n \r\na\n\n", []string{"a\n"}, io.EOF},
		{"a long one", strings.Repeat("x", long) + "\ny\n", []string{strings.Repeat("x", long) + "\n", "y\n"}, io.EOF},
		{"one cut short", "a\nb", []string{"a\n"}, io.ErrUnexpectedEOF},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := bufio.NewReader(strings.NewReader(test.stream))
			var got []string
			for {
				line, err := readLine(r, nil)
				if err != nil {
					if !errors.Is(err, test.end) {
						t.Errorf("got error %v, want %v", err, test.end)
					}
					break
				}
				got = append(got, string(line))
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %.40q, want %.40q", got, test.want)
			}
		})
	}
	endless := bufio.NewReaderSize(xs{}, 1<<20)
	if _, err := readLine(endless, nil); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a line without end: got %v, want it refused", err)
	}
}

// xs is a stream of x without end.
type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestParcels sends messages through both ends, and checks that what is on the wire is what JSON would have had there.
func TestParcels(t *testing.T) {
	large := base64.StdEncoding.EncodeToString(make([]byte, 60_000))
	sender, receiver := newParcels(), newParcels()
	defer receiver.expect()()
	receipt := base64.StdEncoding.EncodeToString(sender.store(large))
	before, picture, after := sender.pack([]byte(`{"a":1,"data":"` + receipt + `","b":"` + receipt + `"}`))
	onWire := before + picture + after
	if want := `{"a":1,"data":"` + large + `","b":"` + receipt + `"}`; onWire != want {
		t.Fatalf("got %.60q... on the wire, want %.60q", onWire, want)
	}
	var short struct{ Data []byte }
	if err := json.Unmarshal(receiver.unpack([]byte(onWire)), &short); err != nil {
		t.Fatal(err)
	}
	if got, ok := receiver.take(short.Data); !ok || got != large {
		t.Errorf("got %.20q, %v, want the picture", got, ok)
	}
	if _, ok := receiver.take(short.Data); ok {
		t.Error("got the picture again")
	}
}

func TestParcelsLeavesAlone(t *testing.T) {
	long := strings.Repeat("A", 5000)
	p := newParcels()
	defer p.expect()()
	for _, message := range []string{
		`{}`,
		`{"data":"` + long[:100] + `"}`,          // not worth it
		`{"data":"` + long + `\n"}`,              // not what it looks like
		`{"text":"\"data\":\"` + long + `"}`,     // in a string
		`{"data": "` + long + `"}`,               // of another program
		`{"data":"` + long,                       // cut short
		`{"text":"` + p.label + `"}`,             // a receipt without its number
		`{"text":"` + p.label + `AAAA"}`,         // of nothing
		`{"text":"` + p.label + `\u0041\u0041"}`, // that is none
	} {
		if got := string(p.unpack([]byte(message))); got != message {
			t.Errorf("got %.60q, want %.60q", got, message)
		}
		before, picture, after := p.pack([]byte(message))
		if before+picture+after != message {
			t.Errorf("packed %.60q, want %.60q", before+picture+after, message)
		}
	}
}

// TestParcelsForget checks that pictures which come too late do not pile up.
func TestParcelsForget(t *testing.T) {
	message := []byte(`{"data":"` + strings.Repeat("A", 5000) + `"}`)
	p := newParcels()
	p.unpack(message)
	if len(p.stored) > 0 {
		t.Error("kept a picture that nobody waits for")
	}
	first, second := p.expect(), p.expect()
	p.unpack(message)
	first()
	if len(p.stored) != 1 {
		t.Errorf("got %d pictures, want the one that may be for the second call", len(p.stored))
	}
	second()
	if len(p.stored) > 0 {
		t.Error("kept a picture that nobody waits for any more")
	}
}

// TestEverySentinel compares the table with the source of package driver.
func TestEverySentinel(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../driver.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
			found++
		}
		return true
	})
	if want := len(sentinels) - 1; found != want { // but for ErrDeclined
		t.Errorf("package driver has %d sentinels, and %d are known here", found, want)
	}
	seen := map[error]string{}
	for name, sentinel := range sentinels {
		if other, ok := seen[sentinel]; ok {
			t.Errorf("%s and %s are the same", name, other)
		}
		seen[sentinel] = name
	}
}

// TestFormsAreExact sends frames and scenes through JSON.
func TestFormsAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	rectangle := func() image.Rectangle { // empty ones and such that are none included
		n := func() int { return random.IntN(7) - 3 }
		return image.Rectangle{Min: image.Pt(n(), n()), Max: image.Pt(n(), n())}
	}
	for range 1000 {
		want := driver.Frame{
			ID: random.Uint64() >> 1, Taken: time.Unix(random.Int64N(1<<33), random.Int64N(1e9)).UTC(), Area: rectangle(),
			Scene:    driver.Scene{Screen: rectangle(), Window: driver.Window{ID: random.Uint32N(2), Bounds: rectangle(), Visible: rectangle()}},
			Settling: driver.Settling{State: driver.Settled, Elapsed: time.Duration(random.Int64N(1e12)), Changed: rectangle(), Recurring: rectangle()},
			Blank:    "all black",
		}
		withImage := want
		withImage.Image = image.NewRGBA(image.Rect(0, 0, 3, 4))
		data, err := json.Marshal(frameOf(&withImage))
		if err != nil {
			t.Fatal(err)
		}
		var form frame
		if err := json.Unmarshal(data, &form); err != nil {
			t.Fatal(err)
		}
		if got := *form.frame(); !reflect.DeepEqual(got, want) || form.Size != (size{3, 4}) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		`point (1,2): "x" é`: `point (1,2): "x" é`,
		"two\nlines":         `"two\nlines"`,
		"red \x1b[31m":       `"red \x1b[31m"`,
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if got := plain(strings.Repeat("ä", 5000)); len(got) > 2010 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("got %d bytes that end with %q, want fewer", len(got), got[len(got)-8:])
	}
}

// TestSilence checks that a call ends when the server is not there any more although the connection is, as when the
// container it is in has been paused; and that a call that takes long does not.
func TestSilence(t *testing.T) {
	release := make(chan struct{})
	f := &drivertest.Fake{Screen: image.Rect(0, 0, 640, 480), Hook: func(ctx context.Context, _ driver.Action) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	}}
	server, err := NewServer(f, &ServerOptions{Approve: Allow})
	if err != nil {
		t.Fatal(err)
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	through := &valve{ReadCloser: fromServer, shut: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(t.Context(), in, out) }()
	d, err := New(t.Context(), through, toServer)
	if err != nil {
		t.Fatal(err)
	}
	d.heartbeat = 200 * time.Millisecond
	time.AfterFunc(5*d.heartbeat, func() { close(release) })
	if err := d.Wait(t.Context(), driver.Wait{}); err != nil {
		t.Errorf("a call that takes long: got %v", err)
	}
	close(through.shut)
	begin := time.Now()
	if err := d.Wait(t.Context(), driver.Wait{}); !errors.Is(err, driver.ErrDisplayLost) {
		t.Errorf("got %v after %v, want %v", err, time.Since(begin), driver.ErrDisplayLost)
	}
	if err := errors.Join(d.Close(), <-served); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// A valve lets nothing through once it is shut.
type valve struct {
	io.ReadCloser
	shut chan struct{}
}

func (v *valve) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	select {
	case <-v.shut:
		if err == nil {
			return 0, nil
		}
	default:
	}
	return n, err
}
