package replica

import (
	"fmt"
	"testing"

	"holdfast/internal/seglog"
)

func TestBlocksWithout(t *testing.T) {
	b := seglog.Block{First: 10, Items: [][]byte{{10}, {11}, {12}, {13}, {14}}}
	for _, x := range []struct {
		ranges []seglog.Range
		want   string
	}{
		{nil, "[{10 [[10] [11] [12] [13] [14]]}]"},
		{[]seglog.Range{{First: 1, Last: 9}, {First: 15, Last: 20}}, "[{10 [[10] [11] [12] [13] [14]]}]"},
		{[]seglog.Range{{First: 1, Last: 10}, {First: 12, Last: 13}}, "[{11 [[11]]} {14 [[14]]}]"},
		{[]seglog.Range{{First: 1, Last: 20}}, "[]"},
	} {
		want(t, fmt.Sprint("without ", x.ranges), fmt.Sprint(without(b, x.ranges)), x.want)
	}
}

// Items of a state that have come by the log meanwhile are not written again: nobody would let go of them.
func TestRaftStagesWhatIsNotThere(t *testing.T) {
	c := newCluster(t, 60, 3, 3, Options{})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	x, s := m.h.g.raft, m.n.Shard(0)
	tr := &inTransfer{from: l.id, term: x.term, index: 50}
	x.receiving = tr
	x.lookAgain(tr)
	for range 6 {
		c.propose(l)
	}
	c.settle()
	r := s.emptyRound()
	got := false
	x.stage(s, r, tr, []seglog.Block{{First: 2, Items: [][]byte{{2}, {3}}}, {First: 5, Items: [][]byte{{5}, {6}, {7}, {8}}}}, func() { got = true })
	want(t, "answered", got, false)
	want(t, "records", fmt.Sprint(r.batch.Records[0].Blocks), "[{7 [[7] [8]]}]")
	want(t, "staged", fmt.Sprint(x.staged), "[{7 8}]")
}

// A member that had applied more than it knows after a start, and let go of items by it, has what its state needs.
func TestRaftRestartAfterItemsAreGone(t *testing.T) {
	c := newCluster(t, 61, 3, 3, Options{})
	c.settle()
	l := c.leader()
	for range 60 {
		c.propose(l)
		c.settle()
	}
	for _, m := range c.nodes {
		m.crash()
		log := m.disk.(*memLog)
		g := log.of(c.group)
		for id := range g.items { // none of them came back with the crash
			if id <= 60-ledgerKeeps {
				delete(g.items, id)
			}
		}
		m.start()
		want(t, fmt.Sprint("operations of node ", m.id), len(m.h.ops), 60)
		c.readable(m)
	}
}

// Who lacks an item although all entries are applied is damaged.
func TestRaftRestartWithoutAnItem(t *testing.T) {
	c := newCluster(t, 62, 1, 1, Options{})
	c.settle()
	m := c.nodes[0]
	for range 9 {
		c.propose(m)
	}
	c.settle()
	m.crash()
	delete(m.disk.(*memLog).of(c.group).items, 9)
	failed := 0
	o := Options{Log: m.disk.(*memLog), Reader: m.disk, Shards: 1, Clock: c.clk, NodeID: 1, Transport: m}
	n := Open(o)
	h := &failing{ledger: newLedger(t, newJudge(t), 1), failed: &failed}
	h.judge.proposed = c.judge.proposed
	h.g = n.NewRaftGroup(c.group, h, c.begin)
	if err := n.Replay(func(seglog.GroupID, bool) Host { return nil }); err != nil {
		t.Fatal(err)
	}
	n.Prepare()
	want(t, "failed", failed, 1)
}

type failing struct {
	*ledger
	failed *int
}

func (f *failing) Failed(error) { *f.failed++ }

// The entries that a member misses while it is away are kept by all, so that it needs no state from a leader that came after.
func TestRaftKeepsTheTailForTheNextLeader(t *testing.T) {
	c := newCluster(t, 63, 5, 5, Options{SnapshotEntries: 4})
	c.settle()
	l := c.leader()
	away := c.nodes[l.id%5]
	away.crash()
	for range 60 {
		c.propose(l)
		c.settle()
	}
	c.settleFor(tailTicks)
	want(t, "handed over", c.transfer(l, 0), nil)
	next := c.leader()
	for range 60 {
		c.propose(next)
		c.settle()
	}
	next.crash()
	c.settle()
	away.start()
	c.settleFor(20)
	c.same()
	want(t, "states", c.judge.installs, 0)
	next.start()
	c.settleFor(3 * tailTicks)
	c.same()
	want(t, "states", c.judge.installs, 0)
	for _, m := range c.nodes {
		x := m.h.g.raft
		want(t, fmt.Sprint("kept by node ", m.id), []any{x.keeping, x.keptTail, m.n.tailBytes.Load(), m.disk.(*memLog).keep[c.group]}, []any{false, int64(0), int64(0), uint64(0)})
	}
}

// A node that is not yet missed when a snapshot is taken.
func TestRaftKeepsTheTailOfTheLastMoments(t *testing.T) {
	c := newCluster(t, 64, 3, 3, Options{SnapshotEntries: 4})
	c.settle()
	l := c.leader()
	away, other := c.nodes[l.id%3], c.nodes[(l.id+1)%3]
	for range 20 {
		c.propose(l)
		c.settle()
	}
	away.up = false // nobody knows
	for range 20 {
		c.propose(l)
		c.settle()
	}
	c.settleFor(5)
	for range 20 {
		c.propose(l)
		c.settle()
	}
	away.up = true
	away.crash()
	c.settle()
	for range 20 {
		c.propose(l)
		c.settle()
	}
	want(t, "handed over", c.transfer(l, other.id), nil)
	away.start()
	c.settleFor(30)
	c.same()
	want(t, "states", c.judge.installs, 0)
}

// A crash while a group is made leaves a member that begins anew, or one that has begun.
func TestRaftCrashAtTheBeginning(t *testing.T) {
	for records := range 3 {
		c := newCluster(t, 65, 3, 3, Options{})
		m := c.nodes[0]
		m.step()
		log := m.disk.(*memLog)
		q := log.queued[0]
		log.queued = nil
		m.crash()
		for i := range min(records, len(q.Records)) {
			m.disk.(*memLog).write(&q.Records[i])
		}
		m.start()
		m.step()
		x := m.h.g.raft
		want(t, fmt.Sprint("with ", records, " records: the log and its members"),
			fmt.Sprint(x.store.first, x.store.firstTerm, x.conf.Voters), "2 1 [1 2 3]")
		c.settleFor(5)
		c.propose(c.mustLead())
		c.settleFor(5)
		c.same()
	}
}

// A state of 100,000 items comes over in parts while the leader goes on, and a link that breaks in the middle costs no more
// than what was on it.
func TestRaftBringsALargeStateMeanwhile(t *testing.T) {
	const items = 100_000
	c := newCluster(t, 66, 3, 3, Options{SnapshotEntries: 4, KeepTail: 64 << 10})
	c.judge.keeps, c.judge.atOnce = 1<<40, 1000
	c.settle()
	l := c.leader()
	away := c.nodes[l.id%3]
	away.crash()
	for range items {
		c.propose(l)
	}
	c.settleFor(3)
	for _, m := range c.nodes {
		m.disk.(*memLog).itemSize = 4 << 10 // they count as that, 400 MB in all
	}
	away.start()
	came := func() (n int) {
		for _, r := range away.disk.(*memLog).records {
			if r.Kind == seglog.KindItems {
				for _, b := range r.Blocks {
					n += len(b.Items)
				}
			}
		}
		return n
	}
	before, rounds, broke := len(c.judge.done), 0, false
	for ; c.judge.installs == 0; rounds++ {
		if rounds > 20_000 {
			t.Fatalf("the state does not come: %d of %d items\n%v", came(), items, c)
		}
		if rounds%5 == 0 {
			c.propose(l)
		}
		if rounds%20 == 0 {
			c.tick()
		}
		for _, m := range c.nodes {
			m.step()
			m.disk.commit()
			m.n.ReadStep()
			for _, other := range c.nodes {
				for lane := range LaneBulk + 1 {
					for c.deliver(other.id, m.id, lane) {
					}
				}
			}
		}
		if !broke && rounds%100 == 0 && came() > items/2 {
			broke = true
			c.breakLink(l.id, away.id)
			c.breakLink(away.id, l.id)
			l.n.PeerUp(away.id)
			away.n.PeerUp(l.id)
		}
	}
	confirmed := len(c.judge.done) - before
	t.Logf("%d rounds, %d operations confirmed meanwhile", rounds, confirmed)
	if confirmed < rounds/5-20 {
		t.Fatalf("%d operations were confirmed in %d rounds", confirmed, rounds)
	}
	want(t, "the link broke", broke, true)
	// What was on the link and what was received and not yet on the disk came again.
	if n := came(); n < items || n > items+2*partsUnderWay*partBytes/(4<<10)+confirmed {
		t.Fatalf("%d items came", n)
	}
	c.settleFor(20)
	c.same()
	want(t, "states", c.judge.installs, 1)
}

// Items of a state that come when all of it has come by the log, and was used up, belong to nothing: they are let go of.
func TestRaftItemsOfAStateThatIsNotNeeded(t *testing.T) {
	c := newCluster(t, 63, 3, 3, Options{})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	x := m.h.g.raft
	for range 6 {
		c.propose(l)
	}
	c.settle()
	part := transferMsg{from: l.id, to: m.id, term: x.term, index: x.store.applied + 1}
	offer := part
	offer.kind, offer.stateTerm = msgOffer, x.term
	m.n.deliver(incoming{group: c.group, node: l.id, transfer: &offer})
	c.settle()
	for range 40 {
		c.propose(l)
		c.settle()
	}
	part.kind, part.seq = msgPart, 1
	part.blocks = []seglog.Block{{First: 2, Items: [][]byte{itemOf(2), itemOf(3)}}}
	m.n.deliver(incoming{group: c.group, node: l.id, transfer: &part})
	c.settle()
	want(t, "received", fmt.Sprint(x.staged), "[{2 3}]")
	c.settleFor(1)
	want(t, "received and kept", fmt.Sprint(x.staged), "[]")
	items := m.disk.(*memLog).items(c.group)
	want(t, "items that nobody needs on disk", len(items[2])+len(items[3]), 0)
}

// A state of which nothing has come, and that is not needed any more, does not keep a group from resting.
func TestRaftOfferOfAStateThatIsNotNeeded(t *testing.T) {
	c := newCluster(t, 63, 3, 3, Options{Rest: true})
	c.settle()
	l := c.leader()
	m := c.nodes[l.id%3]
	x := m.h.g.raft
	c.propose(l)
	c.settle()
	m.n.deliver(incoming{group: c.group, node: l.id, transfer: &transferMsg{
		kind: msgOffer, from: l.id, to: m.id, term: x.term, index: x.store.applied + 1, stateTerm: x.term,
	}})
	c.settle()
	if x.receiving == nil {
		t.Fatal("the offer is not taken")
	}
	c.propose(l)
	c.settleFor(3 * restTicks)
	if x.receiving != nil || !x.asleep {
		t.Fatalf("still waits for it: %v; rests: %v", x.receiving != nil, x.asleep)
	}
}
