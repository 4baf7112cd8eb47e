package replica

import (
	"errors"
	"fmt"
	"testing"
)

func (c *cluster) resting() (n int) {
	for _, m := range c.nodes {
		if m.up && m.h.g.raft.asleep {
			n++
		}
	}
	return n
}

// A group that has nothing to do is silent, and is there at once when there is something.
func TestRaftRests(t *testing.T) {
	c := newCluster(t, 70, 3, 3, Options{Rest: true})
	c.settleFor(2 * restTicks)
	want(t, "resting", c.resting(), 3)
	before := c.sent
	c.settleFor(renewTicks - 3*restTicks)
	want(t, "messages", c.sent-before, 0)
	l := c.leader()
	for _, m := range c.nodes {
		want(t, "ticking", len(m.n.Shard(0).ticking), 0)
		want(t, "serving", m.h.serving, m == l)
	}
	c.propose(l)
	c.settle()
	want(t, "confirmed", len(c.judge.done), 1)
	want(t, "resting", c.resting(), 0)
	c.settleFor(2 * restTicks)
	want(t, "resting", c.resting(), 3)
	want(t, "status", l.h.g.raft.status().Resting, true)
	var st RaftStatus
	l.h.g.AskRaftStatus(func(s RaftStatus) { st = s })
	c.settle()
	want(t, "resting after a look", []any{st.Resting, c.resting()}, []any{true, 3})
	r := c.nodes[l.id%3].read(1e9)
	c.settle()
	want(t, "read barrier", *r, read{l.h.g.Index(), nil, 1})
	c.settleFor(5 * renewTicks)
	want(t, "resting", c.resting(), 3)
	want(t, "leader", c.leader(), l)
}

// The loss of the leader's node wakes the others.
func TestRaftRestEndsWithTheLeader(t *testing.T) {
	c := newCluster(t, 71, 3, 3, Options{Rest: true})
	c.settleFor(2 * restTicks)
	l := c.leader()
	want(t, "resting", c.resting(), 3)
	l.crash()
	c.settle()
	next := c.leader()
	if next == nil || next == l {
		t.Fatal("nobody leads")
	}
	c.propose(next)
	c.settleFor(3 * restTicks)
	want(t, "resting without it", c.resting(), 2)
	l.start()
	c.settleFor(3 * restTicks)
	want(t, "resting with it", c.resting(), 3)
	c.same()
	want(t, "leader", c.leader(), next)
}

// A leader at rest whose log is found damaged wakes the others, who see only that its node is there. So does one that was just
// woken, and had no time to tell them.
func TestRaftRestEndsWithDamageOfTheLeader(t *testing.T) {
	for _, woken := range []bool{false, true} {
		c := newCluster(t, 75, 3, 3, Options{Rest: true})
		c.settleFor(2 * restTicks)
		l := c.leader()
		want(t, "resting", c.resting(), 3)
		if woken {
			l.h.g.raft.stir()
		}
		l.h.g.Fail(errors.New("damaged"))
		c.settleFor(3 * restTicks)
		next := c.leader()
		if next == nil || next == l {
			t.Fatalf("nobody leads; the leader was woken before: %v", woken)
		}
		c.propose(next)
		c.settle()
		want(t, "confirmed", len(c.judge.done), 1)
	}
}

// One that lacks what the others have committed is woken all the same, and is as good as any: it hears nothing of a commit that it
// could take for entries that it has lost.
func TestRaftDamageOfTheLeaderFindsALaggard(t *testing.T) {
	c := newCluster(t, 76, 3, 3, Options{Rest: true})
	c.settleFor(2 * restTicks)
	l := c.leader()
	late := c.nodes[l.id%3]
	c.wire(l.id, late.id).broken = true
	c.propose(l)
	c.settle()
	want(t, "confirmed by two", len(c.judge.done), 1)
	c.wire(l.id, late.id).broken = false
	l.h.g.Fail(errors.New("damaged"))
	c.settleFor(3 * restTicks)
	if late.h.g.failed != nil {
		t.Fatalf("the one that lags is out of service: %v", late.h.g.failed)
	}
	next := c.leader()
	if next == nil || next == l {
		t.Fatal("nobody leads")
	}
	c.propose(next)
	c.settle()
	want(t, "confirmed", len(c.judge.done), 2)
}

// Two of three are gone: who is left does not rest, and does not lead for ever.
func TestRaftDoesNotRestAlone(t *testing.T) {
	c := newCluster(t, 72, 3, 3, Options{Rest: true})
	c.settleFor(2 * restTicks)
	l := c.leader()
	for _, m := range c.nodes {
		if m != l {
			m.crash()
		}
	}
	c.settleFor(3 * electionTicks)
	want(t, "serving", l.h.serving, false)
	want(t, "resting", c.resting(), 0)
}

// A member that was not told goes on ticking, asks for an election, and is told again.
func TestRaftRestIsSaidAgain(t *testing.T) {
	c := newCluster(t, 73, 3, 3, Options{Rest: true})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	w := c.wire(l.id, m.id)
	for range 2 * restTicks {
		c.tick()
		for l.step() {
		}
		if l.h.g.raft.asleep {
			break
		}
		c.settle()
	}
	want(t, "messages of rest", len(w.lanes[LaneControl]), 1)
	w.lanes[LaneControl] = nil
	c.settle()
	want(t, "resting", c.resting(), 2)
	c.settleFor(4 * electionTicks)
	want(t, "resting", c.resting(), 3)
	want(t, "leader", c.leader(), l)
	want(t, "terms", fmt.Sprint(m.h.term), fmt.Sprint(l.h.term))
}

// If nobody says that the leader is gone, those who rest find out by themselves, if late.
func TestRaftRestWithoutNews(t *testing.T) {
	c := newCluster(t, 74, 3, 3, Options{Rest: true})
	c.settleFor(2 * restTicks)
	l := c.leader()
	want(t, "resting", c.resting(), 3)
	l.up = false
	c.settleFor((renewals+2)*renewTicks + 5*electionTicks)
	if next := c.leader(); next == nil || next == l {
		t.Fatal("nobody leads")
	}
}

// A full lane: the group stays awake until all could be told.
func TestRaftRestThatCannotBeSaid(t *testing.T) {
	c := newCluster(t, 75, 3, 3, Options{Rest: true})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	for range restTicks {
		c.wire(l.id, m.id).broken = l.h.g.raft.calm >= restTicks-1
		c.settleFor(1)
	}
	want(t, "resting", l.h.g.raft.asleep, false)
	c.wire(l.id, m.id).broken = false
	c.settleFor(3 * restTicks)
	want(t, "resting", c.resting(), 3)
}

// A leader that is forgotten, because its node seemed to be gone, and heard of before anything else happens, is known again.
func TestRaftForgottenLeaderIsFoundAgain(t *testing.T) {
	c := newCluster(t, 76, 4, 3, Options{})
	c.settle()
	l := c.leader()
	c.nodes[3].start()
	want(t, "a learner", c.change(l, AddLearner, 4), nil)
	m := c.nodes[3]
	for len(c.wire(l.id, m.id).lanes[LaneControl]) == 0 {
		c.tick()
		l.step()
	}
	m.n.PeerDown(l.id)
	m.n.PeerUp(l.id)
	for c.deliver(l.id, m.id, LaneControl) {
	}
	m.step()
	want(t, "leader", m.h.leader, l.id)
	want(t, "leader in the status", m.h.g.raft.status().Lead, l.id)
}

// A group at rest keeps in memory nothing of what its entries carried; a member that was away gets it from the log.
func TestRaftRestKeepsNoEntries(t *testing.T) {
	c := newCluster(t, 75, 3, 3, Options{Rest: true})
	l := c.mustLead()
	away := c.nodes[l.id%3]
	away.crash()
	for range 5 {
		c.propose(l)
		c.settle()
	}
	c.settleFor(3 * restTicks)
	want(t, "resting", c.resting(), 2)
	for _, m := range c.nodes {
		if m == away {
			continue
		}
		want(t, "bytes kept", m.n.Shard(0).cache.bytes, 0)
		for i := range m.h.g.raft.store.slots {
			if m.h.g.raft.store.slots[i].payload != nil {
				t.Errorf("node %d keeps what entry %d carried", m.id, i)
			}
		}
	}
	away.start()
	c.settleFor(4 * restTicks)
	want(t, "resting with it", c.resting(), 3)
	c.same()
}

// A member that has just kept entries for those that might be away rests when the leader says that all have them.
func TestRaftRestLetsGoOfTheTail(t *testing.T) {
	c := newCluster(t, 77, 3, 3, Options{Rest: true})
	l := c.mustLead()
	c.propose(l)
	for l.h.g.raft.calm < restTicks-2 {
		c.settleFor(1)
	}
	keeping := 0
	for _, m := range c.nodes {
		m.h.g.wantSnapshot.Store(true)
		m.h.g.Wake()
		c.settle()
		if m.h.g.raft.keeping {
			keeping++
		}
	}
	want(t, "keeping", keeping, 2)
	c.settleFor(4)
	want(t, "resting", c.resting(), 3)
	for _, m := range c.nodes {
		x := m.h.g.raft
		want(t, fmt.Sprint("kept by node ", m.id), []any{x.keeping, x.keptTail, m.n.tailBytes.Load(), len(x.store.slots)}, []any{false, int64(0), int64(0), 0})
	}
}

// Groups with the same members have them in memory once, until they change.
func TestRaftMembersAreShared(t *testing.T) {
	c := newCluster(t, 76, 3, 3, Options{})
	l := c.mustLead()
	other := l.n.NewRaftGroup(c.group+1, newLedger(t, newJudge(t), int(l.id)), c.begin)
	want(t, "shared", other.raft.conf == l.h.g.raft.conf, true)
	want(t, "the change", c.change(l, Demote, c.nodes[l.id%3].id), nil)
	want(t, "voters here", len(l.h.g.raft.conf.Voters), 2)
	want(t, "voters of the other group", len(other.raft.conf.Voters), 3)
}
