package queue

import "encoding/binary"

// maxCounter is the highest count a snapshot may have come to. No queue lives to see it,
// and beyond it the machine could not go on.
const maxCounter = MaxOrdinal / 2

// Restore sets the machine to the state of a snapshot. On an error the machine
// must not be used. It believes nothing: a snapshot that is not the state of a
// machine is refused with ErrFormat, and it takes at most 10 KiB of memory for
// each byte of src (which is what densely packed checkouts come to).
func (m *Machine) Restore(src []byte) error {
	*m = Machine{}
	if len(src) < 2 || src[0] != snapshotVersion || src[1] != sectionCore {
		return ErrFormat
	}
	src = src[1:]
	for tag := byte(0); len(src) > 0; {
		if len(src) < 5 || src[0] <= tag {
			return ErrFormat
		}
		tag = src[0]
		n := binary.LittleEndian.Uint32(src[1:])
		src = src[5:]
		if uint64(n) > uint64(len(src)) || n == 0 {
			return ErrFormat
		}
		d := decoder{b: src[:n]}
		src = src[n:]
		for !d.bad && len(d.b) > 0 {
			m.restore(tag, &d)
		}
		if d.bad {
			return ErrFormat
		}
	}
	if m.Check() != nil {
		return ErrFormat
	}
	return nil
}

// restore reads one record of a section.
func (m *Machine) restore(tag byte, d *decoder) {
	switch tag {
	case sectionCore:
		m.restoreCore(d)
	case sectionLanes:
		m.lanes = append(m.lanes, lane{given: d.upTo(maxCounter)})
		if len(m.lanes) > ChunkLane {
			d.bad = true
		}
	case sectionReady:
		m.restoreRun(d)
	case sectionSessions:
		m.restoreSession(d)
	case sectionConsumers:
		m.restoreConsumer(d)
	case sectionTurns:
		c := m.consumer(ConsumerID(d.uint()))
		if c == nil || c.queued {
			d.bad = true
			return
		}
		m.turns.push(c)
	case sectionBig:
		n := Number(d.uint())
		if m.big == nil {
			m.big = map[Number][]Numbers{}
		}
		if m.big[n] != nil {
			d.bad = true
		}
		m.big[n] = m.restoreRanges(d)
	default:
		d.bad = true
	}
}

func (m *Machine) restoreCore(d *decoder) {
	m.applied = d.upTo(maxCounter)
	m.now = int64(d.uint())
	flags := d.upTo(snapAutoDelete | snapHandedOut)
	m.autoDelete, m.handedOut = flags&snapAutoDelete != 0, flags&snapHandedOut != 0
	m.chunks = d.upTo(maxCounter)
	if len(d.b) > 0 {
		d.bad = true
	}
}

func (m *Machine) restoreRun(d *decoder) {
	last := Number(0)
	if m.nonEmpty != 0 {
		last = m.lanes[m.top()].runs.last()
	}
	step, n := d.uint(), d.uint()
	a := d.attr()
	first := last + Number(step)
	end := first + Number(n) - 1
	lane := first.Lane()
	if d.bad || step == 0 || first < last || n == 0 || n > MaxOrdinal || end.Lane() != lane || int(lane) >= len(m.lanes) {
		d.bad = true
		return
	}
	m.lanes[lane].runs.pushBack(run{first, end, a})
	m.gain(lane, n)
}

func (d *decoder) attr() attr {
	flags := d.upTo(flagMask<<1 | 1)
	a := attr(flags >> 1 << flagShift)
	if flags&1 != 0 {
		a |= attr(d.upTo(countMask))
		a |= attr(d.upTo(countMask) << acquiredShift)
	}
	return a
}

func (m *Machine) restoreSession(d *decoder) {
	s := &session{id: SessionID(d.uint())}
	s.suspect = d.upTo(snapSuspect) != 0
	s.epoch, s.lastSeq, s.closed = d.uint(), d.uint(), d.uint()
	for n := d.upTo(uint64(len(d.b))); n > 0 && !d.bad; n-- {
		u := upload{key: d.uint(), chunks: m.restoreRanges(d)}
		for _, r := range u.chunks {
			u.count += r.Len()
		}
		s.uploads = append(s.uploads, u)
	}
	if k := len(m.sessions); k > 0 && m.sessions[k-1].id >= s.id {
		d.bad = true
	}
	m.sessions = append(m.sessions, s)
}

func (m *Machine) restoreRanges(d *decoder) []Numbers {
	var rs []Numbers
	for n := d.upTo(uint64(len(d.b))); n > 0 && !d.bad; n-- {
		first, count := d.upTo(m.chunks), d.upTo(m.chunks)
		if first == 0 || count == 0 || count > m.chunks-first+1 {
			d.bad = true
			return nil
		}
		rs = append(rs, Numbers{MakeNumber(ChunkLane, first), MakeNumber(ChunkLane, first+count-1)})
	}
	if len(rs) == 0 {
		d.bad = true
	}
	return rs
}

func (m *Machine) restoreConsumer(d *decoder) {
	c := &consumer{id: ConsumerID(d.uint()), session: SessionID(d.uint())}
	flags := d.upTo(snapAll)
	c.noAck, c.exclusive, c.wake = flags&snapNoAck != 0, flags&snapExclusive != 0, flags&snapWake != 0
	c.getter, c.cancelled, c.woken = flags&snapGetter != 0, flags&snapCancelled != 0, flags&snapWoken != 0
	c.credit = uint32(d.upTo(uint64(Unlimited)))
	c.prefetch = uint32(d.upTo(uint64(Unlimited)))
	c.priority = unzigzag(d.upTo(uint64(Unlimited)))
	c.delivered = d.upTo(maxCounter)
	m.restoreHeld(d, c)
	s := m.session(c.session)
	if k := len(m.consumers); d.bad || s == nil || k > 0 && m.consumers[k-1].id >= c.id {
		d.bad = true
		return
	}
	c.suspended = s.suspect
	m.consumers = append(m.consumers, c)
	m.unacked += c.held.count
	if !c.getter && !c.cancelled {
		m.active++
		if c.exclusive {
			m.exclusive = c.id
		}
	}
}

func (m *Machine) restoreHeld(d *decoder, c *consumer) {
	var before heldRun
	for n := d.upTo(uint64(len(d.b))); n > 0 && !d.bad; n-- {
		r := heldRun{id: before.lastID() + d.uint()}
		r.first.number = before.lastNumber() + Number(unzigzag64(d.uint()))
		r.n = d.upTo(maxHeldRun)
		r.first.time = before.first.time + unzigzag64(d.uint())
		r.first.attr = d.attr()
		first, last := r.first.number, r.lastNumber()
		if r.n == 0 || r.id <= before.lastID() || r.lastID() > c.delivered || r.lastID() < r.id ||
			first.Ordinal() == 0 || last.Lane() != first.Lane() || int(first.Lane()) >= len(m.lanes) ||
			last.Ordinal() > m.lanes[first.Lane()].given {
			d.bad = true
			return
		}
		c.held.add(r.id, r.first.number, r.n, r.first.time, r.first.attr)
		before = r
	}
}
