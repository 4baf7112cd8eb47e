package queue

// extra checks what most machines do not have.
func (w *checker) extra(x *extra) {
	m := w.m
	w.that(!x.none() && !x.set.AutoDelete, "something extra that is nothing")
	if most, ok := x.set.MaxLength.Get(); ok && x.set.Overflow == OverflowDropHead {
		w.that(m.ready <= most, "%d messages ready, at most %d wanted", m.ready, most)
	}
	w.dead(&x.dead)
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
	return r == Discarded || r == Expired || r == Dropped || r == Exhausted
}
