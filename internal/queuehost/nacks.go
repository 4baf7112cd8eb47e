package queuehost

import (
	"iter"
	"sync/atomic"
)

// Nacks count the publishes of this node's own clients that a queue was not seen to take, since the node started. Those of other
// nodes' clients are counted there.
type Nacks struct {
	Refused uint64 // the queue is out of service, or its node away: the messages are not in it
	Unknown uint64 // there was no answer in time: they may be
}

type nacks struct{ refused, unknown atomic.Uint64 }

// add counts n publishes with an outcome.
func (c *nacks) add(o Outcome, n uint64) {
	switch {
	case n == 0:
	case o == Refused:
		c.refused.Add(n)
	case o == Unknown:
		c.unknown.Add(n)
	}
}

// own is how many of some publishes are not another node's.
func own(ps []Publish) (n uint64) {
	for i := range ps {
		if guestOf(ps[i].Ticket) == nil {
			n++
		}
	}
	return n
}

// Nacks returns how many publishes were refused, or are of unknown outcome.
func (h *Handle) Nacks() Nacks {
	return Nacks{Refused: h.nacks.refused.Load(), Unknown: h.nacks.unknown.Load()}
}

// Nacked yields the handles of queues that have refused publishes of clients here, or left them in doubt: those that run here, and
// then those that others serve, each in the order of their ids.
func (r *Registry) Nacked() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for _, handles := range []iter.Seq[*Handle]{r.All(), r.Far()} {
			for h := range handles {
				if h.Nacks() != (Nacks{}) && !yield(h) {
					return
				}
			}
		}
	}
}
