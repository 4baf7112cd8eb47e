package queuehost

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/queue"
)

// session is what one guest and one queue that runs here have to do with each
// other. It is the ticket of the guest's publishes.
type session struct {
	guest *guest
	flow  *inflow
	head  farHead // kind 0

	mu        sync.Mutex
	over      bool
	parting   bool                                  // over, and the guest has yet to be told
	closed    bool                                  // it ends as soon as what was taken is carried out: the guest has closed it, or the queue is not here
	handle    *Handle                               // nil: the queue does not run here (yet)
	ref       *call                                 // names the session for the queue's worker; nil: not of a quorum queue
	epoch     uint64                                // of its publishing half, of a quorum queue
	known     map[queue.ConsumerID]queue.ConsumerID // the consumers that it had when it was resumed, by what the guest calls them
	published uint64                                // number of the last publish taken in
	settled   atomic.Uint64                         // of the last publish whose outcome is known to have arrived, of a quorum queue
	urgent    uint64                                // number of the last settlements and credit
	held      []heldMessage
	chunks    [][]byte // of the publish that is coming
	stray     int64    // bytes of chunks that have come when the session was over, or just before
	relays    map[queue.ConsumerID]*relay
	sealed    bool // by the guest: it has to be unsealed when the session ends
	seals     int  // asked for and not answered
	waived    int  // of these, the first ones, which the guest has taken back
	publishes []Publish
	posted    []*Handle // queues of replies that were put there and have yet to be carried out
	tx        *guestTx  // nil: there was none yet

	waiting  bool // with the guest, for the link
	outcomes []outcomes
	answers  fifo[[]byte] // whole messages
	send     func([]byte) []byte
}

// heldMessage waits for settlements that were sent before it, on the other path.
type heldMessage struct {
	kind farKind
	c    cut
}

func newSession(g *guest, head farHead) *session {
	head.kind = 0
	s := &session{guest: g, flow: g.flow, head: head}
	s.send = s.appendOutcomes
	if head.try > 0 {
		s.ref = &call{guest: s}
	}
	return s
}

func (s *session) headOf(kind farKind) farHead {
	h := s.head
	h.kind = kind
	return h
}

// end ends the session: what its consumers hold goes back to the queue. If that is a quorum
// queue, this is but the end of a try, and nothing goes back.
func (s *session) end() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	h, sealed, ids := s.endLocked()
	tx := s.tx
	s.mu.Unlock()
	if s.ref == nil {
		if tx != nil && tx.number != 0 {
			h.put(op{kind: opAbort, n: tx.number})
		}
		for _, id := range ids {
			h.Detach(id, nil)
		}
	}
	if sealed {
		h.Unseal()
	}
}

// endLocked lets go of everything. The mutex is held.
func (s *session) endLocked() (h *Handle, sealed bool, consumers []queue.ConsumerID) {
	s.over = true
	for _, id := range slices.Sorted(maps.Keys(s.relays)) {
		r := s.relays[id]
		consumers = append(consumers, r.home)
		r.forget()
	}
	for _, chunk := range s.chunks {
		s.stray += int64(len(chunk))
	}
	for _, m := range s.held {
		s.flow.dropped(&s.stray, m.kind, m.c)
	}
	h, sealed = s.handle, s.sealed
	s.relays, s.held, s.chunks, s.publishes, s.outcomes, s.answers = nil, nil, nil, nil, nil, fifo[[]byte]{}
	return h, sealed, consumers
}

// receive takes a message of the entry side; false: it makes no sense.
func (s *session) receive(kind farKind, c cut) (ok, closed bool) {
	s.mu.Lock()
	if s.over {
		s.flow.dropped(&s.stray, kind, c)
		s.mu.Unlock()
		if kind.publishes() {
			s.flow.gave()
		}
		return true, false
	}
	if s.handle == nil && s.ref == nil && !isMailbox(s.head.queue) {
		s.handle = s.guest.reg.Get(s.head.queue)
		if s.handle != nil && s.handle.far != nil {
			s.handle = nil // it does not run here: nobody is sent on
		}
	}
	ok = s.take(kind, c)
	h, closed, posted := s.handle, s.closed, s.posted
	s.posted = nil
	s.mu.Unlock()
	here := !kind.publishes() || len(c.Rest) <= hereBytes
	if h != nil {
		h.Go(here)
	}
	for _, h := range posted {
		h.Go(here)
	}
	return ok, closed
}

// hereBytes is how large a message with publishes may be that the link's reader
// sees to itself, if the queue's worker sleeps.
const hereBytes = 8 << 10

// take takes a message, or holds it back. The mutex is held.
func (s *session) take(kind farKind, c cut) bool {
	if kind != farUrgent {
		return s.takeBulk(kind, c)
	}
	if c.Uint() != s.urgent+1 || !s.settle(&c) {
		return false
	}
	s.urgent++
	held := s.held
	s.held = nil
	for _, m := range held {
		if !s.takeBulk(m.kind, m.c) {
			return false
		}
	}
	return true
}

// takeBulk takes a message of the path of bodies. One that has to wait for
// settlements on the other path makes those behind it wait.
func (s *session) takeBulk(kind farKind, c cut) bool {
	if len(s.held) > 0 {
		s.held = append(s.held, heldMessage{kind, c})
		return true
	}
	switch kind {
	case farResume:
		return s.resumes(&c)
	case farPublish:
		return s.publish(&c)
	case farBehind:
		whole := c
		if c.Uint() > s.urgent {
			s.held = append(s.held, heldMessage{kind, whole})
			return !c.Bad()
		}
		return s.publish(&c)
	case farChunk:
		s.chunks = append(s.chunks, c.Rest)
	case farClose:
		whole := c
		if len(c.Rest) > 0 && c.Uint() > s.urgent {
			s.held = append(s.held, heldMessage{kind, whole})
			return true
		}
		s.closed = !c.Bad()
		return s.closed
	case farAsk:
		whole := c
		a := c.ask()
		if !c.ended() {
			return false
		}
		if a.after > s.urgent {
			s.held = append(s.held, heldMessage{kind, whole})
			return true
		}
		if s.handle == nil {
			s.absent(&a)
		} else {
			s.ask(&a)
		}
	}
	return true
}

// publish puts publishes into the queue. They come without a gap, or not at all.
func (s *session) publish(c *cut) bool {
	s.settled.Store(c.Uint())
	if c.Uint() != s.published+1 {
		return false
	}
	ps := s.publishes[:0]
	for len(c.Rest) > 0 {
		ps = append(ps, Publish{})
		p := &ps[len(ps)-1]
		c.publish(p, &s.chunks)
		p.Ticket, p.Seq, p.Credit = s, s.published+uint64(len(ps)), &s.flow.credit
		if p.part != 0 && s.handle != nil && !s.transact(p) {
			return false
		}
	}
	if c.Bad() || len(ps) == 0 {
		return false
	}
	first := s.published + 1
	s.published += uint64(len(ps))
	switch {
	case s.handle != nil:
		s.handle.Put(ps)
	case isMailbox(s.head.queue) && s.ref == nil:
		if !s.post(ps) {
			return false
		}
	default:
		for i := range ps {
			s.flow.given.Add(ps[i].cost())
		}
		s.outcome(first, s.published, s.absentOutcome())
	}
	if s.publishes = ps; cap(ps) > keepPublishes {
		s.publishes = nil
	}
	clear(ps)
	return true
}

// settle carries out settlements and credit.
func (s *session) settle(c *cut) bool {
	settled := false
	for len(c.Rest) > 0 {
		o := c.urgent()
		if c.Bad() {
			return false
		}
		home, there := s.consumer(o.consumer)
		settled = settled || o.kind == opSettle
		o.consumer, o.call = home, s.ref
		switch {
		case !there:
		case o.kind == opCredit:
			s.handle.urge(o)
			s.handle.group.Wake()
		default:
			s.handle.urge(o)
		}
	}
	if settled && s.ref != nil {
		s.handle.urge(op{kind: opMark, first: s.urgent + 1, call: s.ref})
	}
	return !c.Bad()
}
