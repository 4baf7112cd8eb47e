package replica

import (
	"encoding/binary"
	"errors"
	"sync"

	"holdfast/internal/invariant"
	"holdfast/internal/seglog"
)

// SimpleMachine is a pure machine without items: the catalog is one. The
// commands of one entry share its index and time. cmd is borrowed for the call.
type SimpleMachine interface {
	Apply(index uint64, time int64, cmd []byte) any
	AppendSnapshot(dst []byte) []byte
	Restore(blob []byte) error
}

// SimpleGroup drives a SimpleMachine, alone (solo) or with other members (raft).
type SimpleGroup struct {
	m     SimpleMachine
	group *Group
	raft  bool
	role  func(term, leader uint64, serving bool) // or nil
	hit   func(error)                             // or nil

	mu     sync.Mutex
	inbox  []proposal
	closed error // why nothing is taken: for good, or because another node leads

	// The worker's own.
	pending []proposal // taken from the inbox, not packed
	hasty   int        // of pending, those that do not wait for the disk
	packed  []proposal // in the entry to be applied
	waiting []answer   // applied, waiting for the disk; in order
}

type proposal struct {
	cmd        []byte
	waitStable bool
	done       func(result any, err error)
}

type answer struct {
	index  uint64
	result any
	done   func(result any, err error)
}

// NewSimpleGroup adds a solo group for a small machine, on the worker that
// simple groups have for themselves. It must be called before Replay.
func (n *Node) NewSimpleGroup(id seglog.GroupID, m SimpleMachine) *SimpleGroup {
	g := &SimpleGroup{m: m}
	g.group = n.add(n.shards[len(n.shards)-1], id, g, true)
	n.simple = append(n.simple, g)
	return g
}

// NewSimpleRaftGroup adds a group for a small machine that is replicated to members, as
// NewRaftGroup does. It must be called before Replay.
func (n *Node) NewSimpleRaftGroup(id seglog.GroupID, m SimpleMachine, members []Member) *SimpleGroup {
	g := &SimpleGroup{m: m, raft: true, closed: &NotLeaderError{}}
	g.group = n.addRaft(n.shards[len(n.shards)-1], id, g, members)
	n.simple = append(n.simple, g)
	return g
}

// JoinSimpleRaftGroup adds an empty member, as JoinRaftGroup does.
func (n *Node) JoinSimpleRaftGroup(id seglog.GroupID, m SimpleMachine, member uint64) *SimpleGroup {
	return n.NewSimpleRaftGroup(id, m, n.joining(member))
}

// OnRole has fn told who leads a raft group, as RaftHost.Role is: on the worker, after proposals that it refuses
// were answered. It must be called before the node is started.
func (g *SimpleGroup) OnRole(fn func(term, leader uint64, serving bool)) { g.role = fn }

// OnFailed has fn told, on the worker, that the log of the group was found to be of no use while it ran. It must be called
// before the node is started.
func (g *SimpleGroup) OnFailed(fn func(error)) { g.hit = fn }

// Group returns the group behind it.
func (g *SimpleGroup) Group() *Group { return g.group }

// Propose puts a command in line; those of one caller keep their order. done,
// if not nil, gets what Apply returned, or an error: ErrClosed after Close, or
// ErrOverdue. With waitStable it runs when the command is on disk, else when it
// is applied. It runs on the worker, or at once if the command is not even put in line,
// and must not block. cmd must not change.
//
// With other members it runs when a majority has the command on disk and it is applied
// here, and there are more errors: NotLeaderError (another node leads; nothing has
// happened), and ErrUnknown.
func (g *SimpleGroup) Propose(cmd []byte, waitStable bool, done func(result any, err error)) {
	g.mu.Lock()
	if err := g.closed; err != nil {
		g.mu.Unlock()
		if done != nil {
			done(nil, err)
		}
		return
	}
	g.inbox = append(g.inbox, proposal{cmd, waitStable, done})
	g.mu.Unlock()
	g.group.Wake()
}

// ErrOverdue answers a proposal that has waited too long for the disk. It may
// still come into effect.
var ErrOverdue = errors.New("replica: the disk takes too long")

// simpleVersion starts the meta of an entry.
const simpleVersion = 1

// Pack implements Host.
func (g *SimpleGroup) Pack(e *Entry) (more bool) {
	g.mu.Lock()
	known := len(g.pending)
	if known == 0 {
		g.pending, g.inbox = g.inbox, g.pending[:0]
	} else {
		g.pending = append(g.pending, g.inbox...)
		clear(g.inbox)
		g.inbox = g.inbox[:0]
	}
	g.mu.Unlock()
	for i := known; i < len(g.pending); i++ {
		if !g.pending[i].waitStable {
			g.hasty++
		}
	}
	if g.patient() {
		return false // Stable wakes the group
	}
	n := 0
	for n < len(g.pending) && n < MaxEntryCommands && len(e.Meta) < MaxEntryBytes {
		p := &g.pending[n]
		if n == 0 {
			e.Meta = append(e.Meta, simpleVersion)
		}
		e.Meta = binary.AppendUvarint(e.Meta, uint64(len(p.cmd)))
		e.Meta = append(e.Meta, p.cmd...)
		e.Sync = e.Sync || p.waitStable
		if !p.waitStable {
			g.hasty--
		}
		n++
	}
	if n == 0 {
		return false
	}
	e.Pack()
	g.packed = append(g.packed[:0], g.pending[:n]...)
	rest := copy(g.pending, g.pending[n:])
	clear(g.pending[rest:])
	g.pending = g.pending[:rest]
	if rest > 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inbox) > 0
}

// Apply implements Host.
func (g *SimpleGroup) Apply(e *Entry) {
	for i := range g.packed {
		p := &g.packed[i]
		result := g.m.Apply(e.Index, e.Time, p.cmd)
		switch {
		case p.done == nil:
		case p.waitStable && !g.raft:
			g.waiting = append(g.waiting, answer{e.Index, result, p.done})
		default:
			p.done(result, nil)
		}
	}
	clear(g.packed)
}

// patient reports whether what is to be packed waits for the entry that is on its way to the disk: whoever it is for waits for
// the disk as well, and more of them share the next sync. Several clients that declare at once would else have a sync for two or
// three of them.
func (g *SimpleGroup) patient() bool {
	return !g.raft && len(g.waiting) > 0 && g.hasty == 0 // a raft group has one entry under way anyhow
}

// Stable implements Host.
func (g *SimpleGroup) Stable(index uint64) {
	g.answer(index, func(a *answer) { a.done(a.result, nil) })
	if len(g.pending) > 0 {
		g.group.Wake()
	}
}

// Overdue implements Host.
func (g *SimpleGroup) Overdue(index uint64) {
	g.answerPacked(ErrOverdue)
	g.answer(index, func(a *answer) { a.done(nil, ErrOverdue) })
	if len(g.pending) > 0 {
		g.group.Wake()
	}
}

// answerPacked answers those whose commands are under way to other members.
func (g *SimpleGroup) answerPacked(err error) {
	if !g.raft {
		return
	}
	for i := range g.packed {
		if done := g.packed[i].done; done != nil {
			g.packed[i].done = nil
			done(nil, err)
		}
	}
}

// Abandoned implements RaftHost.
func (g *SimpleGroup) Abandoned() {
	g.answerPacked(ErrUnknown)
	clear(g.packed)
}

// Role implements RaftHost: while another node leads, nothing is taken.
func (g *SimpleGroup) Role(term, leader uint64, serving bool) {
	if g.role != nil {
		defer g.role(term, leader, serving)
	}
	g.mu.Lock()
	if g.closed == ErrClosed {
		g.mu.Unlock()
		return
	}
	g.closed = nil
	if leader != g.group.shard.node.o.NodeID {
		g.closed = &NotLeaderError{leader}
	}
	err := g.closed
	var left []proposal
	if err != nil {
		left = append(g.pending, g.inbox...)
		g.pending, g.inbox, g.hasty = nil, nil, 0
	}
	g.mu.Unlock()
	refuse(left, err)
}

func refuse(left []proposal, err error) {
	for i := range left {
		if done := left[i].done; done != nil {
			done(nil, err)
		}
	}
}

// ApplyForeign implements RaftHost.
func (g *SimpleGroup) ApplyForeign(e *Entry, meta []byte, _ []seglog.Range, _ [][]byte) {
	if err := g.run(e.Index, e.Time, meta); err != nil {
		invariant.Failf("group %d, entry %d: %v", g.group.id, e.Index, err)
	}
}

// answer calls fn for those who wait for entries up to index.
func (g *SimpleGroup) answer(index uint64, fn func(*answer)) {
	n := 0
	for ; n < len(g.waiting) && g.waiting[n].index <= index; n++ {
		fn(&g.waiting[n])
	}
	rest := copy(g.waiting, g.waiting[n:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
}

// fail answers everything that is still waiting; the worker has ended.
func (g *SimpleGroup) fail(err error) {
	g.mu.Lock()
	g.closed = err
	left := append(g.pending, g.inbox...)
	g.inbox = nil
	g.mu.Unlock()
	refuse(left, err)
	g.answerPacked(ErrUnknown)
	g.answer(^uint64(0), func(a *answer) { a.done(nil, err) })
}

// Replay implements Host.
func (g *SimpleGroup) Replay(rec seglog.Replayed) error {
	return g.run(rec.Index, rec.Time, rec.Meta)
}

// run applies the commands of an entry that was not packed here.
func (g *SimpleGroup) run(index uint64, time int64, b []byte) error {
	if len(b) == 0 || b[0] != simpleVersion {
		return errors.New("entry of an unknown version")
	}
	for b = b[1:]; len(b) > 0; {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return errors.New("malformed entry")
		}
		g.m.Apply(index, time, b[k:k+int(n)])
		b = b[k+int(n):]
	}
	return nil
}

// Restore implements Host.
func (g *SimpleGroup) Restore(blob []byte) error {
	if len(blob) == 0 || blob[0] != simpleVersion {
		return errors.New("snapshot of an unknown version")
	}
	return g.m.Restore(blob[1:])
}

// AppendSnapshot implements Host.
func (g *SimpleGroup) AppendSnapshot(dst []byte) []byte {
	return g.m.AppendSnapshot(append(dst, simpleVersion))
}

// Live implements Host: a simple machine has no items.
func (g *SimpleGroup) Live(dst []seglog.Range) ([]seglog.Range, bool) { return dst, true }

// Recover implements Host: what a new incarnation means is proposed by whoever owns the machine.
func (g *SimpleGroup) Recover(bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inbox) > 0
}

// Failed implements Host. At a replay, that returns the error, too.
func (g *SimpleGroup) Failed(err error) {
	if g.hit != nil {
		g.hit(err)
	}
}
