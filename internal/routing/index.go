package routing

import (
	"slices"

	"holdfast/internal/invariant"
	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"
)

// Target is where a binding leads: a queue or an exchange, by id.
type Target uint64

// ToQueue returns the target for a queue id.
func ToQueue(id uint64) Target { return Target(id << 1) }

// ToExchange returns the target for an exchange id.
func ToExchange(id uint64) Target { return Target(id<<1 | 1) }

// IsExchange reports whether t is an exchange.
func (t Target) IsExchange() bool { return t&1 != 0 }

// ID returns the id of the queue or exchange.
func (t Target) ID() uint64 { return uint64(t >> 1) }

// Kind is how an exchange matches.
type Kind uint8

// The kinds of matching.
const (
	Direct  Kind = iota // the binding key is the routing key
	Fanout              // every binding
	Topic               // the binding key is a pattern of words
	Headers             // the binding's arguments are conditions on the headers
)

// set holds targets, each with the number of bindings that lead to it in the same way: bindings that differ only in
// arguments the type does not look at.
type set = ordmap.Map[Target, uint32]

// Index is the bindings of one exchange. It is immutable; the zero Index is that of a direct exchange without bindings.
//
// The caller keeps bindings apart: it calls Bind once for each binding and Unbind only for one that was bound.
type Index struct {
	kind    Kind
	direct  ordmap.Map[string, set] // by binding key
	fanout  set
	topic   *topicNode
	headers headersIndex
}

// New returns the index of an exchange without bindings.
func New(kind Kind) Index { return Index{kind: kind} }

// Bind returns the index with one more binding. For e see [ordmap.Edit].
func (x Index) Bind(e *ordmap.Edit, key string, args wire.Table, t Target) Index {
	switch x.kind {
	case Direct:
		s, _ := x.direct.Get(key)
		x.direct = x.direct.Set(e, key, addTarget(e, s, t))
	case Fanout:
		x.fanout = addTarget(e, x.fanout, t)
	case Topic:
		x.topic = x.topic.bind(e, pattern(key), t)
	case Headers:
		x.headers = x.headers.bind(e, args, t)
	}
	return x
}

// Unbind returns the index without one binding, which was there.
func (x Index) Unbind(e *ordmap.Edit, key string, args wire.Table, t Target) Index {
	switch x.kind {
	case Direct:
		s, _ := x.direct.Get(key)
		if s = dropTarget(e, s, t); s.Len() == 0 {
			x.direct = x.direct.Delete(e, key)
		} else {
			x.direct = x.direct.Set(e, key, s)
		}
	case Fanout:
		x.fanout = dropTarget(e, x.fanout, t)
	case Topic:
		x.topic = x.topic.unbind(e, pattern(key), t)
	case Headers:
		x.headers = x.headers.unbind(e, args, t)
	}
	return x
}

// Match appends the targets that a message with this routing key is for, each once, in no particular order. headers is
// called at most once, and only by a headers exchange; nil stands for no headers.
func (x *Index) Match(dst []Target, key string, headers func() wire.Table) []Target {
	invariant.Pass("routing", "matched")
	start, sets := len(dst), 0
	switch x.kind {
	case Direct:
		if s, ok := x.direct.Get(key); ok {
			return s.AppendKeys(dst)
		}
		return dst
	case Fanout:
		return x.fanout.AppendKeys(dst)
	case Topic:
		dst, sets = x.topic.match(dst, key)
	case Headers:
		var h wire.Table
		if headers != nil {
			h = headers()
		}
		dst, sets = x.headers.match(dst, h)
	}
	if sets > 1 {
		found := dst[start:]
		slices.Sort(found)
		dst = dst[:start+len(slices.Compact(found))]
	}
	return dst
}

func addTarget(e *ordmap.Edit, s set, t Target) set {
	n, _ := s.Get(t)
	return s.Set(e, t, n+1)
}

func dropTarget(e *ordmap.Edit, s set, t Target) set {
	if n, _ := s.Get(t); n > 1 {
		return s.Set(e, t, n-1)
	}
	return s.Delete(e, t)
}
