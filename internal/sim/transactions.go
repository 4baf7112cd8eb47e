package sim

import (
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// transaction is what a client has committed in its queue: messages, and settlements of its consumers. It is their ticket.
type transaction struct {
	c       *client
	records []*record
	starts  uint64 // of the client's node
	told    bool
	outcome queuehost.Outcome
}

// level is the highest level that any start of a node has seen the cluster at: a folder says so, whatever its log does.
func (n *node) level() uint16 {
	if n.w.o.Transactions {
		return 2
	}
	return max(n.raised, 1)
}

// transact commits messages, some of what the consumers hold, or both.
func (c *client) transact() {
	w := c.n.w
	if c.credit.InFlight() > 64<<10 {
		return
	}
	n := w.rng.IntN(6)
	switch w.rng.IntN(12) {
	case 0:
		n = 40 + w.rng.IntN(200)
	case 1:
		n = 1100 // more than an entry takes
	}
	t := &transaction{c: c, starts: c.n.starts}
	x := &queuehost.Transaction{Ticket: t, Seq: 7, Credit: c.credit}
	for range n {
		r := w.check.publish(c, true)
		t.records = append(t.records, r)
		x.Publishes = append(x.Publishes, queuehost.Publish{Message: w.message(r), Persistent: true, Credit: c.credit})
	}
	for _, s := range []*consumer{c.sub, c.getter} {
		if s == nil || s.over || len(s.held) == 0 || w.rng.IntN(2) == 0 {
			continue
		}
		i := w.rng.IntN(len(s.held))
		settled := queuehost.Settled{Consumer: s.id, How: queue.Ack}
		for _, x := range s.held[i:] {
			settled.Ranges = append(settled.Ranges, queue.Range{First: x.id, Last: x.id})
			w.check.settled(s, x.r, queue.Ack)
			if x.r.done {
				x.r.doubt = true // until the outcome is known, and beyond that: the session may be another one by then
			}
			x.r.hi++
		}
		s.held = s.held[:i]
		x.Settled = append(x.Settled, settled)
	}
	w.txs = append(w.txs, t)
	w.trace("node %d commits %d messages and %d consumers' settlements in queue %d", c.n.id, n, len(x.Settled), c.q.def.ID)
	c.h.PutTransaction(x)
	c.h.Go(false)
}

// Settled implements queuehost.Ticket.
func (t *transaction) Settled(first, last uint64, o queuehost.Outcome) {
	w := t.c.n.w
	if t.told || first != 7 || last != 7 {
		w.failf("node %d: a transaction was told %v after %v, as %d to %d", t.c.n.id, o, t.outcome, first, last)
		return
	}
	t.told, t.outcome = true, o
	for _, r := range t.records {
		w.check.told(r, o)
	}
	if o == queuehost.Accepted || t.c.gone {
		return
	}
	// A client that is told so has its channel closed.
	if s := t.c.sub; s != nil {
		t.c.leave(false)
	}
	if s := t.c.getter; s != nil {
		t.c.detach(s)
		if t.c.getter == s {
			t.c.getter = nil
		}
	}
}

// transactionsEnd says of which transactions there was a part, and not the rest.
func (w *World) transactionsEnd() {
	for _, t := range w.txs {
		q := t.c.q
		if !t.told && !t.c.gone && t.c.n.starts == t.starts {
			w.failf("node %d: a transaction of %d messages in queue %d has no outcome", t.c.n.id, len(t.records), q.def.ID)
		}
		if q.deleted {
			continue
		}
		seen, purged := 0, false
		for _, r := range t.records {
			if r.seen {
				seen++
			}
			purged = purged || r.purgeable
		}
		switch {
		case purged:
		case seen > 0 && seen < len(t.records):
			w.failf("queue %d: of a transaction of %d messages (from %d on, told: %v, %v) %d were seen", q.def.ID, len(t.records), t.records[0].id, t.told, t.outcome, seen)
		case t.told && t.outcome == queuehost.Refused && seen > 0:
			w.failf("queue %d: a transaction was refused, and is there", q.def.ID)
		}
		switch {
		case len(t.records) == 0 || purged:
		case seen > 0:
			w.check.stats.Committed++
		default:
			w.check.stats.Uncommitted++
		}
	}
}

// partsEnd says that a queue has parts of transactions that nobody will commit.
func (w *World) partsEnd(q *simQueue, state []byte) {
	m := queue.New()
	if !w.o.Transactions || w.err != nil {
		return
	}
	if err := m.Restore(state); err != nil {
		w.failf("queue %d: %v", q.def.ID, err)
	} else if n := m.Uncommitted(); n > 0 {
		w.failf("queue %d: %d messages belong to transactions that nobody commits", q.def.ID, n)
	}
}
