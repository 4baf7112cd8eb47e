package replica

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/cryptotest"

	"holdfast/internal/clock"
	"holdfast/internal/seglog"
)

// disk is a log that the rig steps.
type disk interface {
	RaftLog
	Reader
	commit() bool
	crash(rng *rand.Rand) disk
	stop()
}

// cluster is nodes in one process, stepped by hand, and what is between them.
type cluster struct {
	t     testing.TB
	clk   *clock.Manual
	rng   *rand.Rand
	judge *judge
	nodes []*member
	links map[link]*wire
	group seglog.GroupID
	o     Options
	begin []Member
	ops   uint64
	bytes int // sent
	sent  int // messages
}

// member is one node of a cluster. Its number is its place, from 1 on.
type member struct {
	c    *cluster
	id   uint64
	disk disk
	n    *Node
	h    *ledger
	up   bool

	waiting int // read barriers
}

type link struct{ from, to uint64 }

// wire is a link's three lanes. A broken one loses what is on it.
type wire struct {
	lanes  [3][][]byte
	broken bool
}

// newCluster makes a cluster with voters on the first so many nodes.
func newCluster(t *testing.T, seed uint64, nodes, voters int, o Options) *cluster {
	return newClusterOn(t, seed, nodes, voters, o, func(*cluster) disk { return newMemLog(t) })
}

func newClusterOn(t testing.TB, seed uint64, nodes, voters int, o Options, on func(*cluster) disk) *cluster {
	switch t := t.(type) {
	case *testing.T:
		cryptotest.SetGlobalRandom(t, seed)
	case *witness:
		cryptotest.SetGlobalRandom(t.T, seed)
	}
	c := &cluster{
		t: t, clk: clock.NewManual(testTime), rng: rand.New(rand.NewPCG(seed, 1)), judge: newJudge(t),
		links: map[link]*wire{}, group: 7, o: o,
	}
	for i := 1; i <= voters; i++ {
		c.begin = append(c.begin, Member{ID: uint64(i), Node: uint64(i)})
	}
	for i := 1; i <= nodes; i++ {
		c.nodes = append(c.nodes, &member{c: c, id: uint64(i), disk: on(c)})
	}
	for i := range voters {
		c.nodes[i].start()
	}
	t.Cleanup(func() {
		for _, m := range c.nodes {
			m.disk.stop()
		}
	})
	return c
}

func (c *cluster) wire(from, to uint64) *wire {
	w := c.links[link{from, to}]
	if w == nil {
		w = &wire{}
		c.links[link{from, to}] = w
	}
	return w
}

// start starts a node with what is on its disk.
func (m *member) start() {
	o := m.c.o
	o.Log, o.Reader, o.Shards, o.Clock, o.Logger = m.disk, m.disk, 1, m.c.clk, slog.New(slog.DiscardHandler)
	o.NodeID, o.Transport = m.id, m
	m.n = Open(o)
	m.h = newLedger(m.c.t, m.c.judge, int(m.id))
	var list []Member
	for _, x := range m.c.begin {
		if x.Node == m.id {
			list = m.c.begin
		}
	}
	if list != nil {
		m.h.g = m.n.NewRaftGroup(m.c.group, m.h, list)
	} else {
		m.h.g = m.n.JoinRaftGroup(m.c.group, m.h, m.id)
	}
	if err := m.n.Replay(func(seglog.GroupID, bool) Host { return nil }); err != nil {
		m.c.t.Fatalf("node %d: %v", m.id, err)
	}
	m.n.Prepare()
	m.disk.Start()
	m.h.log = m.disk
	if d, is := m.disk.(*segDisk); is {
		d.ask = m.n.NeedSnapshots
	}
	m.up = true
	for _, other := range m.c.nodes {
		if other.up && other != m {
			other.n.PeerUp(m.id)
		}
	}
}

// crash ends a node; its disk keeps what was synced, and some of the rest.
func (m *member) crash() {
	m.up = false
	m.c.judge.reads -= m.waiting
	m.waiting = 0
	m.disk = m.disk.crash(m.c.rng)
	for _, other := range m.c.nodes {
		m.c.breakLink(m.id, other.id)
		m.c.breakLink(other.id, m.id)
	}
}

func (c *cluster) breakLink(from, to uint64) {
	w := c.wire(from, to)
	w.lanes = [3][][]byte{}
	if m := c.nodes[to-1]; m.up && from != to {
		m.n.PeerDown(from)
	}
}

// Send implements Transport for a node.
func (m *member) Send(to uint64, lane Lane, add func([]byte) []byte) bool {
	if to == m.id {
		m.c.t.Fatalf("node %d sends to itself", to)
	}
	if to > uint64(len(m.c.nodes)) {
		m.c.t.Fatalf("node %d sends to node %d", m.id, to)
	}
	w := m.c.wire(m.id, to)
	if w.broken || !m.c.nodes[to-1].up {
		return false
	}
	b := add(nil)
	m.c.judge.sends(m, b)
	w.lanes[lane] = append(w.lanes[lane], b)
	m.c.bytes += len(b)
	m.c.sent++
	return true
}

// deliver hands over the next message of a lane. It reports whether there was one.
func (c *cluster) deliver(from, to uint64, lane Lane) bool {
	w := c.wire(from, to)
	if len(w.lanes[lane]) == 0 || !c.nodes[to-1].up {
		return false
	}
	b := w.lanes[lane][0]
	w.lanes[lane] = w.lanes[lane][1:]
	c.judge.receives(c.nodes[to-1], b)
	if err := c.nodes[to-1].n.receive(from, b); err != nil {
		c.t.Fatalf("from %d to %d: %v", from, to, err)
	}
	return true
}

// step lets a node's workers work. It reports whether there was anything to do.
func (m *member) step() bool {
	if !m.up {
		return false
	}
	did := m.n.Shard(0).Step()
	m.c.judge.looks(m)
	return m.n.Shard(1).Step() || did
}

// settle lets everything happen that is on its way, in order.
func (c *cluster) settle() {
	again := true
	for n := 0; again; n++ {
		if n > 10000 {
			c.t.Fatalf("the nodes do not come to rest\n%v", c)
		}
		again = false
		for _, m := range c.nodes {
			if !m.up {
				continue
			}
			if m.step() {
				again = true
			}
			for m.disk.commit() || m.n.ReadStep() {
				again = true
			}
			for _, other := range c.nodes {
				for lane := range LaneBulk + 1 {
					for c.deliver(other.id, m.id, lane) {
						again = true
					}
				}
			}
		}
	}
}

// tick lets time pass on all nodes.
func (c *cluster) tick() {
	c.clk.Advance(100 * 1e6)
	for _, m := range c.nodes {
		if m.up {
			m.n.TickRaft()
		}
	}
}

// settleFor lets so many ticks pass, each with all that follows.
func (c *cluster) settleFor(ticks int) {
	c.settle()
	for range ticks {
		c.tick()
		c.settle()
	}
}

// leader is the node that serves, or nil.
func (c *cluster) leader() *member {
	var best *member
	for _, m := range c.nodes {
		if m.up && m.h.serving && (best == nil || m.h.term > best.h.term) {
			best = m
		}
	}
	return best
}

func (c *cluster) mustLead() *member {
	c.t.Helper()
	for range 100 {
		if m := c.leader(); m != nil {
			return m
		}
		c.settleFor(1)
	}
	c.t.Fatal("nobody leads")
	return nil
}

// propose has a node propose a new operation.
func (c *cluster) propose(m *member) bool {
	c.ops++
	c.judge.proposed[c.ops] = true
	return m.h.propose(c.ops)
}

// same checks that the nodes that are up have applied the same, and all that was confirmed.
func (c *cluster) same() {
	c.t.Helper()
	var first *member
	l := c.leader()
	for _, m := range c.nodes {
		if !m.up || l != nil && !l.h.g.raft.has(m.id) {
			continue
		}
		c.judge.complete(m.h)
		c.readable(m)
		if first == nil {
			first = m
		} else if m.h.hash != first.h.hash || m.h.g.Index() != first.h.g.Index() {
			c.t.Fatalf("node %d is at %d, node %d at %d; %d and %d operations", first.id, first.h.g.Index(), m.id, m.h.g.Index(), len(first.h.ops), len(m.h.ops))
		}
	}
}

// readable checks that a node has the items that its state needs.
func (c *cluster) readable(m *member) {
	c.t.Helper()
	live, _ := m.h.Live(nil)
	p, err := m.disk.Pin(c.group, live)
	if err != nil {
		c.t.Fatalf("node %d: %v", m.id, err)
	}
	defer p.Close()
	for {
		blocks, err := p.Next(1 << 10)
		if err != nil {
			c.t.Fatalf("node %d: %v", m.id, err)
		}
		if len(blocks) == 0 {
			return
		}
		for _, b := range blocks {
			for i, it := range b.Items {
				if op := m.h.ops[b.First+uint64(i)-1]; string(it) != string(itemOf(op)) {
					c.t.Fatalf("node %d: item %d is %q, and belongs to operation %d", m.id, b.First+uint64(i), it, op)
				}
			}
		}
	}
}

func (c *cluster) String() string {
	s := ""
	for _, m := range c.nodes {
		if m.up {
			x := m.h.g.raft
			s += fmt.Sprintf("[%d: term %d lead %d state %v serving %v log %d..%d commit %d applied %d]\n", m.id, x.term, x.lead, x.state, x.serving, x.store.first, x.store.last(), x.store.commit, x.store.applied)
			s += fmt.Sprintf("    asleep %v calm %d staged %v keeping %v outside %v appends %d campaign %d store commit %d\n", x.asleep, x.calm, x.staged, x.keeping, x.outside, len(x.appends), x.campaign, x.store.commit)
			for _, p := range x.status().Members {
				s += fmt.Sprintf("    %+v\n", p)
			}
			for to, o := range x.sending {
				s += fmt.Sprintf("    sends %d to %d: begun %v reading %v seq %d acked %d idle %d\n", o.index, to, o.begun, o.reading, o.seq, o.acked, o.idle)
			}
			if t := x.receiving; t != nil {
				s += fmt.Sprintf("    receives %d from %d: seq %d\n", t.index, t.from, t.seq)
			}
		}
	}
	return s
}
