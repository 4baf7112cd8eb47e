package broker

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/routing"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// Publisher is the publishing side of one channel. It remembers the permissions
// and routes of what the channel publishes to, as long as the catalog does not
// change under them, so that an ordinary publish costs two map look-ups and no
// allocation. It belongs to one goroutine.
type Publisher struct {
	c          *Conn
	view       *catalog.View // what is remembered holds in it
	generation uint64        // of the vhost, for routes
	permission *catalog.Permission
	exchanges  map[string]*target
	last       *target
	remembered int // in all targets, as maxRemembered counts

	slots map[seglog.GroupID]*slot
	dirty []*slot
	lined int // messages lined up, once per queue

	// For one call of Route.
	message routing.Message
	missing bool // a queue of the route does not run yet
	replied bool // a key is the name of a direct reply-to consumer that has left
	here    func(routing.Target) bool
	found   []catalog.QueueID
	loose   route // a route that is not remembered

	screens  map[catalog.ExchangeID]*queuehost.Screen // of exchanges that let nothing through twice
	through  []*queuehost.Screen                      // for one call of Route
	screened *rare                                    // of the last message that has come through some

	published, routed, dropped uint64 // since the last Flush
}

// Publisher returns a new publishing side for one channel.
func (c *Conn) Publisher() *Publisher {
	p := &Publisher{c: c}
	p.here = func(t routing.Target) bool { return c.b.takes(p.view, catalog.QueueID(t.ID())) }
	return p
}

// Route checks a publish and finds its queues: write permission, exchange (404,
// 403 for an internal one), user_id (406), CC and BCC headers. The arguments
// are borrowed; what the route says of the properties borrows from them.
func (p *Publisher) Route(exchange, key []byte, properties wire.Properties) (Route, *amqperr.Error) {
	invariant.Pass("broker", "route asked for")
	if fresh := p.c.b.fresh; fresh != nil && len(p.dirty) == 0 { // else it was asked for this batch
		fresh()
	}
	if v := p.c.b.view(); v != p.view {
		p.renew(v)
	}
	t, err := p.target(exchange)
	if err != nil {
		return Route{}, err
	}
	const examined = 1<<wire.UserID | 1<<wire.Expiration | 1<<wire.Headers
	if properties.Flags()&examined != 0 {
		return p.routeExamined(t, key, properties)
	}
	r := t.last
	if r == nil || r.key != string(key) {
		r = p.route(t, key, properties)
	}
	return Route{slots: r.slots, properties: properties, rare: r.rare, replied: r.replied, plain: plain(properties)}, nil
}

// Publish lines m up for the queues of r. Nothing is handed on before Flush.
func (p *Publisher) Publish(r *Route, m Publish) {
	p.published++
	if k := r.rare.keepers(); k != nil {
		p.c.b.histories.keep(p.c.b, p.c.vhost, k, p.generation, m.Message)
	}
	if len(r.slots) == 0 {
		if !r.replied {
			p.dropped++
		}
		return
	}
	q := queuehost.Publish{
		Message: m.Message, Persistent: m.Persistent, Plain: r.plain, Ticket: m.Ticket, Seq: m.Seq, Unhurried: m.Unhurried,
		Credit: p.c.credit,
	}
	screens := r.rare.screened()
	for i, s := range r.slots {
		if screens != nil {
			q.Screen = screens[i]
		}
		p.lineUp(s, &q)
	}
	p.lined += len(r.slots)
	p.routed += uint64(len(r.slots))
}

// Returned notes that an unroutable message went back to its publisher.
func (p *Publisher) Returned(r *Route, m message.Message) {
	p.published++
	if k := r.rare.keepers(); k != nil {
		p.c.b.histories.keep(p.c.b, p.c.vhost, k, p.generation, m)
	}
	p.c.b.counters.unroutableReturned.Add(1)
}

// ReturnedLate notes that a message went back to its publisher that all its queues were gone for. From any goroutine.
func (c *Conn) ReturnedLate() { c.b.counters.unroutableReturned.Add(1) }

// Pending is the number of messages, counted once per queue, waiting for Flush.
func (p *Publisher) Pending() int { return p.lined }

// hereAtMost is how many messages are carried out on the publisher's own goroutine at
// a time: for more, another processor is worth waking.
const hereAtMost = 32

// Flush hands on what was lined up, one put per queue. It never waits. A little
// may be carried out at once on the caller's goroutine, which must hold no lock
// that a Ticket or Consumer takes.
func (p *Publisher) Flush() {
	p.count()
	if p.c.b.farAlarms.nodes.Load() != nil {
		p.c.b.holdBack(p.c, p.dirty)
	}
	for _, s := range p.dirty {
		invariant.Pass("broker", "flushed")
		s.flush()
	}
	for i, s := range p.dirty {
		s.handle.Go(p.lined <= hereAtMost)
		p.dirty[i] = nil
	}
	p.dirty = p.dirty[:0]
	p.lined = 0
}

// count counts what was published since the last time.
func (p *Publisher) count() {
	if p.published != 0 {
		n := &p.c.b.counters
		n.published.Add(p.published)
		n.routed.Add(p.routed)
		if p.dropped != 0 {
			n.unroutableDropped.Add(p.dropped)
		}
		p.published, p.routed, p.dropped = 0, 0, 0
	}
}
