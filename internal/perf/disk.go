package perf

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Disk is what a bare overwrite of 4 KiB followed by fdatasync takes: no broker
// that syncs before it confirms can answer one message faster.
type Disk struct {
	Rate float64 `json:"rate"`
	Summary
	histogram Histogram
	took      time.Duration
}

const (
	diskFile = 16 << 20
	diskTime = 2 * time.Second
)

func (d *Disk) summarize() {
	if s := d.histogram.Summary(); s != nil {
		d.Summary = *s
		d.Rate = round(float64(s.Count)/d.took.Seconds(), 0)
	}
}

// disk measures for a moment in the folder of the options, if there is one.
func (e *env) disk(ctx context.Context, d *Disk) error {
	if e.o.disk == "" {
		return nil
	}
	long := diskTime
	if e.o.time > 0 {
		long = min(long, e.o.time/4)
	}
	return d.measure(ctx, e.o.disk, long)
}

// measure overwrites a file that was written and synced before, as a log with
// recycled segments does.
func (d *Disk) measure(ctx context.Context, folder string, long time.Duration) error {
	f, err := os.CreateTemp(folder, "perf-disk-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, diskFile), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	block := make([]byte, 4096)
	begun := time.Now()
	for at := int64(0); time.Since(begun) < long && ctx.Err() == nil; at = (at + 4096) % diskFile {
		block[0]++
		start := time.Now()
		if _, err := f.WriteAt(block, at); err != nil {
			return err
		}
		if err := datasync(f); err != nil {
			return fmt.Errorf("fdatasync: %w", err)
		}
		d.histogram.Add(int64(time.Since(start)))
	}
	d.took += time.Since(begun)
	return nil
}

// runDisk measures the disk and nothing else.
func (e *env) runDisk(ctx context.Context) (*Report, error) {
	var d Disk
	folder := e.o.disk
	if folder == "" {
		folder = "."
	}
	if err := d.measure(ctx, folder, max(e.o.time, time.Second)); err != nil {
		return nil, err
	}
	d.summarize()
	r := e.report()
	r.Broker, r.Disk = "no broker", &d
	return r, nil
}
