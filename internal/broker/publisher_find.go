package broker

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
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
	s, b := p.screens[id], p.c.b
	if s != nil && s.Exchange == b.behindForces(uint64(id)) {
		return s
	}
	x := p.view.ExchangeByID(p.c.vhost, id)
	if x == nil {
		return nil
	}
	if p.screens == nil || len(p.screens) >= maxSlots {
		p.screens = map[catalog.ExchangeID]*queuehost.Screen{}
	}
	s = b.screenOf(x)
	p.screens[id] = s
	return s
}

// screenIn is by way of which exchange a queue is reached that is to be told of it, by what a route has found; nil: of none.
func (b *Broker) screenIn(found []routing.Screened, id catalog.QueueID, v *catalog.View, vhost string) *queuehost.Screen {
	i, is := slices.BinarySearchFunc(found, uint64(id), func(s routing.Screened, id uint64) int { return cmp.Compare(s.Queue.ID(), id) })
	if !is {
		return nil
	}
	x := v.ExchangeByID(vhost, catalog.ExchangeID(found[i].Exchange.ID()))
	if x == nil {
		return nil
	}
	return b.screenOf(x)
}

// screenOf is what queues are told of an exchange that lets nothing through twice. That of one exchange is always the same, until the catalog is
// forced: another one may have the id then, of which queues must not know what they know of the first.
func (b *Broker) screenOf(x *catalog.Exchange) *queuehost.Screen {
	keys, ms := x.Remembers()
	s := &queuehost.Screen{Exchange: b.behindForces(uint64(x.ID)), Keys: keys}
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
				dst = append(dst, &slot{handle: m, reply: name, to: queuehost.NewAddressee(vhost, name)})
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
