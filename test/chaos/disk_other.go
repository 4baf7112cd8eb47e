//go:build !linux

package main

import (
	"fmt"

	"holdfast/test/rig"
)

// smallDisk is for Linux.
func smallDisk(_ *rig.Cluster, _ string, mib int) (*disk, error) {
	if mib > 0 {
		fmt.Println("no disk is filled: small ones are for Linux")
	}
	return &disk{}, nil
}

func (d *disk) unmount() {}
