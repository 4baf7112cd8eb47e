package queuehost

import "slices"

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
		s.seals++
		h.Seal(a.flag, a.flag2, func(n uint64, err error) { s.sealing(req, n, err) })
	case askUnseal:
		if s.sealed {
			s.sealed = false
			h.Unseal()
		} else { // somebody else may have sealed it
			s.waived = s.seals
		}
	case askExplain:
		h.Explain(func(x Explanation) {
			s.say(&answer{kind: answerExplained, req: req, n: x.Dead, m: x.DeadBytes, explained: x})
		})
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
	back := s.over || s.waived > 0
	s.seals--
	s.waived = max(s.waived-1, 0)
	s.sealed = s.sealed || !back && err == nil
	s.mu.Unlock()
	if back && err == nil {
		s.handle.Unseal()
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
