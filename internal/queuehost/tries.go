package queuehost

import (
	"holdfast/internal/bytecodec"
	"holdfast/internal/queue"
)

// resumes puts a session with a quorum queue in line to be resumed. The mutex is held.
func (s *session) resumes(c *cut) bool {
	s.epoch = c.Uint()
	if !c.ended() || s.epoch == 0 {
		return false
	}
	m := s.guest.reg.member(s.head.queue)
	if m == nil {
		s.part(0)
		s.closed = true
		return true
	}
	s.handle = &m.handle
	if ok, leader := m.lead.resumes(s); !ok {
		s.part(leader)
	}
	return true
}

// resumed says that the session is resumed; known are the consumers that it has, refused those of the publishes up to number
// accepted that the queue has not taken. It runs on the queue's worker.
func (s *session) resumed(id queue.SessionID, accepted uint64, refused []queue.Range, known map[queue.ConsumerID]queue.ConsumerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.known = known
	msg := bytecodec.AppendUints(s.headOf(farResumed).append(nil), uint64(id), accepted)
	for _, r := range refused {
		msg = bytecodec.AppendUints(msg, r.First, r.Last-r.First)
	}
	s.answers.push(msg)
	s.flush()
}

// owner is the session, if it is one with a quorum queue.
func (s *session) owner() *session {
	if s.ref == nil {
		return nil
	}
	return s
}

// lost ends a try: this member does not lead, or the session is not there any more.
func (s *session) lost(leader uint64) {
	s.mu.Lock()
	held := len(s.held) > 0
	sealed := false
	if !s.over {
		_, sealed, _ = s.endLocked()
		s.part(leader)
	}
	s.mu.Unlock()
	if sealed && leader == s.guest.reg.self() { // else nothing is sealed here any more
		s.handle.Unseal()
	}
	if held {
		s.flow.gave()
	}
}

// part ends the try with a word about who leads. The mutex is held.
func (s *session) part(leader uint64) {
	s.over, s.parting = true, true
	s.answers.push(bytecodec.AppendUint(s.headOf(farElsewhere).append(nil), leader))
	s.flush()
}

// settledUpTo says which settlements are carried out.
func (s *session) settledUpTo(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.answers.push(bytecodec.AppendUint(s.headOf(farSettled).append(nil), n))
		s.flush()
	}
}

// consumer is what the queue here calls a consumer of the guest's.
func (s *session) consumer(id queue.ConsumerID) (home queue.ConsumerID, ok bool) {
	if r := s.relays[id]; r != nil {
		return r.home, true
	}
	home, ok = s.known[id]
	return home, ok
}

// know notes what the queue here calls a consumer of the guest's.
func (s *session) know(id, home queue.ConsumerID) {
	if s.known == nil {
		s.known = map[queue.ConsumerID]queue.ConsumerID{}
	}
	s.known[id] = home
}
