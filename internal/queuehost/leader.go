package queuehost

import (
	"maps"

	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// mark is settlements of a session that are carried out with an entry.
type mark struct {
	s    *session
	last uint64
}

func (p *pack) mark(o *op) {
	s := o.call.guest
	if n := len(p.marks); n > 0 && p.marks[n-1].s == s {
		p.marks[n-1].last = o.first
		return
	}
	p.marks = append(p.marks, mark{s, o.first})
}

func (p *pack) tellMarks() {
	for _, m := range p.marks {
		m.s.settledUpTo(m.last)
	}
}

// resumes puts a session in line to be resumed. False: this member does not lead; leader is
// the node that does, as far as is known.
func (l *lead) resumes(s *session) (ok bool, leader uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open:
		l.host.handle.put(op{kind: opResume, call: s.ref})
	case l.leader == l.host.reg.self():
		l.waiting = append(l.waiting, s)
	default:
		return false, l.leader
	}
	return true, 0
}

// of returns the session that a guest has resumed, or nil if it is not its any more: then
// what comes of it is not carried out.
func (l *lead) of(s *session) *leadSession {
	if ls := l.sessions[s.guest.node]; ls != nil && ls.guest == s {
		return ls
	}
	return nil
}

// current reports whether an op may be carried out: that of a session that has been
// resumed anew, or is dead, may not.
func (h *host) current(o *op) bool {
	return h.lead == nil || o.call == nil || o.call.guest == nil || h.lead.of(o.call.guest) != nil
}

// sessionFor is the session that a command of an op is in.
func (h *host) sessionFor(o *op) queue.SessionID {
	if h.lead == nil {
		return h.session
	}
	return h.lead.of(o.call.guest).id
}

// packResume opens the session of a node's process, or finds it, and opens the next epoch of
// its publishing half.
func (h *host) packResume(e *replica.Entry, p *pack, o *op) step {
	l, s := h.lead, o.call.guest
	node, incarnation := s.guest.node, s.head.life.incarnation
	ls := l.sessions[node]
	switch {
	case ls != nil && ls.incarnation > incarnation:
		return next // of a process that is no more
	case ls == nil || ls.incarnation < incarnation:
		if l.named == sessionsAtOnce {
			return full
		}
		if ls != nil {
			p.ended = append(p.ended, ls)
		}
		ls = &leadSession{id: queue.SessionID(e.Index*sessionsAtOnce + l.named), node: node, incarnation: incarnation}
		l.named++
		l.sessions[node] = ls
		h.reg.meet(node)
		fallthrough
	case ls.suspect:
		p.cmds = append(p.cmds, queue.Command{Kind: queue.SessionOpen, Session: ls.id, Node: node, Incarnation: incarnation})
		ls.suspect = false
	}
	ls.guest = s
	p.ask(queue.Command{Kind: queue.EpochOpen, Session: ls.id, Epoch: s.epoch}, o.call)
	return next
}

// resumed tells a guest that its session is resumed.
func (h *host) resumed(p *pack, ef *queue.Effect) {
	c := p.call(ef)
	if c == nil || c.guest == nil {
		return
	}
	if ef.Reason == queue.NoSession {
		c.guest.lost(h.reg.self())
		return
	}
	var known map[queue.ConsumerID]queue.ConsumerID
	h.m.ConsumersOf(ef.Session, func(r queue.ConsumerRef) {
		if known == nil {
			known = map[queue.ConsumerID]queue.ConsumerID{}
		}
		known[queue.ConsumerID(r.Outer)] = r.ID
	})
	var refused []queue.Range
	h.m.Refused(ef.Session, func(r queue.Range) { refused = append(refused, r) })
	c.guest.resumed(ef.Session, ef.Count, refused, known)
}

// packNodes puts into the entry what follows from what is known of the nodes: their sessions
// are suspect, are not any more, or end.
func (h *host) packNodes(p *pack) {
	l := h.lead
	mayBeTime := h.alert.Load()&alertDue != 0 && h.patience() > 0 // of one of them
	if !l.look.Swap(false) && !mayBeTime {
		return
	}
	now := h.reg.o.Clock.Mono()
	for _, node := range sortedKeys(l.sessions) {
		ls := l.sessions[node]
		known := h.reg.health.of(node)
		over, at := known.over(ls.incarnation, h.patience(), now)
		if !over && at > 0 {
			h.reg.dues.set(h, at)
		}
		c := queue.Command{Session: ls.id}
		switch {
		case over:
			c.Kind, c.Blameless = queue.SessionDead, true
			p.ended = append(p.ended, ls)
			delete(l.sessions, node)
		case known.suspect && !ls.suspect:
			c.Kind = queue.SessionSuspect
		case !known.suspect && ls.suspect:
			c.Kind, c.Node, c.Incarnation = queue.SessionOpen, node, ls.incarnation
		default:
			continue
		}
		ls.suspect = known.suspect
		p.cmds = append(p.cmds, c)
		p.must = true
	}
}

// patience is for how many ns the queue bears with a node that is silent; 0: as long as everybody does.
func (h *host) patience() int64 {
	if s := h.known().Settings; s != nil {
		return int64(s.Disconnected)
	}
	return 0
}

// forgetEnded forgets the consumers of sessions that have ended.
func (h *host) forgetEnded(p *pack) {
	for _, ls := range p.ended {
		maps.DeleteFunc(h.consumers, func(_ queue.ConsumerID, c *consumer) bool { return c.session == ls.id })
		if ls.guest != nil {
			ls.guest.lost(h.reg.self())
		}
	}
}

// packReattach binds a consumer of a session that was resumed to who gets its deliveries now. It is
// given what it holds and has not received, and may get what its credit allows.
func (h *host) packReattach(p *pack, o *op) {
	c := h.consumers[o.consumer]
	if c == nil || !h.current(o) {
		return // the guest is told that the session is lost
	}
	c.sink, c.spec = o.call.sink, o.call.spec
	h.limitHolding(c, true)
	if c.getter {
		if planted.Is(planted.GetterKeeps) {
			return
		}
		// Nobody knows whom a message belongs to that was got and did not arrive.
		p.cmds = append(p.cmds, queue.Command{
			Kind: queue.Settle, Session: c.session, Consumer: c.id, How: queue.Requeue, Blameless: true,
			First: o.first + 1, Last: ^uint64(0),
		})
		return
	}
	o.call.attached(c.id, nil)
	fx := &h.lane.again
	h.m.Redeliver(c.id, o.first, fx)
	for i := range fx.List {
		h.deliver(p, &fx.List[i])
	}
	fx.Reset()
	h.flush()
	if c.ended {
		delete(h.consumers, c.id)
		h.parts(c)
		h.hand(held{kind: queue.TimedOut, c: c})
		return
	}
	grant := queue.Command{Kind: queue.CreditTo, Consumer: c.id, Last: o.last}
	if c.spec.Credit == Unlimited {
		grant.Credit, grant.Last = Unlimited, 0
	}
	p.cmds = append(p.cmds, grant)
}
