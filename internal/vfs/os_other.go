//go:build !linux

package vfs

import "os"

const directFlag = 0

func datasync(f *os.File) error  { return f.Sync() }
func dropCache(f *os.File) error { return nil }
