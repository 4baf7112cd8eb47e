package catalog

import (
	"slices"

	"holdfast/internal/routing"
	"holdfast/internal/wire"
)

// routingKinds says how the exchange types match.
var routingKinds = map[ExchangeType]routing.Kind{
	Direct:  routing.Direct,
	Fanout:  routing.Fanout,
	Topic:   routing.Topic,
	Headers: routing.Headers,
}

// Route appends the queues that a message published to x with this key is for, each once, in no particular order. It
// follows bindings to further exchanges, each exchange once however they are bound to each other, and from each exchange
// that chooses nothing at all on to its alternate exchange. headers is called for headers exchanges only; nil stands for
// no headers. x is an exchange of this view or of an older one.
func (v *View) Route(x *Exchange, key string, headers func() wire.Table, dst []QueueID) []QueueID {
	if x.Name == "" {
		if q := v.Queue(x.VHost, key); q != nil {
			dst = append(dst, q.ID)
		}
		return dst
	}
	var buf [32]routing.Target
	found := x.index.Match(buf[:0], key, headers)
	simple := len(found) > 0 || v.alternate(x) == ""
	for _, t := range found {
		if t.IsExchange() {
			simple = false
			break
		}
	}
	if !simple {
		return v.routeOn(x, found, key, headers, dst)
	}
	for _, t := range found {
		dst = append(dst, QueueID(t.ID()))
	}
	return dst
}

// routeOn is Route for an exchange that has chosen found, some further exchange or nothing at all.
func (v *View) routeOn(x *Exchange, found []routing.Target, key string, headers func() wire.Table, dst []QueueID) []QueueID {
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
		found = x.index.Match(found[:0], key, headers)
	}
	slices.Sort(dst[start:])
	return dst[:start+len(slices.Compact(dst[start:]))]
}
