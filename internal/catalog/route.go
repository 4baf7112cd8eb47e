package catalog

import (
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
	for _, t := range found {
		dst = append(dst, QueueID(t.ID()))
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
		if message.Delay(m.Properties) > 0 {
			return append(dst, routing.ToQueue(uint64(x.Store)))
		}
	}
	if x.Routes() == RecentHistory {
		m.Kept = append(m.Kept, routing.ToExchange(uint64(x.ID)))
	}
	return x.index.Match(dst, m)
}

// routeOn is Route for an exchange that has chosen found, some further exchange or nothing at all.
func (v *View) routeOn(x *Exchange, found []routing.Target, m *routing.Message, dst []QueueID) []QueueID {
	vh := v.VHost(x.VHost)
	if vh == nil {
		return dst
	}
	start := len(dst)
	seen := map[ExchangeID]bool{x.ID: true}
	var work []*Exchange
	visit := func(name string) {
		if next, ok := vh.exchanges.Get(name); ok && !seen[next.ID] {
			seen[next.ID] = true
			work = append(work, next)
		}
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
			} else if name, ok := vh.exchangeIDs.Get(ExchangeID(t.ID())); ok {
				visit(name)
			}
		}
		if len(work) == 0 {
			break
		}
		x, work = work[len(work)-1], work[:len(work)-1]
		found = x.match(m, found[:0])
	}
	slices.Sort(dst[start:])
	return dst[:start+len(slices.Compact(dst[start:]))]
}
