package replica

import "testing"

// A node that had better not lead leaves it to others, also if it is its turn; if there is nobody else it leads all the same.
func TestReluctantMemberLeadsLast(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	line := c.inLine(l)
	first, second := line[0], line[1]
	first.n.SetReluctant(true)
	l.crash()
	if now := c.mustLead(); now != second {
		t.Fatalf("the wrong one leads\n%v", c)
	}
	l.start()
	c.settle()
	second.crash()
	l.n.SetReluctant(true) // both that are left are
	if now := c.mustLead(); now == nil {
		t.Fatalf("nobody leads\n%v", c)
	}
}
