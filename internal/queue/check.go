package queue

import (
	"fmt"
	"math/bits"
	"slices"
)

// Check looks at the whole state and returns the first invariant that does not hold.
// It is for tests: its cost grows with the number of messages held.
func (m *Machine) Check() error {
	w := checker{m: m}
	w.lanes()
	w.sessions()
	w.consumers()
	if m.extra != nil {
		w.extra(m.extra)
	}
	w.bigs()
	w.line()
	return w.err
}

type checker struct {
	m   *Machine
	err error
	big uint64 // messages found to be big
}

func (w *checker) that(ok bool, format string, args ...any) {
	if !ok && w.err == nil {
		w.err = fmt.Errorf("queue: "+format, args...)
	}
}

func (w *checker) lanes() {
	m := w.m
	total := uint64(0)
	for i := range m.lanes {
		l := &m.lanes[i]
		n := uint64(0)
		last := MakeNumber(uint8(i), 0)
		for bi, b := range l.runs.blocks {
			w.that(len(b.live()) > 0 || len(l.runs.blocks) == 1, "lane %d: block %d is empty", i, bi)
			w.that(len(b.live()) <= blockRuns, "lane %d: block of %d runs", i, len(b.live()))
			for k, r := range b.live() {
				w.that(r.first > last && r.last >= r.first, "lane %d: run %v-%v after %v", i, r.first, r.last, last)
				w.that(k == 0 || !r.follows(b.live()[k-1]), "lane %d: run at %v could be part of the one before", i, r.first)
				w.message(Numbers{r.first, r.last}, r.attr)
				n += r.len()
				last = r.last
			}
		}
		w.that(last <= MakeNumber(uint8(i), l.given), "lane %d: message %v is there, %d given out", i, last, l.given)
		w.that(n == l.ready, "lane %d: %d messages ready, %d counted", i, n, l.ready)
		w.that(m.nonEmpty>>i&1 == 1 == (n > 0), "lane %d: not marked right", i)
		total += n
	}
	w.that(bits.Len64(m.nonEmpty) <= len(m.lanes), "lanes marked that are not there")
	w.that(total == m.ready, "%d messages ready, %d counted", total, m.ready)
}

func (w *checker) message(r Numbers, a attr) {
	w.that(a&^attrMask == 0, "messages %v: history %x", r, uint64(a))
	if !a.is(flagBig) {
		return
	}
	w.big += r.Len()
	w.that(w.big <= uint64(len(w.m.big)), "big messages %v: chunks are missing", r)
	for n := r.First; w.err == nil && n <= r.Last; n++ {
		w.that(len(w.m.big[n]) > 0, "big message %v has no chunks", n)
	}
}

func (w *checker) sessions() {
	of := map[uint64]SessionID{}
	for i, s := range w.m.sessions {
		w.that(i == 0 || w.m.sessions[i-1].id < s.id, "session %d is out of order", s.id)
		w.that(s.node != 0 || s.incarnation == 0, "session %d is of incarnation %d of no node", s.id, s.incarnation)
		other, two := of[s.node]
		w.that(s.node == 0 || !two, "sessions %d and %d are of one node", other, s.id)
		of[s.node] = s.id
		if s.refused != nil {
			w.that(len(s.refused.open)+len(s.refused.closed) > 0, "session %d: refusals without any", s.id)
			w.refused(s, s.refused.open, s.lastSeq)
			w.refused(s, s.refused.closed, s.closed)
		}
		w.transactions(s)
	}
}

func (w *checker) refused(s *session, rs []Range, last uint64) {
	for i, r := range rs {
		w.that(r.First > 0 && r.Last >= r.First && (i == 0 || rs[i-1].Last+1 < r.First), "session %d: refused %v", s.id, r)
		w.that(r.Last <= last, "session %d: %d refused of %d", s.id, r.Last, last)
	}
}

func (w *checker) consumers() {
	m := w.m
	held, active := uint64(0), 0
	for i, c := range m.consumers {
		w.that(i == 0 || m.consumers[i-1].id < c.id, "consumer %d is out of order", c.id)
		s := m.session(c.session)
		w.that(s != nil, "consumer %d has no session", c.id)
		w.that(s == nil || s.suspect == c.suspended, "consumer %d does not agree with its session", c.id)
		w.that(c.ranked && c.level == c.priority || !c.ranked && c.level == 0, "consumer %d is of level %d", c.id, c.level)
		w.that(!c.inactive || m.extra != nil && m.extra.set.SingleActive, "consumer %d is inactive", c.id)
		w.that(!c.cancelled || c.held.count > 0, "cancelled consumer %d holds nothing and is still there", c.id)
		w.that(!c.exclusive || c.cancelled || m.exclusive == c.id && m.active == 1, "consumer %d is not alone", c.id)
		if !c.getter && !c.cancelled {
			active++
		}
		w.held(c)
		held += c.held.count
	}
	w.that(active == m.active, "%d consumers, %d counted", active, m.active)
	w.that(held == m.unacked, "%d messages held, %d counted", held, m.unacked)
	e := m.consumer(m.exclusive)
	w.that(m.exclusive == 0 || e != nil && e.exclusive && !e.cancelled, "exclusive consumer %d is not there", m.exclusive)
}

func (w *checker) held(c *consumer) {
	n, empty, last := uint64(0), 0, uint64(0)
	c.held.all(func(id uint64, s *slot) {
		w.that(id > last && id <= c.delivered, "consumer %d: delivery %d after %d, of %d", c.id, id, last, c.delivered)
		last = id
		n++
		w.message(Numbers{s.number, s.number}, s.attr)
	})
	w.that(n == c.held.count, "consumer %d holds %d messages, %d counted", c.id, n, c.held.count)
	for i := range c.held.pages {
		p := &c.held.pages[i]
		lastPage := i == len(c.held.pages)-1
		w.that(p.live&^p.kept == 0 && bits.OnesCount64(p.kept) == len(p.slots), "consumer %d: page %d has wrong masks", c.id, i)
		w.that(i == 0 || c.held.pages[i-1].block < p.block, "consumer %d: page %d is out of order", c.id, i)
		if p.live == 0 && !lastPage {
			empty++
			w.that(i > 0, "consumer %d: first page is empty", c.id)
		}
	}
	w.that(empty == c.held.empty, "consumer %d: %d empty pages, %d counted", c.id, empty, c.held.empty)
}

func (w *checker) bigs() {
	m := w.m
	w.that(w.big == uint64(len(m.big)), "%d big messages, chunks of %d", w.big, len(m.big))
	last := Number(0)
	n := uint64(0)
	for _, r := range m.Live(nil) {
		w.that(r.First > last, "live range %v after %v", r, last)
		last = r.Last
		if r.First.Lane() != ChunkLane {
			n += r.Len()
		}
	}
	w.that(n == m.ready+m.unacked+m.Delayed()+m.DeadCount()+m.Uncommitted(), "%d messages live, %d ready, %d unacked, %d delayed, %d dead, %d uncommitted",
		n, m.ready, m.unacked, m.Delayed(), m.DeadCount(), m.Uncommitted())
	w.that(last <= MakeNumber(ChunkLane, m.chunks), "chunk %v is there, %d given out", last, m.chunks)
}

// line checks that those who can get a message are in line, and that nothing is left that
// one of them could have got.
func (w *checker) line() {
	m := w.m
	n := 0
	var prev *consumer
	for c := m.turns.head; c != nil; c = c.next {
		w.that(c.queued && c.prev == prev, "consumer %d: broken line", c.id)
		w.that(prev == nil || prev.level >= c.level, "consumer %d comes before one of a higher level", c.id)
		prev = c
		n++
	}
	w.that(m.turns.tail == prev, "the line has another end")
	var ends []end
	for c := m.turns.head; c != nil; c = c.next {
		if c.next == nil || c.next.level != c.level {
			ends = append(ends, end{c.level, c})
		}
	}
	if m.turns.ends == nil {
		w.that(len(ends) < 2, "the line has %d levels that nobody knows of", len(ends))
	} else {
		w.that(len(ends) > 1 && slices.Equal(ends, *m.turns.ends), "the levels of the line end with others")
	}
	for _, c := range m.consumers {
		able := c.standing() == Waiting || c.standing() == NoCredit && c.wake && !c.woken
		w.that(able == c.queued, "consumer %d is %v, in line: %v", c.id, c.standing(), c.queued)
		if c.queued {
			n--
		}
	}
	w.that(n == 0, "consumers in line that are not there")
	paused := m.extra != nil && !m.extra.set.gives()
	w.that(paused || m.ready == 0 || m.turns.head == nil, "%d messages ready and consumer %v waits", m.ready, m.turns.head)
}
