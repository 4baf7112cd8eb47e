package sim

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"syscall"
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

	line   []*seglog.Batch // not written yet
	ledger ledger          // of what was told to be stable
	full   int             // so many steps nothing can be written

	broken bool          // by a fault: it has to fail
	fatal  chan struct{} // it has
	once   sync.Once
	hits   chan seglog.Hit
}

func newDisk(w *World, fs *vfs.Mem, before ledger) *disk {
	d := &disk{w: w, fs: fs, fatal: make(chan struct{}), hits: make(chan seglog.Hit, 16), ledger: before}
	if d.ledger == nil {
		d.ledger = ledger{}
	}
	l, err := seglog.Open(fs, "log", seglog.Options{
		SegmentMin: 64 << 10, SegmentMax: 64 << 10, FrameMax: 16 << 10, CheckpointBytes: 64 << 10,
		HangLimit: 1000 * time.Hour, // time runs by itself here
		Clock:     clock.System(), Logger: slog.New(slog.DiscardHandler),
		Events: seglog.Events{
			NeedSnapshot: func([]seglog.GroupID) {},
			Fatal:        func(error) { d.once.Do(func() { close(d.fatal) }) },
			Hit: func(h seglog.Hit) {
				select {
				case d.hits <- h:
				default:
				}
			},
		},
	})
	if err != nil {
		w.failf("opening the log: %v", err)
		return d
	}
	d.Log, d.Reader = l, replica.NewReader(l)
	if q := l.Quarantined(); len(q) > 0 {
		w.failf("quarantined: %+v", q)
	}
	return d
}

// Append implements replica.Log.
func (d *disk) Append(b *seglog.Batch) { d.line = append(d.line, b) }

// sync writes the oldest batch, and tells that it is stable. False: there is none, or nothing can be written.
func (d *disk) sync() bool {
	if len(d.line) == 0 || d.full > 0 {
		return false
	}
	b := d.write()
	select {
	case h := <-d.hits:
		d.w.failf("damage that nobody has done: %+v", h)
	default:
	}
	if b == nil {
		return false
	}
	d.ledger.note(b.Records)
	if d.w.rng.IntN(60) == 0 {
		if qs := d.w.live(); len(qs) > 0 {
			d.ask([]seglog.GroupID{qs[d.w.rng.IntN(len(qs))].def.ID})
		}
	}
	b.Stable(b)
	return true
}

// write writes the oldest batch; nil: the log has failed.
func (d *disk) write() *seglog.Batch {
	b := d.line[0]
	done := make(chan struct{})
	d.Log.Append(&seglog.Batch{Records: b.Records, Sync: true, Stable: func(*seglog.Batch) { close(done) }})
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		d.w.failf("the log hangs")
		return nil
	case <-d.fatal:
		if !d.broken {
			d.w.failf("the log has failed, and nothing was broken")
		}
		return nil
	}
	d.line = d.line[1:]
	return b
}

// hurt makes every write fail from now on, or every sync.
func (d *disk) hurt(rng *rand.Rand) {
	op := vfs.OpAnySync
	if rng.IntN(2) == 0 {
		op |= vfs.OpWrite
	}
	d.broken = true
	d.fs.Inject(vfs.Fault{Op: op, Forever: true, Err: syscall.EIO})
}

// failed reports whether the log has failed.
func (d *disk) failed() bool {
	select {
	case <-d.fatal:
		return true
	default:
		return false
	}
}

// crash returns the disk as a power cut leaves it, or the end of the process alone: some batches were written, and nobody was told.
func (d *disk) crash(rng *rand.Rand, power bool) (*vfs.Mem, ledger) {
	after := d.ledger
	if d.broken { // the batch that failed, or a part of it, may be there
		after.doubt(d.line)
	} else if d.full == 0 {
		for n := d.w.rng.IntN(len(d.line) + 1); n > 0; n-- {
			if b := d.write(); b != nil { // it was stable, and nobody was told
				after.note(b.Records)
			}
		}
	}
	var fs *vfs.Mem
	if power {
		fs = d.fs.CrashClone(rng)
	} else {
		fs = d.fs.KillClone()
	}
	d.stop()
	return fs, after
}

func (d *disk) stop() {
	if d.Log != nil {
		_ = d.Log.Close(false)
	}
}
