package sim

import (
	"log/slog"
	"math/rand/v2"
	"syscall"

	"holdfast/internal/node/catgroup"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// disk is a node's segment log, stepped: a batch is handed to it when the simulation says so, and what it does behind the
// writing it does then.
type disk struct {
	*seglog.Log
	replica.Reader
	n   *node
	fs  *vfs.Mem
	ask func([]seglog.GroupID) // for snapshots

	line   []*seglog.Batch // not handed to the log yet
	inside []*seglog.Batch // handed to it, and not stable: there is no room
	told   []*seglog.Batch // stable, and nobody was told
	ledger ledger          // of what was told to be stable
	full   int             // so many steps it takes nothing

	broken bool // by a fault: it has to fail
	dead   bool // it has
	alarm  bool // there is no room
}

// newDisk opens the log of a node that starts.
func newDisk(n *node, fs *vfs.Mem, before ledger) *disk {
	d := &disk{n: n, fs: fs, ledger: before, ask: func([]seglog.GroupID) {}}
	if d.ledger == nil {
		d.ledger = ledger{}
	}
	l, err := seglog.Open(fs, "log", seglog.Options{
		SegmentMin: 64 << 10, SegmentMax: 64 << 10, FrameMax: 16 << 10, CheckpointBytes: 64 << 10,
		Clock: n.clk, Logger: slog.New(slog.DiscardHandler), Stepped: true,
		Events: seglog.Events{
			NeedSnapshot: func(ids []seglog.GroupID) { d.ask(ids) },
			Alarm: func(kind seglog.AlarmKind, on bool, _ string) {
				if kind == seglog.AlarmSpace {
					d.alarm = on
				}
			},
			Fatal: func(err error) {
				if d.dead = true; !d.broken {
					n.w.failf("node %d: the log has failed, and nothing was broken: %v", n.id, err)
				}
			},
			Hit: func(h seglog.Hit) {
				if n != n.w.frail() {
					n.w.failf("node %d: damage that nobody has done: %+v", n.id, h)
				}
				n.w.trace("node %d finds damage: %+v", n.id, h)
				n.w.check.stats.Hits++
				n.reg.Hit(h)
			},
		},
	})
	if err != nil {
		n.w.failf("node %d: opening the log: %v", n.id, err)
		return d
	}
	d.Log, d.Reader = l, replica.NewReader(l)
	for _, h := range l.Quarantined() {
		if n != n.w.frail() {
			n.w.failf("node %d: quarantined: %+v", n.id, h)
		}
		n.w.trace("node %d: quarantined: %+v", n.id, h)
		n.w.check.stats.Hits++
		if delete(d.ledger, h.Group); h.Group == 0 { // any group of which there is nothing
			d.ledger = ledger{}
		}
	}
	return d
}

// Append implements replica.Log.
func (d *disk) Append(b *seglog.Batch) { d.line = append(d.line, b) }

// hand hands the oldest batch to the log, which may make it stable at once. False: there is none.
func (d *disk) hand() bool {
	if len(d.line) == 0 {
		return false
	}
	b := d.line[0]
	d.line = d.line[1:]
	d.inside = append(d.inside, b)
	d.Log.Append(&seglog.Batch{Records: b.Records, Sync: true, Stable: func(*seglog.Batch) { d.told = append(d.told, b) }})
	return true
}

// write writes the oldest batch, and others as long as there is no room for any. False: nothing was written.
func (d *disk) write() (did bool) {
	for {
		more := d.hand()
		did = d.Log.StepCommit() || did
		if did || !more {
			break
		}
	}
	for _, b := range d.told {
		d.inside = without(d.inside, b)
	}
	return did
}

func without[T comparable](list []T, x T) []T {
	for i := range list {
		if list[i] == x {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// sync writes what waits, and tells what is stable. False: there was nothing to write, or nothing can be written.
func (d *disk) sync() bool {
	if d.full > 0 || !d.write() {
		return false
	}
	told := d.told
	d.told = nil
	for _, b := range told {
		d.ledger.note(b.Records)
		b.Stable(b)
	}
	if w := d.n.w; len(told) > 0 && w.rng.IntN(60) == 0 {
		id := catgroup.Group
		if i := w.rng.IntN(len(w.queues) + 1); i > 0 {
			id = w.queues[i-1].def.ID
		}
		d.ask([]seglog.GroupID{id})
	}
	return true
}

// keep does one thing that is due behind the writing. False: there is none.
func (d *disk) keep() bool { return d.full == 0 && d.Log.StepKeep() }

// hurt makes every write fail from now on, or every sync.
func (d *disk) hurt(rng *rand.Rand) {
	op := vfs.OpAnySync
	if rng.IntN(2) == 0 {
		op |= vfs.OpWrite
	}
	d.broken = true
	d.fs.Inject(vfs.Fault{Op: op, Forever: true, Err: syscall.EIO})
}

// crash returns the disk as a power cut leaves it, or the end of the process alone: some batches were written, and nobody was told.
func (d *disk) crash(rng *rand.Rand, power bool) (*vfs.Mem, ledger) {
	after := d.ledger
	if !d.broken && d.full == 0 {
		for n := d.n.w.rng.IntN(len(d.line) + 1); n > 0; n-- {
			d.write()
		}
		for _, b := range d.told { // it was stable, and nobody was told
			after.note(b.Records)
		}
		after.doubt(d.inside)
	} else { // the batch that failed, or a part of it, may be there
		after.doubt(append(d.inside, d.line...))
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
