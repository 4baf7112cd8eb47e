package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// keepTail forgets the entries that a snapshot of the state now covers, but for those
// that members lack, as far as the node's budget goes: who is away for a while is brought
// up to date with entries. Only a leader knows what others lack.
func (x *raftGroup) keepTail() {
	keep := x.store.applied
	if x.state == raft.StateLeader {
		x.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			if id != x.self {
				keep = min(keep, max(p.Match, p.PendingSnapshot))
			}
		})
	}
	n := x.g.shard.node
	n.tailBytes.Add(-x.keptTail)
	x.keptTail = 0
	var bytes int64
	for i := x.store.applied; i > keep && i >= x.store.first; i-- {
		e := x.store.at(i)
		bytes += int64(e.size + len(e.data) + entryOverhead)
		if n.tailBytes.Load()+bytes > n.o.KeepTail {
			keep, bytes = i, bytes-int64(e.size+len(e.data)+entryOverhead)
			break
		}
	}
	if keep = max(keep, x.store.first-1); keep < x.store.applied {
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
