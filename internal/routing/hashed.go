package routing

import (
	"encoding/binary"
	"errors"
	"strconv"

	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"
)

// hashedIndex is the bindings of a consistent hash. It is immutable. Of several bindings to one target the heaviest counts.
type hashedIndex struct {
	by      hashedBy
	weights ordmap.Map[Target, ordmap.Map[uint64, uint32]] // by weight, how many bindings
	shares  *shares
}

// hashedBy says what of a message is hashed: a header, a property, or, if neither is set, the routing key.
type hashedBy struct {
	byHeader bool
	header   string
	property wire.Property
}

// The arguments of an exchange that say what is hashed, and the properties that can be.
const (
	argHashHeader   = "hash-header"
	argHashProperty = "hash-property"
)

var hashProperties = map[string]wire.Property{
	"correlation_id": wire.CorrelationID,
	"message_id":     wire.MessageID,
	"timestamp":      wire.Timestamp,
}

func hashBy(args wire.Table) (by hashedBy) {
	if v, ok := args.Get(argHashHeader); ok {
		by.byHeader = true
		by.header, _ = v.Str()
	}
	if v, ok := args.Get(argHashProperty); ok {
		name, _ := v.Str()
		by.property = hashProperties[name]
	}
	return by
}

// weigh counts a binding in (1) or out (-1).
func (x *hashedIndex) weigh(e *ordmap.Edit, b Binding, by int) *hashedIndex {
	y := *x
	weight, _ := weightOf(b.Key)
	all, _ := x.weights.Get(b.Target)
	n, _ := all.Get(weight)
	if n = uint32(int(n) + by); n > 0 {
		all = all.Set(e, weight, n)
	} else {
		all = all.Delete(e, weight)
	}
	heaviest := uint64(0)
	if all.Len() > 0 {
		heaviest, _ = all.At(all.Len() - 1)
		y.weights = x.weights.Set(e, b.Target, all)
	} else {
		y.weights = x.weights.Delete(e, b.Target)
	}
	y.shares = x.shares.set(hashOf(b.Name), b.Target, heaviest)
	return &y
}

// match appends the one target of a message.
func (x *hashedIndex) match(dst []Target, m *Message) []Target {
	if x.shares == nil {
		return dst
	}
	return append(dst, x.shares.pick(x.hash(m)))
}

// hash is the hash of what the exchange hashes. All messages without the header or the property have one and the same.
func (x *hashedIndex) hash(m *Message) uint64 {
	switch {
	case x.by.byHeader:
		m.Single = true
		v, ok := m.Properties.Headers().Get(x.by.header)
		if !ok {
			return hashStart
		}
		var buf [96]byte
		return hashOf(appendMeaning(buf[:0], v))
	case x.by.property == wire.Timestamp:
		m.Single = true
		t, ok := m.Properties.Timestamp()
		if !ok {
			return hashStart
		}
		var buf [8]byte
		binary.BigEndian.PutUint64(buf[:], uint64(t.Unix()))
		return hashOf(buf[:])
	case x.by.property != 0:
		m.Single = true
		if !m.Properties.Has(x.by.property) {
			return hashStart
		}
		return hashOf(m.Properties.Bytes(x.by.property))
	}
	return hashOf(m.Key)
}

// maxWeight is the heaviest that a binding of a consistent hash can be.
const maxWeight = 10_000

// weightOf reads a binding key of a consistent hash, and says what is wrong with it, "" if nothing is.
func weightOf(key string) (weight uint64, problem string) {
	n, err := strconv.ParseInt(key, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, "The binding key must be an integer: '" + key + "'"
	case n < 1:
		return 0, "The binding key must be greater than 0"
	case n > maxWeight:
		return 0, "The binding key must not exceed " + strconv.Itoa(maxWeight)
	}
	return uint64(n), ""
}

// An exchange that chooses one of its bindings, whatever their keys, has them in order of the targets' names, and those of
// one target in order of their keys and arguments.

// nameKey is what bindings are in order of: no two bindings of an exchange have the same.
func nameKey(b Binding) string {
	k := append(make([]byte, 0, 64), b.Name...)
	k = append(append(k, 0), b.Key...)
	k = append(append(k, 0), Canonical(b.Args)...)
	k = binary.BigEndian.AppendUint16(k, uint16(len(b.Name))) // any of the three may have zeroes in it
	return string(binary.BigEndian.AppendUint16(k, uint16(len(b.Key))))
}

// remainder appends the target that the hash of all keys leads to.
func (x *Index) remainder(dst []Target, m *Message) []Target {
	n := x.named.Len()
	if n == 0 {
		return dst
	}
	h := hashOf(m.Key)
	for _, key := range m.Further {
		h = mix(fold(h ^ hashOf(key)))
	}
	_, t := x.named.At(int(h % uint64(n)))
	return append(dst, t)
}

// draw appends one of the targets by chance.
func (x *Index) draw(dst []Target, m *Message) []Target {
	n := x.named.Len()
	i := m.draw(n)
	if n == 0 {
		return dst
	}
	_, t := x.named.At(i)
	return append(dst, t)
}

// tries is how often drawHere draws from all targets, before it looks at each.
const tries = 16

// drawHere appends one of the targets that are here by chance.
func (x *Index) drawHere(dst []Target, m *Message) []Target {
	n := x.named.Len()
	m.Single = true
	if n == 0 {
		return dst
	}
	if m.Here == nil {
		return x.draw(dst, m)
	}
	for range tries {
		if _, t := x.named.At(m.draw(n)); m.Here(t) {
			return append(dst, t)
		}
		if n == 1 {
			return dst
		}
	}
	found, chosen := 0, Target(0)
	for _, t := range x.named.All() {
		if m.Here(t) {
			if found++; m.draw(found) == 0 {
				chosen = t
			}
		}
	}
	if found == 0 {
		return dst
	}
	return append(dst, chosen)
}
