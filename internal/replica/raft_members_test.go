package replica

import (
	"errors"
	"fmt"
	"testing"

	"holdfast/internal/seglog"
)

// A new member gets the state with its items, then its vote; an old one leaves, the leader too.
func TestRaftMembersComeAndGo(t *testing.T) {
	c := newCluster(t, 20, 4, 3, Options{})
	c.settle()
	l := c.leader()
	for range 60 {
		c.propose(l)
	}
	c.settle()
	c.nodes[3].start()
	change := func(kind ChangeKind, id uint64) {
		t.Helper()
		l := c.mustLead()
		err := errors.New("there was no answer")
		l.h.g.ChangeMembers(MemberChange{kind, Member{ID: id, Node: id}}, func(e error) { err = e })
		c.settleFor(10)
		if err != nil {
			t.Fatalf("change %d of member %d: %v", kind, id, err)
		}
	}
	change(AddLearner, 4)
	c.same()
	d := c.nodes[3]
	want(t, "operations of the new member", len(d.h.ops), 60)
	items := d.disk.(*memLog).items(c.group)
	for id := d.h.first; id < d.h.next; id++ {
		if want := string(itemOf(d.h.ops[id-1])); string(items[id]) != want {
			t.Fatalf("item %d of the new member is %q, not %q", id, items[id], want)
		}
	}
	change(Promote, 4)
	old := c.mustLead()
	change(Remove, old.id)
	next := c.mustLead()
	if next == old {
		t.Fatal("a member that was removed leads")
	}
	c.propose(next)
	c.settleFor(5)
	c.same()
	old.crash()
	// The new one can carry the group together with one other.
	for _, m := range c.nodes {
		if m != old && m != d {
			m.crash()
			c.settleFor(40)
			break
		}
	}
	l = c.mustLead()
	c.propose(l)
	c.settleFor(5)
	want(t, "confirmed", len(c.judge.done), 62)
	c.same()
	d.crash()
	d.start()
	c.settleFor(40)
	c.mustLead()
	c.settleFor(5)
	c.same()
}

func TestRaftChangesOfMembersAreRefused(t *testing.T) {
	c := newCluster(t, 21, 3, 3, Options{})
	c.settle()
	l := c.leader()
	follower := c.nodes[l.id%3]
	var err error
	note := func(e error) { err = e }
	follower.h.g.ChangeMembers(MemberChange{Remove, Member{ID: 2}}, note)
	c.settle()
	var not *NotLeaderError
	if !errors.As(err, &not) || not.Leader != l.id {
		t.Fatalf("asked of a follower: %v", err)
	}
	l.h.g.ChangeMembers(MemberChange{AddLearner, Member{ID: 9}}, note)
	c.settle()
	want(t, "without a node", err, errChange)
	// Without a majority nobody knows.
	for _, m := range c.nodes {
		if m != l {
			m.up = false
		}
	}
	err = nil
	l.h.g.ChangeMembers(MemberChange{Remove, Member{ID: follower.id}}, note)
	c.settleFor(60)
	want(t, "cut off", err, ErrUnknown)
}

// A member that lacks more than the log has gets the state, and keeps the items it has.
func TestRaftBringsTheState(t *testing.T) {
	c := newCluster(t, 22, 3, 3, Options{SnapshotEntries: 4, KeepTail: 1})
	c.settle()
	l := c.leader()
	away := c.nodes[l.id%3]
	for range 30 {
		c.propose(l)
	}
	c.settle()
	away.crash()
	for range 15 { // some of the items that live it has already
		c.propose(l)
	}
	c.settleFor(3)
	away.start()
	before := c.bytes
	c.settleFor(20)
	c.same()
	installs, items := 0, 0
	for _, r := range away.disk.(*memLog).records {
		switch r.Kind {
		case seglog.KindInstall:
			installs++
		case seglog.KindItems:
			for _, b := range r.Blocks {
				items += len(b.Items)
			}
		}
	}
	want(t, "states installed", installs, 1)
	if items < 1 || items > 15 {
		t.Fatalf("%d items came in %d bytes; 15 were missing", items, c.bytes-before)
	}
	away.crash()
	away.start()
	c.settleFor(10)
	c.same()
	c.propose(c.mustLead())
	c.settleFor(5)
	c.same()
}

// A transfer that breaks goes on from the items that are there.
func TestRaftTransferGoesOn(t *testing.T) {
	c := newCluster(t, 23, 3, 3, Options{SnapshotEntries: 4, KeepTail: 1})
	c.settle()
	l := c.leader()
	away := c.nodes[l.id%3]
	away.crash()
	for range 60 {
		c.propose(l)
	}
	c.settleFor(3)
	away.start()
	staged := func() int {
		n := 0
		for _, r := range away.h.g.raft.staged {
			n += int(r.Last - r.First + 1)
		}
		return n
	}
	for i := 0; staged() < 6; i++ {
		if i > 2000 {
			t.Fatalf("nothing comes\n%v", c)
		}
		for _, m := range c.nodes {
			m.step()
			m.disk.commit()
			m.n.ReadStep()
			for _, other := range c.nodes {
				for lane := range LaneBulk + 1 {
					c.deliver(other.id, m.id, lane)
				}
			}
		}
		if i%10 == 0 {
			c.tick()
		}
	}
	half := staged()
	c.breakLink(l.id, away.id)
	c.breakLink(away.id, l.id)
	if half >= ledgerKeeps {
		t.Fatal("all came before the link broke")
	}
	c.settle()
	l.n.PeerUp(away.id)
	away.n.PeerUp(l.id)
	c.settleFor(30)
	c.same()
	items := map[uint64]int{}
	for _, r := range away.disk.(*memLog).records {
		if r.Kind == seglog.KindItems {
			for _, b := range r.Blocks {
				for k := range b.Items {
					items[b.First+uint64(k)]++
				}
			}
		}
	}
	for id, n := range items {
		if n > 1 {
			t.Fatalf("item %d came %d times", id, n)
		}
	}
	want(t, "items", len(items), ledgerKeeps)
	want(t, "sending", len(l.h.g.raft.sending), 0)
	want(t, "under way from the node", l.n.transfers.Load(), int64(0))
	want(t, "staged", staged(), 0)
}

func TestRanges(t *testing.T) {
	r := func(v ...uint64) (out []seglog.Range) {
		for i := 0; i < len(v); i += 2 {
			out = append(out, seglog.Range{First: v[i], Last: v[i+1]})
		}
		return out
	}
	want(t, "merged", fmt.Sprint(mergeRanges(r(7, 9, 1, 2, 3, 4, 8, 12, 20, 20))), fmt.Sprint(r(1, 4, 7, 12, 20, 20)))
	for _, x := range [][3][]seglog.Range{
		{r(1, 10), r(3, 4, 8, 20), r(1, 2, 5, 7)},
		{r(1, 10, 12, 15), r(1, 10), r(12, 15)},
		{r(5, 6), r(1, 10), nil},
		{r(5, 6, 8, 9), r(6, 8), r(5, 5, 9, 9)},
		{r(1, 3), nil, r(1, 3)},
		{r(1, 2, 4, 5, 7, 8), r(2, 7), r(1, 1, 8, 8)},
	} {
		want(t, fmt.Sprint(x[0], " without ", x[1]), fmt.Sprint(subtractRanges(x[0], x[1])), fmt.Sprint(x[2]))
	}
	want(t, "overlaps", fmt.Sprint(overlaps(r(1, 3, 6, 9), seglog.Range{First: 4, Last: 5}), overlaps(r(1, 3, 6, 9), seglog.Range{First: 4, Last: 6})), "false true")
}

// Who is left over when the leader is removed leads.
func TestRaftTheLastOneLeads(t *testing.T) {
	c := newCluster(t, 24, 2, 2, Options{})
	c.settle()
	l := c.mustLead()
	other := c.nodes[l.id%2]
	l.h.g.ChangeMembers(MemberChange{Remove, Member{ID: l.id}}, nil)
	c.settleFor(60)
	want(t, "leader", c.leader(), other)
	c.propose(other)
	c.settle()
	want(t, "confirmed", len(c.judge.done), 1)
}
