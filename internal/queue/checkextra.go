package queue

import "slices"

// extra checks what most machines do not have.
func (w *checker) extra(x *extra) {
	m := w.m
	w.that(!x.none() && !x.set.AutoDelete, "something extra that is nothing")
	if most, ok := x.set.MaxLength.Get(); ok && x.set.Overflow == OverflowDropHead {
		w.that(m.ready+m.Delayed() <= most || m.ready == 0, "%d messages ready, at most %d wanted", m.ready, most)
	}
	w.that(m.ready == 0 || !x.set.Forward, "%d messages are ready and go nowhere", m.ready)
	w.dead(&x.dead)
	w.later(&x.waiting)
	w.that(x.fresh == Numbers{}, "messages %v are still fresh", x.fresh)
	w.that(!x.doubt && x.single == x.set.SingleActive, "it is not settled who is active")
	next, yields := m.choice()
	w.that(x.yields == yields && (next == nil && x.active == 0 || next != nil && next.id == x.active), "consumer %d is active", x.active)
	for _, c := range m.consumers {
		w.that(c.inactive == (x.set.SingleActive && !c.getter && (c != next || yields)), "consumer %d is inactive: %v", c.id, c.inactive)
	}
	there := w.there()
	w.notes(&x.deadlines, there, "deadline")
	w.keys(x, there)
	w.screens(x)
	x.dead.all(func(d deadRun) { there = append(there, Numbers{d.first, d.last}) })
	w.notes(&x.sizes, joined(there), "size")
	w.that(x.sized() || x.sizes.count == 0, "sizes that nobody asks for")
	w.unweighed(x)
	ready, dead := m.countBytes()
	w.that(ready == x.readyBytes && dead == x.dead.bytes, "%d bytes ready and %d dead, %d and %d counted", ready, dead, x.readyBytes, x.dead.bytes)
	if most, ok := x.set.MaxBytes.Get(); ok && x.set.Overflow == OverflowDropHead {
		w.that(ready <= most || m.ready == 0, "%d bytes ready, at most %d wanted", ready, most)
	}
	for i := range m.lanes {
		if r := m.lanes[i].runs.front(); r != nil {
			d, ok, _ := x.deadlines.at(r.first, r.last)
			w.that(!ok || int64(d) > m.now, "message %v should have expired at %d, it is %d", r.first, d, m.now)
		}
	}
}

// unweighed checks that those messages are noted without a size that have none.
func (w *checker) unweighed(x *extra) {
	var noted, want []run
	alike := func(rs []run, r run) []run {
		if k := len(rs); k > 0 && r.follows(rs[k-1]) {
			rs[k-1].last = r.last
			return rs
		}
		return append(rs, r)
	}
	x.unweighed.all(func(r run) { noted = alike(noted, r) })
	for _, r := range w.m.withoutSize() {
		want = alike(want, r)
	}
	w.that(slices.Equal(noted, want), "without a size are %v, noted are %v", want, noted)
	n := uint64(0)
	for _, r := range noted {
		n += r.len()
	}
	w.that(n == x.unweighed.count, "%d messages without a size, %d counted", n, x.unweighed.count)
}

func (w *checker) later(all *waiting) {
	n, odd := uint64(0), 0
	for i := range all.lanes {
		l := &all.lanes[i]
		time, last := int64(-1), Number(0)
		for _, b := range l.blocks {
			w.that(len(b.items) > 0 && len(b.items) <= laterItems, "lane %d: a block of %d messages wait", i, len(b.items))
			odd -= len(b.odd)
		}
		l.all(func(t int64, k Number, a attr) {
			w.that(before(time, last, t, k) && k.Lane() == uint8(i), "message %v waits until %d, after %v until %d", k, t, last, time)
			w.that(t > w.m.now/millisecond, "message %v waits until %d ms, it is %d ms", k, t, w.m.now/millisecond)
			w.message(Numbers{k, k}, a)
			if a != 0 && a != flagTransient {
				odd++
			}
			time, last = t, k
			n++
		})
	}
	w.that(n == all.count && odd == 0, "%d messages wait, %d counted; %d histories too few", n, all.count, odd)
}

// there returns the messages that are ready, held, or wait.
func (w *checker) there() []Numbers {
	var there []Numbers
	for i := range w.m.lanes {
		w.m.lanes[i].runs.all(func(r run) { there = append(there, Numbers{r.first, r.last}) })
	}
	for _, c := range w.m.consumers {
		c.held.all(func(_ uint64, s *slot) { there = append(there, Numbers{s.number, s.number}) })
	}
	w.m.extra.waiting.runs(func(_ int64, r run) { there = append(there, Numbers{r.first, r.last}) })
	return joined(there)
}

// notes checks that only messages of there are noted.
func (w *checker) notes(s *notes, there []Numbers, what string) {
	n := uint64(0)
	for i := range s.lanes {
		last := MakeNumber(uint8(i), 0)
		s.lanes[i].all(func(r run) {
			for len(there) > 0 && there[0].Last < r.first {
				there = there[1:]
			}
			w.that(r.first > last && r.last >= r.first, "%s of %v-%v after %v", what, r.first, r.last, last)
			w.that(len(there) > 0 && there[0].First <= r.first && there[0].Last >= r.last, "%s of %v-%v, which is not there", what, r.first, r.last)
			last = r.last
			n += r.len()
		})
	}
	w.that(n == s.count, "%d messages with a %s, %d counted", n, what, s.count)
}

func (w *checker) dead(g *graves) {
	n, last := uint64(0), uint64(0)
	base := uint64(0)
	for i, list := range []*deadList{&g.out, &g.rest} {
		for k, d := range list.live() {
			w.that(d.id > last && d.lastID() <= g.given && d.first <= d.last, "dead %v as %d after %d, %d given out", d.first, d.id, last, g.given)
			w.that(k == 0 || !d.continues(&list.live()[k-1]), "dead %d could be part of the run before", d.id)
			w.that(letters(d.reason), "dead %d died of %v", d.id, d.reason)
			if n == 0 {
				base = d.id
			}
			w.that(i == 0 == (d.lastID() < base+deadWindow), "dead %d-%d is on the wrong side of the window, which begins at %d", d.id, d.lastID(), base)
			w.message(Numbers{d.first, d.last}, d.attr)
			last = d.lastID()
			n += d.len()
		}
	}
	w.that(n == g.count, "%d dead messages, %d counted", n, g.count)
	w.that(n == 0 || w.m.extra.set.DeadLetter != NoDeadLetter, "%d dead messages that nobody wants", n)
	w.that(!w.m.extra.forsakes() || !w.m.extra.deadOver(0), "too many dead messages: %d", n)
}

// letters reports whether messages die of a reason.
func letters(r Reason) bool {
	return r == Discarded || r == Expired || r == Dropped || r == Exhausted || r == Ripe
}
