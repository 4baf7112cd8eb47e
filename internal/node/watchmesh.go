package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/cluster"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/peer"
	"holdfast/internal/replica"
)

// Times of the watch over other nodes.
const (
	// dutiesEvery is how many ticks pass between two looks at what the catalog's leader has to do.
	dutiesEvery = 3
)

// watch follows the other nodes until the node stops.
func (m *mesh) watch() {
	ticker := m.n.clock.NewTicker(cluster.TickEvery)
	defer ticker.Stop()
	m.retarget()
	for ticks := 0; ; {
		select {
		case <-m.ending:
			return
		case <-m.wake:
		case <-ticker.C():
			m.follow(m.detector.Tick(m.n.clock.Mono()))
			m.forward.Tick()
			m.touch.tick()
			m.tickAlarms(m.n.clock.Mono())
			m.ways.Tick()
			m.belong.tick(m.n.clock.Mono())
			if ticks++; ticks%dutiesEvery == 0 {
				m.duties()
			}
		}
		m.work()
	}
}

// work takes what the links have said.
func (m *mesh) work() {
	m.mu.Lock()
	events := m.events
	m.events = nil
	m.mu.Unlock()
	changed := false
	for _, e := range events {
		now := m.n.clock.Mono()
		switch e.kind {
		case eventUp:
			m.follow(m.detector.Up(now, e.node, e.incarnation))
		case eventDown:
			m.follow(m.detector.Down(now, e.node, e.why, errors.Is(e.why, peer.ErrGoodbye)))
		case eventSuspect:
			m.follow(m.detector.Suspect(now, e.node))
		case eventTrust:
			m.follow(m.detector.Trust(now, e.node))
		case eventChanged:
			changed = true
			m.tellRemoved(e.result)
		}
	}
	if changed {
		if m.belong.look() {
			m.n.expelled(ErrRemoved)
		}
		m.retarget()
		m.duties()
	}
	m.passAlarms()
}

// retarget links to the nodes there are now.
func (m *mesh) retarget() {
	targets, others := m.targets()
	m.detector.Watch(m.n.clock.Mono(), others)
	v := m.n.catalog.View()
	var removed []uint64
	m.mu.Lock()
	for id, s := range m.stands {
		if !slices.Contains(others, id) {
			delete(m.stands, id)
			if s.watched != 0 && v.Bootstrapped() && v.Node(id) == nil {
				removed = append(removed, id)
			}
		}
	}
	for _, id := range others {
		s, watched := m.stands[id]
		if !watched || s.watched == 0 {
			s.watched = m.n.clock.Mono()
		}
		s.is, s.why = m.detector.Condition(id)
		m.stands[id] = s
	}
	m.mu.Unlock()
	for _, id := range removed { // what its clients held goes back, without waiting until it would count as gone
		m.n.queues.Removed(id)
	}
	m.touch.votersAre(m.voters())
	m.lineage.peersAre(others)
	m.ways.SetPeers(targets)
}

// follow carries out what follows from news about nodes.
func (m *mesh) follow(changes []cluster.Change) {
	for _, c := range changes {
		m.mu.Lock()
		s := m.stands[c.Node]
		s.is, s.why, s.wasUp = c.Is, c.Why, s.wasUp || c.Is == cluster.Up
		m.stands[c.Node] = s
		m.mu.Unlock()
		log := m.n.log.With("node", m.nameOf(c.Node), "was", c.Was.String())
		switch c.Is {
		case cluster.Up:
			log.Info("a node is up", "restarted", c.Restarted)
			m.n.queues.Trust(c.Node)
		case cluster.Suspect:
			log.Warn("a node is suspected to be gone", "reason", c.Why)
			m.n.queues.Suspect(c.Node)
		case cluster.Gone:
			log.Error("a node is gone: what dies with its start is removed", "reason", c.Why)
			m.n.queues.Gone(c.Node, c.Incarnation)
		}
	}
}

// nameOf is what people call a node.
func (m *mesh) nameOf(node uint64) string {
	if n := m.n.catalog.View().Node(node); n != nil {
		return n.Name
	}
	for _, f := range m.state.Founding.Founders {
		if f.ID == node {
			return f.Name
		}
	}
	return fmt.Sprintf("node-%016x", node)
}

// called is nameOf from the links' first moment on, when there is no catalog yet.
func (m *mesh) called(node peer.NodeID) string {
	if m.n.ready.Load() != nil {
		return m.nameOf(uint64(node))
	}
	for _, n := range m.belong.others() {
		if n.ID == uint64(node) {
			return n.Name
		}
	}
	return fmt.Sprintf("node-%016x", uint64(node))
}

func (m *mesh) isUp(node uint64) bool {
	if node == m.self {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stands[node].is == cluster.Up
}

// isLost reports whether a node is suspected to be gone; one that could not be reached yet since this node has started is
// not, for as long as a node that was up would not be.
func (m *mesh) isLost(node uint64) bool {
	if node == m.self {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stands[node]
	return s.is != cluster.Up && (s.wasUp || m.n.clock.Mono()-s.watched >= int64(cluster.SuspectAfter))
}

// duties are what the catalog's leader does for the cluster: nodes get into the catalog's group and out of it, what dies
// with a node that is gone is removed, and the level of the formats goes up once all nodes know the next one.
func (m *mesh) duties() {
	v := m.n.catalog.View()
	if !v.Bootstrapped() {
		return
	}
	m.n.commands.Group().AskRaftStatus(func(st replica.RaftStatus) {
		if st.Serving {
			go m.carryOut(v, st)
		}
	})
}

// carryOut does what is to be done, and looks again as long as that lets something else be done.
func (m *mesh) carryOut(v *catalog.View, st replica.RaftStatus) {
	select {
	case m.busy <- struct{}{}:
	default:
		return
	}
	m.buryGone(v)
	if next := v.NextLevel(); next != 0 {
		m.command(catalog.RaiseLevel(next), nil)
	}
	more := m.votes(v, st)
	<-m.busy
	if more {
		m.duties()
	}
}

// buryGone has the catalog remove what dies with nodes that are gone.
func (m *mesh) buryGone(v *catalog.View) {
	for n := range v.Nodes().All() {
		m.mu.Lock()
		gone := m.stands[n.ID].is == cluster.Gone && n.ID != m.self && m.gone[n.ID] != n.Incarnation && n.Incarnation != 0
		if gone {
			m.gone[n.ID] = n.Incarnation
		}
		m.mu.Unlock()
		if gone {
			m.command(catalog.NodeGone(n.ID, n.Incarnation), func() {
				m.mu.Lock()
				delete(m.gone, n.ID) // once more
				m.mu.Unlock()
			})
		}
	}
}

// votes does the next thing for the members of the catalog's group and their votes, and reports whether something was done, so that
// there may be more.
func (m *mesh) votes(v *catalog.View, st replica.RaftStatus) (more bool) {
	if untrue := catgroup.Untrue(v, st); len(untrue) > 0 {
		return m.tellVotes(untrue)
	}
	change, why := catgroup.NextChange(v, st, m.self, m.isUp)
	if change == nil {
		return m.tellVotes(catgroup.Votes(v, st))
	}
	done := make(chan error, 1)
	m.n.commands.Group().ChangeMembers(*change, func(err error) { done <- err })
	select {
	case err := <-done:
		m.tellChange(why, m.nameOf(change.Member.Node), err)
		return err == nil
	case <-m.ending:
		return false
	}
}

// tellVotes has the catalog know who votes, and reports whether all nodes that are there do then.
func (m *mesh) tellVotes(cmds [][]byte) (told bool) {
	answers := make(chan bool, len(cmds))
	for _, cmd := range cmds {
		m.forward.Propose(cmd, true, func(result any, err error) {
			r, is := result.(*catalog.Result)
			answers <- err == nil && is && r.Err == nil
		})
	}
	told = len(cmds) > 0
	for range cmds {
		told = <-answers && told
	}
	return told
}

// settleVotes has what is under way for the votes come to its end before this node, which leads the catalog's group, goes. Two of
// three that vote for a moment, while the third has yet to get its vote, decide nothing when one of them is gone. What it brought
// about is applied on all nodes that are there, so that whoever leads next knows of it.
func (m *mesh) settleVotes() {
	late, over := clock.After(m.n.clock, handOverWait)
	defer over()
	for more := true; more; {
		v, asked := m.n.catalog.View(), make(chan replica.RaftStatus, 1)
		m.n.commands.Group().AskRaftStatus(func(st replica.RaftStatus) { asked <- st })
		st := <-asked
		if !st.Serving {
			return
		}
		select {
		case m.busy <- struct{}{}:
		case <-late:
			return
		}
		done := make(chan bool, 1)
		m.ended.Go(func() {
			defer func() { <-m.busy }()
			done <- m.votes(v, st)
		})
		select {
		case more = <-done:
		case <-late:
			return
		}
	}
}

// tellChange writes down what came of a change of the catalog's group; the same trouble once in a row.
func (m *mesh) tellChange(why, node string, err error) {
	if err == nil {
		m.trouble = ""
		m.n.log.Info("the catalog's group: "+why, "node", node)
	} else if text := why + node + err.Error(); m.trouble != text {
		m.trouble = text
		m.n.log.Warn("the catalog's group could not be changed yet: "+why, "node", node, "error", err)
	}
}

// command has the catalog carry out a command of the cluster's own. failed, if not nil, runs if that came to nothing, or
// may have.
func (m *mesh) command(cmd []byte, failed func()) {
	m.forward.Propose(cmd, true, func(result any, err error) {
		if r, is := result.(*catalog.Result); is && r.Err == nil {
			m.n.broker.Changed(r, false)
		} else if failed != nil {
			failed()
		}
	})
}

// enter makes this start known to the catalog of the cluster, and fills it if it is new.
func (m *mesh) enter(ctx context.Context) error {
	n := m.n
	if _, err := n.ask(ctx, nil); err != nil { // now the view has all there is
		return err
	}
	v := n.catalog.View()
	if !v.Bootstrapped() {
		for _, f := range m.state.Founding.Founders {
			if _, err := n.ask(ctx, catalog.AddNode(catalog.Node{ID: f.ID, Name: f.Name, Addr: f.Addr, Voter: f.Voter})); err != nil {
				return err
			}
		}
	} else if self := v.Node(m.self); self == nil {
		return ErrRemoved
	} else if addr := n.settings.Cluster.Address; self.Name != m.name || self.Addr != addr {
		if err := m.rename(ctx, catalog.Node{ID: m.self, Name: m.name, Addr: addr, Voter: self.Voter}); err != nil {
			return err
		}
	}
	if err := m.tellLevels(ctx); err != nil {
		return err
	}
	r, err := n.ask(ctx, catalog.NewIncarnation(m.self))
	if err != nil {
		return err
	}
	n.incarnation = r.Incarnation
	if !n.catalog.View().Bootstrapped() {
		if _, err := n.ask(ctx, n.defaults()); err != nil {
			return err
		}
	}
	n.levels.at.CompareAndSwap(0, uint32(n.catalog.View().Level())) // what is above the first level was told when the catalog went there
	m.belong.entered.Store(true)
	if self := n.catalog.View().Node(m.self); self.Drained { // a start ends it
		if _, err := n.ask(ctx, catalog.SetDrained(m.self, false)); err != nil {
			return err
		}
	}
	n.broker.Begin(n.incarnation)
	n.broker.Sync()
	n.queues.CaughtUp()
	n.members.Start()
	n.report.Orphans = n.dropOrphans(n.catalog.View())
	m.happened(event{kind: eventChanged})
	return nil
}

// rename gives a node of the catalog another name or address. The command for it would add one that was removed this very
// moment; then that is taken back.
func (m *mesh) rename(ctx context.Context, to catalog.Node) error {
	r, err := m.n.ask(ctx, catalog.AddNode(to))
	if err != nil || r == nil || !r.Created {
		return err
	}
	if _, err := m.n.ask(ctx, catalog.RemoveNode(to.ID)); err != nil {
		return err
	}
	return ErrRemoved
}

// ask has the catalog of the cluster carry out a command, or nothing (nil), and waits for it as long as the catalog's
// group has no leader.
func (n *Node) ask(ctx context.Context, cmd []byte) (*catalog.Result, error) {
	for told := false; ; {
		type answer struct {
			result any
			err    error
		}
		answered := make(chan answer, 1)
		withdraw := n.mesh.forward.Put(cmd, func(result any, err error) { answered <- answer{result, err} }, int64(5*time.Second))
		select {
		case a := <-answered:
			switch r, _ := a.result.(*catalog.Result); {
			case a.err == nil && r != nil && r.Err != nil:
				return nil, fmt.Errorf("catalog: %w", r.Err)
			case a.err == nil:
				return r, nil
			case errors.Is(a.err, replica.ErrClosed):
				return nil, fmt.Errorf("catalog: %w", a.err)
			case !told:
				told = true
				n.log.Warn("waiting for the cluster: a majority of the nodes that vote has to be up")
				if n.waits != nil {
					n.waits("waiting for a majority of the nodes that vote to be up")
				}
			}
		case <-ctx.Done():
			withdraw()
			return nil, context.Cause(ctx)
		case <-n.failed:
			return nil, n.Err()
		}
	}
}
