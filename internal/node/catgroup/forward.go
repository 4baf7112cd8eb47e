package catgroup

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/planted"
	"holdfast/internal/replica"
)

// Times of a forwarder.
const (
	// everywhere is how long an answer waits at most for nodes that have not applied the command yet.
	everywhere = time.Second
)

// Options say what a Forwarder is built from. Its functions must not block.
type Options struct {
	Self, Session uint64                                                         // this node, and the start of its process
	Wait          time.Duration                                                  // until a command is given up
	Now           func() int64                                                   // clock.Mono
	Propose       func(cmd []byte, done func(any, error))                        // puts it in order here, if this node leads
	Send          func(to uint64, control bool, append func([]byte) []byte) bool // on the data lane, or the control lane
	Stale         func()                                                         // another node no longer waits for this one
}

// Forwarder brings the catalog's commands of a node in a cluster to whoever leads the catalog's group, and answers when
// this node has applied them and, within a second, every other node that is there. So what was declared here can be
// used anywhere.
//
// A command travels in an envelope that names its node, the start of its process and a number. Whoever applies it
// tells that node; the node itself gets the result from its own machine, not from the leader.
//
// When the leader changes, or the link to it breaks, nobody knows what became of a command. It is sent again when a
// barrier, an empty command put in order behind it, has been applied here without it: then it never will be. Unless the
// state has come whole meanwhile, which may have it in it: then its answer is that nobody knows.
type Forwarder struct {
	o Options

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*proposal // by number
	leader  uint64               // node; 0: nobody is known to lead
	there   map[uint64]bool      // other nodes that are linked and heard; false: stale, it has let an answer wait too long
	barrier uint64               // number of the barrier that decides about uncertain commands; 0: none
	closed  error
}

// NewForwarder returns a forwarder that knows of no other node and no leader.
func NewForwarder(o Options) *Forwarder {
	return &Forwarder{o: o, pending: map[uint64]*proposal{}, there: map[uint64]bool{}}
}

// proposal is a command that has not been answered.
type proposal struct {
	seq     uint64
	cmd     []byte // with its envelope
	done    func(any, error)
	since   int64
	until   int64
	sent    uint64 // node it was given to; 0: it waits for a leader
	giving  bool   // it is on its way out of route: it may still be given to a leader
	doubt   bool   // what became of it is not known
	whole   bool   // it may be in a state that came whole
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

// Propose implements broker.Proposer. What a group of a cluster has applied is on disk.
func (f *Forwarder) Propose(cmd []byte, _ bool, done func(any, error)) {
	f.Put(cmd, done, int64(f.o.Wait))
}

// Put is Propose with another limit. withdraw takes the command back; it may happen all the same if it was given to a
// leader.
func (f *Forwarder) Put(cmd []byte, done func(any, error), wait int64) (withdraw func()) {
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
func (f *Forwarder) withdraw(p *proposal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pending[p.seq] == p && p.sent == 0 {
		delete(f.pending, p.seq)
	}
}

// add enters a command. The mutex is held.
func (f *Forwarder) add(cmd []byte, done func(any, error), wait int64) *proposal {
	f.next++
	now := f.o.Now()
	p := &proposal{seq: f.next, cmd: envelope(f.o.Self, f.o.Session, f.next, cmd), done: done, since: now, until: now + wait, barrier: len(cmd) == 0}
	f.pending[p.seq] = p
	return p
}

// route gives a command to the leader, if one is known.
func (f *Forwarder) route(p *proposal) {
	f.mu.Lock()
	to := f.leader
	if to == 0 || p.sent != 0 || f.pending[p.seq] != p {
		f.mu.Unlock()
		return
	}
	p.sent, p.giving = to, true
	f.mu.Unlock()
	f.give(p, to)
	f.mu.Lock()
	p.giving = false
	doubt := p.doubt
	f.mu.Unlock()
	if doubt { // since it was given
		f.again()
	}
}

// give gives a command to a node. It may come late: the leader may be another one by then, and what becomes of the command
// cannot be asked before it was given.
func (f *Forwarder) give(p *proposal, to uint64) {
	if to == f.o.Self {
		f.o.Propose(p.cmd, func(_ any, err error) {
			if err != nil {
				f.refused(to, p.seq, isNotLeader(err))
			}
		})
		return
	}
	sent := f.o.Send(to, false, func(b []byte) []byte {
		b = append(b, forwardPropose)
		b = binary.AppendUvarint(b, f.o.Session)
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
func (f *Forwarder) refused(by, seq uint64, certain bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p := f.pending[seq]; {
	case p == nil || p.applied || p.sent != by:
	case certain:
		p.sent = 0
	default:
		f.doubt(p)
	}
}

// Lead takes note of who leads the catalog's group.
func (f *Forwarder) Lead(node uint64) {
	f.mu.Lock()
	if f.leader != node {
		f.leader = node
		f.uncertain(func(*proposal) bool { return true })
	}
	f.mu.Unlock()
	f.again()
}

// Leader is the node that leads the catalog's group, as far as is known here; 0: none.
func (f *Forwarder) Leader() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leader
}

// Waiting is how many commands have no answer yet.
func (f *Forwarder) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Waits reports whether answers wait for a node: it is there, and was not too late once.
func (f *Forwarder) Waits(node uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.there[node]
}

// Lost takes note that nothing that was sent to a node is known to have arrived.
func (f *Forwarder) Lost(node uint64) {
	f.mu.Lock()
	f.uncertain(func(p *proposal) bool { return p.sent == node })
	f.mu.Unlock()
	f.Presence(node, false)
}

// uncertain marks commands of which nobody knows what became. The mutex is held.
func (f *Forwarder) uncertain(which func(*proposal) bool) {
	for _, p := range f.pending {
		if !p.applied && p.sent != 0 && which(p) {
			f.doubt(p)
		}
	}
}

// doubt takes note that nobody knows what became of a command. The mutex is held.
func (f *Forwarder) doubt(p *proposal) {
	switch {
	case p.seq == f.barrier:
		delete(f.pending, p.seq) // another one follows
		f.barrier = 0
	case p.barrier || planted.Is(planted.CommandTwice):
		p.sent = 0 // it does no harm twice
	default:
		p.doubt = true
	}
}

// Presence takes note whether a node is there. Nobody waits for one that is not.
func (f *Forwarder) Presence(node uint64, there bool) {
	f.mu.Lock()
	if there {
		f.there[node] = true
		f.mu.Unlock()
		f.again()
		return
	}
	delete(f.there, node)
	f.settle(f.o.Now())
}

// again gives to the leader what waits for one, and asks what became of the rest.
func (f *Forwarder) again() {
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
			doubt = doubt || !p.giving
		case p.sent == 0:
			list = append(list, p)
		}
	}
	if doubt && f.barrier == 0 {
		p := f.add(nil, nil, int64(f.o.Wait))
		f.barrier = p.seq
		list = append(list, p)
	}
	f.mu.Unlock()
	for _, p := range list {
		f.route(p)
	}
}

// Tick gives up what waits too long and tries the rest again.
func (f *Forwarder) Tick() {
	f.mu.Lock()
	f.settle(f.o.Now())
	f.again()
}

// settle answers what can be, and unlocks the mutex.
func (f *Forwarder) settle(now int64) {
	var ready []*proposal
	var stale []late
	for _, seq := range slices.Sorted(maps.Keys(f.pending)) {
		p := f.pending[seq]
		switch {
		case p.applied && f.everywhere(p):
		case p.applied && now-p.appliedAt >= int64(everywhere):
			for _, node := range slices.Sorted(maps.Keys(f.there)) {
				if _, has := p.heard[node]; !has && f.there[node] {
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
	// Who is late must ask before it routes: what was answered now is not yet known there.
	for _, l := range stale {
		f.o.Send(l.node, true, func(b []byte) []byte {
			b = append(b, forwardStale)
			b = binary.AppendUvarint(b, f.o.Session)
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
func (f *Forwarder) everywhere(p *proposal) bool {
	if p.barrier || planted.Is(planted.AnsweredHere) {
		return true
	}
	for node, waited := range f.there {
		if _, has := p.heard[node]; !has && waited {
			return false
		}
	}
	return true
}

// Awaits reports whether somebody here waits for the result of a command.
func (f *Forwarder) Awaits(origin, session, seq uint64) bool {
	if origin != f.o.Self || session != f.o.Session {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pending[seq]
	return p != nil && !p.applied && p.done != nil
}

// Applied takes note that this node has applied a command.
func (f *Forwarder) Applied(origin, session, seq uint64, r *catalog.Result) {
	if origin != f.o.Self {
		if r != nil {
			f.o.Send(origin, true, func(b []byte) []byte {
				b = append(b, forwardApplied)
				b = binary.AppendUvarint(b, session)
				return binary.AppendUvarint(b, seq)
			})
		}
		return
	}
	f.mu.Lock()
	p := f.pending[seq]
	if session != f.o.Session || p == nil || p.applied {
		f.mu.Unlock()
		return
	}
	p.applied, p.appliedAt, p.doubt = true, f.o.Now(), false
	if r != nil {
		p.result = r
	}
	decides := seq == f.barrier
	var unknown []*proposal
	if decides {
		f.barrier = 0
		for _, n := range slices.Sorted(maps.Keys(f.pending)) {
			switch q := f.pending[n]; {
			case !q.doubt || n > seq || q.giving:
			case q.whole:
				q.result = broker.ErrOverdue
				unknown = append(unknown, q)
				delete(f.pending, n)
			default:
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
	for _, q := range unknown {
		q.answer()
	}
	if decides {
		f.again()
	}
}

// Restored takes note that the state came whole: what was given to a leader may be in it, and is not seen applied then.
func (f *Forwarder) Restored() {
	if planted.Is(planted.StateUnheard) {
		return
	}
	f.mu.Lock()
	f.uncertain(func(*proposal) bool { return true })
	for _, p := range f.pending {
		p.whole = p.whole || p.doubt
	}
	f.mu.Unlock()
	f.again()
}

// Receive takes a message of another node's forwarder. It runs on the link's reader.
func (f *Forwarder) Receive(from uint64, msg []byte) {
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
		f.o.Propose(b, func(_ any, err error) {
			if err == nil {
				return
			}
			f.o.Send(from, true, func(dst []byte) []byte {
				dst = append(dst, forwardRefused)
				dst = binary.AppendUvarint(dst, session)
				dst = binary.AppendUvarint(dst, seq)
				return append(dst, oneIf(isNotLeader(err)))
			})
		})
	case forwardRefused:
		if session == f.o.Session && len(b) == 1 {
			f.refused(from, seq, b[0] == 1)
		}
	case forwardApplied:
		if session == f.o.Session {
			f.heard(from, seq)
		}
	case forwardStale:
		f.o.Stale()
	}
}

func oneIf(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// heard takes note that another node has applied a command.
func (f *Forwarder) heard(from, seq uint64) {
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

// Close answers everything that still waits.
func (f *Forwarder) Close() {
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
