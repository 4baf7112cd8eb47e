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

	ConsistentHash // one binding, by a hash: the binding key is its weight
	ModulusHash    // one binding, by a hash and the number of bindings
	Random         // one binding, by chance
	LocalRandom    // one binding, by chance, to a queue of this node
	History        // every binding, and the caller keeps the message for those that come later
	Once           // every binding, and the caller sees to it that no queue takes a message with the same key twice
)

// Index is the bindings of one exchange. It is immutable; the zero Index is that of a direct exchange without bindings.
//
// The caller keeps bindings apart: it calls Bind once for each binding and Unbind only for one that was bound.
type Index struct {
	kind    Kind
	direct  ordmap.Map[string, targets] // by binding key
	fanout  set                         // of History and Once, too
	named   ordmap.Map[string, Target]  // of a modulus hash and the random kinds, by nameKey
	topic   *topicNode
	headers headersIndex
	hashed  *hashedIndex // nil for any kind but a consistent hash
}

// New returns the index of an exchange without bindings. args are the exchange's arguments.
func New(kind Kind, args wire.Table) Index {
	x := Index{kind: kind}
	if kind == ConsistentHash {
		x.hashed = &hashedIndex{by: hashBy(args)}
	}
	return x
}

// Binding is a binding as an index sees it.
type Binding struct {
	Key    string
	Args   wire.Table
	Target Target
	Name   string // the target's, by which hashing exchanges know it; no two targets of an exchange have the same
}

// Bind returns the index with one more binding. For e see [ordmap.Edit].
func (x Index) Bind(e *ordmap.Edit, b Binding) Index {
	switch x.kind {
	case Direct:
		ts, _ := x.direct.Get(b.Key)
		x.direct = x.direct.Set(e, b.Key, ts.with(e, b.Target))
	case Topic:
		x.topic = x.topic.bind(e, pattern(b.Key), b.Target)
	case Headers:
		x.headers = x.headers.bind(e, b.Args, b.Target)
	case ConsistentHash:
		x.hashed = x.hashed.weigh(e, b, 1)
	case ModulusHash, Random, LocalRandom:
		x.named = x.named.Set(e, nameKey(b), b.Target)
	default:
		x.fanout = addTarget(e, x.fanout, b.Target)
	}
	return x
}

// Unbind returns the index without one binding, which was there.
func (x Index) Unbind(e *ordmap.Edit, b Binding) Index {
	switch x.kind {
	case Direct:
		ts, _ := x.direct.Get(b.Key)
		if ts = ts.without(e, b.Target); ts.none() {
			x.direct = x.direct.Delete(e, b.Key)
		} else {
			x.direct = x.direct.Set(e, b.Key, ts)
		}
	case Topic:
		x.topic = x.topic.unbind(e, pattern(b.Key), b.Target)
	case Headers:
		x.headers = x.headers.unbind(e, b.Args, b.Target)
	case ConsistentHash:
		x.hashed = x.hashed.weigh(e, b, -1)
	case ModulusHash, Random, LocalRandom:
		x.named = x.named.Delete(e, nameKey(b))
	default:
		x.fanout = dropTarget(e, x.fanout, b.Target)
	}
	return x
}

// Match appends the targets that a message is for, each once, in no particular order. An exchange that looks at routing
// keys matches each of them; one that hashes or draws chooses one target, however many keys there are.
func (x *Index) Match(dst []Target, m *Message) []Target {
	invariant.Pass("routing", "matched")
	start, sets := len(dst), 0
	switch x.kind {
	case Direct:
		if ts, ok := x.direct.Get(m.Key); ok {
			dst = ts.appendTo(dst)
			sets++
		}
		for _, key := range m.Further {
			if ts, ok := x.direct.Get(key); ok {
				dst = ts.appendTo(dst)
				sets++
			}
		}
	case Topic:
		dst, sets = x.topic.match(dst, m.Key)
		for _, key := range m.Further {
			var n int
			dst, n = x.topic.match(dst, key)
			sets += n
		}
	case Headers:
		m.Single = true
		dst, sets = x.headers.match(dst, m.Properties.Headers())
	case ConsistentHash:
		return x.hashed.match(dst, m)
	case ModulusHash:
		return x.remainder(dst, m)
	case Random:
		return x.draw(dst, m)
	case LocalRandom:
		return x.drawHere(dst, m)
	default:
		return x.fanout.AppendKeys(dst)
	}
	if sets > 1 {
		found := dst[start:]
		slices.Sort(found)
		dst = dst[:start+len(slices.Compact(found))]
	}
	return dst
}
