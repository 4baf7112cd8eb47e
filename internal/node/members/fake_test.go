package members

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// town is a cluster of nodes with their managers, one catalog for all, and groups that agree on everything at once.
type town struct {
	t       *testing.T
	catalog *catalog.Machine
	nodes   map[uint64]*Manager

	mu      sync.Mutex
	down    map[uint64]bool
	alarmed map[uint64]bool
	silent  map[uint64]bool // what is sent to them gets lost
	mute    bool            // the catalog carries out nothing
	groups  map[seglog.GroupID]*group
	ruined  map[uint64]bool // members that are out of service
}

// damagedOn are the groups whose member on a node is out of service.
func (c *town) damagedOn(node uint64) (ids []seglog.GroupID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, g := range c.groups {
		for _, x := range g.members {
			if x.Node == node && c.ruined[x.ID] {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// group is a group of members; who leads it decides alone.
type group struct {
	town    *town
	id      seglog.GroupID
	members []replica.Member
	leader  uint64 // member
	term    uint64
	behind  map[uint64]bool // members that have not caught up
	blank   map[uint64]bool // nodes whose member has been told nothing yet
	refuses error           // answers changes, if not nil
	closed  error           // answers who would come, if not nil
	deposed uint64          // the node that leads as far as it knows, and finds out when it asks
	hold    bool            // changes wait
	held    []func()
}

func newTown(t *testing.T, n uint64) *town {
	c := &town{t: t, catalog: catalog.New(), nodes: map[uint64]*Manager{}, down: map[uint64]bool{}, alarmed: map[uint64]bool{}, silent: map[uint64]bool{}, groups: map[seglog.GroupID]*group{}, ruined: map[uint64]bool{}}
	c.must(catalog.Bootstrap(catalog.Defaults{VHost: "/"}))
	for id := uint64(1); id <= n; id++ {
		c.must(catalog.AddNode(catalog.Node{ID: id, Name: fmt.Sprint("n", id), Voter: true}))
		c.must(catalog.NewIncarnation(id))
		c.nodes[id] = New(Options{
			Self: id, View: c.catalog.View, Clock: clock.System(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Group: func(g seglog.GroupID) Group { return c.member(g, id) }, Leader: c.leaderOf, Nacked: func(seglog.GroupID) uint64 { return 100 + id }, Catalog: func() Group { return nil }, Damaged: func() []seglog.GroupID { return c.damagedOn(id) },
			Propose: c.propose, Name: func(node uint64) string { return fmt.Sprint("n", node) },
			Up:      func(node uint64) bool { c.mu.Lock(); defer c.mu.Unlock(); return !c.down[node] },
			Alarmed: func(node uint64) bool { c.mu.Lock(); defer c.mu.Unlock(); return c.alarmed[node] },
			Send:    func(to uint64, add func([]byte) []byte) bool { return c.send(id, to, add(nil)) },
		})
	}
	t.Cleanup(func() {
		for _, m := range c.nodes {
			m.Close()
		}
	})
	return c
}

func (c *town) must(cmd []byte) *catalog.Result {
	c.t.Helper()
	r := c.catalog.Apply(1, 1, cmd).(*catalog.Result)
	if r.Err != nil {
		c.t.Fatal(r.Err)
	}
	return r
}

func (c *town) propose(cmd []byte, done func(any, error)) {
	c.mu.Lock()
	if c.mute {
		c.mu.Unlock()
		return
	}
	r := c.catalog.Apply(1, 1, cmd)
	c.mu.Unlock()
	done(r, nil)
}

func (c *town) send(from, to uint64, msg []byte) bool {
	c.mu.Lock()
	gone, silent := c.down[to] || c.down[from], c.silent[to]
	c.mu.Unlock()
	if gone {
		return false
	}
	if !silent {
		c.nodes[to].Receive(from, msg)
	}
	return true
}

// queue declares a quorum queue on some nodes, the first of which leads.
func (c *town) queue(name string, nodes ...uint64) *group {
	c.t.Helper()
	var members []catalog.Member
	for _, n := range nodes {
		members = append(members, catalog.Member{ID: n, Node: n})
	}
	q := c.must(catalog.DeclareQueue(catalog.QueueDecl{
		VHost: "/", Name: name, Durable: true, Members: members,
		Args: wire.NewTable(map[string]any{"x-queue-type": "quorum"}),
	})).Queue
	g := &group{town: c, id: seglog.GroupID(q.ID), leader: nodes[0], term: 1, behind: map[uint64]bool{}}
	for _, n := range nodes {
		g.members = append(g.members, replica.Member{ID: n, Node: n})
	}
	c.groups[g.id] = g
	return g
}

func (c *town) leaderOf(id seglog.GroupID) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[id]
	if g == nil {
		return 0
	}
	return g.nodeOf(g.leader)
}

func (g *group) nodeOf(member uint64) uint64 {
	for _, x := range g.members {
		if x.ID == member {
			return x.Node
		}
	}
	return 0
}

func (c *town) member(id seglog.GroupID, node uint64) Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.groups[id]
	if g == nil || !slices.ContainsFunc(g.members, func(x replica.Member) bool { return x.Node == node }) {
		return nil
	}
	return &seat{g, node}
}

// seat is a group as one node sees it.
type seat struct {
	*group
	node uint64
}

func (s *seat) AskRaftStatus(fn func(replica.RaftStatus)) {
	c := s.town
	c.mu.Lock()
	st := replica.RaftStatus{Term: s.term, Lead: s.leader, Last: 100, Commit: 100, Applied: 100, FirstInTail: 51}
	for _, x := range s.members {
		if x.Node == s.node {
			st.Self = x.ID
		}
	}
	st.Serving = st.Self == s.leader && st.Self != 0
	for _, x := range s.members {
		m := replica.MemberStatus{Member: x}
		if st.Serving {
			m.Active, m.State = !c.down[x.Node], "replicate"
			if s.behind[x.ID] {
				m.State, m.Lag = "snapshot", 90
			}
		}
		st.Members = append(st.Members, m)
	}
	if s.blank[s.node] {
		st.Members, st.Last, st.Applied, st.FirstInTail = nil, 0, 0, 0
	}
	c.mu.Unlock()
	fn(st)
}

// ReadIndex implements Group: who believes that it leads, and does not, finds out.
func (s *seat) ReadIndex(_ time.Duration, done func(uint64, error)) {
	s.town.mu.Lock()
	deposed := s.deposed == s.node
	if deposed {
		s.deposed = 0
	}
	s.town.mu.Unlock()
	if deposed {
		done(0, replica.ErrNoAnswer)
		return
	}
	done(100, nil)
}

func (s *seat) ChangeMembers(ch replica.MemberChange, done func(error)) {
	c := s.town
	c.mu.Lock()
	do := func() {
		c.mu.Lock()
		s.members = slices.DeleteFunc(s.members, func(x replica.Member) bool { return x.ID == ch.Member.ID })
		if ch.Kind != replica.Remove {
			s.members = append(s.members, replica.Member{ID: ch.Member.ID, Node: ch.Member.Node, Learner: ch.Kind == replica.AddLearner})
		}
		slices.SortFunc(s.members, func(a, b replica.Member) int { return int(a.Node) - int(b.Node) })
		c.mu.Unlock()
		done(nil)
	}
	if s.hold {
		s.held = append(s.held, do)
		c.mu.Unlock()
		return
	}
	leads, refuses := s.nodeOf(s.leader) == s.node, s.refuses
	if ch.Kind == replica.AddLearner {
		refuses = cmp.Or(refuses, s.closed)
	}
	c.mu.Unlock()
	switch {
	case !leads:
		done(&replica.NotLeaderError{})
	case refuses != nil:
		done(refuses)
	default:
		do()
	}
}

func (s *seat) TransferLeader(member uint64) {
	s.town.mu.Lock()
	defer s.town.mu.Unlock()
	if s.nodeOf(s.leader) == s.node && s.nodeOf(member) != 0 {
		s.leader = member
		s.term++
	}
}

func (s *seat) ForceSingle(done func(error)) {
	s.town.mu.Lock()
	for _, x := range s.members {
		if x.Node == s.node {
			s.members, s.leader = []replica.Member{x}, x.ID
		}
	}
	s.town.mu.Unlock()
	done(nil)
}

// lists are the nodes of a queue's members as the group has them, learners with an l, and as the catalog has them.
func (g *group) lists() (group, entered string) {
	g.town.mu.Lock()
	defer g.town.mu.Unlock()
	for _, x := range g.members {
		group += fmt.Sprint(x.Node)
		if x.Learner {
			group += "l"
		}
	}
	for _, x := range g.town.catalog.View().QueueByID(catalog.QueueID(g.id)).Members {
		entered += fmt.Sprint(x.Node)
	}
	return group, entered
}

func (g *group) want(members, entered string) {
	g.town.t.Helper()
	if a, b := g.lists(); a != members || b != entered {
		g.town.t.Errorf("queue %d: the group has %s and the catalog %s; want %s and %s", g.id, a, b, members, entered)
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
