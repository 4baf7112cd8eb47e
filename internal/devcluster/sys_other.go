//go:build !linux

package devcluster

import "syscall"

// ofItsOwn gives a child a process group of its own, so that ctrl-C in a terminal reaches the parent only, which stops the
// nodes one after the other. If the parent is killed here, they stay.
func ofItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
