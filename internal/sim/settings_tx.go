package sim

import (
	"holdfast/internal/catalog"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// tx is a transaction, with Options.Settings: messages that go into a queue, and deliveries of one of its consumers that are acknowledged, all in one step.
type tx struct {
	c         *client
	published []*record
	settled   []txSettled
	by        *consumer
	told      bool
	outcome   queuehost.Outcome
}

// txSettled is a delivery that a transaction acknowledges.
type txSettled struct {
	held
	delivered int // how often its message had been handed out
}

// commit puts a transaction into the queue of a client, where arguments and policies may refuse it.
func (c *client) commit() {
	w := c.n.w
	if c.n.view().Level() < catalog.PolicyLevel || c.credit.InFlight() > 64<<10 {
		return
	}
	t := &tx{c: c}
	var put queuehost.Transaction
	for range w.rng.IntN(5) {
		persistent := w.rng.IntN(2) == 0
		r := w.check.publish(c, persistent)
		r.tx = t
		m := w.message(r)
		put.Publishes = append(put.Publishes, queuehost.Publish{Message: m, Persistent: persistent, Screen: r.screen, Credit: c.credit})
		t.published = append(t.published, r)
	}
	for _, s := range []*consumer{c.sub, c.getter} {
		if s == nil || s.over || s.leaves || len(s.held) == 0 || w.rng.IntN(2) == 0 {
			continue
		}
		t.by = s
		n := 1 + w.rng.IntN(len(s.held))
		var ranges []queue.Range
		for _, x := range s.held[:n] {
			ranges = append(ranges, queue.Range{First: x.id, Last: x.id})
			t.settled = append(t.settled, txSettled{x, x.r.delivered})
			w.check.settling(s, x.r)
		}
		s.held = s.held[n:]
		put.Settled = append(put.Settled, queuehost.Settled{Consumer: s.id, Ranges: ranges, How: queue.Ack})
		break
	}
	c.seq++
	c.txs[c.seq] = t
	put.Ticket, put.Seq, put.Credit = c, c.seq, c.credit
	w.check.stats.Transactions++
	c.h.PutTransaction(&put)
	c.h.Go(true)
}

// settling notes that a message is acknowledged, if a transaction happens. If its consumer goes before that, the message comes back.
func (k *checker) settling(s *consumer, r *record) {
	k.w.about(r, "settled by %s in a transaction", s.name)
	if r.holder != nil && r.holder != s {
		return
	}
	r.hi++
	r.holder, r.done, r.doubt, r.doneBy = nil, true, true, s.c
}

// happened notes the outcome of a transaction.
func (t *tx) happened(k *checker, o queuehost.Outcome) {
	t.told, t.outcome = true, o
	for _, r := range t.published {
		k.told(r, o)
	}
	s := t.by
	var ranges []queue.Range
	for _, x := range t.settled {
		k.w.about(x.r, "its transaction: %v", o)
		untouched := x.r.delivered == x.delivered && x.r.holder == nil && !s.over && !k.isLoose(s.c.n)
		switch {
		case o == queuehost.Accepted:
			if untouched {
				x.r.doubt = false
			}
		case o == queuehost.Refused && untouched && !x.stale:
			x.r.hi--
			x.r.done, x.r.doubt, x.r.holder = false, false, s
			s.held = append(s.held, x.held)
		default:
			ranges = append(ranges, queue.Range{First: x.id, Last: x.id})
		}
	}
	if len(ranges) > 0 && !s.over { // as if nobody had asked for it
		t.c.h.Settle(s.id, ranges, queue.Ack)
	}
}

// isSeen reports whether a message of a transaction is known to have been in its queue.
func (r *record) isSeen() bool { return r.delivered > 0 || r.done || r.death != nil || r.mourned }

// halves checks that of the messages of a transaction of which nobody knows what became all were in the queue, or none.
func (k *checker) halves() {
	seen := map[*tx]*record{}
	for _, r := range k.records {
		if r.tx != nil && r.isSeen() {
			seen[r.tx] = r
		}
	}
	for _, r := range k.records {
		q := r.by.q
		if r.tx == nil || seen[r.tx] == nil || r.isSeen() || q.deleted || q.expired || r.purgeable || q.home != 0 && (!r.persistent || q.crashes > r.crashes) || r.leftUntold() || r.key != 0 {
			continue
		}
		k.w.failf("message %d of a transaction was in queue %d, and message %d of the same was not (%v)", seen[r.tx].id, q.def.ID, r.id, r.tx.outcome)
		return
	}
}
