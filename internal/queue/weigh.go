package queue

// Sizes are noted while a limit of bytes is set: a size for each message that is ready, held or dead. Those of messages
// that were there before are 0 until the host has weighed them.

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
	}
}

func (m *Machine) goOut(first, last Number) {
	if m.extra != nil {
		m.extra.readyBytes -= m.extra.bytes(first, last)
	}
}

// weigh notes the size of messages that are there and of which it is not known.
func (m *Machine) weigh(c *Command) {
	first, last := Number(c.First), Number(c.Last)
	x := m.extra
	if x == nil || !x.sized() || first > last || first.Lane() != last.Lane() || int(first.Lane()) >= len(m.lanes) {
		return
	}
	left := uint64(last-first) + 1
	add := func(from, to Number) (sum uint64) {
		from, to = max(from, first), min(to, last)
		if from > to {
			return 0
		}
		left -= uint64(to-from) + 1
		x.unknown(from, to, func(r Numbers) {
			x.sizes.add(r.First, r.Last, c.Bytes)
			sum += c.Bytes * r.Len()
		})
		return sum
	}
	m.lanes[first.Lane()].runs.within(first, last, func(r run) { x.readyBytes += add(r.first, r.last) })
	if left > 0 {
		x.waiting.runs(func(_ int64, r run) { x.readyBytes += add(r.first, r.last) })
		x.dead.all(func(d deadRun) { x.dead.bytes += add(d.first, d.last) })
	}
	for _, con := range m.consumers {
		if left == 0 || m.unacked == 0 {
			return
		}
		con.held.all(func(_ uint64, s *slot) { add(s.number, s.number) })
	}
}

// unknown calls f for those of the messages first to last of which the size is not known.
func (x *extra) unknown(first, last Number, f func(Numbers)) {
	for n := first; ; {
		_, known, upTo := x.sizes.at(n, last)
		if !known {
			f(Numbers{n, upTo})
		}
		if upTo == last {
			return
		}
		n = upTo + 1
	}
}

// Unweighed appends to dst the messages of which the size is not known, where it is of interest, in ascending
// order, and returns it. Chunks have none of their own.
func (m *Machine) Unweighed(dst []Numbers) []Numbers {
	x := m.extra
	if x == nil || !x.sized() {
		return dst
	}
	var coming []Numbers
	m.parts(func(r run) { coming = append(coming, Numbers{r.first, r.last}) })
	coming = joined(coming)
	for _, r := range m.Live(nil) {
		if r.First.Lane() == ChunkLane {
			break
		}
		for r.First <= r.Last {
			for len(coming) > 0 && coming[0].Last < r.First {
				coming = coming[1:]
			}
			upTo := r.Last
			if len(coming) > 0 {
				if r.First >= coming[0].First {
					r.First = coming[0].Last + 1
					continue
				}
				upTo = min(upTo, coming[0].First-1)
			}
			x.unknown(r.First, upTo, func(n Numbers) { dst = append(dst, n) })
			r.First = upTo + 1
		}
	}
	return dst
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
