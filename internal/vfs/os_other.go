//go:build !linux

package vfs

import (
	"errors"
	"os"
)

const directFlag = 0

func datasync(f *os.File) error  { return f.Sync() }
func dropCache(f *os.File) error { return nil }

func punch(*os.File, int64, int64) error { return errors.ErrUnsupported }
