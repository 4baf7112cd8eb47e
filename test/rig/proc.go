package rig

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// RSS is the resident memory of a process in bytes (Linux only).
func RSS(pid int) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kb uint64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}

// DiskUsed is the size of the files under dir and how many there are, by the
// blocks they really take.
func DiskUsed(dir string) (bytes int64, files int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // files come and go while the broker runs
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		bytes += blocks(info)
		files++
		return nil
	})
	return bytes, files, err
}
