package queuehost

import (
	"slices"

	"holdfast/internal/planted"
	"holdfast/internal/queue"
)

// heard is a message of the home, without its head.
type heard struct {
	kind  farKind
	home  *home
	epoch uint64
	try   uint64
	body  []byte
}

// hearAtOnce is how many messages a far takes before others have their turn.
const hearAtOnce = 64

// come takes a message for the worker. If that sleeps, this goroutine, the link's
// reader, is the worker for a round.
func (f *far) come(m heard) {
	f.mu.Lock()
	f.came = append(f.came, m)
	f.mu.Unlock()
	f.handle.group.Mark()
	f.handle.group.Go(true)
}

// hear carries out what has come from the home. It reports whether more waits.
func (f *far) hear() (more bool) {
	for range hearAtOnce {
		if f.next == len(f.hearing) {
			f.next = 0
			f.mu.Lock()
			f.hearing, f.came = f.came, f.hearing[:0]
			f.mu.Unlock()
			if len(f.hearing) == 0 {
				if cap(f.hearing) > 2*hearAtOnce {
					f.hearing = nil
				}
				return false
			}
		}
		m := f.hearing[f.next]
		f.hearing[f.next] = heard{}
		f.next++
		if s := &f.session; !f.open || m.home != s.home || m.epoch != s.epoch {
			continue // of a session that is over
		}
		c := newCut(m.body)
		carryOut := f.carryOut
		if f.entry != nil {
			if m.try != f.entry.try && !planted.Is(planted.StaleTry) {
				continue
			}
			carryOut = f.entry.hears
		}
		if !carryOut(m.kind, &c) {
			f.reg.o.Logger.Error("a message of a queue makes no sense", "node", f.reg.o.Name(m.home.node), "vhost", f.def.VHost, "queue", f.def.Name, "kind", int(m.kind))
			m.home.restart("it sent what makes no sense") // wakes us
		}
	}
	return true
}

// carryOut carries out one message; false: it makes no sense.
func (f *far) carryOut(kind farKind, c *cut) bool {
	switch kind {
	case farOutcomes:
		for len(c.Rest) > 0 {
			r := c.outcomes()
			if c.Bad() || r.last > f.session.published {
				return false
			}
			f.settle(r)
		}
		return true
	case farDeliver:
		return f.deliver(c)
	case farDeliverChunk:
		to := f.session.consumers[queue.ConsumerID(c.Uint())]
		if to != nil && !to.silent && !c.Bad() {
			to.chunks = append(to.chunks, c.Rest)
		}
		return !c.Bad()
	case farEvent:
		return f.happened(c)
	case farAnswer:
		return f.answered(c)
	}
	return true // of a later version
}

// settle tells publishes what became of them. What was told already is left alone.
func (f *far) settle(r outcomes) {
	s := &f.session
	list := s.runs.list
	i, _ := slices.BinarySearchFunc(list[s.runs.head:], r.first, func(run sentRun, seq uint64) int {
		switch {
		case run.last < seq:
			return -1
		case run.seq > seq:
			return 1
		}
		return 0
	})
	for i += s.runs.head; i < len(s.runs.list) && s.runs.list[i].seq <= r.last; i++ {
		run := &s.runs.list[i]
		if run.told {
			continue
		}
		if run.seq < r.first { // what comes before is not answered yet
			s.split(i, r.first)
			continue
		}
		if run.last > r.last {
			s.split(i, r.last+1)
			run = &s.runs.list[i]
		}
		f.tell(run, r.o)
	}
	for s.runs.len() > 0 && s.runs.front().told {
		s.runs.pop()
	}
}

// split cuts the run at place i in two, the second one beginning at seq.
func (s *farSession) split(i int, seq uint64) {
	run := &s.runs.list[i]
	second := *run
	second.first += seq - run.seq
	second.seq = seq
	run.last = seq - 1
	s.runs.list = slices.Insert(s.runs.list, i+1, second)
}

// deliver hands deliveries over.
func (f *far) deliver(c *cut) bool {
	id := queue.ConsumerID(c.Uint())
	to := f.session.consumers[id]
	if to == nil || to.silent {
		return !c.Bad() // it has left
	}
	l := f.lane()
	ds := l.newList()
	for len(c.Rest) > 0 {
		ds = append(ds, Delivery{Consumer: id})
		c.delivery(&ds[len(ds)-1], &to.chunks)
	}
	if c.Bad() || len(ds) == 0 {
		l.freeList(ds)
		return false
	}
	if f.entry != nil {
		for i := range ds {
			ds[i].ID += to.base
		}
		to.last = ds[len(ds)-1].ID
	}
	first, last := ds[0].ID, ds[len(ds)-1].ID
	to.sink.Deliver(ds)
	l.freeList(ds)
	if to.noAck {
		f.acked(id, first, last)
	}
	return true
}

// acked settles what was handed to somebody who does not acknowledge; it is sent
// in this very Pack.
func (f *far) acked(id queue.ConsumerID, first, last uint64) {
	f.handle.in.lockUrgent().settle(id, queue.Range{First: first, Last: last}, queue.Ack)
	f.handle.in.mu.Unlock()
}

// take returns what a request was, once.
func (s *farSession) take(req uint64, kinds ...opKind) (o op, ok bool) {
	o, ok = s.asked[req]
	if ok = ok && slices.Contains(kinds, o.kind); ok {
		delete(s.asked, req)
	}
	return o, ok
}

// happened carries out what happened to a consumer.
func (f *far) happened(c *cut) bool {
	s := &f.session
	e := c.event()
	to := s.consumers[e.consumer]
	if c.Bad() {
		return false
	}
	switch e.kind {
	case eventAttached:
		o, ok := s.take(e.req, opAttach)
		if f.entry != nil && to != nil {
			to.live = e.err == nil
		}
		switch {
		case f.entry != nil && !ok: // it was attached before, or it was given up
			if to != nil && e.err != nil {
				delete(s.consumers, e.consumer)
				to.sink.Cancelled(f.clientError(e.err))
			}
			return c.ended()
		case !ok:
			return false
		case to == nil: // it was refused, and has left meanwhile
			o.call.attached(e.consumer, f.clientError(e.err))
			return c.ended()
		}
		if to.attached = e.err == nil; !to.attached {
			delete(s.consumers, e.consumer)
		}
		o.call.attached(e.consumer, f.clientError(e.err))
	case eventCancel:
		o, ok := s.take(e.req, opCancel)
		if !ok {
			return f.entry != nil && c.ended()
		}
		if to != nil {
			to.silence()
		}
		run0(o.call.done)
	case eventDetach:
		o, ok := s.take(e.req, opDetach)
		if !ok {
			return f.entry != nil && c.ended()
		}
		delete(s.consumers, e.consumer)
		run0(o.call.done)
	case eventCancelled:
		if IsDeliveryTimeout(e.err) {
			if to != nil {
				sink := to.sink
				if !to.getter {
					to.silence() // it goes on to hold what it has
				}
				if !to.quits { // else it may be its own cancellation that the leader has found, not knowing why: that has an answer
					sink.Cancelled(e.err)
				}
			}
			break
		}
		delete(s.consumers, e.consumer)
		if to != nil && !to.silent {
			to.sink.Cancelled(f.clientError(e.err))
		}
	case eventDrained, eventWake:
		switch {
		case to == nil || to.silent:
		case e.kind == eventWake:
			to.sink.Wake()
		default:
			if f.entry != nil {
				to.granted -= min(to.granted, e.n)
				to.drains = max(to.drains-1, 0)
			}
			to.sink.Drained(uint32(e.n))
		}
	case eventGot:
		return f.got(c, &e, to)
	}
	return c.ended()
}

// got answers a get.
func (f *far) got(c *cut, e *event, to *farConsumer) bool {
	o, ok := f.session.take(e.req, opGet)
	if !ok && f.entry == nil {
		return false
	}
	d := Delivery{Consumer: e.consumer}
	if e.ok {
		var none [][]byte
		chunks := &none
		if to != nil {
			chunks = &to.chunks
		}
		c.delivery(&d, chunks)
	}
	if f.entry != nil && e.ok && to != nil {
		d.ID += to.base
		to.last = d.ID
	}
	if !ok { // it was given up
		if e.ok && to != nil {
			f.handle.in.lockUrgent().settle(e.consumer, queue.Range{First: d.ID, Last: d.ID}, f.reg.blameless(Return))
			f.handle.in.mu.Unlock()
		}
		return c.ended()
	}
	if !c.ended() {
		o.call.got(Delivery{}, 0, false, f.unavailable(f.session.home, "it sent what makes no sense"))
		return false
	}
	id := d.ID
	if o.flag { // nobody will acknowledge it
		d.ID = 0
	}
	o.call.got(d, e.n, e.ok, f.clientError(e.err))
	if o.flag && e.ok {
		f.acked(e.consumer, id, id)
	}
	return true
}

// clientError is an error of the home as clients here are told.
func (f *far) clientError(err error) error {
	switch err {
	case errQueueDeleted:
		return f.noQueue()
	case errQueueAbsent:
		return f.unavailable(f.session.home, err.Error())
	}
	return err
}

// answered answers what is not about a consumer.
func (f *far) answered(c *cut) bool {
	a := c.answer()
	if !c.ended() {
		return false
	}
	s := &f.session
	err := f.clientError(a.err)
	var o op
	var ok bool
	switch a.kind {
	case answerCount:
		if o, ok = s.take(a.req, opPurge, opSeal); ok {
			o.call.counted(a.n, err)
		}
	case answerTotals:
		if o, ok = s.take(a.req, opCount); ok {
			if err == nil {
				st := *f.stats.Load()
				st.Ready, st.Consumers = a.n, a.m
				f.stats.Store(&st)
			}
			o.call.totals(a.n, a.m, err)
		}
	case answerExplained:
		if o, ok = s.take(a.req, opExplain); ok {
			if err != nil {
				f.refuse(&o, err, Unknown)
				break
			}
			a.explained.Dead, a.explained.DeadBytes = a.n, a.m
			st := a.explained.Stats
			f.stats.Store(&st)
			o.call.explained(a.explained)
		}
	case answerListed:
		if o, ok = s.take(a.req, opConsumers); ok {
			self := f.reg.self()
			for i := range a.listed {
				if spec := &a.listed[i].Spec; spec.Node == self {
					spec.Node = 0
				}
			}
			o.call.listed(a.listed)
		}
	case answerBarrier:
		if o, ok = s.take(a.req, opBarrier); ok {
			o.call.ticket.Settled(o.first, o.last, Outcome(a.n))
		}
	}
	return ok || f.entry != nil
}
