package replica

import (
	"errors"
	"fmt"
	"testing"
)

// change asks a node for a change of members, and waits for what becomes of it.
func (c *cluster) change(m *member, kind ChangeKind, id uint64) error {
	err := errors.New("there was no answer")
	m.h.g.ChangeMembers(MemberChange{kind, Member{ID: id, Node: id}}, func(e error) { err = e })
	c.settleFor(10)
	return err
}

// What would end the group is refused, and says why.
func TestRaftChangesThatWouldEndTheGroup(t *testing.T) {
	c := newCluster(t, 50, 4, 3, Options{SnapshotEntries: 4, KeepTail: 1})
	c.settle()
	l := c.leader()
	a, b := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
	want(t, "a voter as a learner", c.change(l, AddLearner, a.id), ErrIsVoter)
	want(t, "a vote for a stranger", c.change(l, Promote, 4), ErrBehind)
	for range 60 {
		c.propose(l)
	}
	c.settle()
	want(t, "a learner that is not there", c.change(l, AddLearner, 4), nil)
	want(t, "its vote", c.change(l, Promote, 4), ErrBehind)
	c.nodes[3].start()
	c.settleFor(20)
	want(t, "its vote when it is there", c.change(l, Promote, 4), nil)
	want(t, "out again", c.change(l, Remove, 4), nil)

	a.crash()
	c.settle()
	want(t, "one of two that are there", c.change(l, Remove, b.id), ErrNoMajority)
	want(t, "the one that is away", c.change(l, Remove, a.id), nil)
	want(t, "one of two", c.change(l, Remove, b.id), nil)
	want(t, "the last", c.change(l, Remove, l.id), ErrLastVoter)
	if !errors.Is(ErrLastVoter, ErrChangeRefused) || !errors.Is(ErrBehind, ErrChangeRefused) {
		t.Fatal("not all that is refused is ErrChangeRefused")
	}
	c.propose(l)
	c.settle()
	c.judge.complete(l.h)
}

// A new member gets everything, and its vote when it has.
func TestRaftAddMember(t *testing.T) {
	c := newCluster(t, 51, 4, 3, Options{SnapshotEntries: 4, KeepTail: 1})
	c.settle()
	l := c.leader()
	for range 60 {
		c.propose(l)
	}
	c.settle()
	var answers []error
	note := func(err error) { answers = append(answers, err) }
	l.h.g.AddMember(Member{ID: 4, Node: 4}, note)
	c.settleFor(20)
	want(t, "answers before it is there", len(answers), 0)
	for _, m := range l.h.g.raft.status().Members {
		want(t, fmt.Sprint("member ", m.ID, " is a learner"), m.Learner, m.ID == 4)
	}
	c.nodes[3].start()
	c.settleFor(20)
	want(t, "answers", answers, []error{nil})
	for _, m := range l.h.g.raft.status().Members {
		want(t, fmt.Sprint("member ", m.ID, " is a learner"), m.Learner, false)
	}
	c.same()

	answers = nil
	c.nodes[3].crash()
	want(t, "out", c.change(l, Remove, 4), nil)
	l.h.g.AddMember(Member{ID: 9, Node: 4}, note)
	c.settleFor(5)
	want(t, "out before it came", c.change(l, Remove, 9), nil)
	want(t, "answers", answers, []error{ErrBehind})

	answers = nil
	l.h.g.AddMember(Member{ID: 10, Node: 4}, note)
	c.settleFor(5)
	want(t, "handed over", c.transfer(l, 0), nil)
	want(t, "answers", answers, []error{ErrUnknown})
}

func (c *cluster) transfer(m *member, to uint64) error {
	err := errors.New("there was no answer")
	m.h.g.TransferLeaderTo(to, func(e error) { err = e })
	c.settleFor(25)
	return err
}

func TestRaftTransferLeaderTo(t *testing.T) {
	c := newCluster(t, 52, 4, 3, Options{})
	c.settle()
	l := c.leader()
	a, b := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
	c.nodes[3].start()
	want(t, "a learner", c.change(l, AddLearner, 4), nil)
	want(t, "to itself", c.transfer(l, l.id), nil)
	want(t, "to a learner", c.transfer(l, 4), ErrNotHandedOver)
	want(t, "to nobody", c.transfer(l, 77), ErrNotHandedOver)
	want(t, "to a voter", c.transfer(l, a.id), nil)
	want(t, "leader", c.leader(), a)
	var not *NotLeaderError
	if err := c.transfer(l, b.id); !errors.As(err, &not) || not.Leader != a.id {
		t.Fatalf("asked of one that does not lead: %v", err)
	}
	b.up = false // nobody knows
	want(t, "to one that is silent", c.transfer(a, b.id), ErrNotHandedOver)
	c.propose(a)
	c.settle()
	want(t, "confirmed", len(c.judge.done), 1)
	b.up = true
	b.crash()
	c.settle()
	want(t, "to one that is away", c.transfer(a, b.id), ErrNotHandedOver)
}

// A member that is removed hears of it: from its own log, or, if it was away, from the leader, after a start, too.
func TestRaftRemovedMembersHearOfIt(t *testing.T) {
	c := newCluster(t, 53, 5, 5, Options{})
	c.settle()
	l := c.leader()
	a, b := c.nodes[l.id%5], c.nodes[(l.id+1)%5]
	want(t, "removed", c.change(l, Remove, a.id), nil)
	want(t, "told", []int{a.h.removed, b.h.removed, l.h.removed}, []int{1, 0, 0})
	want(t, "what is kept for it", []int{len(a.h.g.raft.payloads), len(a.h.g.raft.out)}, []int{0, 0})
	c.propose(l)
	c.settle()
	a.crash()
	a.start()
	c.settleFor(askTicks)
	want(t, "told after a start", a.h.removed, 1)

	b.crash()
	want(t, "removed", c.change(l, Remove, b.id), nil)
	b.start()
	c.settleFor(60)
	want(t, "told", []int{b.h.removed, l.h.removed}, []int{1, 0})
	want(t, "leader", c.leader(), l)
	var err error
	b.h.g.ReadIndex(1e9, func(_ uint64, e error) { err = e })
	c.settle()
	want(t, "asked", err, ErrRemoved)
	want(t, "status", b.h.g.raft.status().Removed, true)

	// The leader goes itself.
	want(t, "removed", c.change(l, Remove, l.id), nil)
	c.settleFor(2 * askTicks)
	want(t, "told", l.h.removed, 1)
	next := c.mustLead()
	c.propose(next)
	c.settle()
	c.judge.complete(next.h)
}

// force is what is left of a group when the majority is gone for good.
func force(t *testing.T, seed uint64) (c *cluster, last *member) {
	c = newCluster(t, seed, 5, 3, Options{SnapshotEntries: 7})
	c.judge.force = true
	c.settle()
	l := c.leader()
	for range 50 {
		c.propose(l)
	}
	c.settle()
	last = c.nodes[l.id%3]
	for _, m := range c.nodes[:3] {
		if m != last {
			m.crash()
		}
	}
	c.settleFor(30)
	return c, last
}

func (c *cluster) force(m *member) error {
	err := errors.New("there was no answer")
	m.h.g.ForceSingle(func(e error) { err = e })
	c.settleFor(5)
	return err
}

// A survivor is made the only member: it has what was confirmed, as far as it had it, and the group grows again. The others are
// told that they do not belong to it.
func TestRaftForceSingle(t *testing.T) {
	c, last := force(t, 54)
	want(t, "leader", c.leader(), (*member)(nil))
	term := last.h.g.raft.term
	want(t, "forced", c.force(last), nil)
	want(t, "leader", c.leader(), last)
	if now := last.h.g.raft.term; now <= term+forcedTerms {
		t.Fatalf("term %d after %d", now, term)
	}
	c.judge.complete(last.h)
	c.propose(last)
	c.settle()
	last.crash()
	last.start()
	c.settle()
	want(t, "leader after a start", c.leader(), last)
	want(t, "members", len(last.h.g.raft.status().Members), 1)
	for _, id := range []uint64{4, 5} {
		c.nodes[id-1].start()
		err := errors.New("there was no answer")
		last.h.g.AddMember(Member{ID: id, Node: id}, func(e error) { err = e })
		c.settleFor(20)
		want(t, "a new member", err, nil)
	}
	for _, m := range c.nodes[:3] {
		if !m.up {
			m.start()
		}
	}
	c.settleFor(80)
	for _, m := range c.nodes {
		want(t, fmt.Sprint("node ", m.id, " is told"), m.h.removed, map[bool]int{true: 1, false: 0}[m != last && m.id <= 3])
	}
	want(t, "leader", c.leader(), last)
	c.propose(last)
	c.settleFor(5)
	c.same()
}

// What is in the log of the survivor counts, committed or not, and a change of members that was under way does not.
func TestRaftForceSingleTakesAllThatIsThere(t *testing.T) {
	c := newCluster(t, 55, 3, 3, Options{})
	c.settle()
	l := c.leader()
	last := c.nodes[l.id%3]
	for _, m := range c.nodes {
		if m != last && m != l {
			m.crash()
		}
	}
	c.propose(l)
	c.settle()
	want(t, "confirmed", len(c.judge.done), 1)
	l.h.g.ChangeMembers(MemberChange{AddLearner, Member{ID: 9, Node: 9}}, func(error) {})
	l.step()
	for c.deliver(l.id, last.id, LaneData) {
		last.step()
	}
	last.disk.commit()
	l.crash()
	c.settleFor(30)
	x := last.h.g.raft
	if x.store.last() == x.store.applied {
		t.Fatal("nothing is under way")
	}
	want(t, "forced", c.force(last), nil)
	want(t, "leader", c.leader(), last)
	want(t, "members", len(last.h.g.raft.status().Members), 1)
	c.propose(last)
	c.settle()
	want(t, "confirmed", len(c.judge.done), 2)
	c.judge.complete(last.h)
}

// The survivor was behind. A member that has what it lacks comes back and is taken in again: it gets the survivor's state, and nothing that
// it has counts for one of the entries that have been agreed on since. So it is with the catalog, which has no items and knows nodes by their
// own ids.
func TestRaftForceSingleWithoutWhatAnotherHas(t *testing.T) {
	c := newCluster(t, 58, 3, 3, Options{})
	c.judge.force, c.judge.keeps = true, 0
	c.settle()
	l := c.leader()
	last, other := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
	last.crash()
	for range 20 {
		c.propose(l)
	}
	c.settle()
	lost := len(c.judge.done)
	l.crash()
	other.crash()
	last.start()
	c.settleFor(30)
	clear(c.judge.done)
	c.judge.doneIndex = 0
	want(t, "forced", c.force(last), nil)
	for range 5 {
		c.propose(last)
	}
	c.settle()
	for _, m := range []*member{l, other} {
		err := errors.New("there was no answer")
		last.h.g.ChangeMembers(MemberChange{AddLearner, Member{ID: m.id, Node: m.id}}, func(e error) { err = e })
		c.settleFor(5)
		want(t, "taken in", err, nil)
		m.start()
	}
	c.settleFor(80)
	want(t, "lost and confirmed", []int{lost, len(c.judge.done)}, []int{20, 5})
	want(t, "leader", c.leader(), last)
	c.same()
	last.crash()
	last.start()
	c.settleFor(30)
	want(t, "leader after a start", c.leader(), last)
	c.propose(last)
	c.settleFor(5)
	c.same()
}

// A crash before the disk has it leaves the member what it was; one after it does not.
func TestRaftForceSingleAndACrash(t *testing.T) {
	for _, synced := range []bool{false, true} {
		c, last := force(t, 56)
		answered := false
		last.h.g.ForceSingle(func(error) { answered = true })
		last.step()
		want(t, "answered before it is on disk", answered, false)
		if synced {
			last.disk.commit()
		} else {
			last.disk.(*memLog).queued = nil
		}
		last.crash()
		last.start()
		c.settleFor(5)
		want(t, "leads", c.leader() == last, synced)
		if !synced {
			want(t, "members", len(last.h.g.raft.status().Members), 3)
			c.nodes[last.id%3].start()
			c.settleFor(30)
			c.mustLead()
			c.same()
		}
	}
}

// Who has asked for it is answered also if the group comes to its end before it is done, or before the disk has it.
func TestRaftForceSingleAndAnEnd(t *testing.T) {
	for _, begun := range []bool{false, true} {
		_, last := force(t, 60)
		var answers []error
		last.h.g.ForceSingle(func(err error) { answers = append(answers, err) })
		if begun {
			last.step()
		}
		last.h.g.Do(last.h.g.Drop)
		last.step()
		last.step()
		last.disk.commit()
		last.step()
		want(t, fmt.Sprint("answers, begun: ", begun), answers, []error{ErrClosed})
	}
}

func TestRaftForceSingleIsRefused(t *testing.T) {
	c := newCluster(t, 57, 4, 3, Options{})
	c.settle()
	l := c.leader()
	want(t, "the leader", c.force(l), ErrHasLeader)
	want(t, "a follower", c.force(c.nodes[l.id%3]), ErrHasLeader)
	c.nodes[3].start()
	want(t, "one that waits for its state", c.force(c.nodes[3]), ErrNoState)
}

func TestRaftStatusSaysAll(t *testing.T) {
	c := newCluster(t, 58, 4, 3, Options{SnapshotEntries: 4})
	c.settle()
	l := c.leader()
	for range 30 {
		c.propose(l)
	}
	c.settle()
	c.nodes[3].start()
	want(t, "a learner", c.change(l, AddLearner, 4), nil)
	away := c.nodes[l.id%3]
	away.crash()
	for range 3 {
		c.propose(l)
	}
	c.settle()
	status := func(m *member) (st RaftStatus) {
		m.h.g.AskRaftStatus(func(s RaftStatus) { st = s })
		c.settle()
		return st
	}
	st := status(l)
	want(t, "leader", []uint64{st.Lead, st.LeadNode, st.Self}, []uint64{l.id, l.id, l.id})
	if st.Term != l.h.term || !st.Serving || st.Last == 0 || st.Last != st.Commit || st.Last != st.Applied || st.Snapshot == 0 || st.Snapshot > st.Applied {
		t.Fatalf("%+v", st)
	}
	want(t, "members", len(st.Members), 4)
	for _, m := range st.Members {
		want(t, fmt.Sprint("member ", m.ID), []bool{m.Learner, m.Down, m.Lag > 0, m.Match == st.Last}, []bool{m.ID == 4, m.ID == away.id, m.ID == away.id, m.ID != away.id})
	}
	other := status(c.nodes[3])
	want(t, "a learner's leader", []uint64{other.Lead, other.LeadNode, other.Self, other.Term}, []uint64{l.id, l.id, 4, st.Term})
	want(t, "serving", other.Serving, false)
}

// A member that was removed votes until those who stay can do without it.
func TestRaftRemovedMembersStillVote(t *testing.T) {
	c := newCluster(t, 59, 2, 2, Options{})
	c.settle()
	l := c.leader()
	other := c.nodes[l.id%2]
	l.h.g.ChangeMembers(MemberChange{Remove, Member{ID: l.id}}, nil)
	x := other.h.g.raft
	for l.h.g.raft.has(l.id) { // it has applied the change, and the other one does not know that it is committed
		l.step()
		other.step()
		l.disk.commit()
		other.disk.commit()
		c.deliver(l.id, other.id, LaneData)
		c.deliver(other.id, l.id, LaneControl)
	}
	l.step()
	c.breakLink(l.id, other.id)
	c.breakLink(other.id, l.id)
	want(t, "members as the other one knows them", len(x.conf.Voters), 2)
	want(t, "told", l.h.removed, 0)
	l.n.PeerUp(other.id)
	other.n.PeerUp(l.id)
	c.settleFor(60)
	want(t, "leader", c.leader(), other)
	want(t, "told", l.h.removed, 1)
}

// Who was removed by its own log believes any leader; who was not, and follows one, does not.
func TestRaftWhoIsBelieved(t *testing.T) {
	for i, outside := range []bool{true, false, true, false} {
		c := newCluster(t, 67, 3, 3, Options{})
		c.settle()
		l := c.leader()
		m, other := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
		x := m.h.g.raft
		x.outside = outside
		term := x.term + 1
		if i > 1 {
			term = x.term - 1
		}
		x.toldGone(&transferMsg{from: other.id, to: m.id, term: term, index: x.store.applied})
		want(t, "gone", x.left, outside)
	}
}
