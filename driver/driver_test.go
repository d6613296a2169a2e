package driver_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/deskagent/deskagent/driver"
)

func ExampleDecodeAction() {
	a, err := driver.DecodeAction([]byte(`{"type":"click","x":640,"y":360,"button":"left","keys":["CTRL"]}`))
	fmt.Println(a.(driver.Click).Button, driver.Points(a), driver.HeldKeys(a), err)
	_, err = driver.DecodeAction([]byte(`{"type":"click","x":640.5,"y":360,"button":"left"}`))
	fmt.Println(err)
	// Output:
	// left [(640,360)] [CTRL] <nil>
	// invalid action: click: x: "640.5" is not a whole number in range
}

func ExampleParseKey() {
	for _, name := range []string{"ENTER", "cmd", "PageUp", "+", "NOPE"} {
		key, err := driver.ParseKey(name)
		fmt.Println(key, err)
	}
	// Output:
	// Return <nil>
	// Super_L <nil>
	// Page_Up <nil>
	// + <nil>
	// Key(0x0) unknown key "NOPE"
}

func TestActionRoundTrip(t *testing.T) {
	for _, in := range []string{
		`{"type":"click","button":"forward","x":0,"y":500}`,
		`{"type":"click","button":"left","x":1,"y":2,"keys":["CTRL"]}`,
		`{"type":"click","button":"left","x":1,"y":2,"keys":[]}`,
		`{"type":"click","button":"left","x":1,"y":2,"keys":null}`,
		`{"type":"click","button":"wheel","x":1,"y":2,"pressure":0.5}`,
		`{"type":"double_click","x":1,"y":2,"keys":null}`,
		`{"type":"drag","path":[{"x":0,"y":0},{"x":3,"y":4}]}`,
		`{"type":"drag","path":[]}`,
		`{"type":"drag","path":[{"t":7,"x":0,"y":0}]}`,
		`{"type":"keypress","keys":["CTRL","C"]}`,
		`{"type":"keypress","keys":[]}`,
		`{"type":"move","x":-1,"y":2}`,
		`{"type":"scroll","scroll_x":-300,"scroll_y":100,"x":1,"y":2}`,
		`{"type":"type","text":"a<b>&\u0000\n😀"}`,
		`{"type":"type","text":"a","keys":["CTRL"]}`,
		`{"type":"wait"}`,
		`{"type":"screenshot"}`,
	} {
		a, err := driver.DecodeAction([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got, err := driver.Clone(a).MarshalJSON()
		if err != nil || string(got) != in {
			t.Errorf("got %s, %v, want %s", got, err, in)
		}
	}
}

func TestDecodeActionMeaning(t *testing.T) {
	a, err := driver.DecodeAction([]byte(`{"type":"scroll","x":12.0,"y":3e2,"scroll_x":-0,"scroll_y":1}`))
	if want := (driver.Scroll{X: 12, Y: 300, ScrollY: 1}); err != nil || fmt.Sprint(a) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v, want %+v", a, err, want)
	}
	a, err = driver.DecodeAction([]byte(`{"type":"double_click","x":1,"y":2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(a); !strings.Contains(string(got), `"keys":null`) {
		t.Errorf("got %s, want the missing keys of a double click written as null", got)
	}
}

// TestX10 is row X10 of the field cases: whatever is no whole number in range is refused, not rounded.
func TestX10(t *testing.T) {
	for _, x := range []string{`1.5`, `"3"`, `NaN`, `1e400`, `99999999999999999999`, `9007199254740994`, `true`, `null`, `[1]`, `{}`} {
		a, err := driver.DecodeAction([]byte(`{"type":"move","y":1,"x":` + x + `}`))
		if !errors.Is(err, driver.ErrInvalidAction) || a != nil {
			t.Errorf("x=%s: got %v, %v, want an invalid action", x, a, err)
		}
	}
}

func TestDecodeActionRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"no object", `[]`, `"[]" is not an object`},
		{"nothing", ``, `nothing is not an object`},
		{"no type", `{"x":1}`, `type is missing`},
		{"unknown type", `{"type":"Click","x":1,"y":1,"button":"left"}`, `unknown type "Click"`},
		{"case of a field", `{"type":"move","X":1,"y":1}`, `x is missing`},
		{"M2 unknown button", `{"type":"click","x":1,"y":1,"button":"side"}`, `unknown button "side"`},
		{"keys no list", `{"type":"move","x":1,"y":1,"keys":"CTRL"}`, `keys: "\"CTRL\"" is not a list`},
		{"key no string", `{"type":"wait","keys":[1]}`, `keys[0]: "1" is not a string`},
		{"path point", `{"type":"drag","path":[{"x":1,"y":1},null]}`, `path[1]: "null" is not an object`},
		{"point coordinate", `{"type":"drag","path":[{"x":1,"y":1.5}]}`, `path[0]: y: "1.5"`},
		{"keypress null", `{"type":"keypress","keys":null}`, `keys: "null" is not a list`},
		{"text null", `{"type":"type","text":null}`, `text: "null" is not a string`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, err := driver.DecodeAction([]byte(test.in))
			if a != nil || !errors.Is(err, driver.ErrInvalidAction) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want an error with %s", a, err, test.want)
			}
		})
	}
	if _, err := driver.DecodeAction([]byte(`{"type":"click","x":1,"y":1,"button":"side"}`)); !errors.Is(err, driver.ErrUnknownButton) {
		t.Errorf("got %v, want it to wrap ErrUnknownButton too", err)
	}
}

func FuzzDecodeAction(f *testing.F) {
	f.Add([]byte(`{"type":"click","x":1,"y":2,"button":"left","keys":["a"],"z":[{}]}`))
	f.Add([]byte(`{"type":"drag","path":[{"x":1e1,"y":2.0,"t":null}],"keys":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := driver.DecodeAction(data)
		if err != nil {
			return
		}
		once, err := a.MarshalJSON()
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		b, err := driver.DecodeAction(once)
		if err != nil {
			t.Fatalf("%s became %s: %v", data, once, err)
		}
		if twice, _ := b.MarshalJSON(); string(once) != string(twice) {
			t.Errorf("%s became %s, then %s", data, once, twice)
		}
	})
}

func TestClone(t *testing.T) {
	a := driver.Drag{Path: []image.Point{{X: 1}}, Keys: []string{"CTRL"}, Extra: driver.Extra{"z": json.RawMessage("1")}}
	b := driver.Clone(a).(driver.Drag)
	b.Path[0].X, b.Keys[0], b.Extra["z"][0] = 9, "ALT", '2'
	if a.Path[0].X != 1 || a.Keys[0] != "CTRL" || string(a.Extra["z"]) != "1" {
		t.Errorf("the original changed: %+v", a)
	}
}

// TestK1 is row K1 of the field cases: each alias is a key, in the spelling models use.
func TestK1(t *testing.T) {
	aliases := map[string]string{
		"Return": "ENTER Return RETURN enter", "Escape": "ESC Escape esc", "Page_Up": "PAGEUP Page_Up PageUp page-up PGUP",
		"Up": "ARROWUP UP ArrowUp", "Super_L": "CMD META WIN Command super", "Alt_L": "OPTION ALT", "Delete": "DEL Delete",
		"space": "SPACE space", "+": "+ plus", "-": "- minus", "Control_L": "CTRL Control CONTROL_L", "a": "a", "A": "A", "é": "é",
	}
	for want, names := range aliases {
		for _, name := range strings.Fields(names) {
			if got, err := driver.ParseKey(name); err != nil || got.String() != want {
				t.Errorf("%s: got %v, %v, want %s", name, got, err, want)
			}
		}
	}
	for i := 1; i <= 24; i++ {
		name := fmt.Sprintf("f%d", i)
		if got, err := driver.ParseKey(name); err != nil || got != driver.Key(0xffbe+i-1) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	// What web browsers and automation libraries call keys.
	for _, name := range strings.Fields("KeyA KeyZ Digit0 ArrowLeft ControlRight MetaLeft OSLeft Numpad7 NumpadDecimal Backquote BracketLeft Quote " +
		"ContextMenu AltGraph AudioVolumeUp MediaTrackNext BrowserRefresh PrintScreen prntscrn winleft num0 multiply divide capslock " +
		"KP_0 KP_Home KP_Prior KP_Next KP_Separator ISO_Left_Tab Multi_key XF86AudioMicMute XF86MonBrightnessUp Zenkaku_Hankaku F35") {
		if _, err := driver.ParseKey(name); err != nil {
			t.Error(err)
		}
	}
	if got, err := driver.ParseKey(" "); err != nil || got != driver.KeySpace {
		t.Errorf("a space: got %v, %v", got, err)
	}
}

// TestKeys reads the table back, and changes it.
func TestKeys(t *testing.T) {
	names := 0
	for _, row := range driver.Keys() {
		for _, name := range append([]string{row.Name}, row.Aliases...) {
			if got, err := driver.ParseKey(name); err != nil || got != row.Key {
				t.Errorf("%s: got %v, %v, want %v", name, got, err, row.Key)
			}
			names++
		}
		clear(row.Aliases)
	}
	if names < 300 {
		t.Errorf("got %d names", names)
	}
	if got := driver.Keys()[0]; got.Name != "Return" || got.Aliases[0] != "enter" {
		t.Errorf("got %v first", got)
	}
}

// TestT24 is row T24 of the field cases: text that a shell would run is an unknown key, as are other names.
func TestT24(t *testing.T) {
	for _, name := range []string{"a; touch /tmp/pwn", "", "NOPE", "CTRL+C", "\x00", "\xff", "F36", strings.Repeat("x", 1000)} {
		if got, err := driver.ParseKey(name); !errors.Is(err, driver.ErrUnknownKey) || len(err.Error()) > 200 {
			t.Errorf("%q: got %v, %v, want an unknown key", name, got, err)
		}
	}
	if keys, err := driver.ParseKeys([]string{"CTRL", "NOPE", "W"}); keys != nil || !errors.Is(err, driver.ErrUnknownKey) {
		t.Errorf("K8: got %v, %v, want no keys", keys, err)
	}
}

func TestModifier(t *testing.T) {
	for name, want := range map[string]bool{"CTRL": true, "Shift_R": true, "META": true, "altgr": true, "caps": false, "a": false, "Num_Lock": false} {
		key, err := driver.ParseKey(name)
		if err != nil || key.Modifier() != want {
			t.Errorf("%s: got %v, %v, want %v", name, key.Modifier(), err, want)
		}
	}
}

func TestButtonText(t *testing.T) {
	if _, err := json.Marshal(driver.Click{}); !errors.Is(err, driver.ErrUnknownButton) {
		t.Errorf("got %v, want a click without a button refused", err)
	}
	for b := driver.ButtonLeft; b <= driver.ButtonForward; b++ {
		if got, err := driver.ParseButton(b.String()); got != b || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, b)
		}
	}
}

func TestPixels(t *testing.T) {
	want := image.NewRGBA(image.Rect(0, 0, 5, 4))
	for i := range want.Pix {
		if want.Pix[i] = byte(7 * i); i%4 == 3 {
			want.Pix[i] = 0xff
		}
	}
	file := func(picture image.Image) string {
		var b bytes.Buffer
		if err := png.Encode(&b, picture); err != nil {
			t.Fatal(err)
		}
		return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
	}
	frame := driver.Frame{DataURL: file(want)}
	got, err := frame.Pixels()
	if err != nil || got.Rect != want.Rect || !bytes.Equal(got.Pix, want.Pix) {
		t.Errorf("got %v, %v, want the pixels of the file", got, err)
	}
	if again, err := frame.Pixels(); again != got || frame.Image != got || err != nil {
		t.Errorf("got %p, %v, want %p again", again, err, got)
	}
	for name, f := range map[string]driver.Frame{
		"nothing": {}, "no file": {DataURL: "data:image/png;base64,AAAA"}, "no base64": {DataURL: "data:image/png;base64,?"},
		"other pixels": {DataURL: file(image.NewGray(image.Rect(0, 0, 2, 2)))},
	} {
		if got, err := f.Pixels(); err == nil {
			t.Errorf("%s: got %v and no error", name, got.Rect)
		}
	}
}
