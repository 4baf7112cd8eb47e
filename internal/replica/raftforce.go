package replica

import (
	"errors"

	"go.etcd.io/raft/v3"

	"holdfast/internal/invariant"
)

// forcedTerms and forcedEntries are how far a forced member is ahead of what it knew: more than the others can have gone through, and
// agreed on, unseen. So none of their entries is taken for one of the group that goes on: a member that runs again and is taken in
// gets the whole state, whatever it has.
const (
	forcedTerms   = 1 << 20
	forcedEntries = 1 << 20
)

// Errors of ForceSingle.
var (
	ErrHasLeader = errors.New("replica: the group has a leader; its members can be changed in an orderly way")
	ErrNoState   = errors.New("replica: this member has no state of the group to go on from")
)

// ForceSingle makes this member the only one of its group, after the majority was lost for good. done runs on the
// worker when that is on disk; the member leads soon after. New members are then added as ever.
//
// It is dangerous, and for an operator to decide: the group goes on from what this member has. Whatever was confirmed and has not
// reached it is lost, without a trace; whatever reached it and was never confirmed counts from now on. The other members must
// not run again: one that does, and is heard, is told that it was removed (RemovedHost), or gets the whole state if it has been made a
// member again; a majority of them that finds itself again is a second group of the same name, which nobody can bring together with this one.
// A member with items is taken in again under another id only, after what it had was dropped: the numbers of items say nothing of what
// they were to others.
//
// Errors: ErrHasLeader, if somebody is known to lead and its node is not away; ErrNoState for a member that waits
// for its first state, or is just being given one; ErrRemoved; ErrClosed, also if the group comes to its end meanwhile.
func (g *Group) ForceSingle(done func(error)) {
	x := g.raft
	x.ask(func() {
		var err error
		switch {
		case x.rn == nil:
			err = ErrClosed
		case x.left:
			err = ErrRemoved
		case x.lead != 0 && !x.g.shard.node.isDown(x.leaderNode()):
			err = ErrHasLeader
		case !x.has(x.self) || x.store.applied == 0 || x.installing != nil:
			err = ErrNoState
		}
		if err != nil {
			done(err)
			return
		}
		if x.forced == nil {
			x.forced = &forcing{}
		}
		x.forced.dones = append(x.forced.dones, done)
	})
}

// forcing is that this member is to be made the only one.
type forcing struct {
	dones []func(error)
	begun bool // it is on its way to the disk
}

// forceSingle makes this member the only one.
func (x *raftGroup) forceSingle(s *Shard, r *round) {
	x.abandon()
	x.failChanges(ErrUnknown)
	x.againReads()
	x.dropTransfers()
	x.receiving = nil
	x.out, x.peers = nil, nil
	clear(x.payloads)
	for i := range x.appends { // what waits for them is for the old group
		x.appends[i].responses = nil
	}
	// All that is here counts.
	for x.store.applied < x.store.last() {
		x.applyForced(s)
		if x.g.failed != nil || x.g.dropped {
			return
		}
	}
	s.node.o.Logger.Warn("a member of a group is made the only one", "group", uint64(x.g.id), "member", x.self,
		"members", x.list(), "index", x.store.applied)
	x.members = newMembers([]Member{{ID: x.self, Node: s.node.o.NodeID}})
	x.store.term, x.store.vote = max(x.term, x.store.term)+forcedTerms, 0
	index := x.store.applied + forcedEntries
	x.forgetTail()
	x.store.reset(index, x.store.term, x.conf, x.gone)
	x.g.index, x.g.term = index, x.store.term
	x.before, x.lately = index, index
	x.term, x.lead, x.state, x.serving = x.store.term, 0, raft.StateFollower, false
	x.checkRole()
	x.writeSnapshot(r, s.time, false)
	x.writeHardState(r, s.time)
	x.forced.begun = true
	x.wait(r, storageAppend{then: func() { x.forcesDone(nil) }})
	rn, err := x.newNode()
	if err != nil {
		s.node.fail(x.g, err)
		return
	}
	x.rn = rn
	x.rankedCampaign()
}

// forcesDone answers who has asked for it.
func (x *raftGroup) forcesDone(err error) {
	f := x.forced
	if f == nil {
		return
	}
	x.forced = nil
	for _, done := range f.dones {
		done(err)
	}
}

// applyForced applies the next entry, of which nobody knows whether it is committed.
func (x *raftGroup) applyForced(s *Shard) {
	index := x.store.applied + 1
	e := x.store.at(index)
	x.store.applied, x.store.appliedTerm = index, e.term
	x.g.index, x.g.term = index, e.term
	switch e.kind {
	case entryConf:
		if err := x.replayConf(e.data); err != nil {
			s.node.fail(x.g, err)
		}
	case entryNormal:
		p := e.payload
		if p == nil {
			invariant.Failf("group %d: entry %d carries nothing", x.g.id, index)
		}
		e.payload = nil
		x.time = p.time
		x.heardTime(s, p.time)
		ids, items := p.items()
		x.host.ApplyForeign(&Entry{Index: index, Term: e.term, Time: p.time, Logged: true}, p.meta(), ids, items)
		s.stats.entries.Add(1)
	}
}

// alone says whether nobody but this member decides about the group, now and by what is under way. Then whoever else
// claims to lead it, or wants to, is of another group of the same name.
func (x *raftGroup) alone() bool {
	if c := x.conf; len(c.Voters) != 1 || c.Voters[0] != x.self || len(c.VotersOutgoing) > 0 {
		return false
	}
	for i := x.store.applied + 1; i <= x.store.last(); i++ {
		if x.store.at(i).kind == entryConf {
			return false
		}
	}
	return true
}
