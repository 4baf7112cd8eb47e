//go:build unix

package rig

import (
	"io/fs"
	"syscall"
)

// blocks is what a file takes on the disk.
func blocks(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return info.Size()
}
