package sim

import (
	"slices"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// owner is who is told what queues cannot decide: the broker, but for dead letters, which go to nobody.
type owner struct {
	*broker.Broker
	n *node
}

// DeadLetters implements queuehost.Owner. A letter arrives at once, late, or is forgotten: then it has to be told again.
func (o owner) DeadLetters(h *queuehost.Handle, ds []queuehost.DeadLetter) {
	n := o.n
	w := n.w
	var carried []queuehost.DeadLetter
	q := w.queue(h.ID())
	if q == nil {
		w.failf("node %d: dead letters of queue %d, which nobody has", n.id, h.ID())
		return
	}
	for i := range ds {
		d := &ds[i]
		m := d.Message
		if d.Load != nil {
			var err error
			if m, err = n.load(d.Load); err != nil {
				if n == w.frail() {
					q.unread = true // the next leader has it
					if w.o.Carried {
						h.Unreadable(err)
					}
					continue
				}
				w.failf("node %d, queue %d: dead letter %d cannot be read: %v", n.id, q.def.ID, d.ID, err)
				return
			}
		}
		id, ok := idOf(m)
		if !ok {
			w.failf("node %d, queue %d: dead letter %d has the head of message %d, and not its body", n.id, q.def.ID, d.ID, id)
			return
		}
		w.check.letter(n, q, d, id)
		if w.o.Carried {
			carried = append(carried, queuehost.DeadLetter{ID: d.ID, Time: d.Time, Reason: d.Reason, Message: m})
			continue
		}
		x := mail{h: h, q: q, id: d.ID}
		switch k := w.rng.IntN(20); {
		case k < 10:
		case k < 19:
			x.at = w.clk.Mono() + w.rng.Int64N(int64(5*time.Second))
		default:
			n.forgotten = append(n.forgotten, x)
			continue
		}
		n.mail = append(n.mail, x)
	}
	if len(carried) > 0 {
		n.fresh(func() { o.Broker.DeadLetters(h, carried) })
	}
}

// mail is a dead letter on its way.
type mail struct {
	h  *queuehost.Handle
	q  *simQueue
	id uint64
	at int64 // clock.Mono: when it arrives
}

// death is how a message has died.
type death struct {
	id      uint64 // in its queue
	r       *record
	reason  queue.Reason
	at      int64 // clock.Mono, when it was told first
	arrived bool
}

// letter checks a dead letter.
func (k *checker) letter(n *node, q *simQueue, d *queuehost.DeadLetter, id uint64) {
	w := k.w
	r := k.find(id, q)
	if r == nil {
		w.failf("queue %d: dead letter %d is of message %d, which was not published to it, or carried there", q.def.ID, d.ID, id)
		return
	}
	k.stats.Letters++
	defer k.carries(n, q, r, d.ID)
	w.about(r, "dead letter %d at node %d: %v", d.ID, n.id, d.Reason)
	if was := q.deaths[d.ID]; was != nil {
		switch {
		case was.r != r || was.reason != d.Reason:
			w.failf("queue %d: dead letter %d is of message %d (%v), and was of message %d (%v)", q.def.ID, d.ID, id, d.Reason, was.r.id, was.reason)
		case w.calm && (was.arrived || w.o.Carried) && q.quiet:
			w.failf("queue %d: dead letter %d (message %d) comes again, and was buried", q.def.ID, d.ID, id)
		}
		return
	}
	// Of a classic queue those of transient messages are lost with its home; without an exchange all that wait are let go of, and who has led before
	// may tell of them late.
	late := !q.may.letters && (q.deleted || w.anotherLeads(n, q))
	if !q.unread && !late && (q.home == 0 && q.may.letters && d.ID != q.lastDeath+1 || d.ID <= q.lastDeath) || r.death != nil && !r.isPlural() {
		w.failf("queue %d: dead letter %d of message %d comes after letter %d (dead before: %v)", q.def.ID, d.ID, id, q.lastDeath, r.death != nil)
	}
	if q.deaths == nil {
		q.deaths = map[uint64]*death{}
	}
	q.lastDeath = max(q.lastDeath, d.ID)
	r.death = &death{id: d.ID, r: r, reason: d.Reason, at: w.clk.Mono()}
	q.deaths[d.ID] = r.death
	r.reasons = append(r.reasons, reasonNames[d.Reason])
	k.stats.Deaths++
	k.once(r)
	k.died(r, d.Reason)
}

// died checks that a message may have died for a reason.
func (k *checker) died(r *record, reason queue.Reason) {
	w := k.w
	q := r.by.q
	if q.store != (reason == queue.Ripe) {
		w.failf("message %d has died: %v", r.id, reason)
	}
	if r.isPlural() {
		return
	}
	if h := r.holder; h != nil && !h.over && !k.isLoose(h.c.n) && q.home == 0 {
		w.failf("message %d has died (%v), and %s holds it", r.id, reason, h.name)
	}
	switch reason {
	case queue.Discarded:
		if !r.discarded {
			w.failf("message %d was not rejected, and its letter says so", r.id)
		}
	case queue.Expired:
		bound := q.may.ttl
		if r.expires > 0 && (bound == 0 || r.expires < bound) {
			bound = r.expires
		}
		if age := w.clk.Mono() - r.born; bound == 0 || age < (r.delay+bound-20)*int64(time.Millisecond) {
			w.failf("message %d has expired after %v, and has %d ms after %d ms", r.id, time.Duration(age), bound, r.delay)
		}
	case queue.Ripe:
		if age := w.clk.Mono() - r.born; age < (r.delay-20)*int64(time.Millisecond) {
			w.failf("message %d is carried on after %v, and is to wait for %d ms", r.id, time.Duration(age), r.delay)
		}
	case queue.Exhausted:
		if most := r.mostReturns(); q.may.least < 0 || q.home == 0 && most <= q.may.least {
			w.failf("message %d has come back too often: at most %d times, and may %d times", r.id, most, q.may.least)
		}
	case queue.Dropped:
		if !q.may.drops && (!q.may.refuses && !r.isLive() || r.carried != nil || r.told && r.outcome == queuehost.Accepted) {
			w.failf("message %d was dropped, and its queue drops nothing", r.id)
		}
	default:
		w.failf("message %d has died: %v", r.id, reason)
	}
	if r.told && r.outcome == queuehost.Refused && reason != queue.Dropped {
		w.failf("message %d was refused, and has died: %v", r.id, reason)
	}
}

// forgetDeaths notes that the home of a classic queue has crashed: what was not on disk has not happened.
func (k *checker) forgetDeaths(q *simQueue) {
	for _, d := range q.deaths {
		d.r.death, d.r.mourned = nil, d.r.mourned || d.arrived || k.w.o.Carried
	}
	k.owesNothing(q)
	q.deaths, q.lastDeath = nil, 0
}

// post has letters arrive whose time has come, and now and then those told again that were forgotten.
func (n *node) post(all bool) {
	w := n.w
	if !n.up || n.paused > 0 || len(n.mail)+len(n.forgotten) == 0 {
		return
	}
	now := w.clk.Mono()
	rest := n.mail[:0]
	for _, x := range n.mail {
		if x.at > now && !all {
			rest = append(rest, x)
			continue
		}
		if d := x.q.deaths[x.id]; d != nil {
			d.arrived = true
		}
		x.h.Bury([]queue.Range{{First: x.id, Last: x.id}})
		if w.rng.IntN(8) == 0 {
			x.h.Bury([]queue.Range{{First: x.id, Last: x.id}})
		}
	}
	n.mail = rest
	if len(n.forgotten) > 0 && (all || w.rng.IntN(50) == 0) {
		x := n.forgotten[0]
		n.forgotten = slices.DeleteFunc(n.forgotten, func(y mail) bool { return y.h == x.h })
		x.h.TellDead()
	}
}

// lettersEnd has all letters arrive, and sees that they do not come again.
func (w *World) lettersEnd() {
	if !w.o.Settings {
		return
	}
	for range 400 {
		waits := false
		for _, n := range w.nodes {
			waits = waits || len(n.mail)+len(n.forgotten) > 0
			n.post(true)
		}
		if !waits {
			break
		}
		w.rest(2)
	}
	for i := 0; w.o.Carried && i < 40 && w.underWay() != ""; i++ { // of what was published last
		w.rest(20)
	}
	w.rest(20)
	for _, q := range slices.Clone(w.withStores()) {
		if q.expired {
			continue
		}
		for id, d := range q.deaths {
			if !d.arrived && q.may.letters && !w.o.Carried { // else they may have been let go of
				w.failf("queue %d: dead letter %d (message %d) has not arrived", q.def.ID, id, d.r.id)
				return
			}
		}
		q.quiet = true
		for _, n := range w.nodes {
			if h := n.handle(q); h != nil && (q.home == n.id || q.home == 0 && h.Leader() == n.id) {
				h.TellDead()
			}
		}
	}
	w.rest(5)
}

var _ queuehost.Owner = owner{}
