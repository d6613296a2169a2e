package driver

import "fmt"

// A Button is one of the five mouse buttons of the API. The zero Button is none of them.
type Button uint8

// The buttons, in the API's words.
const (
	ButtonLeft Button = iota + 1
	ButtonRight
	ButtonWheel
	ButtonBack
	ButtonForward
)

var buttonNames = [...]string{ButtonLeft: "left", ButtonRight: "right", ButtonWheel: "wheel", ButtonBack: "back", ButtonForward: "forward"}

// ParseButton returns the button of the API's name: left, right, wheel, back or forward, in small letters. Any
// other name is an error that wraps [ErrUnknownButton]; nothing is ever taken for a left click.
func ParseButton(name string) (Button, error) {
	for b := ButtonLeft; b <= ButtonForward; b++ {
		if buttonNames[b] == name {
			return b, nil
		}
	}
	return 0, fmt.Errorf("%w %q, want left, right, wheel, back or forward", ErrUnknownButton, name)
}

// Valid reports whether b is one of the five.
func (b Button) Valid() bool { return b >= ButtonLeft && b <= ButtonForward }

// String returns the API's name.
func (b Button) String() string {
	if !b.Valid() {
		return fmt.Sprintf("Button(%d)", uint8(b))
	}
	return buttonNames[b]
}

// MarshalText returns the API's name; the zero Button and others that are none of the five are errors.
func (b Button) MarshalText() ([]byte, error) {
	if !b.Valid() {
		return nil, fmt.Errorf("%w %v", ErrUnknownButton, b)
	}
	return []byte(buttonNames[b]), nil
}

// UnmarshalText is [ParseButton].
func (b *Button) UnmarshalText(text []byte) (err error) {
	*b, err = ParseButton(string(text))
	return err
}
