package replica

import (
	"errors"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ErrRemoved answers what is asked of a member that does not belong to its group any more.
var ErrRemoved = errors.New("replica: this member was removed from the group")

// RemovedHost is a host that wants to hear that its member was removed from the group. It is called once in a process, on the
// worker, when nobody needs this member's vote any more: a leader that serves without it has said so. Nothing
// more will happen to the group here; its owner should Drop it, and not before, or the others may find no leader.
type RemovedHost interface{ Removed() }

// A change of members counts for who has applied it, and who has the entry may not know that it is committed. Until a
// majority does, one of them may need the vote of the member that was removed. So that member goes on as it was, and is
// told that it can go when an entry is committed that the leader has appended after it had applied the change: with that entry came the
// news that the change is committed, and both are on disk.

// askTicks is how often a member that was removed by what it has applied asks whether it can go.
const askTicks = 10

// checkLeft looks whether this member was removed by what it has applied.
func (x *raftGroup) checkLeft() {
	if x.outside = len(x.conf.Voters) > 0 && !x.has(x.self); x.outside {
		x.campaign = 0
	}
}

// tickOut asks those who stay whether this member can go.
func (x *raftGroup) tickOut(n int) {
	if x.outWait -= int32(n); x.outWait > 0 {
		return
	}
	x.outWait = askTicks
	for _, m := range x.list() {
		x.sendTransfer(&transferMsg{kind: msgOut, to: m.ID, term: max(x.term, 1), index: x.store.applied})
	}
}

// leave ends this member's part in the group. What it has stays until it is dropped.
func (x *raftGroup) leave() {
	if x.left {
		return
	}
	x.left = true
	x.campaign = 0
	x.receiving = nil
	x.failChanges(ErrRemoved)
	x.failReads(ErrRemoved)
	x.forcesDone(ErrRemoved)
	x.passing = false
	x.g.shard.node.leads(x, false)
	x.g.Wake() // to let go of what came
	if h, is := x.host.(RemovedHost); is {
		h.Removed()
	}
}

// stranger handles a message of somebody who does not belong to the group, as far as this member knows. It reports
// whether raft must not see it.
func (x *raftGroup) stranger(m *pb.Message) bool {
	from := m.GetFrom()
	if from == x.self || x.has(from) {
		return false
	}
	x.dismiss(from)
	return x.alone()
}

// dismiss has a member told that it was removed, if this one can say so: a leader that serves has applied all changes
// of members, and a new member does not speak before the leader that has taken it in.
func (x *raftGroup) dismiss(member uint64) {
	if x.serving && !x.has(member) {
		if x.dismissed == nil {
			x.dismissed = map[uint64]bool{}
		}
		x.dismissed[member] = true
		x.g.Wake()
	}
}

// tellDismissed tells members that they can go. It reports whether raft has something to do first.
func (x *raftGroup) tellDismissed() bool {
	if len(x.dismissed) == 0 {
		return false
	}
	switch {
	case !x.serving:
	case x.store.applied < x.settled:
		if x.settling || x.isHanding() {
			return false
		}
		x.settling = true
		// The first entry after the change, if nobody has brought another.
		return x.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: &x.self, Entries: []*pb.Entry{{}}}) == nil
	default:
		for _, member := range slices.Sorted(maps.Keys(x.dismissed)) {
			if !x.has(member) {
				x.sendTransfer(&transferMsg{kind: msgGone, to: member, term: x.term, index: x.store.applied})
			}
		}
	}
	clear(x.dismissed)
	return false
}

// changed notes that the members are others, or that this one begins to serve: the next entry settles who they are.
func (x *raftGroup) changed() { x.settled, x.settling = x.store.last()+1, false }

// toldGone takes the news that this member can go. Who follows another leader, or has heard of a later one, and has not applied its
// removal, does not believe it: there may be two groups of the same name, after one was forced. Who has applied it believes any
// leader: that the removal is known to a majority stays true, and a member that has heard of an election which nobody
// won has a higher term than the group, for good.
func (x *raftGroup) toldGone(m *transferMsg) {
	if m.term < x.term && !x.outside || m.index < x.store.applied || !x.outside && x.lead != 0 && x.lead != m.from || x.state == raft.StateLeader {
		return
	}
	x.leave()
}
