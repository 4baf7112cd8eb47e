//go:build unix

package rig

import "syscall"

// Pause stops the process where it is; its connections stay.
func (b *Broker) Pause() error { return syscall.Kill(b.Pid(), syscall.SIGSTOP) }

// Resume lets it go on.
func (b *Broker) Resume() error { return syscall.Kill(b.Pid(), syscall.SIGCONT) }
