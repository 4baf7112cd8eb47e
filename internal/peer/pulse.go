package peer

import "time"

// pulse turns steps at about even times into heartbeats and into the time that
// counts against silent peers.
type pulse struct {
	every  int64 // ns between beats
	period int64 // ns between steps, half of it
	limit  int64 // ns of silence that make a node suspect
	last   int64 // the monotonic time of the last step
	since  int64 // ns since the last beat
}

func newPulse(every time.Duration, missed int, now int64) pulse {
	return pulse{
		every: int64(every), period: int64(every) / 2, limit: int64(every) * int64(missed),
		last: now, since: int64(every), // the first step beats
	}
}

// stroke is what one step of the pulse means.
type stroke struct {
	beat    bool  // a heartbeat is due
	counts  int64 // ns by which silences grow
	stalled bool  // our own process did not run: what was sent to us may lie unread
}

// step is to be called every period. Steps that come late count for little, as
// whoever could not step could not read either.
func (p *pulse) step(now int64) stroke {
	passed := max(now-p.last, 0)
	p.last = now
	p.since += passed
	s := stroke{counts: min(passed, p.period+p.period/2), stalled: passed > 4*p.period}
	if p.since >= p.every-p.period/4 {
		p.since, s.beat = 0, true
	}
	return s
}

// silence is how long a node has not been heard.
type silence struct {
	ns      int64
	suspect bool
}

// grow returns true if the node becomes suspect. After a stall of ours silent
// nodes get at least half of the limit again, for what lies unread.
func (s *silence) grow(by stroke, limit int64) bool {
	switch {
	case !by.stalled:
		s.ns += by.counts
	case !s.suspect:
		s.ns = min(s.ns, limit/2)
	}
	if s.suspect || s.ns < limit {
		return false
	}
	s.suspect = true
	return true
}

// over returns true if a node that is suspect has not been heard for so long; it takes as long again, less the limit
// of suspicion, until it does once more. Our own stalls do not begin that anew, else a process that is stalled again and
// again would wait for ever: the node gets half of the limit of suspicion after the last.
func (s *silence) over(by stroke, most, limit int64) bool {
	if !s.suspect {
		return false
	}
	if by.stalled {
		s.ns = min(s.ns, most-limit/2)
	}
	if s.ns < most {
		return false
	}
	s.ns = limit
	return true
}

// heard returns true if the node was suspect until now.
func (s *silence) heard() bool {
	was := s.suspect
	s.ns, s.suspect = 0, false
	return was
}
