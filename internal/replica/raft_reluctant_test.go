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

// R494: a node that had better not lead hands over what it leads, if another member can take over at once, and never to one that had
// better not, either.
func TestReluctantNodeIsRelieved(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	l := c.mustLead()
	var others []uint64
	for _, m := range c.inLine(l) {
		others = append(others, m.n.o.NodeID)
	}
	l.n.SetReluctant(true)
	l.n.SetReluctantPeers(others)
	for range 3 {
		l.n.Relieve()
		c.settle()
		if now := c.mustLead(); now != l {
			t.Fatalf("it was handed to a node that had better not lead\n%v", c)
		}
	}
	l.n.SetReluctantPeers(others[:1])
	l.n.Relieve()
	c.settle()
	now := c.mustLead()
	if now.n.o.NodeID != others[1] {
		t.Fatalf("the wrong one leads\n%v", c)
	}
	l.n.Relieve() // which leads nothing any more
	if c.settle(); c.mustLead() != now {
		t.Fatalf("it was handed over twice\n%v", c)
	}
	now.n.SetReluctantPeers([]uint64{l.n.o.NodeID, others[0]})
	now.n.HandOver() // a node that stops: better one of these than nobody
	if c.settle(); c.mustLead() == now {
		t.Fatalf("it was not handed over\n%v", c)
	}
}
