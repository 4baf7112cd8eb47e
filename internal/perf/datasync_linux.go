package perf

import (
	"os"
	"syscall"
)

// datasync is fdatasync.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
