package sim

import (
	"fmt"
	"time"

	"holdfast/internal/cluster"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// record is a message as the clients know it.
type record struct {
	id         uint64
	by         *client
	order      uint64 // of its publisher
	persistent bool
	crashes    int // of the home of its queue, when it was published
	told       bool
	outcome    queuehost.Outcome
	delivered  int
	holder     *consumer // has it and has not settled it
	done       bool      // acknowledged, or discarded
	doubt      bool      // whoever did that crashed, or was taken for dead: nobody may have heard of it
	doneBy     *client
	purgeable  bool // a purge may have taken it
	seen       bool // a delivery of it has come to somebody, whoever that was

	rank      int               // by its priority
	expires   int64             // ms after its publish; 0: not by itself
	tx        *tx               // that it is part of
	key       uint64            // by which its queue looks whether it comes twice; 0: it has none
	screen    *queuehost.Screen // the exchange that lets nothing through twice by which it comes, if it does
	delay     int64             // ms that it waits before it is ready
	examined  bool              // that counts
	born      int64             // clock.Mono: when it was published
	toldAt    int64
	doneAt    int64
	discarded bool   // a consumer has rejected it
	death     *death // nil: no letter of it was seen
	mourned   bool   // one has arrived, and the home of its classic queue has crashed since

	carried *carried // it was published to another queue, and is a copy
	reasons []string // of its deaths, as letters have them

	// How often it has come back by the fault of a consumer: as its last delivery said, and what clients know to have
	// happened since, at least and at most.
	count, lo, hi int
	left          int    // of its queue, at its last delivery
	backBy        *node  // who has given it back since
	backIn        uint64 // in which incarnation
}

// stream is messages of one publisher that overtake none of the others.
type stream struct {
	by    *client
	rank  int
	delay int64
}

// checker compares what clients were told with what they got.
type checker struct {
	w       *World
	records []*record
	copies  []*record
	copyOf  map[copyKey]*record
	names   int
	order   map[*client]uint64
	loose   map[uint64]int64 // nodes that somebody takes for dead, or did up to then: others may have what their clients hold
	stats   Stats
}

// Stats are counts of a run.
type Stats struct {
	Published, Delivered, Redelivered, Accepted, Unknown, Refused, Full, Damages, PutBack, Hits, Repaired, Commands, Restored, Buried, Carried, Screened, Twice, compared, counted int

	Policies, Pauses, Transactions, Letters, Deaths int

	Committed, Uncommitted int // transactions that have happened, that have not

	Faults map[string]int // by kind
}

// patience is how soon an operation was surely carried out if it is answered: later answers may say that nobody knows.
const patience = 14 * time.Second

func (k *checker) init(w *World) {
	*k = checker{w: w, copyOf: map[copyKey]*record{}, order: map[*client]uint64{}, loose: map[uint64]int64{}}
}

func (k *checker) name() string {
	k.names++
	return fmt.Sprintf("consumer %d", k.names)
}

func (k *checker) publish(c *client, persistent bool) *record {
	k.order[c]++
	r := &record{id: uint64(len(k.records) + 1), by: c, order: k.order[c], persistent: persistent, crashes: c.q.crashes, left: c.q.left, born: k.w.clk.Mono(), delay: max(c.q.delay, 0)}
	r.examined = k.w.o.Settings && k.w.examined()
	if p := c.q.purge; p != nil && (p.open || k.w.clk.Mono() < p.until) {
		r.purgeable = true
	}
	k.records = append(k.records, r)
	k.w.about(r, "published on node %d to queue %d", c.n.id, c.q.def.ID)
	return r
}

// told notes the outcome of a publish.
func (k *checker) told(r *record, o queuehost.Outcome) {
	r.outcome, r.told, r.toldAt = o, true, k.w.clk.Mono()
	k.w.about(r, "told %v", o)
	switch {
	case o == queuehost.Gone && !r.by.q.unwanted:
		k.w.failf("message %d: queue %d is said to be gone, and is there", r.id, r.by.q.def.ID)
	case o == queuehost.Refused && r.by.q.home == 0 && !r.by.q.unwanted && !r.by.q.may.refuses && !k.isTaken(r):
		k.w.failf("message %d was refused by a quorum queue", r.id)
	case o == queuehost.Refused && r.delivered > 0:
		k.w.failf("message %d was refused, and delivered", r.id)
	case o == queuehost.Accepted && r.death != nil && r.death.reason == queue.Dropped && !r.by.q.may.drops:
		k.w.failf("message %d was dropped since there was no room, and is accepted", r.id)
	}
}

// purge purges the queue of a client.
func (k *checker) purge(c *client) {
	q := c.q
	if q.purge != nil && q.purge.open {
		return
	}
	p := &purge{open: true}
	q.purge = p
	for r := range k.everyRecord() {
		if r.by.q == q {
			r.purgeable = true
		}
	}
	w := k.w
	w.trace("queue %d is purged", q.def.ID)
	n := c.n
	starts := n.starts
	c.h.Purge(func(_ uint64, err error) {
		p.open = false
		if err != nil || n.starts != starts {
			p.until = w.clk.Mono() + int64(time.Minute)
		}
	})
}

// delivered checks a delivery, and returns its message.
func (k *checker) delivered(s *consumer, id uint64, d queuehost.Delivery) *record {
	w := k.w
	r := k.find(id, s.c.q)
	if r == nil {
		w.failf("%s got message %d, which nobody has published to its queue, or carried there", s.name, id)
		return nil
	}
	r.seen = true
	k.addressed(s, r, d.Message)
	if s.over {
		w.about(r, "delivered to %s of node %d, which has left", s.name, s.c.n.id)
		r.hi++
		return r
	}
	if r.told && r.outcome == queuehost.Refused {
		w.failf("%s got message %d, which was refused", s.name, id)
	}
	if k.isLoose(s.c.n) { // it may have been sent before the node was taken for dead
		w.about(r, "delivered to %s of node %d, which somebody takes for dead", s.name, s.c.n.id)
		r.hi++
		return r
	}
	if r.carried != nil && !d.Redelivered {
		k.first(s, r)
	}
	if r.isPlural() {
		return k.plural(s, r)
	}
	if h := r.holder; h != nil && !h.over && h != s {
		w.failf("%s got message %d, which %s holds", s.name, id, h.name)
	}
	if r.holder == s {
		w.failf("%s got message %d twice", s.name, id)
	}
	if r.delivered > 0 && !d.Redelivered {
		w.failf("%s got message %d again, and it does not say so", s.name, id)
	}
	if r.done && !r.doubt {
		w.failf("%s got message %d, which was settled", s.name, id)
	}
	if !d.Redelivered && r.carried == nil && (r.rank == 0 || r.examined || !w.o.Settings) { // at the first level none ranks above another
		of := stream{r.by, r.rank, r.delay}
		if last := s.last[of]; r.order <= last {
			w.failf("%s got message %d of a publisher after a later one", s.name, id)
		}
		s.last[of] = r.order
	}
	if r.death != nil {
		w.failf("%s got message %d, which has died (%v)", s.name, id, r.death.reason)
	}
	k.once(r)
	k.alike(s, r)
	k.waited(s, r)
	k.inTime(s, r)
	k.alone(s)
	k.counts(s, r, int(d.Count))
	w.about(r, "delivered as %d to %s of node %d, redelivered %v, count %d", d.ID, s.name, s.c.n.id, d.Redelivered, d.Count)
	r.delivered++
	r.done, r.doubt = false, false
	k.stats.Delivered++
	if d.Redelivered {
		k.stats.Redelivered++
	}
	r.holder = s
	return r
}

// counts checks how often a message says that it has come back by a consumer's fault.
func (k *checker) counts(s *consumer, r *record, n int) {
	q := s.c.q
	most := r.count + r.hi + q.leaving - r.left
	if least := r.count + r.lo; q.home == 0 && (n < least || n > most) {
		k.w.failf("%s got message %d, which says that it came back %d times: it was %d to %d", s.name, r.id, n, least, most)
	}
	k.stats.counted++
	r.count, r.lo, r.hi, r.left, r.backBy = n, 0, 0, q.left, nil
}

// returns notes that a message goes back by a consumer's fault; sure says that nobody else can have it.
func (r *record) returns(s *consumer, sure bool) {
	r.hi++
	if sure {
		r.lo++
		r.backBy, r.backIn = s.c.n, s.c.n.starts
	}
}

// settled notes a settlement.
func (k *checker) settled(s *consumer, r *record, how queue.Settlement) {
	k.w.about(r, "settled by %s: %v", s.name, how)
	sure := r.holder == s
	if r.holder != nil && !sure { // somebody else has it: it was taken away
		return
	}
	r.holder = nil
	switch how {
	case queue.Requeue:
		r.returns(s, sure)
		return
	case queuehost.Return:
		return
	case queue.Discard:
		r.discarded = true
	}
	r.done, r.doubt, r.doneBy, r.doneAt = true, !sure, s.c, k.w.clk.Mono()
}

// back notes that a message goes back.
func (k *checker) back(s *consumer, r *record) {
	k.w.about(r, "goes back from %s", s.name)
	if r.holder == nil || r.holder == s {
		r.returns(s, r.holder == s)
		r.holder = nil
	}
}

// doubts notes that nobody may have heard of what a client of a node did, and that others may have what it holds.
func (k *checker) doubts(is func(*client) bool) {
	for r := range k.everyRecord() {
		if r.holder != nil && is(r.holder.c) {
			k.w.about(r, "is not held any more")
			r.holder = nil
		}
		if r.done && !r.doubt && r.doneBy != nil && is(r.doneBy) {
			r.doubt = true
		}
		if r.backBy != nil && is(r.backClient()) {
			r.lo, r.backBy = 0, nil
		}
	}
}

// backClient stands for who has given the message back.
func (r *record) backClient() *client { return &client{n: r.backBy, q: r.by.q} }

// crashed notes the end of a process.
func (k *checker) crashed(n *node) {
	for _, c := range append(append([]*client(nil), n.clients...), n.retired...) {
		c.gone = true
		for _, s := range []*consumer{c.sub, c.getter} {
			if s != nil {
				s.over = true
			}
		}
	}
	k.doubts(func(c *client) bool { return c.n == n })
	for _, q := range k.w.all {
		if q.home == n.id {
			q.crashes++
			k.forgetDeaths(q)
			k.homeLost(q, func(*node) bool { return true })
		}
	}
}

// linkDown notes what the end of a link means for classic queues at its ends.
func (k *checker) linkDown(a, b *node) {
	for _, q := range k.w.all {
		switch q.home {
		case a.id:
			k.homeLost(q, func(n *node) bool { return n == b })
		case b.id:
			k.homeLost(q, func(n *node) bool { return n == a })
		}
	}
}

// homeLost notes that nodes have lost the home of a classic queue.
func (k *checker) homeLost(q *simQueue, who func(*node) bool) {
	for _, n := range k.w.nodes {
		if !who(n) {
			continue
		}
		for _, c := range n.clients {
			if c.q != q {
				continue
			}
			for _, s := range []*consumer{c.sub, c.getter} {
				if s != nil { // it is told, unless the queue has not heard of it yet
					s.robbed()
				}
			}
		}
	}
	k.doubts(func(c *client) bool { return c.q == q && who(c.n) })
}

// looseFor is how long news that a node is dead may take effect after it was taken back.
const looseFor = int64(30 * time.Second)

// look notes which nodes somebody takes for dead: what their clients hold may go to others.
func (k *checker) look() {
	now := k.w.clk.Mono()
	for _, n := range k.w.nodes {
		for _, m := range k.w.nodes {
			if m == n || !m.up {
				continue
			}
			if is, _ := m.health.Condition(n.id); is == cluster.Gone {
				k.loose[n.id] = now + looseFor
			}
		}
		if k.isLoose(n) {
			for _, c := range n.clients {
				for _, s := range []*consumer{c.sub, c.getter} {
					for i := 0; s != nil && i < len(s.held); i++ {
						s.held[i].stale = true
					}
				}
			}
			k.doubts(func(c *client) bool { return c.n == n })
		}
	}
}

func (k *checker) isLoose(n *node) bool { return k.w.clk.Mono() < k.loose[n.id] }
