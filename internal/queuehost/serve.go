package queuehost

import (
	"maps"
	"slices"
	"sync"

	"holdfast/internal/bytecodec"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// guest is another node as our queues see it that serve it: its sessions, one for
// each queue, all of one life of the link. When the link breaks, all are over:
// what their consumers hold goes back.
type guest struct {
	reg  *Registry
	node uint64

	mu       sync.Mutex
	life     life
	dead     bool // the sessions of life are over; what still comes of it is dropped
	overDue  bool // it has yet to be told that
	roomDue  bool // it has yet to be told its window
	sessions map[seglog.GroupID]*session
	stray    map[seglog.GroupID]int64 // bytes of chunks that came for no session, before the publish that they belong to
	flow     *inflow                  // of life; nil before the first
	earlier  []*inflow                // of earlier lives, while anything of them is in flight

	waitMu  sync.Mutex
	waiting []sender // for the link
}

// mostStray is how many queues may have chunks of a publish under way for which there is no session: more than have messages that
// large at a time. A node that names more makes no sense, and costs no more memory.
const mostStray = 1 << 16

// sender has something to send that the link had no room for. Waits with the
// guest at most once at a time.
type sender interface{ resume() }

// receive takes a message of the entry side; false: it makes no sense.
func (g *guest) receive(head farHead, c cut) bool {
	g.mu.Lock()
	if g.flow == nil || g.life.before(head.life) {
		g.begin(head.life)
	}
	if g.dead || head.life != g.life {
		g.mu.Unlock()
		return true
	}
	if head.kind == farBegin {
		g.mu.Unlock()
		return c.ended()
	}
	s := g.sessions[head.queue]
	switch {
	case head.kind == farResume && head.try == 0:
		g.mu.Unlock()
		return false
	case head.kind == farResume:
		if s != nil {
			if s.head.try >= head.try {
				g.mu.Unlock()
				return true
			}
			s.end()
			defer s.flow.gave()
		}
		delete(g.stray, head.queue)
		s = newSession(g, head)
		g.sessions[head.queue] = s
	case head.try > 0 && (s == nil || s.head.try != head.try): // of a try that is over
		flow, stray := g.flow, g.stray[head.queue]
		flow.dropped(&stray, head.kind, c)
		if delete(g.stray, head.queue); stray > 0 {
			g.strays(head.queue, stray)
		}
		tooMany := len(g.stray) > mostStray
		g.mu.Unlock()
		if head.kind == farPublish {
			flow.gave()
		}
		return !tooMany
	case s == nil:
		s = newSession(g, head)
		g.sessions[head.queue] = s
	}
	g.mu.Unlock()
	ok, closed := s.receive(head.kind, c)
	if closed {
		g.close(s)
	}
	return ok
}

// close ends one session.
func (g *guest) close(s *session) {
	g.mu.Lock()
	if g.sessions[s.head.queue] == s {
		delete(g.sessions, s.head.queue)
	}
	g.mu.Unlock()
	s.end()
	s.flow.gave() // outcomes that were not sent might have told it
}

// forget ends the try of the guest's with a quorum queue that was deleted.
func (g *guest) forget(id seglog.GroupID) {
	g.mu.Lock()
	s := g.sessions[id]
	if s == nil || s.ref == nil {
		g.mu.Unlock()
		return
	}
	delete(g.sessions, id)
	g.mu.Unlock()
	s.lost(0)
	s.mu.Lock()
	stray := s.stray
	s.mu.Unlock()
	g.mu.Lock()
	if g.flow == s.flow && stray > 0 {
		g.strays(id, stray)
	}
	g.mu.Unlock()
	s.flow.gave() // outcomes that were not sent might have told it
}

// strays notes bytes of chunks that came for no session. The mutex is held.
func (g *guest) strays(id seglog.GroupID, bytes int64) {
	if g.stray == nil {
		g.stray = map[seglog.GroupID]int64{}
	}
	g.stray[id] = bytes
}

// begin begins a life: whatever was before is over. The mutex is held.
func (g *guest) begin(l life) {
	g.endAll()
	window := g.reg.o.PeerCredit
	if g.flow != nil {
		g.earlier = append(g.earlier, g.flow)
	}
	// What earlier lives have left here still takes memory.
	g.earlier = slices.DeleteFunc(g.earlier, func(f *inflow) bool {
		left := f.credit.InFlight()
		window -= left
		return left == 0
	})
	g.life, g.dead, g.overDue = l, false, false
	g.flow = &inflow{guest: g, life: l, window: max(window, g.reg.o.PeerCredit/8)}
	g.flow.credit.pool, g.flow.credit.inflow = g.reg.pool, g.flow
	g.roomDue = true
	g.notify()
}

// endAll ends all sessions. The mutex is held.
func (g *guest) endAll() {
	for _, id := range slices.Sorted(maps.Keys(g.sessions)) {
		g.sessions[id].end()
	}
	clear(g.sessions)
	g.stray = nil
	g.waitMu.Lock()
	g.waiting = nil
	g.waitMu.Unlock()
}

func (g *guest) linkDown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flow == nil || g.dead {
		return
	}
	g.endAll()
	// The entry side may have seen no break; then it has to be told.
	g.dead, g.overDue, g.roomDue = true, true, false
}

// reject ends all sessions because something that came makes no sense.
func (g *guest) reject() {
	g.linkDown()
	g.writable()
}

// notify sends what is about the whole link. The mutex is held.
func (g *guest) notify() {
	if g.overDue {
		g.overDue = !g.reg.send(g.node, false, farHead{kind: farOver, life: g.life}.append)
	}
	if g.roomDue {
		g.roomDue = !g.reg.send(g.node, false, g.flow.appendRoom)
	}
}

func (g *guest) writable() {
	g.mu.Lock()
	g.notify()
	g.mu.Unlock()
	g.waitMu.Lock()
	waiting := g.waiting
	g.waiting = nil
	g.waitMu.Unlock()
	for _, s := range waiting {
		s.resume()
	}
}

// wait has s resumed when the link has room.
func (g *guest) wait(s sender) {
	g.waitMu.Lock()
	g.waiting = append(g.waiting, s)
	g.waitMu.Unlock()
}

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
	urgent    uint64                                // number of the last settlements and credit
	held      []heldMessage
	chunks    [][]byte // of the publish that is coming
	stray     int64    // bytes of chunks that have come when the session was over, or just before
	relays    map[queue.ConsumerID]*relay
	sealed    bool // by the guest: it has to be unsealed when the session ends
	publishes []Publish

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
	s.mu.Unlock()
	if s.ref == nil {
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
		if kind == farPublish {
			s.flow.gave()
		}
		return true, false
	}
	if s.handle == nil && s.ref == nil {
		s.handle = s.guest.reg.Get(s.head.queue)
		if s.handle != nil && s.handle.far != nil {
			s.handle = nil // it does not run here: nobody is sent on
		}
	}
	ok = s.take(kind, c)
	h, closed := s.handle, s.closed
	s.mu.Unlock()
	if h != nil {
		h.Go(kind != farPublish || len(c.Rest) <= hereBytes)
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
	c.Uint() // the epoch of the publishing half
	if c.Uint() != s.published+1 {
		return false
	}
	ps := s.publishes[:0]
	for len(c.Rest) > 0 {
		ps = append(ps, Publish{})
		p := &ps[len(ps)-1]
		c.publish(p, &s.chunks)
		p.Ticket, p.Seq, p.Credit = s, s.published+uint64(len(ps)), &s.flow.credit
	}
	if c.Bad() || len(ps) == 0 {
		return false
	}
	first := s.published + 1
	s.published += uint64(len(ps))
	if s.handle != nil {
		s.handle.Put(ps)
	} else {
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

// gone reports whether a queue that does not run here was deleted, as far as is known.
func (s *session) gone() bool {
	deleted := s.guest.reg.o.Deleted
	return deleted != nil && deleted(s.head.queue)
}

// absentOutcome is that of a publish to a queue that does not run here. It may
// be that it does not run here yet.
func (s *session) absentOutcome() Outcome {
	if s.gone() {
		return Gone
	}
	return Unknown
}

// absent answers an operation on a queue that does not run here.
func (s *session) absent(a *ask) {
	err := errQueueAbsent
	if s.gone() {
		err = errQueueDeleted
	}
	switch a.kind {
	case askAttach:
		s.tell(&event{kind: eventAttached, consumer: a.consumer, req: a.req, err: err})
	case askGet:
		s.tell(&event{kind: eventGot, consumer: a.consumer, req: a.req, err: err})
	case askCancel:
		s.tell(&event{kind: eventCancel, consumer: a.consumer, req: a.req})
	case askDetach:
		s.tell(&event{kind: eventDetach, consumer: a.consumer, req: a.req})
	case askPurge, askSeal:
		s.answer(&answer{kind: answerCount, req: a.req, err: err})
	case askCount:
		s.answer(&answer{kind: answerTotals, req: a.req, err: err})
	case askExplain:
		s.answer(&answer{kind: answerExplained, req: a.req, err: err})
	case askConsumers:
		s.answer(&answer{kind: answerListed, req: a.req})
	case askBarrier:
		s.answer(&answer{kind: answerBarrier, req: a.req, n: uint64(s.absentOutcome())})
	}
}

// ask carries out an operation. Answers come on the queue's worker. The mutex is held.
func (s *session) ask(a *ask) {
	h, req, id := s.handle, a.req, a.consumer
	r := s.relays[id]
	switch a.kind {
	case askAttach, askGetter:
		if r == nil {
			s.attach(a)
		}
	case askGet:
		if r == nil { // its own is gone: the queue says so, or has nothing for it
			r = &relay{session: s, id: id, getter: true}
		}
		h.put(op{kind: opGet, consumer: r.home, call: &call{guest: s.owner(), got: func(d Delivery, left uint64, ok bool, err error) { r.got(req, d, left, ok, err) }}})
	case askCancel, askDetach:
		kind := eventCancel
		if a.kind == askDetach {
			kind = eventDetach
			delete(s.relays, id)
		}
		if home, there := s.known[id]; r == nil && there {
			r = &relay{session: s, id: id, home: home}
		}
		if kind == eventDetach && r != nil && s.ref != nil {
			s.know(id, r.home) // until it is carried out: it may be asked for again
		}
		if r == nil {
			s.tell(&event{kind: kind, consumer: id, req: req})
			return
		}
		done := func() { r.happened(&event{kind: kind, consumer: id, req: req}) }
		if a.kind == askDetach {
			h.Detach(r.home, done)
		} else {
			h.Cancel(r.home, done)
		}
	case askCredit:
		if r != nil {
			h.put(op{kind: opCredit, consumer: r.home, n: a.n, flag: a.flag, call: s.ref})
		}
	case askPurge:
		h.Purge(func(n uint64, err error) { s.say(&answer{kind: answerCount, req: req, n: n, err: err}) })
	case askSeal:
		h.Seal(a.flag, a.flag2, func(n uint64, err error) { s.sealing(req, n, err) })
	case askUnseal:
		s.sealed = false
		h.Unseal()
	case askExplain:
		h.Explain(func(x Explanation) { s.say(&answer{kind: answerExplained, req: req, explained: x}) })
	case askConsumers:
		h.Consumers(func(list []ConsumerInfo) { s.listed(req, list) })
	case askCount:
		h.Count(func(ready, consumers uint64, err error) {
			s.say(&answer{kind: answerTotals, req: req, n: ready, m: consumers, err: err})
		})
	case askBarrier:
		h.Barrier(barrierTicket{s, req}, 0)
	}
}

// barrierTicket hears the answer to a barrier.
type barrierTicket struct {
	s   *session
	req uint64
}

// Settled implements Ticket.
func (t barrierTicket) Settled(_, _ uint64, o Outcome) {
	t.s.say(&answer{kind: answerBarrier, req: t.req, n: uint64(o)})
}

// sealing answers a seal. One that nobody is there for any more is taken back.
func (s *session) sealing(req, n uint64, err error) {
	s.mu.Lock()
	over := s.over
	s.sealed = s.sealed || !over && err == nil
	s.mu.Unlock()
	if over && err == nil {
		s.handle.Unseal()
		return
	}
	s.say(&answer{kind: answerCount, req: req, n: n, err: err})
}

// listed answers a listing: connections of this node are named as such.
func (s *session) listed(req uint64, list []ConsumerInfo) {
	list = slices.Clone(list)
	for i := range list {
		if spec := &list[i].Spec; spec.Node == 0 {
			spec.Node = s.guest.reg.self()
		}
	}
	s.say(&answer{kind: answerListed, req: req, listed: list})
}

// Settled implements Ticket for the guest's publishes.
func (s *session) Settled(first, last uint64, o Outcome) {
	s.mu.Lock()
	over := s.over
	if !over {
		s.outcome(first, last, o)
	}
	s.mu.Unlock()
	if over {
		s.flow.gave()
	}
}

// outcome tells outcomes. The mutex is held.
func (s *session) outcome(first, last uint64, o Outcome) {
	if n := len(s.outcomes); n > 0 && s.outcomes[n-1].o == o && s.outcomes[n-1].last+1 == first {
		s.outcomes[n-1].last = last
	} else {
		s.outcomes = append(s.outcomes, outcomes{first, last, o})
	}
	s.flush()
}

func (s *session) appendOutcomes(dst []byte) []byte {
	given := s.flow.given.Load()
	s.flow.told.Store(given)
	dst = bytecodec.AppendUints(s.headOf(farOutcomes).append(dst), uint64(given))
	for i := range s.outcomes {
		dst = s.outcomes[i].append(dst)
	}
	return dst
}

// say answers on the queue's worker.
func (s *session) say(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.answer(a)
	}
}

// answer answers. The mutex is held.
func (s *session) answer(a *answer) {
	s.answers.push(a.append(s.headOf(farAnswer).append(nil)))
	s.flush()
}

// flush sends outcomes and answers, as far as the link has room. The mutex is held.
func (s *session) flush() {
	reg, node := s.guest.reg, s.guest.node
	for len(s.outcomes) > 0 || s.answers.len() > 0 {
		var ok bool
		if len(s.outcomes) > 0 {
			if ok = reg.send(node, false, s.send); ok {
				s.outcomes = s.outcomes[:0]
			}
		} else {
			msg := *s.answers.front()
			if ok = reg.send(node, false, func(dst []byte) []byte { return append(dst, msg...) }); ok {
				s.answers.pop()
			}
		}
		if ok {
			continue
		}
		if s.waiting {
			return
		}
		s.waiting = true
		s.guest.wait(s)
	}
}

// resume implements sender.
func (s *session) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if !s.over || s.parting {
		s.flush()
	}
}

// tell tells an event of a consumer that is not there. The mutex is held.
func (s *session) tell(e *event) {
	r := &relay{session: s, id: e.consumer}
	r.push(outgoingItem{event: e})
}
