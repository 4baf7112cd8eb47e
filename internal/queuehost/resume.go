package queuehost

import (
	"holdfast/internal/planted"
	"holdfast/internal/queue"
)

// send sends what is to be sent, as far as there is room.
func (q *entry) send() {
	for ; len(q.again) > 0; q.again = q.again[1:] {
		id := q.again[0]
		if c := q.f.session.consumers[id]; c != nil && !c.sent && !c.silent && !q.sendAttach(id, c, 0) {
			return
		}
	}
	if !q.sendUrgent() {
		return
	}
	for {
		o, a, ok := q.nextAsk()
		switch {
		case ok && (q.sent == q.flight.len() || a.order <= q.flight.list[q.flight.head+q.sent].order):
			if !q.sendAsk(&o, a) {
				return
			}
			q.asksOut++
		case q.sent < q.flight.len():
			last := forever
			if ok {
				last = int64(a.order)
			}
			if !q.sendPublishes(uint64(last), ok) {
				return
			}
		default:
			return
		}
	}
}

// nextAsk returns the first operation that was not sent in this try.
func (q *entry) nextAsk() (o op, a asked, ok bool) {
	for ; q.asksOut < q.asks.len(); q.asksOut++ {
		a = q.asks.list[q.asks.head+q.asksOut]
		if o, ok = q.f.session.asked[a.req]; ok {
			return o, a, true
		}
	}
	return op{}, asked{}, false
}

// sendAttach sends a consumer or getter: one that was attached before goes on behind the last delivery
// that has come.
func (q *entry) sendAttach(id queue.ConsumerID, c *farConsumer, req uint64) bool {
	s := &q.f.session
	a := ask{kind: askAttach, after: s.urgent, req: req, consumer: id, spec: c.spec, resume: c.last - c.base, limit: c.granted - c.base}
	if c.getter {
		a.kind = askGetter
	}
	switch {
	case planted.Is(planted.ResumedTooFar) && c.last > c.base:
		a.resume++
	case planted.Is(planted.CreditDoubled):
		a.limit += c.granted - min(c.granted, c.last)
	}
	if a.spec.Credit = Unlimited; !c.unlimited {
		a.spec.Credit = uint32(min(c.granted-min(c.granted, c.last), uint64(Unlimited-1)))
	}
	if !q.sendMessage(farAsk, a.append) {
		return false
	}
	c.sent, c.used = true, true
	if c.drains > 0 { // the answers were lost, or are to come: one of them takes back all that is left
		for ; c.drains > 1; c.drains-- {
			c.sink.Drained(0)
		}
		q.order++
		q.ask(&op{kind: opCredit, consumer: id, flag: true}, forever)
	}
	return true
}

func (q *entry) sendMessage(kind farKind, body func([]byte) []byte) bool {
	head := q.head(kind)
	return q.f.send(q.f.session.home, true, func(dst []byte) []byte { return body(head.append(dst)) })
}

// sendUrgent sends credit, and settlements.
func (q *entry) sendUrgent() bool {
	f := q.f
	s := &f.session
	for len(q.credits) > 0 || q.out < q.settles.len() {
		out := f.lane().outgoing()
		ops := append(out.scratch[:0], q.credits[:min(len(q.credits), urgentAtOnce)]...)
		credits := len(ops)
		for i := q.out; i < q.settles.len() && len(ops) < urgentAtOnce; i++ {
			ops = append(ops, q.settles.list[q.settles.head+i].op)
		}
		out.scratch, out.ops = ops, ops
		out.head, out.first = q.head(farUrgent), s.urgent+1
		if !f.send(s.home, false, out.urgent) {
			return false
		}
		s.urgent++
		for range len(ops) - credits {
			q.settles.list[q.settles.head+q.out].n = s.urgent
			q.out++
		}
		q.credits = q.credits[credits:]
	}
	q.credits = nil
	return true
}

// sendAsk sends an operation.
func (q *entry) sendAsk(o *op, a asked) bool {
	s := &q.f.session
	c := s.consumers[o.consumer]
	x := ask{after: s.urgent, req: a.req, consumer: o.consumer, flag: o.flag, flag2: o.flag2, n: o.n}
	switch o.kind {
	case opAttach:
		if c == nil || c.sent {
			return true
		}
		return q.sendAttach(o.consumer, c, a.req)
	case opGet:
		if c != nil && !c.sent && !q.sendAttach(o.consumer, c, 0) {
			return false
		}
		x.kind = askGet
	case opCredit:
		if c == nil || !c.sent {
			delete(s.asked, a.req)
			return true // it goes with the attach
		}
		x.kind = askCredit
	case opCancel:
		x.kind = askCancel
	case opDetach:
		x.kind = askDetach
	case opPurge:
		x.kind = askPurge
	case opSeal:
		x.kind = askSeal
	case opUnseal:
		x.kind = askUnseal
	case opExplain:
		x.kind = askExplain
	case opConsumers:
		x.kind = askConsumers
	case opCount:
		x.kind = askCount
	case opBarrier:
		x.kind = askBarrier
	}
	if !q.sendMessage(farAsk, x.append) {
		return false
	}
	if o.kind == opUnseal || o.kind == opCredit { // not answered
		delete(s.asked, a.req)
	}
	return true
}

// sendPublishes sends publishes of before last, as many as go into one message. behind: an operation
// waits behind them, which must not wait for the window: a consumer that will make room, perhaps.
func (q *entry) sendPublishes(last uint64, behind bool) bool {
	f := q.f
	s := &f.session
	if !s.home.mayPublish() && !behind {
		s.home.block(f)
		if !s.home.mayPublish() {
			return false
		}
	}
	out := f.lane().outgoing()
	ps := out.sending[:0]
	bytes := 0
	for i := q.sent; i < q.flight.len() && len(ps) < maxMessages; i++ {
		x := &q.flight.list[q.flight.head+i]
		big := len(x.p.Message.Chunks) > 0
		if bytes += len(x.p.Message.Head); len(ps) > 0 && (big || x.order > last || bytes > messageSize) {
			break
		}
		ps = append(ps, x.p)
		l := &ps[len(ps)-1]
		l.Credit = nil // the entry's own matter
		if l.bare() {
			l.Message.Head = q.renamed(l.Message.Head)
		}
		if big {
			break
		}
	}
	out.sending = ps
	defer clear(ps)
	if !q.sendChunks(ps[0].Message.Chunks) {
		return false
	}
	out.head, out.publishes, out.first, out.known = q.head(farPublish), ps, s.published+1, q.base
	f.putBehind(out)
	if !f.send(s.home, true, out.publish) {
		return false
	}
	s.behind = max(s.behind, out.after)
	q.published = true
	s.published += uint64(len(ps))
	q.sent += len(ps)
	f.chunksOfBig = 0
	s.home.owe(s.epoch, ps)
	return true
}

func (q *entry) sendChunks(chunks [][]byte) bool {
	for ; q.f.chunksOfBig < len(chunks); q.f.chunksOfBig++ {
		chunk := chunks[q.f.chunksOfBig]
		if !q.sendMessage(farChunk, func(dst []byte) []byte { return append(dst, chunk...) }) {
			return false
		}
	}
	return true
}

// hears carries out one message of the leader; false: it makes no sense.
func (q *entry) hears(kind farKind, c *cut) bool {
	switch kind {
	case farOutcomes:
		for len(c.Rest) > 0 {
			r := c.outcomes()
			if c.Bad() || r.first > q.base+1 || r.last > q.base+uint64(q.sent) {
				return false
			}
			if r.last > q.base {
				q.tell(int(r.last-q.base), r.o)
			}
		}
		return true
	case farResumed:
		session, last := c.Uint(), c.Uint()
		refused, ok := c.ranges()
		if !ok {
			return false
		}
		q.resumed(session, last, refused)
		return true
	case farElsewhere:
		leader := c.Uint()
		if !c.ended() {
			return false
		}
		q.sentElsewhere(leader)
		return true
	case farSettled:
		n := c.Uint()
		for q.out > 0 && q.settles.front().n <= n {
			q.settles.pop()
			q.out--
		}
		return c.ended()
	}
	return q.f.carryOut(kind, c)
}

// resumed goes on with the session. The queue has dealt with the publishes up to number last, and has refused some of them.
func (q *entry) resumed(session, last uint64, refused []queue.Range) {
	s := &q.f.session
	if q.state != resuming {
		return
	}
	if q.session != 0 && q.session != session {
		q.lost()
	} else if !planted.Is(planted.SentTwice) {
		if planted.Is(planted.RefusedAccepted) {
			refused = nil
		}
		for _, r := range refused {
			q.tellUpTo(min(r.First-1, last), Accepted)
			q.tellUpTo(min(r.Last, last), Refused)
		}
		q.tellUpTo(last, Accepted)
	}
	q.session, q.epoch, q.published, q.remains = session, q.opening, false, false
	q.base, q.sent, q.elsewhere, q.unanswered = 0, 0, 0, 0
	if n := q.flight.len(); planted.Is(planted.OrderLost) && n > 1 {
		list := q.flight.list[q.flight.head:]
		list[0].p, list[n-1].p = list[n-1].p, list[0].p
	}
	q.state = open
	q.f.mu.Lock()
	q.hint = s.home.node
	q.f.mu.Unlock()
	q.again = q.again[:0]
	for _, id := range sortedKeys(s.consumers) {
		if c := s.consumers[id]; !planted.Is(planted.ConsumersNotAgain) && !c.silent && !c.leaving && (c.used && c.getter || c.attached && !c.getter) {
			q.again = append(q.again, id)
		}
	}
}

// tellUpTo tells the outcome of those publishes that were sent, up to a number in the epoch.
func (q *entry) tellUpTo(last uint64, o Outcome) {
	if last > q.base {
		q.tell(int(min(last-q.base, uint64(q.sent))), o)
	}
}

// lost begins anew: the queue has ended the session.
func (q *entry) lost() {
	s := &q.f.session
	q.tell(q.wholeTx(q.sent), Unknown)
	for id, c := range s.consumers {
		if c.silent || c.leaving && !q.waits(id) {
			delete(s.consumers, id)
		}
		c.base = c.last
		c.granted = max(c.granted, c.last)
	}
	q.settles, q.out = fifo[settling]{}, 0
}

// waits reports whether an operation of a consumer waits for its answer.
func (q *entry) waits(id queue.ConsumerID) bool {
	for _, o := range q.f.session.asked {
		if o.consumer == id {
			return true
		}
	}
	return false
}

// noteRemains notes whether the leader may have parts of transactions, or chunks, that belong to the n oldest publishes, of which the time is over. The
// next epoch has the queue forget them; without one they would lie there until something else is to be said to it.
func (q *entry) noteRemains(n int) {
	for i := 0; i < n && q.published; i++ {
		p := &q.flight.list[q.flight.head+i].p
		q.remains = q.remains || p.part != 0 || len(p.Message.Chunks) > 0
	}
}

// sentElsewhere ends the try: the member does not lead.
func (q *entry) sentElsewhere(leader uint64) {
	f := q.f
	from := f.session.home.node
	q.suspend()
	f.mu.Lock()
	if !q.news {
		q.hint = leader
	}
	f.mu.Unlock()
	q.elsewhere++
	if leader == 0 || leader == from || q.elsewhere > patience {
		q.pause = f.reg.o.Clock.Mono() + tryPause
	}
}
