package queue

import (
	"encoding/binary"
	"math/bits"

	"holdfast/internal/bytecodec"
)

// maxCounter is the highest count a snapshot may have come to. No queue lives to see it,
// and beyond it the machine could not go on.
const maxCounter = MaxOrdinal / 2

// Restore sets the machine to the state of a snapshot of this version or an earlier
// one. On an error the machine
// must not be used. It believes nothing: a snapshot that is not the state of a
// machine is refused with ErrFormat, and it takes at most 10 KiB of memory for
// each byte of src (which is what densely packed checkouts come to).
func (m *Machine) Restore(src []byte) error {
	*m = Machine{}
	if len(src) < 2 || src[0] < 1 || src[0] > snapshotVersion || src[1] != sectionCore {
		return ErrFormat
	}
	version := src[0]
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
		d := decoder{bytecodec.Over(src[:n]), version}
		src = src[n:]
		for !d.Bad() && len(d.Rest) > 0 {
			m.restore(tag, &d)
		}
		if d.Bad() {
			return ErrFormat
		}
	}
	if m.extra != nil {
		m.extra.readyBytes, m.extra.dead.bytes = m.countBytes()
		if !m.restoreChoice() || !m.findUnweighed() {
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
		m.lanes = append(m.lanes, lane{given: d.UpTo(maxCounter)})
		if len(m.lanes) > ChunkLane {
			d.Fail()
		}
	case sectionReady:
		m.restoreRun(d)
	case sectionSessions:
		m.restoreSession(d)
	case sectionConsumers:
		m.restoreConsumer(d)
	case sectionTurns:
		c := m.consumer(ConsumerID(d.Uint()))
		if c == nil || c.queued {
			d.Fail()
			return
		}
		m.turns.push(c)
	case sectionBig:
		n := Number(d.Uint())
		if m.big == nil {
			m.big = map[Number][]Numbers{}
		}
		if m.big[n] != nil {
			d.Fail()
		}
		m.big[n] = m.restoreRanges(d)
	default:
		m.restoreExtra(tag, d)
	}
}

func (m *Machine) restoreCore(d *decoder) {
	m.applied = d.UpTo(maxCounter)
	m.now = int64(d.Uint())
	flags := d.UpTo(snapAutoDelete | snapHandedOut)
	m.autoDelete, m.handedOut = flags&snapAutoDelete != 0, flags&snapHandedOut != 0
	m.chunks = d.UpTo(maxCounter)
	if len(d.Rest) > 0 {
		d.Fail()
	}
}

func (m *Machine) restoreRun(d *decoder) {
	last := Number(0)
	if m.nonEmpty != 0 {
		last = m.lanes[bits.Len64(m.nonEmpty)-1].runs.last()
	}
	step, n := d.Uint(), d.Uint()
	a := d.attr()
	first := last + Number(step)
	end := first + Number(n) - 1
	lane := first.Lane()
	if d.Bad() || step == 0 || first < last || n == 0 || n > MaxOrdinal || end.Lane() != lane || int(lane) >= len(m.lanes) {
		d.Fail()
		return
	}
	m.lanes[lane].runs.pushBack(run{first, end, a})
	m.gain(lane, n)
}

func (d *decoder) attr() attr {
	flags := d.UpTo(flagMask<<1 | 1)
	a := attr(flags >> 1 << flagShift)
	if flags&1 != 0 {
		a |= attr(d.UpTo(countMask))
		a |= attr(d.UpTo(countMask) << acquiredShift)
	}
	return a
}

func (m *Machine) restoreSession(d *decoder) {
	s := &session{id: SessionID(d.Uint())}
	s.suspect = d.UpTo(snapSuspect) != 0
	s.epoch, s.lastSeq, s.closed = d.Uint(), d.Uint(), d.Uint()
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		u := upload{key: d.Uint(), chunks: m.restoreRanges(d)}
		for _, r := range u.chunks {
			u.count += r.Len()
		}
		s.uploads = append(s.uploads, u)
	}
	if d.version > 1 {
		s.node, s.incarnation = d.Uint(), d.Uint()
	}
	if k := len(m.sessions); k > 0 && m.sessions[k-1].id >= s.id {
		d.Fail()
	}
	m.sessions = append(m.sessions, s)
}

func (m *Machine) restoreRanges(d *decoder) []Numbers {
	var rs []Numbers
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		first, count := d.UpTo(m.chunks), d.UpTo(m.chunks)
		if first == 0 || count == 0 || count > m.chunks-first+1 {
			d.Fail()
			return nil
		}
		rs = append(rs, Numbers{MakeNumber(ChunkLane, first), MakeNumber(ChunkLane, first+count-1)})
	}
	if len(rs) == 0 {
		d.Fail()
	}
	return rs
}

func (m *Machine) restoreConsumer(d *decoder) {
	c := &consumer{id: ConsumerID(d.Uint()), session: SessionID(d.Uint())}
	flags := d.UpTo(snapAll)
	c.noAck, c.exclusive, c.wake = flags&snapNoAck != 0, flags&snapExclusive != 0, flags&snapWake != 0
	c.getter, c.cancelled, c.woken = flags&snapGetter != 0, flags&snapCancelled != 0, flags&snapWoken != 0
	if c.ranked = flags&snapRanked != 0; c.ranked && d.version < 3 {
		d.Fail()
	}
	c.credit = uint32(d.UpTo(uint64(Unlimited)))
	c.prefetch = uint32(d.UpTo(uint64(Unlimited)))
	c.priority = unzigzag(d.UpTo(uint64(Unlimited)))
	if c.ranked {
		c.level = c.priority
	}
	c.delivered = d.UpTo(maxCounter)
	m.restoreHeld(d, c)
	if d.version > 1 {
		c.outer = d.Uint()
	}
	s := m.session(c.session)
	if k := len(m.consumers); d.Bad() || s == nil || c.id == 0 || k > 0 && m.consumers[k-1].id >= c.id {
		d.Fail()
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
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		r := heldRun{id: before.lastID() + d.Uint()}
		r.first.number = before.lastNumber() + Number(unzigzag64(d.Uint()))
		r.n = d.UpTo(maxHeldRun)
		r.first.time = before.first.time + unzigzag64(d.Uint())
		r.first.attr = d.attr()
		first, last := r.first.number, r.lastNumber()
		if r.n == 0 || r.id <= before.lastID() || r.lastID() > c.delivered || r.lastID() < r.id ||
			first.Ordinal() == 0 || last.Lane() != first.Lane() || int(first.Lane()) >= len(m.lanes) ||
			last.Ordinal() > m.lanes[first.Lane()].given {
			d.Fail()
			return
		}
		c.held.add(r.id, r.first.number, r.n, r.first.time, r.first.attr)
		before = r
	}
}
