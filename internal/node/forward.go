package node

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/invariant"
	"holdfast/internal/replica"
)

// Times of a forwarder.
const (
	// everywhere is how long an answer waits at most for nodes that have not applied the command yet.
	everywhere = time.Second
)

// forwarder brings the catalog's commands of a node in a cluster to whoever leads the catalog's group, and answers when
// this node has applied them and, within a second, every other node that is there. So what was declared here can be
// used anywhere.
//
// A command travels in an envelope that names its node, the start of its process and a number. Whoever applies it
// tells that node; the node itself gets the result from its own machine, not from the leader.
//
// When the leader changes, or the link to it breaks, nobody knows what became of a command. It is sent again when a
// barrier, an empty command put in order behind it, has been applied here without it: then it never will be.
type forwarder struct {
	self, session uint64
	wait          int64 // nanoseconds until a command is given up
	now           func() int64
	propose       func(cmd []byte, done func(any, error)) // puts it in order here, if this node leads
	send          func(to uint64, control bool, append func([]byte) []byte) bool
	stale         func() // another node no longer waits for this one

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*proposal // by number
	leader  uint64               // node; 0: nobody is known to lead
	there   map[uint64]bool      // other nodes that are linked and heard; false: stale, it has let an answer wait too long
	barrier uint64               // number of the barrier that decides about uncertain commands; 0: none
	closed  error
}

// proposal is a command that has not been answered.
type proposal struct {
	seq     uint64
	cmd     []byte // with its envelope
	done    func(any, error)
	since   int64
	until   int64
	sent    uint64 // node it was given to; 0: it waits for a leader
	doubt   bool   // what became of it is not known
	barrier bool

	applied   bool
	appliedAt int64
	result    any
	heard     map[uint64]struct{} // nodes that have applied it
}

// The messages of forwarders; the byte behind the room's.
const (
	forwardPropose byte = 1 + iota // session, number, command in its envelope
	forwardRefused                 // session, number, whether nothing has happened
	forwardApplied                 // session, number
	forwardStale                   // session, number: it was not waited for this node any longer
)

// envelopeVersion starts a command in its envelope.
const envelopeVersion = 1

func envelope(origin, session, seq uint64, cmd []byte) []byte {
	b := make([]byte, 0, len(cmd)+24)
	b = append(b, envelopeVersion)
	b = binary.AppendUvarint(b, origin)
	b = binary.AppendUvarint(b, session)
	b = binary.AppendUvarint(b, seq)
	return append(b, cmd...)
}

// clusterCatalog is the catalog's machine as the group of a cluster sees it: its commands come in envelopes.
type clusterCatalog struct {
	*catalog.Machine
	applied  func(origin, session, seq uint64, r *catalog.Result) // on the worker; r is nil for a barrier
	restored func()                                               // on the worker: the state came whole
	most     uint16                                               // the highest level of the formats that can be read here
}

// unfit reports whether the cluster has gone to a level that is not known here. The node ends then: nothing of what follows
// is applied, and no state is written that would lack it.
func (c *clusterCatalog) unfit() bool { return c.View().Level() > c.most }

// AppendSnapshot implements replica.SimpleMachine.
func (c *clusterCatalog) AppendSnapshot(dst []byte) []byte {
	if c.unfit() {
		invariant.Failf("node: the catalog is at level %d, this version knows none above %d", c.View().Level(), c.most)
	}
	return c.Machine.AppendSnapshot(dst)
}

// Apply implements replica.SimpleMachine.
func (c *clusterCatalog) Apply(index uint64, now int64, b []byte) any {
	if c.unfit() {
		return (*catalog.Result)(nil)
	}
	if len(b) == 0 || b[0] != envelopeVersion {
		invariant.Failf("node: a command of the catalog in an unknown envelope")
	}
	b = b[1:]
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			invariant.Failf("node: the envelope of a command of the catalog is cut")
		}
		head[i], b = v, b[n:]
	}
	var r *catalog.Result
	if len(b) > 0 {
		r = c.Machine.Apply(index, now, b).(*catalog.Result)
	}
	c.applied(head[0], head[1], head[2], r)
	return r
}

// Restore implements replica.SimpleMachine.
func (c *clusterCatalog) Restore(blob []byte) error {
	err := c.Machine.Restore(blob)
	if err == nil {
		c.restored()
	}
	return err
}

// Propose implements broker.Proposer. What a group of a cluster has applied is on disk.
func (f *forwarder) Propose(cmd []byte, _ bool, done func(any, error)) { f.put(cmd, done, f.wait) }

// put is Propose with another limit. withdraw takes the command back; it may happen all the same if it was given to a
// leader.
func (f *forwarder) put(cmd []byte, done func(any, error), wait int64) (withdraw func()) {
	f.mu.Lock()
	if err := f.closed; err != nil {
		f.mu.Unlock()
		if done != nil {
			done(nil, err)
		}
		return func() {}
	}
	p := f.add(cmd, done, wait)
	f.mu.Unlock()
	f.route(p)
	return func() { f.withdraw(p) }
}

// withdraw forgets a command that no leader was given.
func (f *forwarder) withdraw(p *proposal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending[p.seq] == p && p.sent == 0 {
		delete(f.pending, p.seq)
	}
}

// add enters a command. The mutex is held.
func (f *forwarder) add(cmd []byte, done func(any, error), wait int64) *proposal {
	f.next++
	now := f.now()
	p := &proposal{seq: f.next, cmd: envelope(f.self, f.session, f.next, cmd), done: done, since: now, until: now + wait, barrier: len(cmd) == 0}
	f.pending[p.seq] = p
	return p
}

// route gives a command to the leader, if one is known.
func (f *forwarder) route(p *proposal) {
	f.mu.Lock()
	to := f.leader
	if to == 0 || p.sent != 0 || f.pending[p.seq] != p {
		f.mu.Unlock()
		return
	}
	p.sent = to
	f.mu.Unlock()
	if to == f.self {
		f.propose(p.cmd, func(_ any, err error) {
			if err != nil {
				f.refused(to, p.seq, isNotLeader(err))
			}
		})
		return
	}
	sent := f.send(to, false, func(b []byte) []byte {
		b = append(b, forwardPropose)
		b = binary.AppendUvarint(b, f.session)
		b = binary.AppendUvarint(b, p.seq)
		return append(b, p.cmd...)
	})
	if !sent {
		f.refused(to, p.seq, true)
	}
}

func isNotLeader(err error) bool {
	var not *replica.NotLeaderError
	return errors.As(err, &not) || errors.Is(err, replica.ErrClosed)
}

// refused takes note that a leader did not put a command in order: it is given to one again with the next tick or
// the next leader, or, unless it is certain that nothing has happened, when that is known.
func (f *forwarder) refused(by, seq uint64, certain bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pending[seq]
	if p == nil || p.applied || p.sent != by {
		return
	}
	if p.sent = 0; !certain {
		p.sent, p.doubt = by, true
	}
}

// lead takes note of who leads the catalog's group.
func (f *forwarder) lead(node uint64) {
	f.mu.Lock()
	if f.leader != node {
		f.leader = node
		f.uncertain(func(*proposal) bool { return true })
	}
	f.mu.Unlock()
	f.again()
}

// leaderNow is the node that leads the catalog's group, as far as is known here; 0: none.
func (f *forwarder) leaderNow() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader
}

// lost takes note that nothing that was sent to a node is known to have arrived.
func (f *forwarder) lost(node uint64) {
	f.mu.Lock()
	f.uncertain(func(p *proposal) bool { return p.sent == node })
	f.mu.Unlock()
	f.presence(node, false)
}

// uncertain marks commands of which nobody knows what became. The mutex is held.
func (f *forwarder) uncertain(which func(*proposal) bool) {
	for _, p := range f.pending {
		if p.applied || p.sent == 0 || !which(p) {
			continue
		}
		if p.seq == f.barrier {
			delete(f.pending, p.seq) // another one follows
			f.barrier = 0
		} else if p.barrier {
			p.sent = 0 // it does no harm twice
		} else {
			p.doubt = true
		}
	}
}

// presence takes note whether a node is there. Nobody waits for one that is not.
func (f *forwarder) presence(node uint64, there bool) {
	f.mu.Lock()
	if there {
		f.there[node] = true
		f.mu.Unlock()
		f.again()
		return
	}
	delete(f.there, node)
	f.settle(f.now())
}

// again gives to the leader what waits for one, and asks what became of the rest.
func (f *forwarder) again() {
	f.mu.Lock()
	if f.leader == 0 || f.closed != nil {
		f.mu.Unlock()
		return
	}
	doubt := false
	var list []*proposal
	for _, seq := range slices.Sorted(maps.Keys(f.pending)) {
		switch p := f.pending[seq]; {
		case p.applied:
		case p.doubt:
			doubt = true
		case p.sent == 0:
			list = append(list, p)
		}
	}
	if doubt && f.barrier == 0 {
		p := f.add(nil, nil, f.wait)
		f.barrier = p.seq
		list = append(list, p)
	}
	f.mu.Unlock()
	for _, p := range list {
		f.route(p)
	}
}

// tick gives up what waits too long and tries the rest again.
func (f *forwarder) tick() {
	f.mu.Lock()
	f.settle(f.now())
	f.again()
}

// settle answers what can be, and unlocks the mutex.
func (f *forwarder) settle(now int64) {
	var ready []*proposal
	var stale []late
	for seq, p := range f.pending {
		switch {
		case p.applied && f.everywhere(p):
		case p.applied && now-p.appliedAt >= int64(everywhere):
			for node, waited := range f.there {
				if _, has := p.heard[node]; !has && waited {
					f.there[node] = false
					stale = append(stale, late{node, seq})
				}
			}
		case !p.applied && now >= p.until:
			p.result = broker.ErrOverdue
		default:
			continue
		}
		delete(f.pending, seq)
		if seq == f.barrier {
			f.barrier = 0
		}
		ready = append(ready, p)
	}
	f.mu.Unlock()
	slices.SortFunc(ready, func(a, b *proposal) int { return cmp.Compare(a.seq, b.seq) })
	// Who is late must ask before it routes: what was answered now is not yet known there.
	for _, l := range stale {
		f.send(l.node, true, func(b []byte) []byte {
			b = append(b, forwardStale)
			b = binary.AppendUvarint(b, f.session)
			return binary.AppendUvarint(b, l.seq)
		})
	}
	for _, p := range ready {
		p.answer()
	}
}

// late is a node that was not waited for any longer, and for which command.
type late struct{ node, seq uint64 }

func (p *proposal) answer() {
	if p.done == nil {
		return
	}
	if err, is := p.result.(error); is {
		p.done(nil, err)
		return
	}
	p.done(p.result, nil)
}

// everywhere reports whether all nodes that are there have applied a command. The mutex is held.
func (f *forwarder) everywhere(p *proposal) bool {
	if p.barrier {
		return true
	}
	for node, waited := range f.there {
		if _, has := p.heard[node]; !has && waited {
			return false
		}
	}
	return true
}

// awaits reports whether somebody here waits for the result of a command.
func (f *forwarder) awaits(origin, session, seq uint64) bool {
	if origin != f.self || session != f.session {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pending[seq]
	return p != nil && !p.applied && p.done != nil
}

// applied takes note that this node has applied a command.
func (f *forwarder) applied(origin, session, seq uint64, r *catalog.Result) {
	if origin != f.self {
		if r != nil {
			f.send(origin, true, func(b []byte) []byte {
				b = append(b, forwardApplied)
				b = binary.AppendUvarint(b, session)
				return binary.AppendUvarint(b, seq)
			})
		}
		return
	}
	f.mu.Lock()
	p := f.pending[seq]
	if session != f.session || p == nil || p.applied {
		f.mu.Unlock()
		return
	}
	p.applied, p.appliedAt, p.doubt = true, f.now(), false
	if r != nil {
		p.result = r
	}
	decides := seq == f.barrier
	if decides {
		f.barrier = 0
		for _, q := range f.pending {
			if q.doubt && q.seq < seq {
				q.doubt, q.sent = false, 0
			}
		}
	}
	if !f.everywhere(p) {
		f.mu.Unlock()
		return
	}
	delete(f.pending, seq)
	f.mu.Unlock()
	p.answer()
	if decides {
		f.again()
	}
}

// receive takes a message of another node's forwarder. It runs on the link's reader.
func (f *forwarder) receive(from uint64, msg []byte) {
	if len(msg) == 0 {
		return
	}
	kind, b := msg[0], msg[1:]
	session, n := binary.Uvarint(b)
	if n <= 0 {
		return
	}
	b = b[n:]
	seq, n := binary.Uvarint(b)
	if n <= 0 {
		return
	}
	b = b[n:]
	switch kind {
	case forwardPropose:
		f.propose(b, func(_ any, err error) {
			if err == nil {
				return
			}
			f.send(from, true, func(dst []byte) []byte {
				dst = append(dst, forwardRefused)
				dst = binary.AppendUvarint(dst, session)
				dst = binary.AppendUvarint(dst, seq)
				return append(dst, oneIf(isNotLeader(err)))
			})
		})
	case forwardRefused:
		if session == f.session && len(b) == 1 {
			f.refused(from, seq, b[0] == 1)
		}
	case forwardApplied:
		if session == f.session {
			f.heard(from, seq)
		}
	case forwardStale:
		f.stale()
	}
}

func oneIf(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// heard takes note that another node has applied a command.
func (f *forwarder) heard(from, seq uint64) {
	f.mu.Lock()
	if _, there := f.there[from]; there {
		f.there[from] = true
	}
	p := f.pending[seq]
	if p == nil {
		f.mu.Unlock()
		return
	}
	if p.heard == nil {
		p.heard = map[uint64]struct{}{}
	}
	p.heard[from] = struct{}{}
	if !p.applied || !f.everywhere(p) {
		f.mu.Unlock()
		return
	}
	delete(f.pending, seq)
	f.mu.Unlock()
	p.answer()
}

// close answers everything that still waits.
func (f *forwarder) close() {
	f.mu.Lock()
	f.closed = replica.ErrClosed
	left := f.pending
	f.pending = map[uint64]*proposal{}
	f.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(left)) {
		left[seq].result = replica.ErrClosed
		left[seq].answer()
	}
}
