package queue

import (
	"cmp"
	"slices"

	"holdfast/internal/planted"
)

// Sizes are noted while a limit of bytes is set: a size for each message that is ready, held or dead. Those of messages
// that were there before are 0 until the host has weighed them.

// Where a message is of which the size is not known: what its size adds to once it is.
const (
	inHand uint64 = iota // held: to nothing
	counts               // ready, or it waits to be: to what limits count
	isDead               // to the bytes of the dead
)

// sized reports whether sizes are noted.
func (x *extra) sized() bool { return x.set.MaxBytes > 0 || x.set.HeldMostBytes > 0 }

// bytes returns the sizes of messages first to last altogether.
func (x *extra) bytes(first, last Number) (sum uint64) {
	if x.sizes.count == 0 {
		return 0
	}
	for n := first; ; {
		size, _, upTo := x.sizes.at(n, last)
		sum += size * (uint64(upTo-n) + 1)
		if upTo == last {
			return sum
		}
		n = upTo + 1
	}
}

// comeIn and goOut count messages that have become ready, or wait to, and those that no longer are.
func (m *Machine) comeIn(first, last Number) {
	if m.extra != nil {
		m.extra.readyBytes += m.extra.bytes(first, last)
		m.extra.unweighed.change(first, last, counts)
	}
}

func (m *Machine) goOut(first, last Number) {
	if m.extra != nil {
		m.extra.readyBytes -= m.extra.bytes(first, last)
		m.extra.unweighed.change(first, last, inHand)
		if planted.Is(planted.KeyFreed) {
			m.extra.keys.forget(first, last)
		}
	}
}

// weigh notes the size of messages that are there and of which it is not known.
func (m *Machine) weigh(c *Command) {
	first, last := Number(c.First), Number(c.Last)
	x := m.extra
	if x == nil || first > last || first.Lane() != last.Lane() {
		return
	}
	for n := first; ; {
		where, unknown, upTo := x.unweighed.at(n, last)
		if unknown {
			x.unweighed.forget(n, upTo)
			x.sizes.add(n, upTo, c.Bytes)
			sum := c.Bytes * (uint64(upTo-n) + 1)
			switch where {
			case counts:
				x.readyBytes += sum
			case isDead:
				x.dead.bytes += sum
			}
		}
		if upTo == last {
			return
		}
		n = upTo + 1
	}
}

// findUnweighed notes of which messages the size is not known. It reports whether no message is in two places.
func (m *Machine) findUnweighed() bool {
	m.extra.unweighed = notes{}
	for i, rs := 0, m.withoutSize(); i < len(rs); i++ {
		if i > 0 && rs[i-1].last >= rs[i].first {
			return false
		}
		m.extra.unweighed.add(rs[i].first, rs[i].last, uint64(rs[i].attr))
	}
	return true
}

// withoutSize looks at all messages for those of which the size is not known and of interest, and returns them in
// order, with where they are. Chunks have none of their own, nor have messages of transactions that are under way.
func (m *Machine) withoutSize() (rs []run) {
	x := m.extra
	if !x.sized() {
		return nil
	}
	add := func(first, last Number, where attr) {
		for n := first; ; {
			_, known, upTo := x.sizes.at(n, last)
			if !known {
				rs = append(rs, run{n, upTo, where})
			}
			if upTo == last {
				return
			}
			n = upTo + 1
		}
	}
	for i := range m.lanes {
		m.lanes[i].runs.all(func(r run) { add(r.first, r.last, attr(counts)) })
	}
	x.waiting.runs(func(_ int64, r run) { add(r.first, r.last, attr(counts)) })
	x.dead.all(func(d deadRun) { add(d.first, d.last, attr(isDead)) })
	for _, c := range m.consumers {
		c.held.all(func(_ uint64, s *slot) { add(s.number, s.number, attr(inHand)) })
	}
	slices.SortFunc(rs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	return rs
}

// Unweighed appends to dst the messages of which the size is not known, where it is of interest, in ascending
// order, and returns it. Chunks have none of their own.
func (m *Machine) Unweighed(dst []Numbers) []Numbers {
	if m.extra == nil {
		return dst
	}
	at := len(dst)
	m.extra.unweighed.all(func(r run) { dst = append(dst, Numbers{r.first, r.last}) })
	return append(dst[:at], joined(dst[at:])...)
}

// ReadyBytes returns the size of what a limit of bytes counts, as far as it is known.
func (m *Machine) ReadyBytes() uint64 {
	if m.extra == nil {
		return 0
	}
	return m.extra.readyBytes
}

// DeadBytes returns the size of the dead messages, as far as it is known.
func (m *Machine) DeadBytes() uint64 {
	if m.extra == nil {
		return 0
	}
	return m.extra.dead.bytes
}

// countBytes adds up all sizes.
func (m *Machine) countBytes() (ready, dead uint64) {
	x := m.extra
	for i := range m.lanes {
		m.lanes[i].runs.all(func(r run) { ready += x.bytes(r.first, r.last) })
	}
	x.waiting.runs(func(_ int64, r run) { ready += x.bytes(r.first, r.last) })
	x.dead.all(func(d deadRun) { dead += x.bytes(d.first, d.last) })
	return ready, dead
}
