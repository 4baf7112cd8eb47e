package queue

// The sections of a snapshot that most machines do not have.

func (e *encoder) extra(m *Machine) {
	if x := m.extra; x != nil {
		e.section(sectionSettings, func() { e.b = x.set.append(e.b) })
	}
	e.section(sectionRefused, func() {
		for _, s := range m.sessions {
			if s.refused != nil {
				e.uint(uint64(s.id))
				e.refused(s.refused.open)
				e.refused(s.refused.closed)
			}
		}
	})
	if x := m.extra; x != nil && x.dead.given > 0 {
		e.section(sectionDead, func() { e.dead(&x.dead) })
	}
	if x := m.extra; x != nil {
		e.section(sectionDeadlines, func() { e.notes(&x.deadlines) })
		e.section(sectionActive, func() {
			if x.active != 0 {
				e.uint(uint64(x.active))
			}
		})
		e.section(sectionSizes, func() { e.notes(&x.sizes) })
		if w := x.waiting; w.count > 0 {
			if e.freezes {
				w = x.waiting.view()
			}
			e.large(sectionLater, func(e *encoder) { e.later(&w) })
		}
	}
	e.section(sectionTimeouts, func() {
		for _, c := range m.consumers {
			if c.timeout > 0 {
				e.uint(uint64(c.id))
				e.uint(c.timeout)
			}
		}
	})
	if x := m.extra; x != nil && x.set.Deduplicate != NoKey {
		e.section(sectionKeys, func() { e.keys(&x.keys) })
		if w := x.keys.window; w.count > 0 {
			if e.freezes {
				w = w.view()
			}
			e.large(sectionWindow, func(e *encoder) { e.window(&w) })
		}
		e.section(sectionPublishers, func() { e.publishers(&x.keys) })
	}
	e.section(sectionSetAt, func() {
		if m.setAt > 0 {
			e.uint(m.setAt)
		}
	})
	e.section(sectionTransactions, func() { e.transactions(m) })
	if x := m.extra; x != nil {
		if all := x.screens; len(all) > 0 {
			if e.freezes {
				all = x.viewScreens()
			}
			e.large(sectionScreens, func(e *encoder) { e.screens(all) })
		}
		e.section(sectionPassing, func() { e.passing(&x.keys) })
	}
}

func (e *encoder) later(w *waiting) {
	var time int64
	var last Number
	w.runs(func(t int64, r run) {
		e.uint(zigzag64(t - time))
		e.uint(zigzag64(int64(r.first - last)))
		e.uint(r.len())
		e.attr(r.attr)
		time, last = t, r.last
	})
}

func (e *encoder) notes(s *notes) {
	var before run
	s.all(func(r run) {
		e.uint(uint64(r.first - before.last))
		e.uint(r.len())
		e.uint(zigzag64(int64(r.attr - before.attr)))
		before = r
	})
}

func (e *encoder) dead(g *graves) {
	e.uint(g.given)
	var before deadRun
	g.all(func(d deadRun) {
		lastID := uint64(0)
		if before.id > 0 {
			lastID = before.lastID()
		}
		e.uint(d.id - lastID)
		e.uint(zigzag64(int64(d.first - before.last)))
		e.uint(d.len())
		e.uint(zigzag64(int64(d.time) - int64(before.time)))
		e.uint(uint64(d.reason))
		e.attr(d.attr)
		before = d
	})
}

func (e *encoder) refused(rs []Range) {
	e.uint(uint64(len(rs)))
	last := uint64(0)
	for _, r := range rs {
		e.uint(r.First - last)
		e.uint(r.Last - r.First + 1)
		last = r.Last
	}
}

// restoreExtra reads one record of such a section.
func (m *Machine) restoreExtra(tag byte, d *decoder) {
	if d.version < 3 {
		d.Fail()
		return
	}
	switch tag {
	case sectionSettings:
		m.rare().set = d.settings()
		if m.extra.set.AutoDelete {
			d.Fail() // it is in the core
		}
	case sectionRefused:
		m.restoreRefused(d)
	case sectionDead:
		m.restoreDead(d)
	case sectionDeadlines:
		m.restoreNotes(d, &m.rare().deadlines)
	case sectionSizes:
		m.restoreNotes(d, &m.rare().sizes)
	case sectionLater:
		m.restoreLater(d)
	case sectionTransactions:
		m.restoreTransaction(d)
	case sectionActive:
		x := m.rare()
		if x.active != 0 {
			d.Fail()
		}
		x.active = ConsumerID(d.Uint())
	case sectionTimeouts:
		m.restoreTimeout(d)
	case sectionKeys:
		m.restoreKeys(d)
	case sectionWindow:
		m.restoreWindow(d)
	case sectionPublishers:
		m.restorePublishers(d)
	case sectionSetAt:
		if m.setAt > 0 {
			d.Fail()
		}
		if m.setAt = d.Uint(); m.setAt == 0 {
			d.Fail()
		}
	case sectionScreens:
		m.restoreScreen(d)
	case sectionPassing:
		m.restorePassing(d)
	default:
		d.Fail()
	}
}

func (m *Machine) restoreTimeout(d *decoder) {
	c, ns := m.consumer(ConsumerID(d.Uint())), d.Uint()
	if c == nil || c.timeout > 0 || ns == 0 {
		d.Fail()
		return
	}
	c.timeout = ns
}

func (m *Machine) restoreRefused(d *decoder) {
	s := m.session(SessionID(d.Uint()))
	if s == nil || s.refused != nil {
		d.Fail()
		return
	}
	s.refused = &refusals{}
	s.refused.open = d.refused(s.lastSeq)
	s.refused.closed = d.refused(s.closed)
	if len(s.refused.open)+len(s.refused.closed) == 0 {
		d.Fail()
	}
}

func (m *Machine) restoreDead(d *decoder) {
	g := &m.rare().dead
	g.given = d.UpTo(maxCounter)
	var before deadRun
	lastID := uint64(0)
	for len(d.Rest) > 0 && !d.Bad() {
		r := deadRun{id: lastID + d.UpTo(g.given)}
		r.first = before.last + Number(unzigzag64(d.Uint()))
		n := d.UpTo(g.given)
		r.last = r.first + Number(n) - 1
		time := int64(before.time) + unzigzag64(d.Uint())
		r.time = uint32(time)
		r.reason = Reason(d.UpTo(uint64(lastReason)))
		r.attr = d.attr()
		if d.Bad() || n == 0 || r.id <= lastID || !m.gaveOut(r.run) || r.lastID() > g.given || int64(r.time) != time {
			d.Fail()
			return
		}
		g.rest.push(r)
		g.count += n
		before, lastID = r, r.lastID()
	}
	if g.given == 0 {
		d.Fail()
	}
	g.tell(m, &Effects{}) // the host has been told of these
}

// restoreNotes reads all runs of a set.
func (m *Machine) restoreNotes(d *decoder, s *notes) {
	var before run
	for len(d.Rest) > 0 && !d.Bad() {
		step, n := d.Uint(), d.Uint()
		r := run{first: before.last + Number(step), attr: before.attr + attr(unzigzag64(d.Uint()))}
		r.last = r.first + Number(n) - 1
		if d.Bad() || step == 0 || r.first <= before.last || !m.gaveOut(r) {
			d.Fail()
			return
		}
		s.add(r.first, r.last, uint64(r.attr))
		before = r
	}
}

func (m *Machine) restoreLater(d *decoder) {
	w := &m.rare().waiting
	var time int64
	var last Number
	for len(d.Rest) > 0 && !d.Bad() {
		t := time + unzigzag64(d.Uint())
		r := run{first: last + Number(unzigzag64(d.Uint()))}
		r.last = r.first + Number(d.UpTo(maxHeldRun)) - 1
		r.attr = d.attr()
		sorted := last == 0 || last.Lane() < r.first.Lane() || last.Lane() == r.first.Lane() && before(time, last, t, r.first)
		if d.Bad() || !sorted || !m.gaveOut(r) || t < 0 || t > endOfTime/millisecond {
			d.Fail()
			return
		}
		w.add(t, r)
		time, last = t, r.last
	}
}

// gaveOut reports whether the numbers of a run can have been given out.
func (m *Machine) gaveOut(r run) bool {
	lane := r.first.Lane()
	return r.first <= r.last && r.last.Lane() == lane && r.first.Ordinal() > 0 && int(lane) < len(m.lanes) &&
		r.last.Ordinal() <= m.lanes[lane].given
}

// refused reads ranges of numbers up to most.
func (d *decoder) refused(most uint64) []Range {
	var rs []Range
	last := uint64(0)
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		step, k := d.UpTo(most), d.UpTo(most)
		if step == 0 || k == 0 || len(rs) > 0 && step == 1 || step > most-last || k-1 > most-last-step {
			d.Fail()
			return nil
		}
		rs = append(rs, Range{last + step, last + step + k - 1})
		last = last + step + k - 1
	}
	return rs
}

// restoreChoice finds out who is the single active consumer. It reports whether that is the one that is noted.
func (m *Machine) restoreChoice() bool {
	x := m.extra
	x.single = x.set.SingleActive
	next, yields := m.choice()
	for _, c := range m.consumers {
		c.inactive = x.set.SingleActive && !c.getter && (c != next || yields)
	}
	x.yields = yields
	return next == nil && x.active == 0 || next != nil && next.id == x.active
}
