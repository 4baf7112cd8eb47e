package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/cluster"
	"holdfast/internal/peer"
	"holdfast/internal/replica"
)

// apartAgain is how often it is said again that a node has come apart, as long as that is so.
const apartAgain = int64(time.Minute)

// apartFor is how long a node counts as apart since it was last refused. Both sides try it every second or two, as long as both are there.
const apartFor = int64(10 * time.Second)

// errForcing is why there are no links while it is not decided whether this node goes on alone.
var errForcing = fmt.Errorf("%w: the operator has asked to go on alone", peer.ErrBusy)

// errAnewLine is why links are broken when this node follows another line.
var errAnewLine = errors.New("the catalog has another line now: the nodes greet again")

// lineage is the line of the catalog that this node follows, and who follows another one that has come apart from it.
//
// Nodes that are linked follow the same line: the one behind takes over the other's, and writes it down, while they greet, before
// anything of it can come; and when a node's line changes, all its links begin anew. So what two lines have agreed on never meets,
// be it of the catalog or of queues.
type lineage struct {
	m    *mesh
	line atomic.Pointer[cluster.Line]

	turn    sync.Mutex // held while the line, or what is written down of it, changes
	forcing bool       // of turn: it is being decided whether this node goes on alone

	mu    sync.Mutex
	apart map[uint64]*parted
}

// parted is a node of the cluster whose line has come apart from this node's.
type parted struct {
	name string
	why  string
	said int64 // clock.Mono when that was last logged
	seen int64 // when it was last refused, or has refused this one
}

// now is the line that this node follows.
func (l *lineage) now() cluster.Line { return *l.line.Load() }

// told is what the node tells of it, for peer.Options.
func (l *lineage) told() []byte { return l.now().Bytes() }

func (l *lineage) set(line cluster.Line) { l.line.Store(&line) }

// write writes the identity after a change. The turn is held.
func (l *lineage) write(change func(id *identity)) error {
	n := l.m.n
	l.m.belong.save.Lock()
	defer l.m.belong.save.Unlock()
	before := n.identity
	change(&n.identity)
	err := n.identity.save(n.fs, n.settings.DataDir)
	if err != nil {
		n.identity.Line, n.identity.Forcing, n.identity.Refused = before.Line, before.Forcing, before.Refused
	}
	return err
}

// meet decides whether there may be a link, for peer.Options: the two nodes have to follow the same line, or one that descends from
// the other, which this node then takes over. It does not while its own line lives: others agreed on that one, and go on to. What it has
// refused for that it refuses from then on, whether or not there is a leader at the moment: people have been told to choose.
func (l *lineage) meet(its peer.Hello) error {
	theirs, err := cluster.ParseLine(its.Line)
	if err != nil {
		return fmt.Errorf("%w: %w", peer.ErrLine, err)
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	ours := l.now()
	switch {
	case l.forcing:
		return errForcing
	case ours.From(theirs):
		return nil
	case !theirs.From(ours):
		return fmt.Errorf("%w: it follows line %v of the catalog, this node line %v", peer.ErrLine, theirs, ours)
	case l.hasRefused(theirs) || l.m.isLed():
		return cmp.Or(l.refuse(theirs), fmt.Errorf("%w: it went on alone with line %v of the catalog, and line %v, which this node follows, went on, too", peer.ErrLine, theirs, ours))
	}
	if err := l.write(func(id *identity) { id.Line = theirs }); err != nil {
		l.m.n.log.Error("the line of the catalog could not be written down", "error", err)
		return fmt.Errorf("%w: %w", peer.ErrBusy, err)
	}
	l.set(theirs)
	l.m.n.log.Warn("another node went on with the catalog alone by force_boot while this one was away: this one takes over its catalog. "+
		"What others had agreed on and that node had not heard of is lost", "node", its.Name, "line", theirs.String(), "before", ours.String())
	l.regreet()
	return nil
}

// hasRefused reports whether this node has refused a line, or one that it descends from. The turn is held.
func (l *lineage) hasRefused(theirs cluster.Line) bool {
	return slices.ContainsFunc(theirs, func(f cluster.Force) bool { return slices.Contains(l.m.n.identity.Refused, f) })
}

// refuse writes down that this node refuses a line that descends from its own. The turn is held.
func (l *lineage) refuse(theirs cluster.Line) error {
	if l.hasRefused(theirs) {
		return nil
	}
	ours := l.now()
	err := l.write(func(id *identity) {
		id.Refused = slices.Clone(id.Refused)
		for _, f := range theirs {
			if !slices.Contains(ours, f) {
				id.Refused = id.Refused.Forced(f)
			}
		}
	})
	if err != nil {
		l.m.n.log.Error("the line of the catalog that is refused could not be written down", "error", err)
		return fmt.Errorf("%w: %w", peer.ErrBusy, err)
	}
	return nil
}

// isLed reports whether the catalog has a leader that is there.
func (m *mesh) isLed() bool {
	leader := m.forward.Leader()
	return leader != 0 && m.isUp(leader)
}

// regreet begins all links anew but those to nodes of this line.
func (l *lineage) regreet() {
	line := l.now()
	l.m.links.Regreet(errAnewLine, func(its peer.Hello) bool { return bytes.Equal(its.Line, line.Bytes()) })
}

// begin takes note that this node is about to go on alone, by which a new line begins. Until it is settled whether it does there are no
// links.
func (l *lineage) begin() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.forcing {
		return errors.New("it has been ordered already, and the disk has not answered yet")
	}
	f := cluster.NewForce()
	if err := l.write(func(id *identity) { id.Forcing = &f }); err != nil {
		return err
	}
	l.forcing = true
	l.m.links.Regreet(errForcing, func(peer.Hello) bool { return false })
	return nil
}

// settle takes note of what came of it.
func (l *lineage) settle(forced bool) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.forcing = false
	f := l.m.n.identity.Forcing
	if f == nil {
		return nil
	}
	line := l.now()
	if forced {
		line = line.Forced(*f)
	}
	if err := l.write(func(id *identity) { id.Line, id.Forcing = line, nil }); err != nil {
		return err
	}
	if forced {
		l.set(line)
		l.m.n.log.Warn("a new line of the catalog begins here", "line", line.String())
		l.regreet()
	}
	return nil
}

// resume settles what an earlier start of the node did not come to: whether it went on alone. There are no links yet.
func (l *lineage) resume() error {
	if l.m.n.identity.Forcing == nil {
		return nil
	}
	asked := make(chan replica.RaftStatus, 1)
	l.m.n.commands.Group().AskRaftStatus(func(st replica.RaftStatus) { asked <- st })
	select {
	case st := <-asked:
		voters := slices.DeleteFunc(st.Members, func(m replica.MemberStatus) bool { return m.Learner })
		return l.settle(len(voters) == 1 && voters[0].Node == l.m.self)
	case <-l.m.n.failed:
		return l.m.n.Err()
	}
}

// refused takes note that a node has come apart, for peer.Options.
func (l *lineage) refused(its peer.Hello) {
	theirs, _ := cluster.ParseLine(its.Line)
	ours, name := l.now(), cmp.Or(its.Name, its.Addr)
	why := "its catalog has come apart from this node's"
	switch {
	case ours.From(theirs):
		why = "it does not take over the catalog with which this side went on by force_boot, since its own went on, too"
	case theirs.From(ours):
		why = "it went on with the catalog alone by force_boot, and the one here went on, too"
	}
	id, now := uint64(its.Node), l.m.n.clock.Mono()
	l.mu.Lock()
	p := l.apart[id]
	said := p != nil && now-p.said < apartAgain
	if !said {
		p = &parted{said: now}
		l.apart[id] = p
	}
	p.name, p.why, p.seen = name, why, now
	l.mu.Unlock()
	if !said {
		l.m.n.log.Error("a node of the cluster has another catalog, and the two cannot be brought together: choose which one goes on. "+
			"On each node with the other: ctl stop_app, ctl force_reset. On one with this: ctl forget_cluster_node for each of those. "+
			"Then, on each: ctl start_app. What only the other one holds is lost",
			"node", name, "reason", why, "line", theirs.String(), "here", ours.String())
	}
}

// linked takes note that there is a link to a node.
func (l *lineage) linked(node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.apart, node)
}

// peersAre forgets nodes that are not in the cluster any more.
func (l *lineage) peersAre(others []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.apart, func(id uint64, _ *parted) bool { return !slices.Contains(others, id) })
}

// from says why a node has come apart, "" if it has not, or is not there any more.
func (l *lineage) from(node uint64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.apart[node]; p != nil && l.isThere(p) {
		return p.why
	}
	return ""
}

// count is how many nodes are there and have come apart.
func (l *lineage) count() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.apart {
		if l.isThere(p) {
			n++
		}
	}
	return n
}

// isThere reports whether a node that has come apart was met lately: there are no links that would break when it goes.
func (l *lineage) isThere(p *parted) bool { return l.m.n.clock.Mono()-p.seen < apartFor }

// follows reports whether a node with this hello may be told who is in the cluster: what is agreed on here holds for it.
func (l *lineage) follows(its peer.Hello) bool {
	theirs, err := cluster.ParseLine(its.Line)
	return err == nil && l.now().From(theirs)
}
