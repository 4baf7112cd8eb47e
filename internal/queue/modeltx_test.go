package queue

import (
	"maps"
	"slices"
)

// What the model does about transactions.

// modelTransaction is a transaction as one would write it first: the commands that are to be carried out, with the
// messages that have their numbers already.
type modelTransaction struct {
	enqueues []Command
	messages [][]*modelMessage // of each of enqueues
	settles  []Command
	leaving  []*modelMessage // by the settlements
}

// settled returns the messages that a settlement names and are held, in order of their delivery ids.
func (m *model) settled(c *Command) (xs []*modelMessage) {
	for _, x := range m.messages {
		if x.holder != nil && x.holder.id == c.Consumer && x.holder.session == c.Session && x.id >= c.First && x.id <= c.Last {
			xs = append(xs, x)
		}
	}
	return xs
}

func (m *model) holdsAll(t *modelTransaction) bool {
	for i := range t.settles {
		if c := &t.settles[i]; uint64(len(m.settled(c))) != c.Last-c.First+1 {
			return false
		}
	}
	return true
}

func (m *model) leaving(t *modelTransaction) (xs []*modelMessage) {
	for i := range t.settles {
		if c := &t.settles[i]; c.How != Requeue {
			xs = append(xs, m.settled(c)...)
		}
	}
	return xs
}

func (s *modelSession) transaction(key uint32) *modelTransaction {
	if s.under[key] == nil {
		s.under[key] = &modelTransaction{}
	}
	return s.under[key]
}

// parts is how many messages and settlements there are.
func (t *modelTransaction) parts() (n uint64) {
	for _, xs := range t.messages {
		n += uint64(len(xs))
	}
	return n + uint64(len(t.settles))
}

func (m *model) enqueuePart(c *Command, s *modelSession) {
	xs := m.numbers(c)
	for _, x := range xs {
		if whole := m.chunked(c, s, x); whole && s != nil {
			if m.sized() {
				x.weighed, x.size = true, c.Bytes/uint64(c.Count)
			}
			continue
		}
		m.release(x, Aborted)
		xs = nil
	}
	if len(xs) == 0 {
		return
	}
	t := s.transaction(c.tx())
	t.enqueues, t.messages = append(t.enqueues, *c), append(t.messages, xs)
}

func (m *model) forsakeParts(t *modelTransaction, reason Reason) {
	for _, xs := range t.messages {
		for _, x := range xs {
			m.release(x, reason)
		}
	}
}

func (m *model) commit(c *Command, s *modelSession) {
	t := &modelTransaction{}
	reason := Aborted
	before := uint64(0)
	if s != nil {
		if s.under[c.tx()] != nil {
			t = s.under[c.tx()]
			delete(s.under, c.tx())
		}
		if before = s.lastSeq; t.parts() == c.terms().Parts {
			if reason = Stale; !c.terms().Strict || m.holdsAll(t) {
				if c.terms().Strict {
					t.leaving = m.leaving(t)
				}
				if reason = m.sift(t); reason == 0 {
					reason = m.tried(t)
				}
			}
		}
		s.lastSeq = max(s.lastSeq, c.Seq)
		for len(s.refused) > 0 && s.refused[0] <= c.terms().Heard {
			s.refused = s.refused[1:]
		}
	}
	if reason != 0 {
		m.event("uncommitted of %d: %v", c.Session, reason)
		for seq := before + 1; s != nil && seq <= c.Seq; seq++ {
			s.refused = append(s.refused, seq)
		}
		m.forsakeParts(t, reason)
		return
	}
	m.committed++
	m.carryOut(t)
}

// carryOut does what is in a transaction as if it were said now.
func (m *model) carryOut(t *modelTransaction) {
	if !m.set.forever() {
		for _, x := range t.leaving {
			x.key = Key{}
		}
	}
	for i := range t.enqueues {
		c := t.enqueues[i]
		if m.keyed(&c) && !m.repeated(&c) {
			m.keep(&c, t.messages[i][0])
		}
		c = withoutKey(c)
		m.enqueue(&c, nil, t.messages[i])
	}
	for i := range t.settles {
		c := &t.settles[i]
		m.settle(c, m.sessions[c.Session], m.consumer(c.Consumer))
		m.serve()
	}
}

func withoutKey(c Command) Command {
	terms := *c.terms()
	terms.Key, terms.Sequence = Key{}, 0
	c.Terms, c.Seq, c.Session = &terms, 0, 0
	return c
}

// sift releases the duplicates that count as accepted, or says that there is one that does not.
func (m *model) sift(t *modelTransaction) Reason {
	var kept modelTransaction
	for i := range t.enqueues {
		c := &t.enqueues[i]
		freed := !m.set.forever() && slices.ContainsFunc(t.leaving, func(x *modelMessage) bool { return x.key == c.terms().Key })
		twice := m.keyed(c) && !freed && m.repeated(c)
		for j := range i {
			o := &t.enqueues[j]
			same := o.terms().Key == c.terms().Key
			if m.set.Deduplicate == PublisherKey {
				same = same && o.terms().Sequence == c.terms().Sequence && c.terms().Sequence != 0
			}
			left := slices.ContainsFunc(kept.messages, func(xs []*modelMessage) bool { return xs[0] == t.messages[j][0] })
			twice = twice || m.keyed(c) && same && left && !(m.set.forever() && c.Persistent && !o.Persistent)
		}
		switch {
		case !twice:
			kept.enqueues, kept.messages = append(kept.enqueues, *c), append(kept.messages, t.messages[i])
		case !m.set.forever():
			return Duplicate
		}
	}
	for i, xs := range t.messages {
		if !slices.ContainsFunc(kept.messages, func(o []*modelMessage) bool { return o[0] == xs[0] }) {
			m.release(t.messages[i][0], Duplicate)
		}
	}
	t.enqueues, t.messages = kept.enqueues, kept.messages
	return 0
}

// tried carries out the messages of a transaction in a copy of the queue. It returns why one of them was refused there, or 0.
func (m *model) tried(t *modelTransaction) Reason {
	twin := m.copied()
	for i := range t.enqueues {
		var xs []*modelMessage
		for _, x := range t.messages[i] {
			y := *x
			xs = append(xs, &y)
		}
		c := withoutKey(t.enqueues[i])
		before := len(twin.released)
		twin.enqueue(&c, nil, xs)
		for _, s := range twin.released[before:] {
			for _, reason := range []Reason{NoRoom, DeadFull} {
				if len(s) > len(reason.String()) && s[len(s)-len(reason.String()):] == reason.String() {
					return reason
				}
			}
		}
	}
	return 0
}

// copied returns a queue like this one that has nothing in common with it. Where refused publishes die it releases them.
func (m *model) copied() *model {
	twin := *m
	twin.events, twin.released, twin.messages, twin.consumers, twin.line = nil, nil, nil, nil, nil
	if twin.set.Overflow == OverflowRejectDLX {
		twin.set.Overflow = OverflowReject
	}
	consumers := map[*modelConsumer]*modelConsumer{}
	for _, c := range m.consumers {
		d := *c
		consumers[c] = &d
		twin.consumers = append(twin.consumers, &d)
	}
	for _, c := range m.line {
		twin.line = append(twin.line, consumers[c])
	}
	for _, x := range m.messages {
		y := *x
		y.holder = consumers[x.holder]
		twin.messages = append(twin.messages, &y)
	}
	twin.given = maps.Clone(m.given)
	if m.active != nil {
		twin.active = consumers[m.active]
	}
	return &twin
}

// transactionCommand makes a command that has to do with transactions.
func (g *generator) transactionCommand() Command {
	s, key := g.session(), 1+g.Uint32N(2)
	at := [2]uint64{uint64(s), uint64(key)}
	switch p := g.IntN(20); {
	case p < 9:
		c := Command{Kind: Enqueue, Lane: g.lane(), Count: 1 + g.Uint32N(4), Persistent: g.IntN(4) > 0, Session: s}
		c.own()
		c.Terms.Tx = key
		seq := g.seq
		g.rareEnqueue(&c)
		g.seq = seq
		g.under[at] += uint64(c.Count)
		return c
	case p < 10:
		u := g.Uint64N(2)
		n := g.uploads[[2]uint64{uint64(s), u}]
		if n == 0 {
			n = 1
		}
		delete(g.uploads, [2]uint64{uint64(s), u})
		g.under[at]++
		return Command{Kind: Enqueue, Lane: g.lane(), Count: 1, Chunks: n, Session: s, Upload: u, Persistent: g.flip(), Terms: &Terms{Tx: key}}
	case p < 14:
		c := Command{Kind: Settle, Session: s, Consumer: g.consumer(), First: 1 + g.Uint64N(20), How: Settlement(g.IntN(3)), Blameless: g.flip(), Terms: &Terms{Tx: key}}
		c.Last = c.First + g.Uint64N(3)
		g.under[at]++
		return c
	case p < 19:
		c := Command{Kind: Commit, Session: s, Terms: &Terms{Tx: key, Parts: g.under[at]}}
		if g.flip() {
			g.seq += 1 + g.Uint64N(4)
			c.Seq = g.seq
			if g.flip() {
				c.own()
				c.Terms.Heard = g.seq - min(g.seq, g.Uint64N(10))
			}
		}
		if g.IntN(10) == 0 {
			c.own()
			c.Terms.Parts++
		}
		if g.IntN(3) > 0 {
			c.own()
			c.Terms.Strict = true
		}
		delete(g.under, at)
		return c
	default:
		delete(g.under, at)
		return Command{Kind: Abort, Session: s, Terms: &Terms{Tx: key}}
	}
}
