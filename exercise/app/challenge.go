package app

import (
	"fmt"
	"math/rand/v2"
)

// A Challenge is what one run demands. It is drawn at random, so that whoever meets it has to look at the screen.
type Challenge struct {
	Text    string   // for the text field
	Notes   string   // for the text area; has a newline, a tab, and what shells stumble over (rows T22 and T23)
	List    []string // the codes of the list's items
	Item    int      // the index in List of the item to select
	Gallery []string // the codes of the gallery's items
	Picture int      // the index in Gallery of the item to select
	Menu    []string // the codes of the menu's items
	Choice  int      // the index in Menu of the item to choose
	Goal    int      // the column in the slider's track to drag the handle to, in pixels
	Chord   string   // the letter to press together with Ctrl and Shift
	Held    string   // the key to hold during the click: "S" for Shift, "C" for Ctrl
}

const (
	listItems    = 24
	galleryItems = 12
	menuItems    = 3
)

const (
	lower   = "abcdefghijkmnopqrstuvwxyz"
	capital = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

// NewChallenge draws the challenge of a seed; the same seed gives the same challenge.
func NewChallenge(seed uint64) Challenge {
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(from string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = from[random.IntN(len(from))]
		}
		return string(b)
	}
	distinct := func(from string, length, n int) []string {
		seen := map[string]bool{}
		codes := make([]string, 0, n)
		for len(codes) < n {
			if code := pick(from, length); !seen[code] {
				seen[code] = true
				codes = append(codes, code)
			}
		}
		return codes
	}
	c := Challenge{
		Text:    pick(lower, 5) + pick(digits, 1),
		Notes:   fmt.Sprintf("--it's %s\n\t`$HOME` -%s", pick(lower, 3), pick(digits, 1)),
		List:    distinct(capital, 2, listItems),
		Item:    listRows + random.IntN(listItems-listRows), // below what shows at first
		Gallery: distinct(capital, 1, galleryItems),
		Menu:    distinct(capital, 1, menuItems),
		Choice:  random.IntN(menuItems),
		Goal:    goalMin + random.IntN(trackWidth-goalMin),
		Chord:   pick(capital, 1),
		Held:    pick("SC", 1),
	}
	// The gallery starts in its middle; what is wanted lies beyond either side of that.
	c.Picture = random.IntN(galleryStart)
	if random.IntN(2) == 0 {
		c.Picture = galleryItems - 1 - c.Picture
	}
	return c
}

// A Record is the state of the practice application that counts, as its save button writes it. Two records are
// compared with ==.
type Record struct {
	Text       string `json:"text"`
	Notes      string `json:"notes"`
	Checked    bool   `json:"checked"`
	Item       string `json:"item"`    // code of the selected item of the list
	Picture    string `json:"picture"` // code of the selected item of the gallery
	Opened     bool   `json:"opened"`
	Choice     string `json:"choice"`      // code of the chosen item of the menu
	Slider     int    `json:"slider"`      // column of the handle in the track, in pixels
	Chord      string `json:"chord"`       // letter last pressed with exactly Ctrl and Shift
	Hovered    bool   `json:"hovered"`     //
	WheelPad   int    `json:"wheel_pad"`   // X button that last clicked the pad
	BackPad    int    `json:"back_pad"`    // the same
	ForwardPad int    `json:"forward_pad"` // the same
	HeldClick  string `json:"held_click"`  // key held during the last click on that pad, as in Challenge.Held
	Finished   bool   `json:"finished"`    // the slow task has ended
}

// Want returns the record that meets the challenge.
func (c Challenge) Want() Record {
	return Record{
		Text: c.Text, Notes: c.Notes, Checked: true, Item: c.List[c.Item], Picture: c.Gallery[c.Picture], Opened: true,
		Choice: c.Menu[c.Choice], Slider: c.Goal, Chord: c.Chord, Hovered: true,
		WheelPad: buttonWheel, BackPad: buttonBack, ForwardPad: buttonForward, HeldClick: c.Held, Finished: true,
	}
}
