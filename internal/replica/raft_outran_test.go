package replica

import "testing"

// The survivor whose turn it is to lead next lacks the last entry, and cannot be elected: the other one does not wait
// until its own turn comes.
func TestBetterCandidateDoesNotWait(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	var first, second *member
	for i := range c.nodes { // in the order in which they ask
		m := c.nodes[(int(uint64(c.group)%3)+i)%3]
		switch {
		case m == l:
		case first == nil:
			first = m
		default:
			second = m
		}
	}
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
