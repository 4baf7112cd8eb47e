package devcluster

import "syscall"

// ofItsOwn gives a child a process group of its own, so that ctrl-C in a terminal reaches the parent only, which stops the
// nodes one after the other; should the parent be killed, they are stopped by the system.
func ofItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
