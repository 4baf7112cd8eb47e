package replica

import (
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

func TestRaftReplicates(t *testing.T) {
	c := newCluster(t, 1, 3, 3, Options{})
	c.settle()
	l := c.leader()
	if l == nil {
		t.Fatal("nobody leads at once")
	}
	for range 20 {
		c.propose(l)
	}
	c.settle()
	want(t, "confirmed", len(c.judge.done), 20)
	c.same()
	for _, m := range c.nodes {
		want(t, "operations", len(m.h.ops), 20)
		want(t, "the leader", m.h.leader, l.id)
		want(t, "entries from elsewhere", m.h.foreign, map[bool]int{true: 0, false: 7}[m == l])
	}
}

// How many messages and syncs an entry takes, one after another and under load.
func TestRaftCostOfAnEntry(t *testing.T) {
	c := newCluster(t, 1, 3, 3, Options{})
	c.settle()
	l := c.leader()
	count := func() (sent, syncs int) {
		for _, m := range c.nodes {
			syncs += m.disk.(*memLog).syncs
		}
		return c.sent, syncs
	}
	sent, syncs := count()
	for range 10 {
		c.propose(l)
		c.settle()
	}
	s, y := count()
	want(t, "messages of 10 entries apart", s-sent, 80) // entry and answer, news of the commit and answer, for each follower
	want(t, "syncs of 10 entries apart", y-syncs, 30)
	sent, syncs = count()
	for range 30 { // ten entries
		c.propose(l)
	}
	c.settle()
	s, y = count()
	want(t, "messages of 10 entries in a row", s-sent, 44) // the news of the commit comes with the next entry
	want(t, "syncs of 10 entries in a row", y-syncs, 30)
}

func TestRaftSurvivesTheLeader(t *testing.T) {
	c := newCluster(t, 2, 3, 3, Options{})
	c.settle()
	first := c.leader()
	for range 10 {
		c.propose(first)
	}
	c.settle()
	first.crash()
	c.settle()
	next := c.leader()
	if next == nil || next == first {
		t.Fatalf("nobody leads after the leader is known to be gone\n%v", c)
	}
	for range 10 {
		c.propose(next)
	}
	c.settle()
	want(t, "confirmed", len(c.judge.done), 20)
	first.start()
	c.settleFor(10)
	c.same()
	want(t, "leader of the one that came back", first.h.leader, next.id)
}

// Without news of a node, a group takes the slow way.
func TestRaftElectsByTime(t *testing.T) {
	c := newCluster(t, 3, 3, 3, Options{})
	c.settle()
	first := c.leader()
	first.up = false
	c.settleFor(15)
	for _, m := range c.nodes {
		if m.up && m.h.leader != first.id {
			t.Fatal("the leader is given up too early")
		}
	}
	c.settleFor(60)
	if l := c.leader(); l == nil || l == first {
		t.Fatal("nobody leads")
	}
}

// All nodes crash; what was confirmed is there, and the group goes on.
func TestRaftRestart(t *testing.T) {
	c := newCluster(t, 4, 3, 3, Options{SnapshotEntries: 5})
	c.settle()
	for range 3 {
		l := c.mustLead()
		for range 20 {
			c.propose(l)
		}
		c.settle()
		for _, m := range c.nodes {
			m.crash()
		}
		for _, m := range c.nodes {
			m.start()
		}
		c.settleFor(5)
	}
	c.mustLead()
	c.settleFor(10)
	want(t, "confirmed", len(c.judge.done), 60)
	c.same()
}

// A node that comes back knows what was committed before anybody tells it, but for the last entry.
func TestRaftRestartAppliesWhatIsCommitted(t *testing.T) {
	c := newCluster(t, 5, 3, 3, Options{})
	c.settle()
	l := c.leader()
	for range 30 {
		c.propose(l)
	}
	c.settle()
	for _, m := range c.nodes {
		m.crash()
	}
	m := c.nodes[0]
	m.start()
	if n := len(m.h.ops); n < 27 {
		t.Fatalf("%d operations are known after the start", n)
	}
}

// A group of one member: it leads at once, alone, and a restart loses nothing.
func TestRaftAlone(t *testing.T) {
	c := newCluster(t, 6, 1, 1, Options{})
	for range 3 {
		c.settle()
		l := c.leader()
		if l == nil {
			t.Fatal("a single member does not lead at once")
		}
		for range 9 {
			c.propose(l)
		}
		c.settle()
		l.crash()
		l.start()
	}
	c.settle()
	want(t, "operations", len(c.nodes[0].h.ops), 27)
}

// An entry that the leader packed and could not commit is abandoned; so is a leader without a majority.
func TestRaftAbandons(t *testing.T) {
	c := newCluster(t, 7, 3, 3, Options{})
	c.settle()
	l := c.leader()
	for _, m := range c.nodes {
		if m != l {
			m.up = false
		}
	}
	c.propose(l)
	c.settleFor(3)
	want(t, "under way", len(l.h.packed), 1)
	c.settleFor(45)
	want(t, "under way without a majority", len(l.h.packed), 0)
	want(t, "serving", l.h.serving, false)
	want(t, "confirmed", len(c.judge.done), 0)
}

// A member that was away gets what it missed: from memory, from the log, and from the tail below a snapshot.
func TestRaftCatchesUpFromTheLog(t *testing.T) {
	for _, o := range []Options{{}, {KeepEntries: 1}, {KeepEntries: 1, SnapshotEntries: 4}} {
		c := newCluster(t, 8, 3, 3, o)
		c.settle()
		l := c.leader()
		away := c.nodes[0]
		if away == l {
			away = c.nodes[1]
		}
		away.crash()
		for range 300 {
			c.propose(l)
		}
		c.settleFor(3)
		away.start()
		c.settleFor(20)
		c.same()
		want(t, "operations", len(away.h.ops), 300)
	}
}

func TestRaftTransfer(t *testing.T) {
	c := newCluster(t, 9, 3, 3, Options{})
	c.settle()
	l := c.leader()
	for range 9 {
		c.propose(l)
	}
	c.settle()
	want(t, "leading", l.n.Leading(), 1)
	l.n.HandOver()
	c.settle()
	next := c.leader()
	if next == nil || next == l {
		t.Fatalf("the leadership is not handed over\n%v", c)
	}
	want(t, "leading", l.n.Leading(), 0)
	c.propose(next)
	c.settle()
	c.same()
	next.h.g.TransferLeader(l.id)
	c.settle()
	want(t, "leader", c.leader(), l)
}

func TestRaftStatus(t *testing.T) {
	c := newCluster(t, 10, 3, 3, Options{})
	c.settle()
	l := c.leader()
	c.propose(l)
	c.settle()
	var st RaftStatus
	l.h.g.AskRaftStatus(func(s RaftStatus) { st = s })
	c.settle()
	want(t, "status", fmt.Sprint(st.Lead, st.Self, st.Serving, st.Last, st.Commit, st.Applied, len(st.Members)), fmt.Sprint(l.id, l.id, true, 3, 3, 3, 3))
	for _, m := range st.Members {
		want(t, "member", fmt.Sprint(m.Match, " ", m.Lag, " ", m.State), "3 0 replicate")
	}
}

// Groups beat together, whatever their number.
func TestRaftBeatsTravelTogether(t *testing.T) {
	c := newCluster(t, 11, 3, 3, Options{})
	for id := seglog.GroupID(100); id < 150; id++ {
		for _, m := range c.nodes {
			h := newLedger(t, newJudge(t), int(m.id))
			h.g = m.n.NewRaftGroup(id, h, c.begin)
		}
	}
	c.settle()
	before := c.sent
	c.settleFor(50)
	if n := c.sent - before; n > 10*2*2*3 {
		t.Fatalf("%d messages in 5 seconds of rest", n)
	}
}

func TestRaftDrop(t *testing.T) {
	c := newCluster(t, 12, 3, 3, Options{})
	c.settle()
	l := c.leader()
	c.propose(l)
	c.settle()
	for _, m := range c.nodes {
		m.h.g.Drop()
	}
	c.settleFor(50)
	for _, m := range c.nodes {
		if m.n.Group(c.group) != nil || len(m.n.Shard(0).rafts) > 0 {
			t.Fatal("the group is still there")
		}
		rs := m.disk.(*memLog).records
		want(t, "last record", rs[len(rs)-1].Kind, seglog.KindDrop)
		want(t, "leading", m.n.Leading(), 0)
	}
}

func TestSnapshotHeadKeepsTheMembers(t *testing.T) {
	h := snapshotHead{self: 5, time: 77, members: newMembers([]Member{{5, 50, false}, {3, 3, false}, {9, 90, true}})}
	h.conf.VotersOutgoing, h.conf.AutoLeave = []uint64{3}, new(true)
	got, blob, err := parseSnapshot(append(h.append(nil), "state"...))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "blob", string(blob), "state")
	want(t, "head", fmt.Sprint(got.self, got.time, got.conf, got.nodes), fmt.Sprint(h.self, h.time, h.conf, h.nodes))
}

func FuzzReceive(f *testing.F) {
	p := newPayload(5, []byte("meta"), []seglog.Block{{First: 3, Items: [][]byte{[]byte("a"), nil, []byte("bc")}}, {First: 9, Items: [][]byte{[]byte("d")}}})
	var one, two uint64 = 1, 2
	m := &pb.Message{Type: pb.MsgApp.Enum(), To: &one, From: &two, Term: &one, LogTerm: &one, Index: &two, Commit: &one, Context: []byte("x"), Reject: new(true)}
	for i, s := range []slot{{term: 1, kind: entryEmpty}, {term: 1, kind: entryNormal}, {term: 2, kind: entryConf, data: []byte("cc")}} {
		m.Entries = append(m.Entries, s.entry(3+uint64(i)))
	}
	f.Add(appendRaft(nil, 7, m, func(*pb.Entry) *payload { return p }))
	f.Add(appendBeats(nil, []beat{{7, true, 1, 2, 3, 4, 0, false}, {8, false, 1, 2, 3, 4, 9, true}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, kind, err := openMessage(b)
		if err != nil {
			return
		}
		switch kind {
		case msgRaft:
			in, err := d.raft()
			if err != nil {
				return
			}
			at := map[uint64]*payload{}
			for i, p := range in.payloads {
				at[in.msg.GetEntries()[i].GetIndex()] = p
			}
			again := appendRaft(nil, in.group, in.msg, func(e *pb.Entry) *payload { return at[e.GetIndex()] })
			d2, _, _ := openMessage(again)
			in2, err := d2.raft()
			if err != nil {
				t.Fatal(err)
			}
			at = map[uint64]*payload{}
			for i, p := range in2.payloads {
				at[in2.msg.GetEntries()[i].GetIndex()] = p
			}
			third := appendRaft(nil, in2.group, in2.msg, func(e *pb.Entry) *payload { return at[e.GetIndex()] })
			want(t, "encoded again", string(third), string(again))
		case msgBeats:
			_ = d.beats(func(incoming) {})
		}
	})
}

// The catalog's kind of group on three nodes.
func TestSimpleGroupReplicated(t *testing.T) {
	c := newCluster(t, 13, 3, 3, Options{})
	var gs []*SimpleGroup
	var ms []*lister
	for _, m := range c.nodes {
		ms = append(ms, &lister{})
		m.n.started.Store(false) // it must be added before the start
		gs = append(gs, m.n.NewSimpleRaftGroup(1, ms[len(ms)-1], c.begin))
		m.n.started.Store(true)
		gs[len(gs)-1].group.Wake()
	}
	var early error
	gs[0].Propose([]byte("early"), true, func(_ any, err error) { early = err })
	var none *NotLeaderError
	if !errors.As(early, &none) || none.Leader != 0 {
		t.Fatalf("before there is a leader: %v", early)
	}
	c.settle()
	lead := -1
	var got []string
	note := func(r any, err error) { got = append(got, fmt.Sprint(r, " ", err)) }
	for i, g := range gs {
		if g.group.raft.serving {
			lead = i
		}
	}
	gs[lead].Propose([]byte("a"), true, note)
	gs[lead].Propose([]byte("b"), false, note)
	c.nodes[lead].step()
	want(t, "before a majority has it", len(got), 0)
	c.settle()
	want(t, "answers", got, []string{"1@3 <nil>", "2@3 <nil>"})
	for _, m := range ms {
		want(t, "words", m.words, []string{"a", "b"})
	}
	got = nil
	gs[(lead+1)%3].Propose([]byte("c"), true, note)
	want(t, "elsewhere", got, []string{fmt.Sprintf("<nil> replica: node %d leads the group", lead+1)})

	// The leader is cut off: what is under way is unknown, what waits was not carried out.
	got = nil
	for i := range c.nodes {
		if i != lead {
			c.wire(uint64(lead+1), uint64(i+1)).broken = true
			c.wire(uint64(i+1), uint64(lead+1)).broken = true
		}
	}
	gs[lead].Propose([]byte("d"), true, note)
	c.settle()
	gs[lead].Propose([]byte("e"), true, note)
	c.settleFor(60)
	want(t, "cut off", got, []string{"<nil> " + ErrUnknown.Error(), "<nil> replica: the group has no leader"})
	for _, w := range c.links {
		w.broken = false
	}
	c.settleFor(60)
	for i, m := range ms {
		want(t, fmt.Sprint("words of ", i), m.words, []string{"a", "b"})
	}
}

// A vote leaves when it is on disk, and is remembered after a crash.
func TestRaftKeepsItsVote(t *testing.T) {
	c := newCluster(t, 14, 3, 3, Options{})
	m := c.nodes[0]
	for m.step() || m.disk.commit() {
	}
	var to, from, term, index uint64 = 1, 2, 5, 1
	vote := &pb.Message{Type: pb.MsgVote.Enum(), To: &to, From: &from, Term: &term, LogTerm: &index, Index: &index, Commit: &index}
	if err := m.n.receive(2, appendRaft(nil, c.group, vote, nil)); err != nil {
		t.Fatal(err)
	}
	votes := func() int { return len(c.wire(1, 2).lanes[LaneControl]) }
	before := votes()
	for m.step() {
	}
	want(t, "votes before the disk has it", votes()-before, 0)
	m.disk.commit()
	for m.step() {
	}
	want(t, "votes", votes()-before, 1)
	m.crash()
	m.start()
	want(t, "term and vote after a crash", []uint64{m.h.g.raft.store.term, m.h.g.raft.store.vote}, []uint64{5, 2})
}
