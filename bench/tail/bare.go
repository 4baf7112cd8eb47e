package main

import (
	"errors"
	"os"
	"slices"
	"time"

	"holdfast/internal/vfs"
)

// bare overwrites 4 KiB of a file 25 times a second, with fdatasync: what the disk takes for that beside the load.
type bare struct {
	file  vfs.File
	name  string
	end   chan struct{}
	ended chan struct{}
	took  []float64 // seconds
	err   error
}

const (
	bareEvery = 40 * time.Millisecond
	bareSize  = 1 << 20
)

func startBare(dir string) (*bare, error) {
	f, err := os.CreateTemp(dir, "bare-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, bareSize))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	b := &bare{name: f.Name(), end: make(chan struct{}), ended: make(chan struct{})}
	if b.file, err = vfs.OS().Open(b.name); err != nil {
		return nil, err
	}
	go b.run()
	return b, nil
}

func (b *bare) run() {
	defer close(b.ended)
	tick := time.NewTicker(bareEvery)
	defer tick.Stop()
	page := make([]byte, 4096)
	for at := int64(0); b.err == nil; at = (at + 4096) % bareSize {
		select {
		case <-b.end:
			return
		case <-tick.C:
		}
		page[0]++
		began := time.Now()
		_, err := b.file.WriteAt(page, at)
		b.err = errors.Join(err, b.file.Datasync())
		b.took = append(b.took, time.Since(began).Seconds())
	}
}

// stop ends it and returns what each time took, in seconds and ascending; there is at least one.
func (b *bare) stop() ([]float64, error) {
	close(b.end)
	<-b.ended
	err := errors.Join(b.err, b.file.Close(), os.Remove(b.name))
	if len(b.took) == 0 {
		b.took = []float64{0}
	}
	slices.Sort(b.took)
	return b.took, err
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(len(all))
}
