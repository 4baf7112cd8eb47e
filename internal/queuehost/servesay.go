package queuehost

import "holdfast/internal/bytecodec"

// Settled implements Ticket for the guest's publishes.
func (s *session) Settled(first, last uint64, o Outcome) {
	s.mu.Lock()
	over := s.over
	if s.tx != nil {
		first = s.tx.from(first, last)
	}
	if !over {
		s.outcome(first, last, o)
	}
	s.mu.Unlock()
	if over {
		s.flow.gave()
	}
}

// outcome tells outcomes. The mutex is held.
func (s *session) outcome(first, last uint64, o Outcome) {
	if n := len(s.outcomes); n > 0 && s.outcomes[n-1].o == o && s.outcomes[n-1].last+1 == first {
		s.outcomes[n-1].last = last
	} else {
		s.outcomes = append(s.outcomes, outcomes{first, last, o})
	}
	s.flush()
}

func (s *session) appendOutcomes(dst []byte) []byte {
	given := s.flow.given.Load()
	s.flow.told.Store(given)
	dst = bytecodec.AppendUints(s.headOf(farOutcomes).append(dst), uint64(given))
	for i := range s.outcomes {
		dst = s.outcomes[i].append(dst)
	}
	return dst
}

// say answers on the queue's worker.
func (s *session) say(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.answer(a)
	}
}

// answer answers. The mutex is held.
func (s *session) answer(a *answer) {
	s.answers.push(a.append(s.headOf(farAnswer).append(nil)))
	s.flush()
}

// flush sends outcomes and answers, as far as the link has room. The mutex is held.
func (s *session) flush() {
	reg, node := s.guest.reg, s.guest.node
	for len(s.outcomes) > 0 || s.answers.len() > 0 {
		var ok bool
		if len(s.outcomes) > 0 {
			if ok = reg.send(node, false, s.send); ok {
				s.outcomes = s.outcomes[:0]
			}
		} else {
			msg := *s.answers.front()
			if ok = reg.send(node, false, func(dst []byte) []byte { return append(dst, msg...) }); ok {
				s.answers.pop()
			}
		}
		if ok {
			continue
		}
		if s.waiting {
			return
		}
		s.waiting = true
		s.guest.wait(s)
	}
}

// resume implements sender.
func (s *session) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	if !s.over || s.parting {
		s.flush()
	}
}

// tell tells an event of a consumer that is not there. The mutex is held.
func (s *session) tell(e *event) {
	r := &relay{session: s, id: e.consumer}
	r.push(outgoingItem{event: e})
}
