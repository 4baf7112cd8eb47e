package rig

import "syscall"

// dieWithParent ends the broker when the test is killed, so that none is left
// behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
