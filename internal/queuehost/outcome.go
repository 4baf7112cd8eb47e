package queuehost

import "holdfast/internal/invariant"

// wait is publishes that have the same fate: their outcome, or their credit,
// comes at one time. It covers neighbours with consecutive sequence numbers.
type wait struct {
	index       uint64 // of the entry they wait for
	n           int    // 0: a barrier
	ticket      Ticket // nil: nobody waits, or it was told Unknown
	overdue     bool   // the disk took too long, and that was counted
	first, last uint64
	credit      *Credit
	cost        int64
}

// join adds a publish, if it continues those that are in w.
func (w *wait) join(p *Publish) bool {
	switch {
	case w.n == 0:
		*w = wait{index: w.index, ticket: p.Ticket, first: p.Seq, credit: p.Credit}
	case p.Ticket != w.ticket || p.Credit != w.credit || p.Ticket != nil && p.Seq != w.last+1:
		return false
	}
	w.n++
	w.last = p.Seq
	if p.Credit != nil {
		w.cost += p.cost()
	}
	return true
}

// settle gives the credit back and tells the outcome, in this order: another
// node is told of both at once.
func (w *wait) settle(o Outcome) {
	c := w.credit
	w.give()
	if w.ticket != nil {
		w.tell(o)
	} else if c != nil && c.inflow != nil {
		c.inflow.gave()
	}
}

func (w *wait) tell(o Outcome) {
	if w.ticket != nil {
		invariant.Pass("queuehost", "publish settled")
		w.ticket.Settled(w.first, w.last, o)
		w.ticket = nil
	}
}

// applied says that the queue has taken the publishes out of its inbox.
func (w *wait) applied() {
	if w.credit != nil {
		w.credit.applied(w.cost)
	}
}

func (w *wait) give() {
	if w.credit != nil {
		w.credit.give(w.cost)
		w.credit = nil
	}
}

// publishRefused is the outcome of a publish to a queue that takes none.
func (h *host) publishRefused() Outcome {
	if h.gone {
		return Gone
	}
	return Refused
}

// turnAway answers publishes that did not get into the queue, and counts them.
func (h *host) turnAway(ps []Publish, o Outcome) {
	h.handle.nacks.add(o, own(ps))
	settleAll(ps, o)
}

// settleAll answers publishes that did not get into the queue.
func settleAll(ps []Publish, o Outcome) {
	waits(new(wait), ps, func(w *wait) {
		w.applied()
		w.settle(o)
	})
}

// waits calls fn for publishes, joined in w as far as they go together.
func waits(w *wait, ps []Publish, fn func(*wait)) {
	*w = wait{}
	for i := range ps {
		if !w.join(&ps[i]) {
			fn(w)
			*w = wait{}
			w.join(&ps[i])
		}
	}
	if w.n > 0 {
		fn(w)
	}
}
