//go:build unix

package blackbox

import "syscall"

// pause and resume stop a process and let it go on.
func pause(pid int) error  { return syscall.Kill(pid, syscall.SIGSTOP) }
func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
