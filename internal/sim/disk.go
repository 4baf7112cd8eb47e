package sim

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// disk is a node's segment log. A batch is handed to it when the simulation says so,
// which waits until it is stable: so a seed always runs the same way, though the log
// has goroutines of its own. What they ask for, snapshots, the simulation asks for instead.
type disk struct {
	*seglog.Log
	replica.Reader
	w   *World
	fs  *vfs.Mem
	ask func([]seglog.GroupID)

	line []*seglog.Batch // not written yet
}

func newDisk(w *World, fs *vfs.Mem) *disk {
	d := &disk{w: w, fs: fs}
	l, err := seglog.Open(fs, "log", seglog.Options{
		SegmentMin: 64 << 10, SegmentMax: 64 << 10, FrameMax: 16 << 10, CheckpointBytes: 64 << 10,
		HangLimit: 1000 * time.Hour, // time runs by itself here
		Clock:     clock.System(), Logger: slog.New(slog.DiscardHandler),
		Events: seglog.Events{
			NeedSnapshot: func([]seglog.GroupID) {},
			Fatal:        func(err error) { w.failf("disk: %v", err) },
			Hit:          func(h seglog.Hit) { w.failf("damage that nobody has done: %+v", h) },
		},
	})
	if err != nil {
		w.failf("opening the log: %v", err)
		return d
	}
	if q := l.Quarantined(); len(q) > 0 {
		w.failf("quarantined: %+v", q)
	}
	d.Log, d.Reader = l, replica.NewReader(l)
	return d
}

// Append implements replica.Log.
func (d *disk) Append(b *seglog.Batch) { d.line = append(d.line, b) }

// sync writes the oldest batch, and tells that it is stable. False: there is none.
func (d *disk) sync() bool {
	if len(d.line) == 0 {
		return false
	}
	b := d.write()
	if d.w.rng.IntN(60) == 0 {
		d.ask([]seglog.GroupID{d.w.defs[d.w.rng.IntN(len(d.w.defs))].ID})
	}
	b.Stable(b)
	return true
}

// write writes the oldest batch.
func (d *disk) write() *seglog.Batch {
	b := d.line[0]
	d.line = d.line[1:]
	done := make(chan struct{})
	d.Log.Append(&seglog.Batch{Records: b.Records, Sync: true, Stable: func(*seglog.Batch) { close(done) }})
	<-done
	return b
}

// crash returns the disk as a power cut leaves it: some batches were written, and nobody was told.
func (d *disk) crash(rng *rand.Rand) *vfs.Mem {
	for n := d.w.rng.IntN(len(d.line) + 1); n > 0; n-- {
		d.write()
	}
	fs := d.fs.CrashClone(rng)
	d.stop()
	return fs
}

func (d *disk) stop() {
	if d.Log != nil {
		_ = d.Log.Close(false)
	}
}
