package replica

import "testing"

// The survivor whose turn it is to lead next lacks the last entry, and cannot be elected: the other one does not wait
// until its own turn comes.
func TestBetterCandidateDoesNotWait(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	line := c.inLine(l)
	first, second := line[0], line[1]
	c.wire(l.id, first.id).broken = true
	if !c.propose(l) {
		t.Fatal("the leader takes nothing")
	}
	c.settle()
	l.crash()
	c.settle() // no time passes
	if now := c.leader(); now != second {
		t.Fatalf("nobody, or the wrong one, leads\n%v", c)
	}
}

// The survivor whose turn it is may hear of the leader's end before the other one, which then ignores it, as it still
// believes in the leader. It gets its answer as soon as the other one hears of it, too.
func TestVoteIgnoredForALostLeaderIsGiven(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	first := c.inLine(l)[0]
	l.up = false
	first.n.PeerDown(l.id)
	c.settle()
	if c.leader() != nil {
		t.Fatal("it has not been ignored")
	}
	l.crash()
	c.settle() // no time passes
	if now := c.leader(); now != first {
		t.Fatalf("nobody, or the wrong one, leads\n%v", c)
	}
}

// A request for a vote that was ignored because there was a leader, and there went on to be, counts for nothing when that one is lost later.
func TestVoteIgnoredLongAgoIsNotGiven(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	line := c.inLine(l)
	first, second := line[0], line[1]
	first.n.PeerDown(l.id)
	c.settle()
	x := second.h.g.raft
	if x.deferred == nil {
		t.Fatal("the request was not ignored")
	}
	first.n.PeerUp(l.id)
	c.settleFor(20)
	c.mustBe(l)
	l.up, first.up = false, false
	second.n.PeerDown(l.id)
	second.step()
	want(t, "ticks until it is its turn", x.campaign, campaignStep)
}

// inLine returns the other members in the order in which they ask for an election when l is lost.
func (c *cluster) inLine(l *member) (line []*member) {
	n := len(c.nodes)
	for i := range c.nodes {
		if m := c.nodes[(int(uint64(c.group)%uint64(n))+i)%n]; m != l {
			line = append(line, m)
		}
	}
	return line
}

// Of five, the one whose turn it is lacks an entry: of the others only the next in line asks, or they would take each other's
// votes again and again.
func TestOneOfManyOutrunsACandidate(t *testing.T) {
	c := newCluster(t, 3, 5, 5, Options{})
	l := c.mustLead()
	line := c.inLine(l)
	c.wire(l.id, line[0].id).broken = true
	if !c.propose(l) {
		t.Fatal("the leader takes nothing")
	}
	c.settle()
	l.crash()
	c.settle() // no time passes
	if now := c.leader(); now != line[1] {
		t.Fatalf("nobody, or the wrong one, leads\n%v", c)
	}
}

// Members that have given way, and wait long for their next turn, take the votes that raft asks for by itself meanwhile.
func TestWhoGaveWayIsElectedLater(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	for _, m := range c.nodes {
		if m != l { // nobody is told
			c.wire(l.id, m.id).broken, c.wire(m.id, l.id).broken = true, true
			m.h.g.raft.gaveWay = true
		}
	}
	for range 4 * electionTicks {
		for _, m := range c.nodes {
			if m != l && m.h.g.raft.campaign > 0 {
				m.h.g.raft.campaign = 100
			}
		}
		c.settleFor(1)
	}
	if now := c.leader(); now == nil || now == l {
		t.Fatalf("nobody else leads\n%v", c)
	}
}
