package queue

// What a host that begins to lead a queue asks its machine: who is there, and what they hold. Nothing here
// changes anything, and no function that is called from here may.

// SessionInfo describes a session.
type SessionInfo struct {
	ID          SessionID
	Node        uint64 // whose it is; 0 = nobody's
	Incarnation uint64 // of Node
	Suspect     bool
	Epoch       uint64 // of its publishing half
	Last        uint64 // sequence number of the last publish accepted in Epoch; 0 = none yet
	Closed      uint64 // of the last one accepted in the epoch before
}

// Sessions calls f for every session, in order of their ids. A node has one at most.
func (m *Machine) Sessions(f func(SessionInfo)) {
	for _, s := range m.sessions {
		f(SessionInfo{s.id, s.node, s.incarnation, s.suspect, s.epoch, s.lastSeq, s.closed})
	}
}

// ConsumerRef says which consumer or getter of a session is which.
type ConsumerRef struct {
	ID        ConsumerID
	Outer     uint64 // as its Attach said
	Getter    bool
	Cancelled bool   // it only holds messages
	Delivered uint64 // delivery ids given out
	Held      uint64 // messages it holds
	Timeout   uint64 // as its Attach said
}

// ConsumersOf calls f for every consumer and getter of a session, cancelled ones
// too, in order of their ids.
func (m *Machine) ConsumersOf(id SessionID, f func(ConsumerRef)) {
	for _, c := range m.consumers {
		if c.session == id {
			f(ConsumerRef{c.id, c.outer, c.getter, c.cancelled, c.delivered, c.held.count, c.timeout})
		}
	}
}

// LastConsumer returns the largest id of the consumers and getters that are there; 0
// if there is none.
func (m *Machine) LastConsumer() ConsumerID {
	if n := len(m.consumers); n > 0 {
		return m.consumers[n-1].id
	}
	return 0
}

// Redeliver appends to fx the deliveries of what a consumer or getter holds under
// delivery ids above the one given, as they were when the messages were assigned,
// neighbours joined. It is for a consumer whose deliveries may be lost on their way:
// the state does not change. Left, of a getter, is what is ready now; Command is 0.
func (m *Machine) Redeliver(id ConsumerID, above uint64, fx *Effects) {
	c := m.consumer(id)
	if c == nil || above == ^uint64(0) {
		return
	}
	own := len(fx.List)
	c.held.from(above+1, func(id uint64, s *slot) {
		if n := len(fx.List); n > own && !c.getter && !s.attr.is(flagBig) {
			e := &fx.List[n-1]
			if e.attr == s.attr && e.Last+1 == s.number && e.Delivery+uint64(s.number-e.First) == id {
				e.Last = s.number
				return
			}
		}
		e := fx.add(Deliver)
		e.Command = 0
		e.describe(c, id, Numbers{s.number, s.number}, s.attr)
		e.NoAck = false // a getter may have asked without acks since
		if c.getter {
			e.Left = m.ready
		}
		if s.attr.is(flagBig) {
			e.Chunks = m.big[s.number]
		}
	})
}
