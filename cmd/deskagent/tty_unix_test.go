//go:build unix

package main

import "syscall"

// controllingTerminal makes standard input the controlling terminal of a child.
func controllingTerminal() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
}
