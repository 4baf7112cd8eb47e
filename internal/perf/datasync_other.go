//go:build !linux

package perf

import "os"

// datasync is the nearest to fdatasync that there is.
func datasync(f *os.File) error { return f.Sync() }
