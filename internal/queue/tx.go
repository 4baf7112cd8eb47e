package queue

import (
	"slices"

	"holdfast/internal/planted"
)

// transaction is what has come of a transaction of a session: it happens with its Commit, all of it in one step, or not
// at all. Until then its messages have numbers and are in the queue for nobody: they are not ready, no limit counts
// them, and what its settlements name is still held.
type transaction struct {
	key     uint32 // tells it from the others of its session
	blocks  []part
	settles []Command // of kind Settle
	count   uint64    // messages and settlements
}

// part is messages of a transaction, neighbours that are alike.
type part struct {
	run
	size  Limit // of one, if it was of interest when they came
	ttl   Limit
	delay uint64
	key   Key // of one message
	seq   Limit

	screen *Screen // of one message
}

// transaction returns the place of a transaction in s.under, or -1.
func (s *session) transaction(key uint32) int {
	return slices.IndexFunc(s.under, func(t *transaction) bool { return t.key == key })
}

// begun returns the transaction of that key, begun if it is new.
func (s *session) begun(key uint32) *transaction {
	if i := s.transaction(key); i >= 0 {
		return s.under[i]
	}
	t := &transaction{key: key}
	s.under = append(s.under, t)
	return t
}

// takeTransaction ends a transaction and returns it; nil: there is none. There may be no such session.
func (s *session) takeTransaction(key uint32) *transaction {
	if s == nil {
		return nil
	}
	i := s.transaction(key)
	if i < 0 {
		return nil
	}
	t := s.under[i]
	if s.under = slices.Delete(s.under, i, i+1); len(s.under) == 0 {
		s.under = nil
	}
	return t
}

// enqueuePart keeps a block of messages for the transaction that it belongs to. That of a session that is not there is
// released at once.
func (m *Machine) enqueuePart(c *Command, s *session, r run, fx *Effects) {
	if s == nil {
		m.release(r.first, r.len(), r.attr, Aborted, fx)
		return
	}
	p := part{run: r, ttl: c.terms().TTL, delay: c.terms().Delay, key: c.terms().Key, seq: c.terms().Sequence, screen: c.terms().Screen}
	if m.extra != nil && m.extra.sized() {
		p.size = Most(c.Bytes / uint64(c.Count))
	}
	t := s.begun(c.tx())
	t.count += r.len()
	t.add(p)
}

// add appends messages, joined with those before if they are alike.
func (t *transaction) add(p part) {
	if n := len(t.blocks); n > 0 {
		if l := &t.blocks[n-1]; p.follows(l.run) && p.size == l.size && p.ttl == l.ttl && p.delay == l.delay && p.key == l.key && p.key == (Key{}) && p.screen == nil && l.screen == nil {
			l.last = p.last
			return
		}
	}
	t.blocks = append(t.blocks, p)
}

// settlePart keeps a settlement for the transaction that it belongs to.
func (m *Machine) settlePart(c *Command) {
	if s := m.session(c.Session); s != nil {
		t := s.begun(c.tx())
		t.count++
		t.settles = append(t.settles, Command{
			Kind: Settle, Session: c.Session, Consumer: c.Consumer, How: c.How, Blameless: c.Blameless, First: c.First, Last: c.Last,
		})
	}
}

// commit lets a transaction happen: its messages come in, then its settlements are carried out. If parts of it are missing, if
// a limit would refuse one of its messages, or if something that it settles was taken away, nothing of it happens.
func (m *Machine) commit(c *Command, fx *Effects) {
	s := m.session(c.Session)
	t := s.takeTransaction(c.tx())
	if t == nil {
		t = &transaction{}
	}
	before := uint64(0)
	if s != nil {
		before = s.lastSeq
		s.lastSeq = max(s.lastSeq, c.Seq)
		if s.refused != nil {
			s.heard(c.terms().Heard)
		}
	}
	reason := Aborted
	var leaving map[Number]bool
	if strict := c.terms().Strict; s != nil && t.count == c.terms().Parts {
		if reason = Stale; !strict || m.holdsAll(t) {
			if strict {
				leaving = m.leaving(t)
			}
			reason = m.sift(t, leaving, fx)
		}
	}
	if reason == 0 {
		reason = m.refuses(t)
	}
	if reason != 0 {
		e := fx.add(Uncommitted)
		e.Session, e.Reason = c.Session, reason
		if s != nil && c.Seq > before {
			s.refuse(before+1, c.Seq) // a session has nothing else between its transaction's parts
		}
		m.forsakeParts(t, reason, fx)
		return
	}
	for n := range leaving {
		m.extra.keys.forget(n, n)
	}
	for i := range t.blocks {
		p := &t.blocks[i]
		if planted.Is(planted.TxHalf) && i == len(t.blocks)-1 && i > 0 {
			m.release(p.first, p.len(), p.attr, Aborted, fx)
			continue
		}
		if m.extra == nil && p.ttl == 0 && p.delay == 0 && p.screen == nil {
			m.insert(p.run)
			m.serve(fx)
			continue
		}
		m.rare()
		if c := p.keyed(); m.extra.keyed(c) && !m.isRepeated(c) {
			m.keep(c, p.first)
		}
		if p.screen != nil && !m.isScreened(p.screen, p.attr.is(flagTransient)) {
			m.pass(p.screen, p.attr.is(flagTransient))
		}
		delay := wholeMilliseconds(p.delay)
		deadline, mortal := m.deadline(p.ttl, delay)
		m.letIn(p.run, p.size, delay, deadline, mortal, fx)
	}
	for i := range t.settles {
		if planted.Is(planted.TxSettlesLost) {
			break
		}
		m.settle(&t.settles[i], fx)
	}
}

// holdsAll reports whether all deliveries that a transaction settles are still held.
func (m *Machine) holdsAll(t *transaction) bool {
	for i := range t.settles {
		c := &t.settles[i]
		if con := m.consumer(c.Consumer); con == nil || con.session != c.Session || !con.held.holds(c.First, c.Last) {
			return false
		}
	}
	return true
}

// leaving returns those messages with keys that leave the queue by a transaction's settlements.
func (m *Machine) leaving(t *transaction) map[Number]bool {
	if m.extra == nil || len(m.extra.keys.byNumber) == 0 || len(t.blocks) == 0 {
		return nil
	}
	var leaving map[Number]bool
	for i := range t.settles {
		c := &t.settles[i]
		if c.How == Requeue {
			continue
		}
		m.consumer(c.Consumer).held.between(c.First, c.Last, func(_ uint64, s *slot) {
			if _, keyed := m.extra.keys.byNumber[s.number]; keyed {
				if leaving == nil {
					leaving = map[Number]bool{}
				}
				leaving[s.number] = true
			}
		})
	}
	return leaving
}

// keyed is what an Enqueue says of a message with a key.
func (p *part) keyed() *Command {
	return &Command{Kind: Enqueue, Count: 1, Persistent: !p.attr.is(flagTransient), Terms: &Terms{Key: p.key, Sequence: p.seq}}
}

// sift looks for duplicates, of what was there before, but for what is leaving, and of what comes earlier in the transaction. Those that count as accepted leave it; for one that would
// be refused it returns Duplicate, and nothing has changed.
func (m *Machine) sift(t *transaction, leaving map[Number]bool, fx *Effects) Reason {
	twice, refused := m.repeats(t, leaving)
	if refused {
		return Duplicate
	}
	if len(twice) == 0 {
		return 0
	}
	t.blocks = slices.DeleteFunc(t.blocks, func(p part) bool {
		if !twice[p.first] {
			return false
		}
		m.release(p.first, 1, p.attr, Duplicate, fx)
		return true
	})
	return 0
}

// repeats returns the messages of a transaction that are duplicates: of such as came through the same exchange, or have a key that the queue
// knows, but for those of messages that are leaving. Only those that come in make others duplicates. refused: one would be refused.
func (m *Machine) repeats(t *transaction, leaving map[Number]bool) (twice map[Number]bool, refused bool) {
	type passing struct {
		exchange uint64
		key      Key
	}
	type keySeq struct {
		key Key
		seq Limit
	}
	var passed map[passing]bool // whether a message that comes in hides only transient ones
	var seen map[keySeq]bool
	keyed := m.extra != nil && m.extra.set.Deduplicate != NoKey
	byPublisher := keyed && m.extra.set.Deduplicate == PublisherKey
	for i := range t.blocks {
		p := &t.blocks[i]
		isTwice, transient := false, p.attr.is(flagTransient)
		if p.screen != nil {
			only, is := passed[passing{p.screen.Exchange, p.screen.Key}]
			isTwice = is && (transient || !only) || m.isScreened(p.screen, transient)
		}
		if c := p.keyed(); !isTwice && keyed && m.extra.keyed(c) && (!byPublisher || p.seq != 0) {
			k := keySeq{p.key, p.seq}
			if !byPublisher {
				k.seq = 0
			}
			only, is := seen[k]
			isTwice = is && (transient || !only || !m.extra.set.forever()) || !leaving[m.extra.keys.byKey[p.key]] && m.isRepeated(c)
			if isTwice && !m.extra.set.forever() {
				return nil, true
			}
			if seen == nil {
				seen = map[keySeq]bool{}
			}
			if !isTwice {
				seen[k] = transient
			}
		}
		switch {
		case isTwice:
			if twice == nil {
				twice = map[Number]bool{}
			}
			twice[p.first] = true
		case p.screen != nil && p.screen.Window != Most(0):
			if passed == nil {
				passed = map[passing]bool{}
			}
			passed[passing{p.screen.Exchange, p.screen.Key}] = transient
		}
	}
	return twice, false
}

// refuses says why a limit would refuse a message of the transaction if they came one by one; 0: none does.
func (m *Machine) refuses(t *transaction) Reason {
	x := m.extra
	if x == nil || len(t.blocks) == 0 {
		return 0
	}
	if x.deadFull() {
		return DeadFull
	}
	if x.set.Overflow == OverflowDropHead {
		return 0
	}
	length, hasLength := x.set.MaxLength.Get()
	bytes, hasBytes := x.set.MaxBytes.Get()
	count, weight, takers := m.ready+x.waiting.count, x.readyBytes, m.takers()
	for i := range t.blocks {
		p := &t.blocks[i]
		size, known := p.size.Get()
		if !known {
			size = 0
		}
		n := p.len()
		stay := n
		if p.delay == 0 {
			gone := min(n, takers)
			stay -= gone
			if takers != ^uint64(0) {
				takers -= gone
			}
		}
		// One that is taken at once needs room, too, and so does the last one that stays.
		need := max(stay, 1)
		if hasLength && (count > length || need > length-count) ||
			hasBytes && (weight > bytes || size > 0 && need > (bytes-weight)/size) {
			return NoRoom
		}
		count += stay
		weight += size * stay
	}
	return 0
}

// takers returns how many messages would be given to consumers at once if they came one by one.
func (m *Machine) takers() (n uint64) {
	if m.ready > 0 || m.extra != nil && !m.extra.set.gives() {
		return 0 // nobody waits
	}
	for c := m.turns.head; c != nil; c = c.next {
		if c.standing() == Waiting {
			if room := c.room(); room < ^uint64(0)-n {
				n += room
			} else {
				return ^uint64(0)
			}
		}
	}
	return n
}

// abort ends a transaction of which nothing happens.
func (m *Machine) abort(c *Command, fx *Effects) {
	if t := m.session(c.Session).takeTransaction(c.tx()); t != nil {
		m.forsakeParts(t, Aborted, fx)
	}
}

// forsakeParts releases the messages of a transaction.
func (m *Machine) forsakeParts(t *transaction, reason Reason, fx *Effects) {
	for i := range t.blocks {
		p := &t.blocks[i]
		m.release(p.first, p.len(), p.attr, reason, fx)
	}
}

// Uncommitted returns how many messages belong to transactions that are under way.
func (m *Machine) Uncommitted() (n uint64) {
	m.parts(func(r run) { n += r.len() })
	return n
}

// parts calls f for the messages of transactions that are under way.
func (m *Machine) parts(f func(run)) {
	for _, s := range m.sessions {
		for _, t := range s.under {
			for i := range t.blocks {
				f(t.blocks[i].run)
			}
		}
	}
}

// transactions checks those of a session.
func (w *checker) transactions(s *session) {
	for i, t := range s.under {
		w.that(t.key != 0 && s.transaction(t.key) == i, "session %d: transaction %d twice", s.id, t.key)
		n := uint64(len(t.settles))
		for _, p := range t.blocks {
			w.that(p.first <= p.last && p.attr&^(flagTransient|flagBig) == 0, "transaction %d: messages %v-%v", t.key, p.first, p.last)
			w.message(Numbers{p.first, p.last}, p.attr)
			n += p.len()
		}
		w.that(n == t.count && n > 0, "transaction %d: %d messages and settlements, %d counted", t.key, n, t.count)
	}
}

func (e *encoder) transactions(m *Machine) {
	for _, s := range m.sessions {
		for _, t := range s.under {
			e.uint(uint64(s.id))
			e.uint(uint64(t.key))
			e.uint(uint64(len(t.blocks)))
			for i := range t.blocks {
				p := &t.blocks[i]
				e.uint(uint64(p.first))
				e.uint(p.len())
				e.attr(p.attr)
				e.uint(uint64(p.size))
				e.uint(uint64(p.ttl))
				e.uint(p.delay)
				if e.uint(bit(p.key != Key{}, 1) | bit(p.screen != nil, 2)); p.key != (Key{}) {
					e.b = append(e.b, p.key[:]...)
				}
				if p.screen != nil {
					e.b = appendScreen(e.b, p.screen)
				}
				e.uint(uint64(p.seq))
			}
			e.uint(uint64(len(t.settles)))
			for i := range t.settles {
				c := &t.settles[i]
				e.uint(uint64(c.Consumer))
				e.uint(c.First)
				e.uint(c.Last - c.First)
				e.uint(uint64(c.How)<<1 | bit(c.Blameless, 1))
			}
		}
	}
}

func (m *Machine) restoreTransaction(d *decoder) {
	s := m.session(SessionID(d.Uint()))
	t := &transaction{key: uint32(d.UpTo(^uint64(0) >> 32))}
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		p := part{run: run{first: Number(d.Uint())}}
		k := d.UpTo(maxCounter)
		p.last = p.first + Number(k) - 1
		p.attr = d.attr()
		p.size, p.ttl, p.delay = Limit(d.Uint()), Limit(d.Uint()), d.Uint()
		has := d.UpTo(3)
		if has&1 != 0 {
			p.key = d.key()
		}
		if has&2 != 0 {
			p.screen = d.screen()
		}
		p.seq = Limit(d.Uint())
		if d.Bad() || k == 0 || !m.gaveOut(p.run) || has != 0 && k != 1 {
			d.Fail()
			return
		}
		t.count += k
		t.add(p)
	}
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		c := Command{Kind: Settle, Consumer: ConsumerID(d.Uint()), First: d.Uint()}
		c.Last = c.First + d.Uint()
		how := d.UpTo(uint64(Discard)<<1 | 1)
		c.How, c.Blameless = Settlement(how>>1), how&1 != 0
		t.count++
		t.settles = append(t.settles, c)
	}
	if d.Bad() || s == nil {
		d.Fail()
		return
	}
	for i := range t.settles {
		t.settles[i].Session = s.id
	}
	s.under = append(s.under, t)
}
