//go:build !race

package exercise

const race = false
