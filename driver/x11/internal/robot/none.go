//go:build !linux || !cgo

// Package robot is the event sink that goes through robotgo, which needs cgo and Linux: this build is without it.
package robot

import (
	"fmt"

	"github.com/deskagent/deskagent/driver"
	"github.com/deskagent/deskagent/driver/x11/internal/event"
)

// New says, with [driver.ErrUnsupported], that there is no robotgo.
func New(string) (event.Sink, error) {
	return nil, fmt.Errorf("robotgo in a build without cgo: %w", driver.ErrUnsupported)
}
