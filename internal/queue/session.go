package queue

import (
	"slices"
	"sort"

	"holdfast/internal/planted"
)

// session is what the queue knows of one node's incarnation.
type session struct {
	id          SessionID
	node        uint64 // whose it is; 0 = nobody's. No two sessions are of one node
	incarnation uint64 // of the node
	suspect     bool

	epoch   uint64 // of its publishing half
	lastSeq uint64 // of the last publish accepted in it
	closed  uint64 // of the last publish accepted in the epoch before
	uploads []upload
	under   []*transaction // those under way, as they began
	refused *refusals      // nil: none
}

func (m *Machine) findSession(id SessionID) (int, bool) {
	n := len(m.sessions)
	i := sort.Search(n, func(i int) bool { return m.sessions[i].id >= id })
	return i, i < n && m.sessions[i].id == id
}

// session returns the session, or nil.
func (m *Machine) session(id SessionID) *session {
	if i, ok := m.findSession(id); ok {
		return m.sessions[i]
	}
	return nil
}

// sessionOf returns the session of a node, or nil.
func (m *Machine) sessionOf(node uint64) *session {
	for _, s := range m.sessions {
		if s.node == node {
			return s
		}
	}
	return nil
}

func (m *Machine) sessionOpen(c *Command, fx *Effects) {
	node, incarnation := c.Node, c.Incarnation
	if node == 0 {
		incarnation = 0
	} else if s := m.sessionOf(node); s != nil {
		switch {
		case s.incarnation > incarnation, s.incarnation == incarnation && s.id != c.Session:
			return
		case s.incarnation < incarnation:
			m.endSession(s.id, true, fx)
		}
	}
	i, ok := m.findSession(c.Session)
	if !ok {
		s := &session{id: c.Session, node: node, incarnation: incarnation}
		m.sessions = slices.Insert(m.sessions, i, s)
		return
	}
	if s := m.sessions[i]; node == 0 || node == s.node {
		m.suspend(s, false)
		m.serve(fx)
	}
}

func (m *Machine) sessionSuspect(c *Command) {
	if s := m.session(c.Session); s != nil {
		m.suspend(s, true)
	}
}

// suspend stops or resumes new deliveries to the consumers of a session.
func (m *Machine) suspend(s *session, on bool) {
	if s.suspect == on {
		return
	}
	s.suspect = on
	m.doubt()
	for _, con := range m.consumers {
		if con.session == s.id {
			con.suspended = on
			m.arrange(con)
		}
	}
}

// endSession removes a session, if it is there, and all that is its.
func (m *Machine) endSession(id SessionID, blameless bool, fx *Effects) {
	i, ok := m.findSession(id)
	if !ok {
		return
	}
	s := m.sessions[i]
	m.sessions = slices.Delete(m.sessions, i, i+1)
	m.abortUnder(s, fx)
	gone := false
	m.consumers = slices.DeleteFunc(m.consumers, func(con *consumer) bool {
		if con.session != s.id {
			return false
		}
		gone = m.leave(con, blameless, left, fx) || gone
		return true
	})
	if gone {
		m.noneLeft(fx)
	}
	m.serve(fx)
}

// abortUnder releases what was under way: the chunks of big messages that will never be whole, and transactions.
func (m *Machine) abortUnder(s *session, fx *Effects) {
	for _, u := range s.uploads {
		for _, r := range u.chunks {
			fx.free(r.First, r.Last, Aborted)
		}
	}
	s.uploads = nil
	for _, t := range s.under {
		m.forsakeParts(t, Aborted, fx)
	}
	s.under = nil
}

func (m *Machine) epochOpen(c *Command, fx *Effects) {
	e := fx.add(EpochOpened)
	e.Session = c.Session
	s := m.session(c.Session)
	if s == nil {
		e.Reason = NoSession
		return
	}
	if c.Epoch > s.epoch {
		s.epoch, s.closed, s.lastSeq = c.Epoch, s.lastSeq, 0
		s.closeRefused()
		m.abortUnder(s, fx)
	} else if planted.Is(planted.EpochForgotten) {
		return
	}
	e.Count = s.closed
}

// recover begins a new incarnation: nobody is there any more, what was held is ready
// again, what was transient is gone.
func (m *Machine) recover(c *Command, fx *Effects) {
	for _, s := range m.sessions {
		m.abortUnder(s, fx)
	}
	for _, con := range m.consumers {
		m.leave(con, true, restarted, fx)
	}
	m.sessions, m.consumers = nil, nil

	if m.extra != nil {
		m.extra.recoverKeys()
		m.extra.recoverScreens()
	}
	tellAll := m.handedOut && !c.Clean
	dropped := m.recoverDead(fx) + m.recoverLater(fx)
	if m.extra != nil {
		m.ripen(fx) // those may have been handed out
	}
	for i := range m.lanes {
		lane := uint8(i)
		m.lanes[i].runs.change(func(r run) (run, bool) {
			if r.attr.is(flagTransient) {
				dropped += r.len()
				m.lose(lane, r.len())
				m.goOut(r.first, r.last)
				m.release(r.first, r.len(), r.attr, Lost, fx)
				return r, false
			}
			if tellAll {
				r.attr |= flagRedelivered
			}
			return r, true
		})
	}
	m.handedOut = false
	fx.add(Recovered).Count = dropped
}
