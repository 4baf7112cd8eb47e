package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// tailTicks is how often the kept tail is looked at; a member that went away was there at most so long and the time
// its node takes to be missed before.
const tailTicks = 10

// lacking returns an index up to which all members have the entries. Who is away for a while is brought up to date with
// entries, by whoever leads when it comes back: the leader knows what each member has, and the others keep all they have
// while a member is away. What it lacks when it goes may be a little more than what was applied last.
func (x *raftGroup) lacking() uint64 {
	has := x.store.applied
	if x.state == raft.StateLeader {
		x.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			if id != x.self {
				has = min(has, max(p.Match, p.PendingSnapshot))
			}
		})
		return has
	}
	if len(x.nodes) == 1 {
		return has
	}
	for id, node := range x.nodes {
		if id != x.self && x.g.shard.node.isDown(node) {
			return 0
		}
	}
	return min(has, x.before)
}

// keepTail forgets the entries that a snapshot at index covers, but for those that members lack, as far as the node's budget goes.
func (x *raftGroup) keepTail(index uint64) {
	keep := min(index, x.lacking())
	n := x.g.shard.node
	n.tailBytes.Add(-x.keptTail)
	x.keptTail = 0
	var bytes int64
	for i := index; i > keep && i >= x.store.first; i-- {
		e := x.store.at(i)
		size := int64(e.size + len(e.data) + entryOverhead)
		if n.tailBytes.Load()+bytes+size > n.o.KeepTail {
			keep = i
			break
		}
		bytes += size
	}
	if keep = max(keep, x.store.first-1); keep < index {
		x.keptTail = bytes
		n.tailBytes.Add(bytes)
		n.raftLog.KeepTail(x.g.id, keep)
		x.keeping = true
	} else if x.keeping {
		n.raftLog.KeepTail(x.g.id, 0)
		x.keeping = false
	}
	x.store.compact(keep, x.gone)
}

// forgetTail lets go of what was kept beside the state, which is another one from now on.
func (x *raftGroup) forgetTail() {
	n := x.g.shard.node
	n.tailBytes.Add(-x.keptTail)
	x.keptTail = 0
	if x.keeping {
		n.raftLog.KeepTail(x.g.id, 0)
		x.keeping = false
	}
}

// tickTail lets go of what was kept for members that have it by now.
func (x *raftGroup) tickTail(n int) {
	if x.tailWait += int32(n); x.tailWait < tailTicks {
		return
	}
	x.tailWait = 0
	x.before, x.lately = x.lately, x.store.applied
	x.shortenTail()
}

// shortenTail lets go of what of the kept tail no member lacks.
func (x *raftGroup) shortenTail() {
	if x.keeping && x.snapshotAt <= x.store.last() && x.snapshotAt >= x.store.first {
		x.keepTail(x.snapshotAt)
	}
}

// dropTail lets go of the tail in time for the group to rest: the leader says that all members that are there have everything.
func (x *raftGroup) dropTail() {
	if x.keeping && x.store.applied == x.store.last() && !x.someAway() {
		x.before, x.lately = x.store.applied, x.store.applied
		x.shortenTail()
	}
}
