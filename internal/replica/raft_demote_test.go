package replica

import "testing"

// A vote is taken back: the member stays, without a say, until it gets one again.
func TestRaftDemote(t *testing.T) {
	c := newCluster(t, 60, 3, 3, Options{})
	c.settle()
	l := c.leader()
	a, b := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
	learners := func() (ids []uint64) {
		for _, m := range l.h.g.raft.status().Members {
			if m.Learner {
				ids = append(ids, m.ID)
			}
		}
		return ids
	}
	want(t, "one of three", c.change(l, Demote, a.id), nil)
	want(t, "learners", learners(), []uint64{a.id})
	want(t, "once more", c.change(l, Demote, a.id), nil)
	want(t, "the second", c.change(l, Demote, b.id), nil)
	want(t, "the last", c.change(l, Demote, l.id), ErrLastVoter)
	for range 20 {
		c.propose(l)
	}
	c.settle()
	want(t, "its vote again", c.change(l, Promote, b.id), nil)
	want(t, "learners", learners(), []uint64{a.id})
	b.crash()
	c.settle()
	want(t, "the only one that is there", c.change(l, Demote, l.id), ErrNoMajority)
	b.start()
	c.settleFor(50)
	c.propose(c.leader())
	c.settle()
	c.same()
}
