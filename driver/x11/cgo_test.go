//go:build linux && cgo

package x11_test

const cgo = true
