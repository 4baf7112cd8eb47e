package replica

import (
	"errors"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ErrRemoved answers what is asked of a member that does not belong to its group any more.
var ErrRemoved = errors.New("replica: this member was removed from the group")

// RemovedHost is a host that wants to hear that its member was removed from the group: by its own log, or by
// the leader, which tells a removed member that still speaks. It is called once, on the worker, also after a
// start. Nothing more will happen to the group here; its owner should Drop it.
type RemovedHost interface{ Removed() }

// checkLeft looks whether this member was removed by what it has applied.
func (x *raftGroup) checkLeft() {
	if len(x.conf.Voters) > 0 && !x.has(x.self) {
		x.leave()
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
	// A leader that serves has applied all changes of members. Who is not in by them was removed: a new member does not
	// speak before the leader that has taken it in.
	if x.serving {
		x.tellGone(from)
	}
	return x.alone()
}

// tellGone tells a member that it was removed.
func (x *raftGroup) tellGone(member uint64) {
	x.sendTransfer(&transferMsg{kind: msgGone, to: member, term: x.term, index: x.store.applied})
}

// toldGone takes the news that this member was removed. Who follows another leader does not believe it: there may be two
// groups of the same name, after one was forced.
func (x *raftGroup) toldGone(m *transferMsg) {
	if m.term < x.term || m.index < x.store.applied || x.lead != 0 && x.lead != m.from || x.state == raft.StateLeader {
		return
	}
	x.leave()
}
