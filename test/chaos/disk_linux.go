package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"holdfast/test/rig"
)

// smallDisk gives the last node a disk of so many MiB, if that is allowed.
func smallDisk(c *rig.Cluster, dir string, mib int) (*disk, error) {
	d := &disk{at: filepath.Join(dir, "small")}
	if mib == 0 {
		return d, nil
	}
	if err := os.MkdirAll(d.at, 0o755); err != nil {
		return nil, err
	}
	if err := syscall.Mount("holdfast-chaos", d.at, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		fmt.Printf("no disk is filled: none can be mounted: %v\n", err)
		return d, nil
	}
	d.node = c.Nodes[len(c.Nodes)-1]
	return d, d.config(dir)
}

func (d *disk) unmount() {
	if d.node != nil {
		_ = d.node.Kill()
		_ = syscall.Unmount(d.at, syscall.MNT_DETACH)
	}
}
