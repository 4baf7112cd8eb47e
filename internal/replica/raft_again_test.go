package replica

import (
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// lose ends the leader of three. It returns the others, in the order in which they ask to be elected, and tells them nothing.
func (c *cluster) lose() (first, second *member) {
	l := c.mustLead()
	l.up = false
	line := c.inLine(l)
	return line[0], line[1]
}

// pass delivers what one member has sent to another, and lets that one work.
func (c *cluster) pass(from, to *member) {
	for c.deliver(from.id, to.id, LaneControl) {
	}
	for to.step() {
	}
}

// mustBe checks who leads.
func (c *cluster) mustBe(m *member) {
	c.t.Helper()
	if l := c.leader(); l != m {
		c.t.Fatalf("another one leads, or nobody\n%v", c)
	}
}

// Votes that take their time, as the disk does, are no reason to ask for another election: who has given its vote waits.
func TestRaftWhoHasGivenItsVoteWaits(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	first, second := c.lose()
	term := first.h.term
	for _, m := range []*member{first, second} {
		m.n.PeerDown(6 - first.id - second.id)
		m.step()
	}
	c.pass(first, second)
	c.pass(second, first)
	c.pass(first, second) // it votes, and that has to be written
	for range campaignAgain - 1 {
		c.tick()
		first.step()
		second.step()
	}
	c.settle()
	c.mustBe(first)
	want(t, "elections", first.h.term-term, 1)
}

// Two may ask at the same time: the one that comes first is elected, and at once.
func TestRaftOfTwoThatAskOneGivesWay(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	first, second := c.lose()
	term := first.h.term
	lost := 6 - first.id - second.id
	second.n.PeerDown(lost)
	second.step()
	for range campaignStep {
		c.tick()
		second.step()
	}
	first.n.PeerDown(lost)
	first.step()
	for _, m := range []*member{first, second} {
		want(t, "state", m.h.g.raft.state, raft.StatePreCandidate)
	}
	c.settle() // no time passes
	c.mustBe(first)
	want(t, "elections", first.h.term-term, 1)
}

// A leader that an election has deposed which nobody won is followed by another one long before raft's own patience ends.
func TestRaftDeposedLeaderIsFollowedSoon(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	for _, m := range c.nodes {
		x, term := m.h.g.raft, l.h.term+1
		m.h.g.Do(func() {
			_ = x.rn.Step(&pb.Message{Type: pb.MsgAppResp.Enum(), From: &c.nodes[m.id%3].id, To: &m.id, Term: &term})
		})
	}
	c.settle()
	if c.leader() != nil {
		t.Fatal("nobody was deposed")
	}
	c.settleFor(campaignAgain)
	c.mustBe(c.nodes[int(uint64(c.group)%3)])
}
