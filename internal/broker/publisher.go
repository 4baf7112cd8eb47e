package broker

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/routing"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// Bounds of what a publisher remembers. Beyond them it forgets all and starts anew.
const (
	maxRemembered = 16384 // routes, each of which counts as routeCost and one for each of its queues
	routeCost     = 8
	maxSlots      = 4096
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

// target is an exchange the channel may publish to.
type target struct {
	name     string
	exchange *catalog.Exchange // nil for the default exchange
	routes   map[string]*route
	last     *route
}

// route is the queues that one exchange and key lead to.
type route struct {
	key   string
	slots []*slot
	rare  *rare // nil: nothing

	replied bool // as of a Publisher
}

// Route is where one publish goes. It is valid until the next call of
// Publisher.Route or Publisher.Flush.
type Route struct {
	slots      []*slot
	properties wire.Properties
	rare       *rare // nil: nothing
	stripped   bool
	replied    bool
	plain      bool // the properties name neither a priority nor an expiration
}

// rare is what few routes have; it does not change.
type rare struct {
	kept   *keepers // nil: none
	hidden []byte
	// screens are by way of which exchanges that let nothing through twice the queues are reached: one for each slot, nil where there is none; or nothing
	// at all.
	screens []*queuehost.Screen
}

// screened are the screens of a message that took the route.
func (r *rare) screened() []*queuehost.Screen {
	if r == nil {
		return nil
	}
	return r.screens
}

// keepers are the exchanges that keep a message which took the route; nil: none.
func (r *rare) keepers() *keepers {
	if r == nil {
		return nil
	}
	return r.kept
}

// Queues is the number of queues that will get the message: the number of
// times its Ticket hears an outcome.
func (r *Route) Queues() int { return len(r.slots) }

// LeadsTo reports whether the message goes to the queue that s is a subscription to.
func (r *Route) LeadsTo(s *Subscription) bool {
	for _, slot := range r.slots {
		if slot.handle == s.handle {
			return true
		}
	}
	return false
}

// Unroutable reports whether the message leads nowhere. A reply to a direct reply-to consumer that has left is dropped like one
// that it would not have read.
func (r *Route) Unroutable() bool { return len(r.slots) == 0 && !r.replied }

// Properties are what to store with the message: the publish's own, or a copy
// without the BCC header.
func (r *Route) Properties() wire.Properties { return r.properties }

// Stripped reports whether Properties lack the BCC header: the same route cannot
// be found with them again.
func (r *Route) Stripped() bool { return r.stripped }

// Hidden are the keys of the BCC header, as message.Heading wants them: where the message died, they count again. They are
// nil where a node could not read a message that has them.
func (r *Route) Hidden() []byte {
	if r.rare == nil {
		return nil
	}
	return r.rare.hidden
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

// plain reports whether properties name nothing that makes the queue look at them.
func plain(p wire.Properties) bool {
	return p.Flags()&(1<<wire.Priority|1<<wire.Expiration) == 0
}

// renew takes a changed catalog, and forgets what the change may have made wrong.
func (p *Publisher) renew(v *catalog.View) {
	p.view = v
	var generation uint64
	if vh := v.VHost(p.c.vhost); vh != nil {
		generation = vh.Generation()
	}
	permission := v.Permission(p.c.user.Name, p.c.vhost)
	if generation == p.generation && permission == p.permission {
		return
	}
	p.generation, p.permission = generation, permission
	p.exchanges, p.last, p.remembered = nil, nil, 0
	if len(p.slots) > maxSlots && len(p.dirty) == 0 {
		p.slots = nil
	}
}

// target finds the exchange and checks that the user may publish to it.
func (p *Publisher) target(exchange []byte) (*target, *amqperr.Error) {
	if t := p.last; t != nil && t.name == string(exchange) {
		return t, nil
	}
	if t := p.exchanges[string(exchange)]; t != nil {
		p.last = t
		return t, nil
	}
	c := p.c
	t := &target{name: string(exchange)}
	if err := c.mayWrite(amqperr.Exchange, t.name); err != nil {
		return nil, err
	}
	if t.name != "" {
		t.exchange = p.view.Exchange(c.vhost, t.name)
		if t.exchange == nil {
			return nil, amqperr.NoExchange(c.vhost, t.name)
		}
		if t.exchange.Internal {
			return nil, amqperr.InternalExchange(c.vhost, t.name)
		}
	}
	if p.exchanges == nil {
		p.exchanges = make(map[string]*target)
	}
	p.exchanges[t.name] = t
	p.last = t
	return t, nil
}

// route finds the queues of a key, and remembers them unless they depend on more than the key.
func (p *Publisher) route(t *target, key []byte, properties wire.Properties) *route {
	if r := t.routes[string(key)]; r != nil {
		t.last = r
		return r
	}
	name := string(key)
	if p.search(t, name, nil, properties) {
		return &p.loose
	}
	if t.exchange == nil && isReplyName(key) {
		return &p.loose // comes and goes without the catalog's knowledge
	}
	if p.remembered >= maxRemembered {
		p.exchanges, p.remembered = map[string]*target{t.name: t}, 0
		t.routes = nil
	}
	r := &route{key: name, slots: append([]*slot(nil), p.loose.slots...), rare: p.loose.rare}
	if t.routes == nil {
		t.routes = make(map[string]*route)
	}
	t.routes[name] = r
	t.last = r
	p.remembered += routeCost + len(r.slots)
	return r
}

// search finds the route of a message, loose, and reports whether it may be another one the next time.
func (p *Publisher) search(t *target, key string, further []string, properties wire.Properties) (passing bool) {
	p.missing, p.replied = false, false
	p.message = routing.Message{
		Key: key, Further: further, Properties: properties,
		Draw: rand.Uint64, Here: p.here, Kept: p.message.Kept[:0], Screened: p.message.Screened[:0],
	}
	p.through = p.through[:0]
	p.loose.slots = p.find(p.loose.slots[:0], t)
	p.loose.rare, p.loose.replied = nil, p.replied
	if len(p.message.Kept) > 0 {
		p.loose.rare = &rare{kept: newKeepers(p.message.Kept)}
	}
	if len(p.through) > 0 {
		p.loose.rare = p.screening(p.loose.rare)
	}
	p.message.Properties = nil
	return p.message.Single || p.missing
}

// find appends the slots of the queues that t leads p.message to.
func (p *Publisher) find(dst []*slot, t *target) []*slot {
	if t.exchange == nil {
		dst = p.findNamed(dst, p.message.Key)
		for _, key := range p.message.Further {
			dst = p.findNamed(dst, key)
		}
		return dst
	}
	p.found = p.view.Route(t.exchange, &p.message, p.found[:0])
	left := p.message.Screened
	for _, id := range p.found {
		var by *queuehost.Screen
		if len(left) > 0 && left[0].Queue.ID() == uint64(id) {
			by, left = p.screen(catalog.ExchangeID(left[0].Exchange.ID())), left[1:]
		}
		if h := p.c.b.handleByID(p.view, id); h != nil {
			dst = append(dst, p.slot(h))
			if len(p.message.Screened) > 0 {
				p.through = append(p.through, by)
			}
		} else {
			p.missing = true
		}
	}
	return dst
}

// screening is a rare with what was found of screens: that of the message before, as a rule.
func (p *Publisher) screening(r *rare) *rare {
	if r == nil && p.screened != nil && slices.Equal(p.screened.screens, p.through) {
		return p.screened
	}
	kept := r.keepers()
	r = &rare{kept: kept, screens: slices.Clone(p.through)}
	if kept == nil {
		p.screened = r
	}
	return r
}

// screen is what queues are told of an exchange of the vhost that lets nothing through twice.
func (p *Publisher) screen(id catalog.ExchangeID) *queuehost.Screen {
	s := p.screens[id]
	if x := p.view.ExchangeByID(p.c.vhost, id); s == nil && x != nil {
		if p.screens == nil || len(p.screens) >= maxSlots {
			p.screens = map[catalog.ExchangeID]*queuehost.Screen{}
		}
		s = screenOf(x)
		p.screens[id] = s
	}
	return s
}

// screenOf is what queues are told of an exchange that lets nothing through twice. That of one exchange is always the same.
func screenOf(x *catalog.Exchange) *queuehost.Screen {
	keys, ms := x.Remembers()
	s := &queuehost.Screen{Exchange: uint64(x.ID), Keys: keys}
	if ms > 0 {
		s.Window = queue.Most(ms)
	}
	return s
}

// findNamed appends the slot of a queue, unless it is there.
func (p *Publisher) findNamed(dst []*slot, name string) []*slot {
	b, vhost := p.c.b, p.c.vhost
	var h *queuehost.Handle
	if q := p.view.Queue(vhost, name); q != nil {
		if h = b.handle(q); h == nil {
			p.missing = true
		}
	} else if h = b.replyHandle(vhost, name); h == nil && strings.HasPrefix(name, replyPrefix) {
		if m := b.mailbox(p.view, name); m != nil {
			if !slices.ContainsFunc(dst, func(s *slot) bool { return s.reply == name }) {
				dst = append(dst, &slot{handle: m, reply: name})
			}
			return dst
		}
		p.replied = p.replied || replyNode(name) == b.node
	}
	if h == nil {
		return dst
	}
	if s := p.slot(h); !slices.Contains(dst, s) {
		dst = append(dst, s)
	}
	return dst
}

func (p *Publisher) slot(h *queuehost.Handle) *slot {
	if s := p.slots[h.ID()]; s != nil {
		return s
	}
	if p.slots == nil {
		p.slots = make(map[seglog.GroupID]*slot)
	}
	s := &slot{handle: h}
	p.slots[h.ID()] = s
	return s
}

// routeExamined is Route for a publish with properties that mean something to the broker.
func (p *Publisher) routeExamined(t *target, key []byte, properties wire.Properties) (Route, *amqperr.Error) {
	if id := properties.Bytes(wire.UserID); id != nil && !p.c.user.MaySignAs(string(id)) {
		return Route{}, amqperr.UserIDMismatch(string(id), p.c.user.Name)
	}
	if e := properties.Bytes(wire.Expiration); e != nil {
		if err := checkExpiration(string(e)); err != nil {
			return Route{}, err
		}
	}
	if t.exchange != nil && t.exchange.Type == catalog.Delayed && properties.Has(wire.Headers) {
		if problem := message.CheckDelay(properties); problem != "" {
			return Route{}, amqperr.InvalidDelay(message.DelayHeader, problem)
		}
	}
	headers := properties.Headers()
	if t.exchange != nil && t.exchange.Routes() == catalog.Deduplication {
		if problem := message.CheckCacheTTL(properties); problem != "" {
			return Route{}, amqperr.InvalidCacheTTL(message.CacheTTLHeader, problem)
		}
	}
	cc, hasCC := headers.Get("CC")
	bcc, hasBCC := headers.Get("BCC")
	if hasCC || hasBCC {
		return p.routeCopies(t, key, properties, cc, bcc)
	}
	r := p.route(t, key, properties)
	return Route{slots: r.slots, properties: properties, rare: r.rare, replied: r.replied, plain: plain(properties)}, nil
}

// routeCopies is route for a message with further keys in the CC and BCC headers. The keys go their ways together: each
// exchange sees the message once, and hands it to its alternate only if none of them leads anywhere.
func (p *Publisher) routeCopies(t *target, key []byte, properties wire.Properties, cc, bcc wire.Value) (Route, *amqperr.Error) {
	var further []string
	var hidden []byte
	for _, header := range []struct {
		name  string
		value wire.Value
	}{{"CC", cc}, {"BCC", bcc}} {
		if header.value.IsZero() {
			continue
		}
		if header.value.TypeName() != "array" {
			return Route{}, amqperr.InvalidCopies(header.name)
		}
		for v := range header.value.Array() {
			k, ok := v.Str()
			if !ok || v.Kind != 'S' {
				continue // as RabbitMQ does: only strings are keys
			}
			if header.name == "BCC" && p.view.Level() >= hiddenLevel {
				hidden = message.AppendHidden(hidden, []byte(k))
			}
			further = append(further, k)
		}
	}
	p.search(t, string(key), further, properties)
	r := Route{slots: p.loose.slots, properties: properties, rare: p.loose.rare, replied: p.loose.replied, plain: plain(properties)}
	if bcc.IsZero() {
		return r, nil
	}
	kept := wire.Table{}
	for name, v := range properties.Headers().All() {
		if name != "BCC" {
			kept = kept.AppendValue(name, v)
		}
	}
	r.properties, r.stripped = properties.WithHeaders(kept), true
	if len(hidden) > 0 {
		r.rare = &rare{r.rare.keepers(), hidden, r.rare.screened()}
	}
	return r, nil
}

// hiddenLevel is the level of formats from which on messages have hidden keys.
const hiddenLevel = 2

// checkExpiration checks a message's expiration: milliseconds, at most ten years, as text.
func checkExpiration(text string) *amqperr.Error {
	const most = 315_360_000_000 // ten years
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case n > most: // of a number beyond all bounds, n is the bound
		return amqperr.InvalidExpiration(text, "longer than ten years")
	case err != nil || n < 0:
		return amqperr.InvalidExpiration(text, "not a number of milliseconds")
	}
	return nil
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

// MayVanish reports whether the message can turn out to lead nowhere after all: its queues may be deleted before they have it, and then
// all its outcomes are Gone. A reply counts as routed whatever becomes of it.
func (r *Route) MayVanish() bool {
	for _, s := range r.slots {
		if s.handle.ID() >= firstReplyQueue || s.reply != "" {
			return false
		}
	}
	return len(r.slots) > 0
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
