package rig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// MemoryGroup is a control group of its own with a limit of memory, for processes that are started in it.
type MemoryGroup struct {
	folder           string
	procs, most, now string // files
}

// hierarchies are where groups of version 1 and 2 stand, and what their files are called.
var hierarchies = []struct {
	folder, limit, most, now string
	about                    string // a file that is there if memory is limited in this hierarchy
}{
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.usage_in_bytes", "memory.limit_in_bytes"},
	{"/sys/fs/cgroup", "memory.max", "memory.peak", "memory.current", "cgroup.controllers"},
}

// NewMemoryGroup makes a control group whose processes may use so many bytes together, without swap. The error says why this
// process cannot.
func NewMemoryGroup(bytes uint64) (*MemoryGroup, error) {
	why := errors.New("no hierarchy of control groups that limits memory is mounted")
	for _, h := range hierarchies {
		if _, err := os.Stat(filepath.Join(h.folder, h.about)); err != nil {
			continue
		}
		g := &MemoryGroup{folder: filepath.Join(h.folder, fmt.Sprintf("holdfast-test-%d", os.Getpid()))}
		g.procs, g.most, g.now = filepath.Join(g.folder, "cgroup.procs"), filepath.Join(g.folder, h.most), filepath.Join(g.folder, h.now)
		if h.about == "cgroup.controllers" { // the root has to hand the controller down; where it does already, that is no matter
			_ = os.WriteFile(filepath.Join(h.folder, "cgroup.subtree_control"), []byte("+memory"), 0o644)
		}
		err := os.Mkdir(g.folder, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(g.folder, h.limit), strconv.AppendUint(nil, bytes, 10), 0o644)
		}
		if err == nil {
			for _, swap := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max"} { // where swap is counted at all
				text := strconv.AppendUint(nil, bytes, 10)
				if swap == "memory.swap.max" {
					text = []byte("0")
				}
				if _, err := os.Stat(filepath.Join(g.folder, swap)); err == nil {
					_ = os.WriteFile(filepath.Join(g.folder, swap), text, 0o644)
				}
			}
			return g, nil
		}
		why = err
		_ = os.Remove(g.folder)
	}
	return nil, why
}

// Through is what stands before a command that is to run in the group; see Broker.Through.
func (g *MemoryGroup) Through() []string {
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, g.procs}
}

// Most is the most bytes that the group has used at a time, files in the system's cache and buffers of sockets among them.
func (g *MemoryGroup) Most() (uint64, error) {
	text, err := os.ReadFile(g.most)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
}

// Remove ends the group, whose processes have ended.
func (g *MemoryGroup) Remove() error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the system may still be at the last process
		err := os.Remove(g.folder)
		if err == nil || errors.Is(err, os.ErrNotExist) || time.Now().After(end) {
			return err
		}
	}
}
