package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// PeakRSS is the most resident memory that a process has had, in bytes (Linux only).
func PeakRSS(pid int) (uint64, error) { return statusOf(pid, "VmHWM") }

// statusOf reads a size from a process' status.
func statusOf(pid int, name string) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kb uint64
		if n, _ := fmt.Sscanf(line, name+": %d kB", &kb); n == 1 {
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("no %s of process %d", name, pid)
}

// DiskUsed is what the files under dir really take, in blocks, and how many
// there are. Files may come and go meanwhile.
func DiskUsed(dir string) (bytes int64, files int, err error) {
	err = eachFile(dir, func(info fs.FileInfo) {
		bytes += blocks(info)
		files++
	})
	return bytes, files, err
}

// LargestFile is the size of the largest file under dir: in a data folder, of a
// segment.
func LargestFile(dir string) (bytes int64, err error) {
	err = eachFile(dir, func(info fs.FileInfo) { bytes = max(bytes, info.Size()) })
	return bytes, err
}

// eachFile visits the regular files under dir that do not vanish meanwhile.
func eachFile(dir string, visit func(fs.FileInfo)) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			visit(info)
		}
		return err
	})
}
