//go:build !linux

package selftest

// confinement are the probes of what the process itself may do. Guests are Linux.
func confinement() []func() Finding { return nil }
