package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A group that has nothing to do rests (Options.Rest): its leader beats no more, its members do not tick, and it costs nothing.
// Whether the leader is still there is then known from its node alone, by PeerDown.
//
// The leader decides, when all members that are there have all there is: it says so with a last beat, and a member
// that finds the same goes to rest, too. Whatever else comes wakes a member: a message, a call, a node that came or went. A leader that
// is awake beats, so its members are awake soon after. One that is awake without hearing of a leader asks for an election as
// ever, which wakes the others.
//
// Just in case something was lost that nobody knows of, leaders at rest say so again every renewTicks, and a member that
// has not heard it three times wakes.

const (
	// restTicks is how long nothing must have happened.
	restTicks = 10
	// renewTicks is how often a group at rest is looked at.
	renewTicks = 300
	// renewals is how often a member may be looked at without having heard of the leader meanwhile.
	renewals = 3
)

// stir wakes the group: something happens.
func (x *raftGroup) stir() {
	x.calm, x.mayRest = 0, false
	x.asleep = false
	if !x.ticking {
		x.ticking = true
		x.g.shard.ticking = append(x.g.shard.ticking, x)
	}
}

// stirs says whether a message wakes the group. Answers to beats do not, nor the news that it can rest when it does.
func (x *raftGroup) stirs(in *incoming) bool {
	if in.msg == nil {
		return true
	}
	switch in.msg.GetType() {
	case pb.MsgHeartbeatResp:
		return len(in.msg.GetContext()) > 0
	case pb.MsgHeartbeat:
		return !(in.rest && x.asleep && in.msg.GetTerm() == x.term && in.msg.GetFrom() == x.lead)
	}
	return true
}

// tickRest has a leader that has nothing to do go to rest.
func (x *raftGroup) tickRest(s *Shard, n int) {
	if !s.node.o.Rest {
		return
	}
	if x.state != raft.StateLeader || x.busy() || !x.allThere() {
		x.calm = 0
		return
	}
	if x.calm += int32(n); x.calm >= restTicks && !x.rn.HasReady() { // a beat may have to leave
		x.asleep = true
		x.slim()
		x.sayRest(s)
	}
}

// busy says whether this member has anything to do.
func (x *raftGroup) busy() bool {
	last := x.store.last()
	return x.store.applied != last || x.store.commit != last || len(x.appends) > 0 ||
		x.underWay != nil || len(x.changes) > 0 || len(x.growing) > 0 || len(x.sending) > 0 || x.receiving != nil ||
		x.installing != nil || len(x.staged) > 0 || x.reads.any() || x.outside || len(x.dismissed) > 0 || x.forced != nil ||
		x.keeping && !x.someAway() || x.campaign > 0
}

// allThere says whether all members whose nodes are not away have everything, and a majority is there.
func (x *raftGroup) allThere() bool {
	if !x.serving || x.isHanding() || len(x.conf.VotersOutgoing) > 0 {
		return false
	}
	all, voters := true, 0
	x.rn.WithProgress(func(id uint64, typ raft.ProgressType, p tracker.Progress) {
		switch {
		case id == x.self:
		case x.g.shard.node.isDown(x.nodes[id]):
			return
		default:
			all = all && p.State == tracker.StateReplicate && p.Match == x.store.last()
		}
		if typ != raft.ProgressTypeLearner {
			voters++
		}
	})
	return all && voters > len(x.conf.Voters)/2
}

// someAway says whether the node of a member is away.
func (x *raftGroup) someAway() bool {
	for id, node := range x.nodes {
		if id != x.self && x.g.shard.node.isDown(node) {
			return true
		}
	}
	return false
}

// sayRest tells the members that they can rest.
func (x *raftGroup) sayRest(s *Shard) {
	for _, m := range x.list() {
		if m.ID != x.self && !s.node.isDown(m.Node) {
			s.beat(m.Node, beat{group: x.g.id, to: m.ID, from: x.self, term: x.term, commit: x.store.commit, rest: true})
		}
	}
}

// wakeOthers has the members wake whose leader this is, and who are to look for another one: it has come to its end, while its node is
// still there. They may rest though it has just woken. Nothing is said of what is committed: they may not have that.
func (x *raftGroup) wakeOthers(s *Shard) {
	if x.ended || x.state != raft.StateLeader {
		return
	}
	for _, m := range x.list() {
		if m.ID != x.self {
			s.beat(m.Node, beat{group: x.g.id, to: m.ID, from: x.self, term: x.term})
		}
	}
}

// heardRest takes note that the leader says so.
func (x *raftGroup) heardRest() {
	x.renewed = 0
	x.mayRest = !x.asleep
}

// restNow ends a turn: a member that may rest does so, if it has what the leader has.
func (x *raftGroup) restNow() {
	if x.mayRest {
		x.mayRest = false
		x.dropTail()
		if x.asleep = x.state == raft.StateFollower && x.lead != 0 && !x.busy() && !x.rn.HasReady(); x.asleep {
			x.slim()
		}
	}
}

// slim gives back memory that a group at rest has no use for. What its entries carry is on the disk of all members that are there.
func (x *raftGroup) slim() {
	for i := range x.store.slots {
		e := &x.store.slots[i]
		x.gone(e)
		e.payload = nil
	}
	x.g.shard.cache.tidy()
	x.store.slots = slices.Clip(x.store.slots)
	x.taken, x.appends, x.deferred = nil, nil, nil
	if len(x.payloads) == 0 {
		x.payloads = nil
	}
	if len(x.out) == 0 {
		x.out = nil
	}
	x.inMu.Lock()
	if len(x.inbox) == 0 {
		x.inbox = nil
	}
	x.inMu.Unlock()
}

// tickAll lets time pass for the groups that are awake, and looks at some that rest.
func (s *Shard) tickAll(n int, now int64) {
	kept := s.ticking[:0]
	for _, x := range s.ticking {
		if !x.asleep && !x.ended {
			x.tick(n, now)
		}
		if x.asleep || x.ended {
			x.ticking = false
			continue
		}
		kept = append(kept, x)
	}
	clear(s.ticking[len(kept):])
	s.ticking = kept
	if !s.node.o.Rest {
		return
	}
	for range n {
		s.renew = (s.renew + 1) % renewTicks
		for i := s.renew; i < len(s.rafts); i += renewTicks {
			if x := s.rafts[i]; x.asleep && !x.ended {
				x.renewRest(s)
			}
		}
	}
}

// renewRest looks at a group that rests.
func (x *raftGroup) renewRest(s *Shard) {
	if x.state == raft.StateLeader {
		x.sayRest(s)
		return
	}
	if x.renewed++; x.renewed > renewals {
		x.stir()
	}
}
