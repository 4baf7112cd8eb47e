package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"holdfast/test/rig"
)

// disk is a small one that holds the data folder of one node.
type disk struct {
	node *rig.Node // nil: there is none
	at   string
}

func (d *disk) ballast() string { return filepath.Join(d.at, "ballast") }

// fill leaves no room on the disk.
func (d *disk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return nil
	}
	return err
}

// empty makes room again, and starts the node if it has ended for want of it.
func (d *disk) empty() error {
	if err := os.Remove(d.ballast()); err != nil {
		return err
	}
	if d.node.Pid() == 0 {
		return nil
	}
	select {
	case <-d.node.Ended():
		if err := d.node.Kill(); err != nil {
			return err
		}
		return d.node.Start()
	default:
		return nil
	}
}

// config gives the node of a small disk its marks.
func (d *disk) config(dir string) error {
	path := filepath.Join(dir, "small.conf")
	d.node.Data = filepath.Join(d.at, "data")
	d.node.Extra = append(d.node.Extra, "--config", path)
	if err := os.WriteFile(path, []byte("disk_free_limit.absolute = 1MiB\nstorage.segment_size.max = 16MiB\n"), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s has a small disk\n", d.node.Name)
	return nil
}
