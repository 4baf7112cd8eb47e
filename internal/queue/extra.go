package queue

// extra is what most machines do not have: settings, and what follows from them.
type extra struct {
	set  Settings // without AutoDelete, which Machine has
	dead graves

	waiting    waiting
	readyBytes uint64 // of ready messages and those that wait, as far as it is known

	active ConsumerID // the single active consumer; 0: none
	single bool       // there are consumers that are inactive, or may be
	yields bool       // the active one gives way as soon as it holds nothing
	doubt  bool       // it may be another one after the command

	deadlines notes     // times in nanoseconds, of ready and held messages
	sizes     notes     // of one message each, of ready, held and dead messages; nothing if they are of no interest
	unweighed notes     // of the others of these, where they are
	keys      keys      // to find duplicates; nothing if they are not looked for
	screens   []*screen // what has come through exchanges that let nothing through twice, by their ids
	fresh     Numbers   // messages of the command being applied, which do not expire before it is over
}

// rare returns m.extra, made if it is not there.
func (m *Machine) rare() *extra {
	if m.extra == nil {
		m.extra = &extra{}
	}
	return m.extra
}

// Settings returns the settings as they are now.
func (m *Machine) Settings() Settings {
	var s Settings
	if m.extra != nil {
		s = m.extra.set
	}
	s.AutoDelete = m.autoDelete
	return s
}

// SetAt returns the generation of what the settings come from, 0 if none is known: an older Set does nothing.
func (m *Machine) SetAt() uint64 { return m.setAt }

// set replaces the settings.
func (m *Machine) set(c *Command, fx *Effects) {
	if c.Epoch > 0 && c.Epoch < m.setAt {
		return
	}
	m.setAt = max(m.setAt, c.Epoch)
	var s Settings
	if in := c.terms().Set; in != nil {
		s = *in
	}
	m.autoDelete, s.AutoDelete = s.AutoDelete, false
	if m.extra == nil && s == (Settings{}) {
		return
	}
	x := m.rare()
	old, noted := x.set, x.sized()
	x.set = s
	m.rekey(&old)
	if !x.sized() {
		x.sizes, x.unweighed, x.readyBytes, x.dead.bytes = notes{}, notes{}, 0, 0
	} else if !noted {
		m.findUnweighed()
	}
	x.keepWindow(m.now / millisecond)
	x.boundWindow()
	x.doubt = true
	m.choose(fx)
	m.serve(fx)
}

// passTime does before the commands of an entry what its time has brought about.
func (m *Machine) passTime(fx *Effects) {
	if m.extra.set.Deduplicate != NoKey {
		m.extra.keepWindow(m.now / millisecond)
	}
	m.extra.keepScreens(m.now / millisecond)
	if m.ripen(fx) {
		m.serve(fx)
	}
	m.expire(fx)
}

// afterwards does after each command what settings ask for.
func (m *Machine) afterwards(fx *Effects) {
	m.choose(fx)
	m.forward(fx)
	m.expire(fx)
	m.keepLimit(fx)
	m.expire(fx) // those that are in front now
	m.keepDead(fx)
	if m.extra.none() {
		m.extra = nil
	}
}

// none reports whether there is nothing in it.
func (x *extra) none() bool {
	return x.set == (Settings{}) && x.dead.given == 0 && x.deadlines.count == 0 && x.waiting.count == 0 && len(x.screens) == 0
}

// all calls f for the runs of messages that are neither ready nor held.
func (x *extra) all(f func(run)) {
	x.waiting.runs(func(_ int64, r run) { f(r) })
	x.dead.all(func(d deadRun) { f(d.run) })
}
