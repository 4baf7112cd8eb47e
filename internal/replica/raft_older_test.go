package replica

import (
	"math/rand/v2"
	"testing"
)

// A member whose log is older than what it has answered for, as after it was put back from a copy, is out of service: it must not
// vote, and it does not end the process.
func TestRaftLogOlderThanItsAnswers(t *testing.T) {
	c := newCluster(t, 64, 3, 3, Options{})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	c.propose(l)
	c.settle()
	older := m.disk.crash(rand.New(rand.NewPCG(1, 1)))
	for range 3 {
		c.propose(l)
		c.settle()
	}
	m.crash()
	m.disk = older
	m.start()
	m.h.mayFail = true
	c.settleFor(20)
	if m.h.failed == nil {
		t.Fatalf("it goes on\n%v", c)
	}
	if c.leader() != l || !c.propose(l) {
		t.Fatal("the others do not")
	}
	c.settleFor(20)
}
