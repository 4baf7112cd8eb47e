package replica

import "testing"

// What has come for a group is not looked at any more when an order that was carried out before gives it up: its host
// has nothing left to answer with.
func TestRaftGivenUpBeforeWhatCame(t *testing.T) {
	c := newCluster(t, 1, 3, 3, Options{})
	c.settleFor(50)
	c.propose(c.mustLead())
	c.settle()
	m := c.nodes[0]
	x := m.h.g.raft
	x.put(incoming{transfer: &transferMsg{kind: msgOffer, from: 2, to: x.self, term: x.term, index: x.store.applied + 100, size: 1}})
	m.h.g.Do(m.h.g.Drop)
	m.step()
	if x.receiving != nil {
		t.Fatal("a state is taken for a group that was given up")
	}
}
