package broker

import (
	"slices"

	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
)

// Held is a route that stays good until a transaction ends.
type Held struct {
	slots      []*slot
	screens    []*queuehost.Screen
	kept       *keepers
	generation uint64 // of the vhost, when the route was found
	unroutable bool
}

// Hold keeps a route.
func (p *Publisher) Hold(r *Route) Held {
	h := Held{r.slots, r.rare.screened(), r.rare.keepers(), p.generation, r.Unroutable()}
	if len(r.slots) > 0 && len(p.loose.slots) > 0 && &r.slots[0] == &p.loose.slots[0] {
		h.slots = slices.Clone(r.slots)
	}
	return h
}

// Queues is as of the Route.
func (h *Held) Queues() int { return len(h.slots) }

// Unroutable is as of the Route.
func (h *Held) Unroutable() bool { return h.unroutable }

// PublishHeld lines a message up that belongs to a transaction. Nothing but what belongs to it may be lined up before Commit.
func (p *Publisher) PublishHeld(h *Held, m message.Message) {
	p.published++
	p.keep(h, m)
	if h.unroutable {
		p.dropped++
	}
	if len(h.slots) == 0 {
		return
	}
	q := queuehost.Publish{Message: m, Persistent: m.Persistent(), Credit: p.c.credit}
	for i, s := range h.slots {
		if h.screens != nil {
			q.Screen = h.screens[i]
		}
		if s.reply == "" {
			s = p.slot(s.handle) // it may have been found before there was another one
		}
		p.lineUp(s, &q)
	}
	p.routed += uint64(len(h.slots))
}

// ReturnedHeld notes that an unroutable message of a transaction went back to its publisher.
func (p *Publisher) ReturnedHeld(h *Held, m message.Message) {
	p.published++
	p.keep(h, m)
	p.c.b.counters.unroutableReturned.Add(1)
}

func (p *Publisher) keep(h *Held, m message.Message) {
	if h.kept != nil {
		p.c.b.histories.keep(p.c.b, p.c.vhost, h.kept, h.generation, m)
	}
}

// SettleHeld lines settlements up that belong to a transaction. The ranges are free after Commit.
func (p *Publisher) SettleHeld(s *Subscription, ranges []Range, how Settlement) {
	l := p.line(p.slot(s.handle))
	l.settled = append(l.settled, queuehost.Settled{Consumer: s.id, Ranges: ranges, How: how})
}

// Involved is the number of queues that a Commit now would concern: the number of times its Ticket hears an outcome.
func (p *Publisher) Involved() int { return len(p.dirty) }

// Commit hands on what was lined up: what is for a queue happens there in one step, or not at all. It never waits. The ticket
// hears once from each queue. A little may be carried out at once, as of Flush.
func (p *Publisher) Commit(t Ticket) {
	p.count()
	if p.c.b.farAlarms.nodes.Load() != nil {
		p.c.b.holdBack(p.c, slices.DeleteFunc(slices.Clone(p.dirty), func(s *slot) bool { return len(s.lined.publishes) == 0 }))
	}
	dirty := slices.Clone(p.dirty)
	clear(p.dirty)
	p.dirty = p.dirty[:0]
	n := 0
	for i, s := range dirty {
		invariant.Pass("broker", "flushed")
		l := s.lined
		s.lined = nil
		n += len(l.publishes)
		s.handle.PutTransaction(&queuehost.Transaction{
			Publishes: l.publishes, Settled: l.settled, Ticket: t, Seq: uint64(i + 1), Credit: p.c.credit,
		})
		l.settled = nil
		l.free()
	}
	for _, s := range dirty {
		s.handle.Go(n <= hereAtMost)
	}
}
