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
	default:
		d.Fail()
	}
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
