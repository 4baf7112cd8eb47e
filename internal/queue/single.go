package queue

import "holdfast/internal/planted"

// Of a queue with a single active consumer only one gets messages: of the consumers whose node is heard of, the one of
// the highest level that has been there longest. It stays active until it leaves, or one of a higher level comes; then it
// gets nothing more, and gives way as soon as it holds nothing. A suspect node's consumer stays active: what it holds
// is still its own.

// doubt lets it be looked at, after the command, who is to be active.
func (m *Machine) doubt() {
	if m.extra != nil {
		m.extra.doubt = true
	}
}

// choose lets another consumer be active, if one is to be.
func (m *Machine) choose(fx *Effects) {
	x := m.extra
	if !x.doubt && !x.yields {
		return
	}
	x.doubt = false
	if !x.set.SingleActive && !x.single {
		return
	}
	x.single = x.set.SingleActive
	next, yields := m.choice()
	for _, c := range m.consumers {
		c.inactive = x.set.SingleActive && !c.getter && (c != next || yields) && !(planted.Is(planted.TwoActive) && c.id%4 == 0)
		m.arrange(c)
	}
	x.yields = yields
	id := ConsumerID(0)
	if next != nil {
		id = next.id
	}
	if id != x.active {
		x.active = id
		fx.about(Active, id)
	}
	m.serve(fx)
}

// choice returns the consumer that is to be active, which may be nil, and whether it is about to give way.
func (m *Machine) choice() (next *consumer, yields bool) {
	if !m.extra.set.SingleActive {
		return nil, false
	}
	var best *consumer
	for _, c := range m.consumers {
		if !c.getter && !c.cancelled && !c.suspended && (best == nil || c.level > best.level) {
			best = c
		}
	}
	active := m.consumer(m.extra.active)
	if active == nil || active.cancelled {
		return best, false
	}
	if best != nil && best.level > active.level {
		if active.held.count == 0 {
			return best, false
		}
		return active, true
	}
	return active, false
}

// Active returns the single active consumer; 0 if there is none, or if there may be several.
func (m *Machine) Active() ConsumerID {
	if m.extra == nil {
		return 0
	}
	return m.extra.active
}
