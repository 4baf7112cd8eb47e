package replica

import (
	"sync/atomic"

	"holdfast/internal/invariant"
	"holdfast/internal/seglog"
)

// Group is one group. Only Wake, Mark, Go and ID may be used by anyone; all else belongs
// to the worker of its shard.
type Group struct {
	id    seglog.GroupID
	shard *Shard
	host  Host
	repl  replicator
	raft  *raftGroup // repl, if it is one

	term   uint64
	index  uint64 // last entry packed (direct, solo: and applied)
	stable uint64 // last entry known to be on disk

	// Since the last snapshot, and how large that was: who makes it later says so.
	sinceBytes   int64
	snapshotSize atomic.Int64
	sinceEntries uint32

	dirty        atomic.Bool // in the shard's mailbox, or taken from it and not yet packed
	wantSnapshot atomic.Bool // the log asks for one
	dropped      bool
	drop         bool  // a drop record is to be written
	failed       error // what the replay stumbled over; the host may answer, but must not pack
}

// ID returns the group's id.
func (g *Group) ID() seglog.GroupID { return g.id }

// Wake says that the host has something to pack.
func (g *Group) Wake() {
	if g.dirty.Load() || g.dirty.Swap(true) {
		return
	}
	g.shard.put(g)
}

// Mark is Wake without waking: Go must follow. In between, more groups of the same
// round can be marked.
func (g *Group) Mark() {
	if g.dirty.Load() || g.dirty.Swap(true) {
		return
	}
	g.shard.mark(g)
}

// Go has what was marked carried out. With here, and if the shard's worker
// sleeps, the caller's goroutine goes round once for it: that saves waking
// another thread, which costs more than a small round. The caller must hold no
// lock that a callback of a host might want.
func (g *Group) Go(here bool) { g.shard.goOn(here) }

// Index returns the index of the last entry packed; for the worker.
func (g *Group) Index() uint64 { return g.index }

// Drop ends the group; called by the host on its worker, in Pack or Apply. All
// its items are given up and its log is ended. The host's Pack goes on being
// called after a Wake, but must not pack anything.
func (g *Group) Drop() {
	if g.dropped {
		return
	}
	g.dropped = true
	g.shard.node.forget(g)
	if g.repl.logged() {
		g.drop = true
		g.Wake()
	}
}

// Fail says, on the worker, that the group's log is damaged: there will be no
// further entries or snapshots, but there may be a Drop.
func (g *Group) Fail(err error) {
	g.failed = err
	if g.raft != nil {
		g.Wake() // it leaves the members alone from now on
	}
}

// touch is Wake on the worker, before the groups of a round have their turn: the group is among them.
func (g *Group) touch() {
	if !g.dirty.Swap(true) {
		g.shard.takenDirty = append(g.shard.takenDirty, g)
	}
}

// snapshotDue reports whether the group is to take a snapshot before its next entry.
func (g *Group) snapshotDue(o *Options) bool {
	if g.wantSnapshot.Load() {
		g.wantSnapshot.Store(false)
		return g.index > 0 // also if nothing has changed: the last one may be in the way
	}
	return uint64(g.sinceEntries) >= o.SnapshotEntries ||
		// A large state is not written more often than it pays.
		g.sinceBytes >= max(o.SnapshotBytes, 4*g.snapshotSize.Load())
}

// snapshot puts a snapshot of the state after the last entry into the round; a large one is made later, if it may.
func (g *Group) snapshot(r *round, time int64, mayWait bool) {
	if later := g.later(nil, mayWait); later != nil {
		r.addRecord(g, seglog.Record{Kind: seglog.KindSnapshot, Term: g.term, Index: g.index, Time: time, Later: later})
		return
	}
	blob := r.take(g.host.AppendSnapshot(r.meta))
	if len(blob) == 0 {
		invariant.Failf("group %d: empty snapshot", g.id)
	}
	r.addControl(g, seglog.KindSnapshot, g.index, time, blob)
	g.snapshotTaken(len(blob))
}

// later returns what makes a snapshot of the state as it is now, behind a head, or nil if that is better made at once: it is small.
func (g *Group) later(head []byte, mayWait bool) func(dst []byte) []byte {
	h, can := g.host.(FreezingHost)
	size := g.snapshotSize.Load()
	if !mayWait || !can || size < g.shard.node.o.LateSnapshots {
		return nil
	}
	frozen := h.Freeze()
	if frozen == nil {
		return nil
	}
	g.snapshotTaken(int(size))
	return func(dst []byte) []byte {
		before := len(dst)
		dst = frozen(append(dst, head...))
		g.snapshotSize.Store(int64(len(dst) - before))
		return dst
	}
}

// snapshotTaken counts from a snapshot of this size.
func (g *Group) snapshotTaken(size int) {
	g.sinceEntries, g.sinceBytes = 0, 0
	g.snapshotSize.Store(int64(size))
}
