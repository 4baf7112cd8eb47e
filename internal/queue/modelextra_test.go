package queue

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// What the model does about settings and what follows from them.

func (m *model) configure(set *Settings) {
	if set == nil {
		set = &Settings{}
	}
	old := m.set
	m.set = *set
	m.autoDelete = set.AutoDelete
	m.rekey(&old)
	for _, x := range m.messages {
		if !m.sized() {
			x.size, x.weighed = 0, false
		}
	}
	m.choose()
}

func (m *model) timeOut(c *Command, con *modelConsumer) {
	var late []*modelMessage
	if con != nil {
		for _, x := range m.heldBy(con) {
			if uint64(x.since) <= c.Last {
				late = append(late, x)
			}
		}
	}
	if len(late) == 0 {
		return
	}
	m.event("timed out %d: %d", con.id, len(late))
	for _, x := range late {
		m.back(x, c.Blameless, left)
	}
	if !con.getter {
		was := !con.cancelled
		con.cancelled = true
		m.unused(was)
	}
}

func (m *model) sized() bool { return m.set.MaxBytes > 0 || m.set.HeldMostBytes > 0 }

// bytesOf adds up the sizes of messages.
func bytesOf(xs []*modelMessage) (n uint64) {
	for _, x := range xs {
		n += x.size
	}
	return n
}

// numbers makes the messages of an Enqueue.
func (m *model) numbers(c *Command) (xs []*modelMessage) {
	for range c.Count {
		xs = append(xs, &modelMessage{number: m.number(c.Lane), transient: !c.Persistent})
	}
	return xs
}

func (m *model) enqueue(c *Command, s *modelSession, xs []*modelMessage) {
	before := uint64(0)
	if s != nil {
		before = s.lastSeq
		s.lastSeq = max(s.lastSeq, c.Seq)
		s.refused = slices.DeleteFunc(s.refused, func(n uint64) bool { return n <= c.terms().Heard })
	}
	reason := NoRoom
	most, ok := m.set.HeldMost.Get()
	bytes, okBytes := m.set.HeldMostBytes.Get()
	if m.dead() > 0 && (ok && m.dead() >= most || okBytes && bytesOf(m.graves()) >= bytes) && !m.forsakes() {
		reason = DeadFull
	}
	var refused []*modelMessage
	for i, x := range xs {
		m.messages = append(m.messages, x)
		if !m.chunked(c, s, x) {
			m.release(x, Aborted)
			continue
		}
		if m.keyed(c) && m.set.forever() && m.repeated(c) {
			m.release(x, Duplicate)
			continue
		}
		x.coming = true
		switch {
		case c.tx() == 0 && m.sized():
			x.weighed, x.size = true, c.Bytes/uint64(c.Count)
		case !m.sized():
			x.weighed, x.size = false, 0
		}
		full := m.full(x.size) || reason == DeadFull
		if !full && m.keyed(c) && m.repeated(c) {
			full, reason = true, Duplicate
		}
		if full {
			refused = append(refused, x)
			if seq := c.Seq - uint64(c.Count) + 1 + uint64(i); s != nil && seq > before && seq <= c.Seq {
				s.refused = append(s.refused, seq)
			}
			continue
		}
		x.coming = false
		if m.keyed(c) {
			m.keep(c, x)
		}
		ttl := c.terms().TTL
		if m.set.TTL > 0 && (ttl == 0 || m.set.TTL < ttl) {
			ttl = m.set.TTL
		}
		if ms, ok := ttl.Get(); ok {
			x.mortal, x.fresh, x.deadline = true, true, m.now
			if wait := (c.terms().Delay + 1e6 - 1) / 1e6; ms+wait > 0 {
				x.deadline = m.in((ms + wait) * 1e6)
			}
		}
		x.until = m.in(c.terms().Delay)
		if m.set.Overflow != OverflowDropHead {
			m.serve()
		}
	}
	m.serve()
	for _, x := range m.messages {
		x.fresh = false
	}
	if len(refused) > 0 {
		all := Numbers{refused[0].number, refused[len(refused)-1].number}
		m.event("overflowed %d of %d: %v %v", len(refused), c.Session, all, reason)
		for _, x := range refused {
			if x.coming = false; (reason == Duplicate || reason == NoRoom && m.set.Overflow == OverflowRejectDLX) && m.set.DeadLetter != NoDeadLetter {
				m.die(x, Dropped)
			} else {
				m.release(x, reason)
			}
		}
	}
}

// chunked gives a message of an Enqueue its chunks, if it has some. It reports whether they are all there.
func (m *model) chunked(c *Command, s *modelSession, x *modelMessage) bool {
	if c.Chunks == 0 || len(x.chunks) > 0 {
		return true
	}
	if s != nil {
		x.chunks = s.uploads[c.Upload]
		delete(s.uploads, c.Upload)
	}
	return len(x.chunks) == int(c.Chunks)
}

// full reports whether no message of a size is let in.
func (m *model) full(size uint64) bool {
	most, ok := m.set.MaxLength.Get()
	bytes, okBytes := m.set.MaxBytes.Get()
	return m.set.Overflow != OverflowDropHead &&
		(ok && uint64(len(m.counted())) >= most || okBytes && bytesOf(m.counted())+size > bytes)
}

func (m *model) keepLimit() {
	most, ok := m.set.MaxLength.Get()
	bytes, okBytes := m.set.MaxBytes.Get()
	for m.set.Overflow == OverflowDropHead && m.first() != nil &&
		(ok && uint64(len(m.counted())) > most || okBytes && bytesOf(m.counted()) > bytes) {
		m.die(m.first(), Dropped)
	}
}

// choose says who is the single active consumer.
func (m *model) choose() {
	before := m.active
	var best *modelConsumer
	for _, con := range m.consumers {
		if !con.getter && !con.cancelled && !m.sessions[con.session].suspect && (best == nil || con.level > best.level) {
			best = con
		}
	}
	if !slices.Contains(m.consumers, m.active) || m.active.cancelled || !m.set.SingleActive {
		m.active = nil
	}
	m.yields = false
	if m.set.SingleActive {
		switch {
		case m.active == nil:
			m.active = best
		case best != nil && best.level > m.active.level:
			if m.yields = m.count(m.active) > 0; !m.yields {
				m.active = best
			}
		}
	}
	for _, con := range m.consumers {
		con.inactive = m.set.SingleActive && !con.getter && (con != m.active || m.yields)
	}
	switch {
	case m.active == before:
	case m.active == nil:
		m.event("active 0")
	default:
		m.event("active %d", m.active.id)
	}
}

func (m *model) due(x *modelMessage) bool { return x.mortal && x.deadline <= m.now }

// expire ends what is due at the front of a lane.
func (m *model) expire() {
	stays := map[uint8]bool{}
	for _, x := range m.ready() {
		switch lane := x.number.Lane(); {
		case stays[lane]:
		case m.due(x):
			m.die(x, Expired)
		default:
			stays[lane] = true
		}
	}
}

// next returns the time at which something happens by itself.
func (m *model) next() (t int64, ok bool) {
	front := map[uint8]bool{}
	for _, x := range m.ready() {
		if lane := x.number.Lane(); !front[lane] {
			front[lane] = true
			if x.mortal && (!ok || x.deadline < t) {
				t, ok = x.deadline, true
			}
		}
	}
	for _, x := range m.waiting() {
		if !ok || x.until < t {
			t, ok = x.until, true
		}
	}
	if ms, is := m.nextForgotten(); is && (!ok || ms*1e6 < t) {
		t, ok = ms*1e6, true
	}
	return t, ok
}

// back returns a message that is held.
func (m *model) back(x *modelMessage, blameless bool, why comeback) {
	x.back(blameless)
	if most, ok := m.set.DeliveryLimit.Get(); ok && uint64(x.count) > most && !(why == restarted && x.transient) {
		m.die(x, Exhausted)
		return
	}
	ms := uint64(0)
	if m.set.Retry == RetryAll || m.set.Retry == RetryFailed && !blameless || m.set.Retry == RetryReturned && blameless {
		ms = min(m.set.RetryMin*max(uint64(x.count), 1), m.set.RetryMax)
	}
	if m.set.Backoff && why == requeued && x.acq > 20 {
		pause := uint64(10)
		for k := 21; k < x.acq && pause < 1000; k++ {
			pause *= 2
		}
		ms = max(ms, min(pause, 1000))
	}
	if why != restarted {
		x.until = m.in(ms * 1e6)
	}
}

// in returns the time that is so many nanoseconds from now, in whole milliseconds; 0 if that is none.
func (m *model) in(ns uint64) int64 {
	if ns == 0 {
		return 0
	}
	ms := (ns + 999_999) / 1e6
	t := m.now + int64(ms)*1e6
	if over := t % 1e6; over > 0 {
		t += 1e6 - over
	}
	return t
}

// waiting returns the messages that wait for a time.
func (m *model) waiting() []*modelMessage {
	var xs []*modelMessage
	for _, x := range m.messages {
		if x.holder == nil && !x.coming && x.dead == 0 && x.until > 0 {
			xs = append(xs, x)
		}
	}
	return xs
}

// counted returns the messages that a limit counts.
func (m *model) counted() []*modelMessage { return append(m.ready(), m.waiting()...) }

func (m *model) ripen() {
	xs := m.waiting()
	slices.SortFunc(xs, func(a, b *modelMessage) int {
		return cmp.Or(cmp.Compare(a.number.Lane(), b.number.Lane()), cmp.Compare(a.until, b.until), cmp.Compare(a.number, b.number))
	})
	for _, x := range xs {
		if x.until <= m.now {
			if x.until = 0; m.set.Forward {
				m.die(x, Ripe)
			}
		}
	}
}

// forward lets die what is ready, where nothing is to stay so.
func (m *model) forward() {
	for m.set.Forward && m.first() != nil {
		m.die(m.first(), Ripe)
	}
}

// die ends a message for a reason that letters tell of.
func (m *model) die(x *modelMessage, reason Reason) {
	if m.set.DeadLetter == NoDeadLetter {
		m.release(x, reason)
		return
	}
	m.deadGiven++
	x.holder, x.dead, x.told, x.reason, x.died = nil, m.deadGiven, false, reason, m.now/1e9
}

// graves returns the dead messages, in order.
func (m *model) graves() []*modelMessage {
	var xs []*modelMessage
	for _, x := range m.messages {
		if x.dead > 0 {
			xs = append(xs, x)
		}
	}
	slices.SortFunc(xs, func(a, b *modelMessage) int { return cmp.Compare(a.dead, b.dead) })
	return xs
}

func (m *model) dead() uint64 { return uint64(len(m.graves())) }

func (m *model) forsakes() bool {
	return m.set.Overflow == OverflowDropHead && (m.set.MaxLength > 0 || m.set.MaxBytes > 0)
}

func (m *model) keepDead() {
	for _, x := range m.graves() {
		most, ok := m.set.HeldMost.Get()
		bytes, okBytes := m.set.HeldMostBytes.Get()
		switch {
		case m.set.DeadLetter == NoDeadLetter:
			m.release(x, x.reason)
		case m.forsakes() && (ok && m.dead() > most || okBytes && bytesOf(m.graves()) > bytes):
			m.release(x, DeadDropped)
		}
	}
	xs := m.graves()
	for _, x := range xs {
		if x.dead < xs[0].dead+deadWindow && !x.told {
			x.told = true
			m.event("%s", x.letter())
		}
	}
}

func (x *modelMessage) letter() string {
	return fmt.Sprintf("dead %v as %d: %v at %d count=%d acquired=%d transient=%v chunks=%v",
		x.number, x.dead, x.reason, x.died, x.count, x.acq, x.transient, x.chunks)
}

// letter writes a Dead effect as the model does.
func letter(e *Effect, n Number) string {
	x := modelMessage{number: n, dead: e.Delivery + uint64(n-e.First), reason: e.Reason, died: int64(e.Left), count: int(e.DeliveryCount),
		acq: int(e.Acquired), transient: e.Transient}
	for _, r := range e.Chunks {
		for k := r.First; k <= r.Last; k++ {
			x.chunks = append(x.chunks, k)
		}
	}
	return x.letter()
}

// rareCommand makes a command that has to do with settings.
func (g *generator) rareCommand() Command {
	if g.flip() {
		first := g.Uint64N(30)
		if g.flip() {
			first *= 10
		}
		if g.IntN(5) == 0 {
			return Command{Kind: Due}
		}
		if g.IntN(4) == 0 {
			return Command{Kind: TimeOut, Consumer: g.consumer(), Last: uint64(max(0, g.time-g.Int64N(5e6))), Blameless: g.flip()}
		}
		if g.flip() {
			from := MakeNumber(g.lane(), 1+g.Uint64N(40))
			return Command{Kind: Weigh, First: uint64(from), Last: uint64(from) + g.Uint64N(30), Bytes: g.Uint64N(20)}
		}
		return Command{Kind: Bury, First: first, Last: first + g.Uint64N(40)}
	}
	set := &Settings{AutoDelete: g.flip()}
	if g.flip() {
		set.MaxLength = Most(g.Uint64N(12))
	}
	if g.flip() {
		set.MaxBytes = Most(g.Uint64N(100))
	}
	if g.rare() {
		set.HeldMostBytes = Most(g.Uint64N(300))
	}
	set.Overflow = Overflow(g.IntN(3))
	if g.IntN(3) > 0 {
		set.DeadLetter = DeadLetter(1 + g.IntN(2))
	}
	if g.IntN(3) == 0 {
		set.TTL = Most(g.Uint64N(4))
	}
	set.SingleActive = g.IntN(3) == 0
	if g.flip() {
		set.Retry, set.RetryMin, set.RetryMax = RetryType(g.IntN(4)), g.Uint64N(3), g.Uint64N(6)
	}
	set.Backoff = g.flip()
	set.Paused = g.rare()
	g.rareKeys(set)
	set.Forward = g.rare()
	if g.rare() {
		set.HeldMost = Most(g.Uint64N(300))
	}
	if g.flip() {
		set.DeliveryLimit = Most(g.Uint64N(4))
	}
	return Command{Kind: Set, Epoch: g.Uint64N(4), Terms: &Terms{Set: set}}
}

func (g *generator) rareEnqueue(c *Command) {
	c.Bytes = g.Uint64N(80)
	if g.IntN(3) == 0 {
		c.own()
		c.Terms.Heard = g.seq - min(g.seq, g.Uint64N(10))
	}
	if g.IntN(3) == 0 {
		c.own()
		c.Terms.TTL = Most(g.Uint64N(5))
	}
	if g.rare() {
		c.own()
		c.Terms.Delay = g.Uint64N(8e6)
	}
	g.rareKey(c)
	if g.IntN(60) == 0 && g.many < 2 && c.Count > 1 {
		g.many++
		c.Count = 200
		g.seq += 200
	}
}

// compareRare compares what few machines have.
func compareRare(t *testing.T, m *Machine, mod *model, fx *Effects) {
	t.Helper()
	want := mod.set
	want.AutoDelete = mod.autoDelete
	if m.Settings() != want {
		t.Errorf("settings %+v, want %+v", m.Settings(), want)
	}
	if mod.active == nil && m.Active() != 0 || mod.active != nil && m.Active() != mod.active.id {
		t.Errorf("active %d, want %+v", m.Active(), mod.active)
	}
	if m.SetAt() != mod.setAt {
		t.Errorf("set by generation %d, want %d", m.SetAt(), mod.setAt)
	}
	due, ok := m.NextDeadline()
	wantDue, wantOK := mod.next()
	if due != wantDue || ok != wantOK {
		t.Errorf("next deadline %d, %v, want %d, %v", due, ok, wantDue, wantOK)
	}
	if m.ReadyBytes() != bytesOf(mod.counted()) || m.DeadBytes() != bytesOf(mod.graves()) {
		t.Errorf("%d bytes ready and %d dead, want %d and %d", m.ReadyBytes(), m.DeadBytes(), bytesOf(mod.counted()), bytesOf(mod.graves()))
	}
	var unknown []Numbers
	for _, x := range mod.messages {
		if !x.weighed && mod.sized() {
			unknown = append(unknown, Numbers{x.number, x.number})
		}
	}
	if got := m.Unweighed(nil); !slices.Equal(joined(got), joined(unknown)) {
		t.Errorf("of unknown size are %v, want %v", got, unknown)
	}
	keys, keyBytes := m.Keys()
	if n, b := mod.keyBytes(); keys != n || keyBytes != b {
		t.Errorf("%d keys of %d bytes, want %d of %d", keys, keyBytes, n, b)
	}
	if m.Delayed() != uint64(len(mod.waiting())) || m.Explain().Delayed != m.Delayed() || m.Explain().Dead != m.DeadCount() {
		t.Errorf("%d messages wait, want %d", m.Delayed(), len(mod.waiting()))
	}
	var next int64
	back := map[bool]bool{} // of those that are next together
	for _, x := range mod.waiting() {
		if next == 0 || x.until <= next {
			if x.until < next {
				clear(back)
			}
			next, back[x.acq > 0] = x.until, true
		}
	}
	if x := m.Explain(); x.NextAt != next || next > 0 && !back[x.NextReturned] {
		t.Errorf("the next message is due at %d, back %v; want %d, %v", x.NextAt, x.NextReturned, next, back)
	}
	since := map[ConsumerID]int64{}
	for _, x := range mod.messages {
		if x.holder != nil && (since[x.holder.id] == 0 || x.since < since[x.holder.id]) {
			since[x.holder.id] = x.since
		}
	}
	m.HeldSince(func(c ConsumerID, oldest int64) {
		if oldest != since[c] {
			t.Errorf("consumer %d has held something since %d, want %d", c, oldest, since[c])
		}
		delete(since, c)
	})
	if len(since) > 0 {
		t.Errorf("consumers %v hold something", since)
	}
	if m.DeadCount() != mod.dead() {
		t.Errorf("%d dead, want %d", m.DeadCount(), mod.dead())
	}
	again := &Effects{List: []Effect{{Kind: Purged}}}
	m.Redead(again)
	var letters, wantLetters []string
	for i := range again.List[1:] {
		e := &again.List[1+i]
		for n := e.First; n <= e.Last; n++ {
			letters = append(letters, letter(e, n))
		}
	}
	for _, x := range mod.graves() {
		if x.told {
			wantLetters = append(wantLetters, x.letter())
		}
	}
	if !slices.Equal(letters, wantLetters) {
		t.Errorf("again dead\n%q\nwant\n%q", letters, wantLetters)
	}
	for _, id := range sorted(mod.sessions) {
		var refused []uint64
		m.Refused(id, func(r Range) {
			for n := r.First; n <= r.Last; n++ {
				refused = append(refused, n)
			}
		})
		if !slices.Equal(refused, mod.sessions[id].closedRefused) {
			t.Errorf("session %d: refused %v, want %v", id, refused, mod.sessions[id].closedRefused)
		}
	}
}
