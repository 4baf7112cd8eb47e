package replica

import (
	"errors"
	"testing"
	"time"
)

// read is one read barrier of a test.
type read struct {
	index uint64
	err   error
	n     int // answers
}

func (m *member) read(wait time.Duration) *read {
	r := &read{}
	m.h.g.ReadIndex(wait, func(index uint64, err error) { r.index, r.err = index, err; r.n++ })
	return r
}

// Every member can make sure that it knows what was confirmed, without an entry.
func TestRaftReadIndex(t *testing.T) {
	c := newCluster(t, 40, 3, 3, Options{})
	c.settle()
	l := c.leader()
	for range 5 {
		c.propose(l)
	}
	c.settle()
	last := l.h.g.Index()
	for _, m := range c.nodes {
		r := m.read(time.Second)
		want(t, "answers before the others were asked", r.n, 0)
		c.settle()
		if r.n != 1 || r.err != nil || r.index != last {
			t.Fatalf("node %d: %+v, not %d", m.id, *r, last)
		}
	}
	want(t, "entries", l.h.g.Index(), last)
}

// A hundred barriers of a group share a round of heartbeats; those of many groups share messages.
func TestRaftReadIndexesShareARound(t *testing.T) {
	c := newCluster(t, 41, 3, 3, Options{})
	c.settle()
	l := c.leader()
	before := c.sent
	var rs []*read
	for range 100 {
		rs = append(rs, l.read(time.Second))
	}
	c.settle()
	for _, r := range rs {
		want(t, "answers", r.n, 1)
	}
	want(t, "messages", c.sent-before, 4)
}

// A follower that knows less than the leader has confirmed waits until it has applied it.
func TestRaftReadIndexWaitsForTheApply(t *testing.T) {
	c := newCluster(t, 42, 3, 3, Options{})
	c.settle()
	l := c.leader()
	slow, other := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
	c.propose(l)
	for l.h.g.Index() < 3 { // confirmed by the leader and the other one
		l.step()
		other.step()
		l.disk.commit()
		other.disk.commit()
		for lane := range LaneBulk {
			c.deliver(l.id, other.id, lane)
			c.deliver(other.id, l.id, lane)
		}
	}
	want(t, "the slow one has", slow.h.g.Index(), uint64(2))
	r := slow.read(time.Second)
	c.settle()
	want(t, "read", *r, read{3, nil, 1})
}

// A leader that was deposed and does not know it must not answer.
func TestRaftReadIndexOfADeposedLeader(t *testing.T) {
	c := newCluster(t, 43, 3, 3, Options{})
	c.settle()
	old := c.leader()
	for _, m := range c.nodes {
		if m != old {
			c.wire(old.id, m.id).broken = true
			c.wire(m.id, old.id).broken = true
			m.n.PeerDown(old.id)
		}
	}
	c.settle()
	r := old.read(500 * time.Millisecond)
	next := c.leader()
	if next == old {
		t.Fatal("nobody took over")
	}
	c.propose(next)
	c.settle()
	want(t, "serving", old.h.serving, true) // it does not know
	want(t, "answers", r.n, 0)
	c.settleFor(6)
	want(t, "read", *r, read{0, ErrNoAnswer, 1})
	r = old.read(10 * time.Second)
	for _, w := range c.links {
		w.broken = false
	}
	c.settleFor(20)
	want(t, "read after the links stand", *r, read{next.h.g.Index(), nil, 1})
}

// Without a leader the answer comes in time, and says so.
func TestRaftReadIndexWithoutALeader(t *testing.T) {
	c := newCluster(t, 44, 3, 3, Options{})
	c.settle()
	l := c.leader()
	left := c.nodes[l.id%3]
	for _, m := range c.nodes {
		if m != left {
			m.crash()
		}
	}
	c.settle()
	now, later := left.read(0), left.read(time.Second)
	c.settle()
	want(t, "answers", []int{now.n, later.n}, []int{1, 0})
	c.settleFor(11)
	for _, r := range []*read{now, later} {
		var none *NotLeaderError
		if r.n != 1 || !errors.As(r.err, &none) || none.Leader != 0 {
			t.Fatalf("%+v", *r)
		}
	}
}

// A leader that changes meanwhile costs nothing but time.
func TestRaftReadIndexOutlivesTheLeader(t *testing.T) {
	c := newCluster(t, 45, 3, 3, Options{})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	r := m.read(5 * time.Second)
	m.step() // the question is on its way
	l.crash()
	c.settleFor(10)
	want(t, "answers", r.n, 1)
	want(t, "error", r.err, nil)
}

// Who is the only voter must not answer from what it knew at its start: the last entries are not known to be committed.
func TestRaftReadIndexAloneAfterAStart(t *testing.T) {
	c := newCluster(t, 46, 2, 1, Options{})
	c.settle()
	l := c.mustLead()
	c.nodes[1].start()
	l.h.g.ChangeMembers(MemberChange{AddLearner, Member{ID: 2, Node: 2}}, nil)
	c.settleFor(10)
	for range 3 {
		c.propose(l)
		c.settle()
	}
	last := l.h.g.Index()
	l.crash()
	l.start()
	if l.h.g.Index() == last {
		t.Fatal("all is known to be committed after the start")
	}
	own, others := l.read(time.Second), c.nodes[1].read(5*time.Second)
	c.settleFor(10)
	for _, r := range []*read{own, others} {
		if r.n != 1 || r.err != nil || r.index < last {
			t.Fatalf("%+v; %d was confirmed", *r, last)
		}
	}
}

// Who waits at the end of a group or of the node is told so.
func TestRaftReadIndexAtTheEnd(t *testing.T) {
	c := newCluster(t, 47, 3, 3, Options{})
	c.settle()
	l := c.leader()
	r := l.read(time.Hour)
	l.step()
	l.h.g.Drop()
	l.step()
	want(t, "dropped", *r, read{0, ErrClosed, 1})
	l.h.g.raft.close()
	want(t, "after the end of the node", *l.read(time.Hour), read{0, ErrClosed, 1})
}

// A question that comes when a new leader does not serve yet is answered as soon as it does, and not only when it is asked again.
func TestRaftReadIndexOfANewLeader(t *testing.T) {
	c := newCluster(t, 48, 3, 3, Options{})
	l := c.mustLead()
	c.propose(l)
	c.settle()
	l.crash()
	var reads []*read
	for _, m := range c.nodes {
		if m != l {
			reads = append(reads, m.read(time.Second))
		}
	}
	c.settle() // no time passes
	for _, r := range reads {
		want(t, "read", *r, read{c.leader().h.g.Index(), nil, 1})
	}
}
