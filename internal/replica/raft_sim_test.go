package replica

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/planted"
	"holdfast/internal/seglog"
)

var (
	simSeeds = flag.Int("raft.seeds", 500, "how many seeds the simulation of raft groups runs")
	simFirst = flag.Uint64("raft.first", 1, "the first of them")
	simSteps = flag.Int("raft.steps", 10000, "how many things happen in each")
)

// TestRaftSimulation lets everything happen that may happen to three or five nodes, in
// an order drawn from a seed: messages and syncs late or never, links that break one way
// or both, crashes that lose what was not synced, elections, transfers, snapshots. What is
// checked is in judge and ledger: all members apply the same entries in the same order, once, and
// only what was proposed; nothing that was confirmed is ever unknown to a member that serves. In the end
// all is well again, and all members have the same.
// R183 R242: "has it" means that it is on the disk.
func TestRaftSimulation(t *testing.T) {
	total := tally{}
	for seed := *simFirst; seed < *simFirst+uint64(*simSeeds); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			total.add(simulate(t, seed, func(*cluster) disk { return newMemLog(t) }))
		})
		if !ok {
			t.Fatalf("go test -run 'TestRaftSimulation' -raft.first %d -raft.seeds 1", seed)
		}
	}
	t.Logf("%+v", total)
	if *simSeeds >= 100 && (total.Confirmed == 0 || total.Leaders < *simSeeds || total.Crashes < *simSeeds || total.Foreign == 0) {
		t.Fatalf("too little happens: %+v", total)
	}
}

// The same seed makes the same things happen, or nobody could look into a failure.
func TestRaftSimulationRepeats(t *testing.T) {
	var got []string
	for range 2 {
		t.Run("run", func(t *testing.T) {
			got = append(got, fmt.Sprintf("%+v", simulate(t, 5, func(*cluster) disk { return newMemLog(t) })))
		})
	}
	want(t, "second run", got[1], got[0])
}

// tally is what happened in a simulation.
type tally struct{ Proposed, Confirmed, Leaders, Crashes, Cuts, Foreign, Messages, Entries, Changes, Installs, Reads int }

func (a *tally) add(b tally) {
	a.Proposed += b.Proposed
	a.Confirmed += b.Confirmed
	a.Leaders += b.Leaders
	a.Crashes += b.Crashes
	a.Cuts += b.Cuts
	a.Foreign += b.Foreign
	a.Messages += b.Messages
	a.Entries += b.Entries
	a.Changes += b.Changes
	a.Installs += b.Installs
	a.Reads += b.Reads
}

type sim struct {
	*cluster
	tally
	changes bool            // of members
	lasting int             // what is broken stays so, the longer the higher
	nasty   bool            // nodes crash when something rare is on its way to the disk
	removed map[uint64]bool // ids that are not used again
}

func simulate(t testing.TB, seed uint64, on func(*cluster) disk) tally {
	n, voters := 3, 3
	switch seed % 4 {
	case 0:
		n, voters = 5, 5
	case 1:
		n = 5 // members come and go
	}
	o := Options{Rest: seed/2%2 == 0}
	if seed%3 > 0 {
		o.SnapshotEntries, o.KeepEntries = 10, 200
	}
	if seed%3 == 2 {
		o.KeepTail = 1
		if seed%2 == 0 {
			o.SnapshotEntries = 3
		}
	}
	s := &sim{cluster: newClusterOn(t, seed, n, voters, o, on), changes: n > voters}
	s.judge.stays = func(member uint64) bool { return !s.removed[member] }
	for _, m := range s.nodes[voters:] {
		m.start()
	}
	defer func() {
		if t.Failed() {
			t.Log(s.String())
		}
	}()
	// Each seed has its own weather.
	trouble := s.rng.IntN(100)
	s.lasting = []int{1, 1, 4, 15}[s.rng.IntN(4)]
	s.nasty = s.rng.IntN(2) == 0
	for range *simSteps {
		if seed%5 == 4 && s.rng.IntN(40) == 0 {
			s.storm()
		}
		s.happen(trouble)
	}
	s.heal()
	s.Confirmed, s.Leaders, s.Messages, s.Entries = len(s.judge.done), len(s.judge.leaders), s.sent, len(s.judge.entries)
	for _, m := range s.nodes {
		s.Foreign += m.h.foreign
	}
	s.Installs, s.Reads = s.judge.installs, s.judge.read
	return s.tally
}

// happen lets one thing happen.
func (s *sim) happen(trouble int) {
	m := s.nodes[s.rng.IntN(len(s.nodes))]
	switch k := s.rng.IntN(1000); {
	case k < 300:
		m.step()
		if rare := rareOnItsWay(m.disk); s.nasty && m.up && rare > 0 && s.rng.IntN(rare) == 0 {
			s.Crashes++
			m.crash()
			if s.rng.IntN(2) == 0 {
				m.start()
			}
		}
	case k < 450:
		if m.up {
			m.disk.commit()
		}
	case k < 750:
		s.some()
	case k < 860:
		s.Proposed++
		if l := s.leader(); l != nil && s.rng.IntN(4) > 0 {
			s.propose(l)
		} else if m.up {
			s.propose(m)
		}
	case k < 875:
		if m.up {
			m.n.ReadStep()
		}
	case k < 890:
		if m.up {
			s.barrier(m)
		}
	case k < 930:
		s.clk.Advance(100 * 1e6)
		if s.rng.IntN(3) > 0 {
			for _, m := range s.nodes {
				if m.up {
					m.n.TickRaft()
				}
			}
		} else if m.up { // clocks do not run alike
			m.n.TickRaft()
		}
	case k < 935:
		if s.changes && s.rng.IntN(2) == 0 {
			s.change()
		} else if m.up {
			m.n.NeedSnapshots([]seglog.GroupID{s.group})
		}
	case k < 942:
		// A leader has two entries under way, and loses its links.
		if l := s.leader(); l != nil {
			vs := l.h.g.raft.conf.Voters
			v := vs[s.rng.IntN(len(vs))]
			l.h.g.ChangeMembers(MemberChange{Promote, Member{ID: v, Node: v}}, nil) // changes nothing
			s.Proposed++
			s.propose(l)
			if s.rng.IntN(400) < trouble {
				l.step()
				s.cut(l)
				l.disk.commit()
			}
		}
	case k < 970:
		if m.up && s.rng.IntN(400) < trouble {
			s.suspect(m)
		} else if s.rng.IntN(s.lasting) == 0 {
			s.repair()
		}
	case s.rng.IntN(400) >= trouble:
		if s.rng.IntN(s.lasting) == 0 {
			s.repair()
		}
	case k < 980:
		if m.up {
			s.Crashes++
			m.crash()
		} else {
			m.start()
		}
	case k < 990:
		s.cut(m)
	default:
		if m.up && m.h.serving {
			m.h.g.TransferLeader(uint64(1 + s.rng.IntN(len(s.nodes))))
		}
	}
}

// some delivers a message, or a few, of one of the lanes that have any.
func (s *sim) some() {
	most := 1
	if s.rng.IntN(4) == 0 {
		most = 10
	}
	type lane struct {
		from, to uint64
		l        Lane
	}
	var all []lane
	for _, from := range s.nodes {
		for _, to := range s.nodes {
			w := s.links[link{from.id, to.id}]
			for l := range LaneBulk + 1 {
				if w != nil && len(w.lanes[l]) > 0 && to.up {
					all = append(all, lane{from.id, to.id, l})
				}
			}
		}
	}
	if len(all) == 0 {
		return
	}
	x := all[s.rng.IntN(len(all))]
	for n := 0; n < most && s.deliver(x.from, x.to, x.l); n++ {
	}
}

// rareOnItsWay says whether a log has something to write that is not an entry, or one that changes members; the
// lower the number, the rarer.
func rareOnItsWay(d disk) (rare int) {
	l, is := d.(*memLog)
	if !is {
		return 0
	}
	for _, b := range l.queued {
		for i := range b.Records {
			switch r := &b.Records[i]; {
			case r.Kind == seglog.KindInstall:
				return 2
			case r.Kind != seglog.KindEntry || r.Meta[0] != entryNormal:
				rare = 8
			}
		}
	}
	return rare
}

// barrier has a member make sure that it knows all that was confirmed by now.
func (s *sim) barrier(m *member) {
	done, h := s.judge.doneIndex, m.h
	s.judge.reads++
	m.waiting++
	wait := time.Duration(s.rng.IntN(5)) * time.Second
	h.g.ReadIndex(wait, func(index uint64, err error) {
		s.judge.reads--
		m.waiting--
		switch {
		case m.h != h:
			s.t.Fatalf("node %d: a read barrier is answered after a crash", m.id)
		case err == nil:
			s.judge.read++
			if index < done || h.g.raft.store.applied < index {
				s.t.Fatalf("node %d: read barrier at %d, but %d was confirmed when it was asked for, and %d is applied", m.id, index, done, h.g.raft.store.applied)
			}
		}
	})
}

// storm is for elections: nodes crash and are there again at once, and believe that others
// are gone; for one, much time passes.
func (s *sim) storm() {
	m := s.nodes[s.rng.IntN(len(s.nodes))]
	if !m.up {
		return
	}
	switch s.rng.IntN(3) {
	case 0:
		s.Crashes++
		m.crash()
		m.start()
	case 1:
		for _, other := range s.nodes {
			if other != m && other.up && s.rng.IntN(3) > 0 {
				other.n.PeerDown(m.id)
				other.n.PeerUp(m.id)
			}
		}
	default:
		for range electionTicks {
			m.n.TickRaft()
			m.step()
		}
	}
}

// change has the leader change the members. Node 1 stays, so that somebody is there in the end.
func (s *sim) change() {
	l := s.leader()
	if l == nil {
		return
	}
	id := uint64(2 + s.rng.IntN(len(s.nodes)-1))
	c := MemberChange{Kind: ChangeKind(1 + s.rng.IntN(3)), Member: Member{ID: id, Node: id}}
	if c.Kind == Remove && s.rng.IntN(3) > 0 || c.Kind != Remove && s.removed[id] {
		return
	}
	if c.Kind == AddLearner && slices.Contains(l.h.g.raft.conf.Voters, id) {
		return
	}
	if c.Kind == Remove {
		if s.removed == nil {
			s.removed = map[uint64]bool{}
		}
		if len(s.removed) == len(s.nodes)-2 {
			return
		}
		s.removed[id] = true
	}
	l.h.g.ChangeMembers(c, func(err error) {
		if err == nil {
			s.Changes++
		}
	})
}

// suspect has a node believe that another is gone, or that all are there.
func (s *sim) suspect(m *member) {
	other := s.nodes[s.rng.IntN(len(s.nodes))]
	if other == m {
		return
	}
	if s.rng.IntN(2) == 0 {
		m.n.PeerDown(other.id)
	} else {
		m.n.PeerUp(other.id)
	}
}

// cut breaks links from or to a node.
func (s *sim) cut(m *member) {
	s.Cuts++
	how := s.rng.IntN(4)
	for _, other := range s.nodes {
		if other == m || how == 3 && s.rng.IntN(2) == 0 {
			continue
		}
		if how != 1 {
			s.wire(m.id, other.id).broken = true
			s.breakLink(m.id, other.id)
		}
		if how != 2 {
			s.wire(other.id, m.id).broken = true
			s.breakLink(other.id, m.id)
		}
	}
}

// repair makes one broken thing whole.
func (s *sim) repair() {
	m := s.nodes[s.rng.IntN(len(s.nodes))]
	if !m.up {
		m.start()
		return
	}
	for _, other := range s.nodes {
		for _, l := range []link{{m.id, other.id}, {other.id, m.id}} {
			if w := s.wire(l.from, l.to); w.broken && s.rng.IntN(2) == 0 {
				w.broken = false
				if to := s.nodes[l.to-1]; to.up {
					to.n.PeerUp(l.from)
				}
			}
		}
	}
}

// awake is a member that does not rest, or 0.
func (s *sim) awake() uint64 {
	for _, m := range s.nodes {
		if x := m.h.g.raft; !x.asleep && s.leader().h.g.raft.has(m.id) {
			return m.id
		}
	}
	return 0
}

// heal makes everything whole, and checks that the group comes to rest with all that was confirmed.
func (s *sim) heal() {
	for _, w := range s.links {
		w.broken = false
	}
	for _, m := range s.nodes {
		if !m.up {
			m.start()
		}
		for _, other := range s.nodes {
			m.n.PeerUp(other.id)
		}
	}
	var l *member
	for range 150 {
		s.settleFor(1)
		if l = s.leader(); l != nil {
			break
		}
	}
	if l == nil {
		s.t.Fatalf("nobody leads after all is well\n%v", s)
	}
	s.settleFor(transferTicks + 25) // longer than a transfer that broke unnoticed
	l = s.mustLead()
	last := s.ops + 1
	s.propose(l)
	s.settleFor(25)
	if !s.judge.done[last] {
		s.t.Fatalf("an operation is not carried out although all is well\n%v", s)
	}
	s.same()
	if s.o.Rest {
		s.settleFor(3 * restTicks)
		for range 20 { // the segment log asks for snapshots when it has come to it, which wakes a group
			if s.awake() == 0 {
				break
			}
			s.settleFor(3 * restTicks)
		}
		if id := s.awake(); id != 0 {
			s.t.Fatalf("node %d does not rest", id)
		}
	}
	if s.judge.reads != 0 {
		s.t.Fatalf("%d read barriers are not answered", s.judge.reads)
	}
	for _, m := range s.nodes {
		x := m.h.g.raft
		if len(x.appends) > 0 || len(x.payloads) > 0 && planted.Is(planted.None) || len(x.out) > 0 {
			s.t.Fatalf("node %d does not come to rest", m.id)
		}
		kept := 0
		for i := range x.store.slots {
			if p := x.store.slots[i].payload; p != nil && p.kept {
				kept += p.size
			}
		}
		if kept != m.n.Shard(0).cache.bytes {
			s.t.Fatalf("node %d keeps %d bytes and counts %d", m.id, kept, m.n.Shard(0).cache.bytes)
		}
	}
}
