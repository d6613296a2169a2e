//go:build race

package exercise

// race tells that the race detector slows everything down by an order of magnitude.
const race = true
