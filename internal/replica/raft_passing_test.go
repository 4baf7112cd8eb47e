package replica

import "testing"

// A leader of two that vote gives a learner its vote, hands the leadership over at once, and goes as soon as nothing is led there any more, in
// whatever order things happen on the way: the two that are left find a leader. The next one may have the entry by which the third
// votes, and not know that it is committed.
func TestRaftTransferRightAfterAPromotion(t *testing.T) {
	third, passed := Member{ID: 3, Node: 3}, 0
	for seed := uint64(1); seed <= 60; seed++ {
		c := newCluster(t, seed, 3, 2, Options{})
		c.nodes[2].start()
		c.settle()
		promoted := false
		c.mustLead().h.g.ChangeMembers(MemberChange{AddLearner, third}, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		c.settleFor(5)
		l := c.mustLead()
		l.h.g.ChangeMembers(MemberChange{Promote, third}, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			promoted = true
			l.n.HandOver()
		})
		for n := 0; n < 2000 && !(promoted && l.n.Leading() == 0); n++ {
			m := c.nodes[c.rng.IntN(3)]
			switch c.rng.IntN(3) {
			case 0:
				m.step()
			case 1:
				m.disk.commit()
			default:
				c.deliver(uint64(c.rng.IntN(3)+1), m.id, Lane(c.rng.IntN(int(LaneBulk)+1)))
			}
		}
		if !promoted || l.n.Leading() > 0 {
			continue
		}
		passed++
		l.crash()
		c.propose(c.mustLead())
		c.settle()
		c.same()
	}
	if passed == 0 {
		t.Error("the leadership was never handed over")
	}
}
