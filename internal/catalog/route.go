package catalog

import (
	"cmp"
	"slices"

	"holdfast/internal/message"
	"holdfast/internal/routing"
)

// routingKinds says how the exchange types match.
var routingKinds = map[ExchangeType]routing.Kind{
	Direct:         routing.Direct,
	Fanout:         routing.Fanout,
	Topic:          routing.Topic,
	Headers:        routing.Headers,
	ConsistentHash: routing.ConsistentHash,
	ModulusHash:    routing.ModulusHash,
	Random:         routing.Random,
	LocalRandom:    routing.LocalRandom,
	RecentHistory:  routing.History,
	Deduplication:  routing.Once,
}

// kind is how the exchange matches.
func (x *Exchange) kind() routing.Kind { return routingKinds[x.Routes()] }

// hashLevel is the level of the formats that the types from ConsistentHash on came with.
const hashLevel = 2

// kindOf returns how a type matches, if it is one that can be declared.
func (v *View) kindOf(t ExchangeType) (kind routing.Kind, ok bool) {
	kind, ok = routingKinds[t]
	ok = ok || HasStore(t)
	return kind, ok && (kind < routing.ConsistentHash && !HasStore(t) || v.Level() >= hashLevel)
}

// Route appends the queues that a message published to x is for, each once, in no particular order. It follows bindings to
// further exchanges, each exchange once however they are bound to each other, and from each exchange that chooses nothing
// at all on to its alternate exchange. In m it notes whether the route holds for others with the same keys, and which
// exchanges are to keep the message. x is an exchange of this view or of an older one.
func (v *View) Route(x *Exchange, m *routing.Message, dst []QueueID) []QueueID {
	if x.Name == "" {
		return v.routeDefault(x, m, dst)
	}
	var buf [32]routing.Target
	found := x.match(m, buf[:0])
	simple := len(found) > 0 || v.alternate(x) == ""
	for _, t := range found {
		if t.IsExchange() {
			simple = false
			break
		}
	}
	if !simple {
		return v.routeOn(x, found, m, dst)
	}
	by := x.screens(m)
	for _, t := range found {
		dst = append(dst, QueueID(t.ID()))
		if by {
			m.Screened = append(m.Screened, routing.Screened{Queue: t, Exchange: routing.ToExchange(uint64(x.ID))})
		}
	}
	return dst
}

// routeDefault is Route for the default exchange, where each key is the name of a queue.
func (v *View) routeDefault(x *Exchange, m *routing.Message, dst []QueueID) []QueueID {
	start := len(dst)
	if q := v.Queue(x.VHost, m.Key); q != nil {
		dst = append(dst, q.ID)
	}
	for _, key := range m.Further {
		if q := v.Queue(x.VHost, key); q != nil && !slices.Contains(dst[start:], q.ID) {
			dst = append(dst, q.ID)
		}
	}
	return dst
}

// match appends what x alone chooses.
func (x *Exchange) match(m *routing.Message, dst []routing.Target) []routing.Target {
	if x.Store != 0 {
		m.Single = true
		if x.delays(m) {
			return append(dst, routing.ToQueue(uint64(x.Store)))
		}
	}
	switch x.Routes() {
	case RecentHistory:
		m.Kept = append(m.Kept, routing.ToExchange(uint64(x.ID)))
	case Deduplication:
		m.Single = true
	}
	return x.index.Match(dst, m)
}

// screens reports whether the queues that are reached by way of x are to take the message only if they have had none with its key.
// One that x delays first is screened when it leaves.
func (x *Exchange) screens(m *routing.Message) bool {
	return x.Routes() == Deduplication && message.HasHeaderKey(m.Properties) && !x.delays(m)
}

// delays reports whether x keeps the message for a time.
func (x *Exchange) delays(m *routing.Message) bool {
	return x.Store != 0 && message.Delay(m.Properties) > 0
}

// Remembers returns how many keys a queue is to remember of what has come through x, and for how many milliseconds, if x lets nothing through twice; 0:
// as long as there is room.
func (x *Exchange) Remembers() (keys, ms uint64) { return routing.Cached(x.Args) }

// routeOn is Route for an exchange that has chosen found, some further exchange or nothing at all.
func (v *View) routeOn(x *Exchange, found []routing.Target, m *routing.Message, dst []QueueID) []QueueID {
	vh := v.VHost(x.VHost)
	if vh == nil {
		return dst
	}
	start, from := len(dst), len(m.Screened)
	seen := map[ExchangeID]bool{x.ID: true}
	// What lies behind an exchange that screens comes after all that can be reached otherwise.
	var work, screens []*Exchange
	var by routing.Target // the last one that screens, on the way to x; 0: none
	visit := func(name string) {
		if next, ok := vh.exchanges.Get(name); ok && !seen[next.ID] {
			seen[next.ID] = true
			if next.screens(m) {
				screens = append(screens, next)
			} else {
				work = append(work, next)
			}
		}
	}
	if x.screens(m) {
		by = routing.ToExchange(uint64(x.ID))
	}
	for {
		if len(found) == 0 {
			if name := v.alternate(x); name != "" {
				visit(name)
			}
		}
		for _, t := range found {
			if !t.IsExchange() {
				dst = append(dst, QueueID(t.ID()))
				if by != 0 {
					m.Screened = append(m.Screened, routing.Screened{Queue: t, Exchange: by})
				}
			} else if name, ok := vh.exchangeIDs.Get(ExchangeID(t.ID())); ok {
				visit(name)
			}
		}
		if len(work) > 0 {
			x, work = work[len(work)-1], work[:len(work)-1]
		} else if len(screens) > 0 {
			x, screens = screens[0], screens[1:]
			by = routing.ToExchange(uint64(x.ID))
		} else {
			break
		}
		found = x.match(m, found[:0])
	}
	m.Screened = append(m.Screened[:from], onlyScreened(dst[start:], m.Screened[from:])...)
	slices.Sort(dst[start:])
	return dst[:start+len(slices.Compact(dst[start:]))]
}

// onlyScreened returns of the queues that are reached by way of an exchange which screens those that are reached in no other way, each once and in
// order. all are the queues in the order in which they were reached, so that of one reached in both ways the other way is the first.
func onlyScreened(all []QueueID, some []routing.Screened) []routing.Screened {
	if len(some) == 0 {
		return nil
	}
	others := map[QueueID]bool{}
	for _, id := range all[:len(all)-len(some)] {
		others[id] = true
	}
	some = slices.DeleteFunc(some, func(s routing.Screened) bool { return others[QueueID(s.Queue.ID())] })
	slices.SortStableFunc(some, func(a, b routing.Screened) int { return cmp.Compare(a.Queue, b.Queue) })
	return slices.CompactFunc(some, func(a, b routing.Screened) bool { return a.Queue == b.Queue })
}
