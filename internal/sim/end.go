package sim

import (
	"bytes"
	"slices"

	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
)

// finish heals everything, takes all that is left out of the queues, and compares.
func (w *World) finish() {
	if w.err != nil {
		return
	}
	w.trace("finish")
	w.calm = true
	if w.allWell(); w.err != nil {
		return
	}
	w.rest(700) // who is not of the cluster any more is noticed after 30 s at the latest
	w.changesEnd()
	for _, n := range w.nodes {
		if !n.serves() && w.err == nil {
			w.failf("node %d does not get in at the end", n.id)
		}
	}
	if w.err != nil {
		return
	}
	if w.o.Settings {
		w.punctual()
		w.goOn()
	}
	w.heldByNobody()
	for _, n := range w.nodes {
		for _, c := range append(append([]*client(nil), n.clients...), n.retired...) {
			if len(c.under)+len(c.txs) > 0 {
				w.failf("node %d: %d publishes to queue %d have no outcome", n.id, len(c.under)+len(c.txs), c.q.def.ID)
			}
		}
		for _, c := range n.clients {
			if c.sub != nil {
				if c.sub.drained != 0 {
					w.failf("%s: %d drains have no answer", c.sub.name, c.sub.drained)
				}
				c.leave(false)
			}
			if c.getter != nil {
				c.detach(c.getter)
			}
		}
	}
	w.rest(20)
	if w.o.Carried {
		w.takeAll()
	} else {
		w.drain(true)
	}
	w.plain = w.o.Settings
	w.useAll()
	w.lettersEnd()
	w.transactionsEnd()
	w.changesEnd() // damage may have been found only now
	w.compare()
	w.orders.end()
}

// allWell ends all that is wrong with nodes, disks and links.
func (w *World) allWell() {
	for _, n := range w.nodes {
		if n.paused > 0 {
			n.paused = 0
			n.wakes()
		}
		if n.up && n.disk.broken { // or it may break when all is compared
			n.crash(true)
		}
		n.disk.full, n.small = 0, 0
		n.disk.fs.SetCapacity(0)
		if !n.up {
			n.restart()
		}
	}
	if w.err != nil {
		return
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if w.stuck[pair{a.id, b.id}] > 0 {
				w.flow(a, b)
			}
			if a.id < b.id && w.cut[pair{a.id, b.id}] {
				w.heal(a, b)
			}
		}
	}
	w.notice(true)
	w.notice(true) // what broke now comes back
}

// changesEnd waits for the changes of members that are under way.
func (w *World) changesEnd() {
	for range 100 {
		w.bury()
		w.mend()
		changing := w.harmed
		for _, q := range w.withStores() {
			if q.change != nil {
				changing = true
				q.goOn(w)
			}
		}
		if !changing {
			break
		}
		w.rest(10)
	}
	for _, q := range w.withStores() {
		if q.change != nil {
			w.describe(q)
			w.failf("queue %d: the change of the member on node %d does not end (%+v)", q.def.ID, q.change.node, *q.change)
		}
	}
}

// describe tells what the members of a queue think.
func (w *World) describe(q *simQueue) {
	for _, n := range w.nodes {
		h := n.handle(q)
		if h == nil {
			continue
		}
		w.trace("node %d, queue %d: leader %d, member %v", n.id, q.def.ID, h.Leader(), h.Group() != nil)
		if h.Group() != nil {
			h.Group().AskRaftStatus(func(st replica.RaftStatus) {
				w.trace("node %d, queue %d: %+v", n.id, q.def.ID, st)
			})
		}
	}
	w.settle()
}

// rest lets time pass, with all that follows.
func (w *World) rest(ticks int) {
	for range ticks {
		w.settle()
		w.tick()
	}
	w.settle()
}

// heldByNobody compares how many messages are held as the queues count with what the clients have.
func (w *World) heldByNobody() {
	for _, q := range slices.Clone(w.queues) {
		if q.expired {
			continue
		}
		var has, most uint64
		var h *queuehost.Handle
		for _, n := range w.nodes {
			for _, c := range n.clients {
				if s := c.sub; c.q == q && s != nil && !s.over {
					has, most = has+uint64(s.holds()), most+uint64(len(s.held))
				}
				if s := c.getter; c.q == q && s != nil && !s.over { // it is not told that its node was taken for dead
					most += uint64(len(s.held))
				}
			}
			if x := n.handle(q); x != nil && (q.home == n.id || q.home == 0 && x.Leader() == n.id && x.Group() != nil) {
				h = x
			}
		}
		if h == nil {
			w.describe(q)
			w.failf("queue %d: nobody leads at the end", q.def.ID)
			return
		}
		h.Explain(func(x queuehost.Explanation) { // Handle.Stats may be of before
			if x.Unacked < has || x.Unacked > most {
				w.failf("queue %d: %d messages are held, and its consumers have %d to %d: %v", q.def.ID, x.Unacked, has, most, x.Lines)
			}
		})
		w.rest(20) // its own node may have to ask again
	}
}

// drain consumes all that is left. last says that nothing is to come any more.
func (w *World) drain(last bool) {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	for _, q := range slices.Clone(w.queues) {
		if q.expired {
			continue
		}
		if w.err != nil {
			return
		}
		c := w.newClientOf(n, q)
		if c == nil {
			w.failf("node %d does not know queue %d at the end", n.id, q.def.ID)
			return
		}
		s := &consumer{c: c, name: w.check.name(), last: map[stream]uint64{}, since: w.clk.Mono()}
		s.id = c.h.Attach(queuehost.ConsumerSpec{Credit: queuehost.Unlimited, Prefetch: 50}, s, func(queue.ConsumerID, error) {})
		for range 4000 {
			if w.settle(); len(s.held) == 0 {
				w.rest(2) // what can wait does
				if len(s.held) == 0 && w.o.Frail != 0 {
					w.rest(120) // damage may have been found, and another member has to lead
				}
			}
			if len(s.held) == 0 {
				break
			}
			var ranges []queue.Range
			for _, x := range s.held {
				ranges = append(ranges, queue.Range{First: x.id, Last: x.id})
				w.check.settled(s, x.r, queue.Ack)
			}
			s.held = nil
			c.h.Settle(s.id, ranges, queue.Ack)
		}
		c.detach(s)
		answered := false
		c.h.Count(func(ready, _ uint64, err error) {
			answered = true
			if !q.expired && (err != nil || last && ready != 0) {
				w.failf("queue %d: %d messages are ready at the end (%v)", q.def.ID, ready, err)
			}
		})
		if w.rest(5); !answered && w.o.Frail != 0 {
			w.rest(120)
		}
		if !answered && !q.expired {
			w.describe(q)
			w.failf("queue %d does not answer at the end", q.def.ID)
		}
		c.h.Explain(func(x queuehost.Explanation) { // Handle.Stats may be of before, when a member was here
			if x.Unacked != 0 {
				w.failf("queue %d: %d messages are held by nobody who is there: %v", q.def.ID, x.Unacked, x.Lines)
			}
		})
		w.rest(5)
	}
}

// useAll publishes to every queue, which is empty, through every node, and gets that through another one.
func (w *World) useAll() {
	for _, q := range slices.Clone(w.queues) {
		if q.expired {
			continue
		}
		for i, n := range w.nodes {
			from, to := w.newClientOf(n, q), w.newClientOf(w.nodes[(i+1)%len(w.nodes)], q)
			if w.err != nil || from == nil || to == nil {
				w.failf("node %d, or the next one, does not know queue %d", n.id, q.def.ID)
				return
			}
			from.publish(1)
			w.rest(2 + int(max(q.delay, 0)/50))
			to.get()
			w.rest(2)
			if s := to.getter; len(s.held) != 1 || s.held[0].r.by != from || s.held[0].r.outcome != queuehost.Accepted || !s.held[0].r.told {
				w.describe(q)
				w.failf("queue %d: what was published on node %d is not got on node %d: %+v", q.def.ID, n.id, to.n.id, s.held)
				return
			}
			to.settleAll()
			w.rest(1)
		}
	}
}

// compare says what is missing, and whether the members are equal.
func (w *World) compare() {
	for _, r := range w.check.records {
		w.check.stats.Published++
		if r.screen != nil {
			w.check.stats.Screened++
		}
		switch {
		case !r.told:
		case r.outcome == queuehost.Accepted:
			w.check.stats.Accepted++
			q := r.by.q
			lost := !r.persistent && q.home != 0 && q.crashes > r.crashes // by rights
			if !r.done && !q.deleted && !r.purgeable && !lost && !r.leftUntold() && (!w.check.isRepeated(r) || r.screen != nil && !w.check.isThere(r)) {
				w.failf("message %d was accepted and is lost (delivered %d times)", r.id, r.delivered)
				return
			}
			if r.screen != nil && !r.isSeen() {
				w.check.stats.Twice++
			}
		case r.outcome == queuehost.Refused:
			w.check.stats.Refused++
		default:
			w.check.stats.Unknown++
		}
	}
	w.check.owed()
	w.check.halves()
	for _, q := range slices.Clone(w.withStores()) {
		if q.expired {
			continue
		}
		var index uint64
		var state []byte
		members := w.membersOf(q)
		for i, m := range members {
			n := w.node(m.Node)
			h := n.handle(q)
			if h == nil {
				w.failf("node %d has a member of queue %d, and does not know it", n.id, q.def.ID)
				return
			}
			answered := false
			h.MemberState(func(at uint64, blob []byte) {
				answered = true
				if i > 0 && (at != index || !bytes.Equal(blob, state)) {
					w.failf("queue %d: node %d is at entry %d, node %d at %d, equal: %v", q.def.ID, n.id, at, members[0].Node, index, bytes.Equal(blob, state))
				}
				index, state = at, blob
			})
			if w.settle(); !answered {
				w.failf("queue %d: there is no member on node %d", q.def.ID, n.id)
			}
		}
		if len(members) > 0 {
			w.settingsEnd(q, state)
			w.partsEnd(q, state)
		}
	}
}
