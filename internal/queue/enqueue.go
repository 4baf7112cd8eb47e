package queue

import "holdfast/internal/invariant"

// upload is a big message under way: chunks that have come for it.
type upload struct {
	key    uint64
	chunks []Numbers
	count  uint64
}

// enqueue puts a block of messages at the end of its lane. The numbers are given out
// in any case: whoever packed the entry has mapped bodies with them.
func (m *Machine) enqueue(c *Command, fx *Effects) {
	invariant.Pass("queue", "enqueue applied")
	l := m.lane(c.Lane)
	if c.Count == 0 || c.Chunks > 0 && c.Count != 1 || uint64(c.Count) > MaxOrdinal-l.given {
		invariant.Failf("queue: enqueue of %d messages with %d chunks in lane %d", c.Count, c.Chunks, c.Lane)
	}
	first := MakeNumber(c.Lane, l.given+1)
	last := first + Number(c.Count) - 1
	l.given += uint64(c.Count)

	s := m.session(c.Session)
	before := uint64(0)
	if s != nil && c.tx() == 0 {
		before = s.lastSeq
		s.lastSeq = max(s.lastSeq, c.Seq)
		if s.refused != nil {
			s.heard(c.terms().Heard)
		}
	}
	var a attr
	if !c.Persistent {
		a = flagTransient
	}
	if c.Chunks > 0 {
		chunks, whole := s.takeUpload(c.Upload, c.Chunks)
		if !whole {
			for _, r := range chunks {
				fx.free(r.First, r.Last, Aborted)
			}
			fx.free(first, last, Aborted)
			return
		}
		if m.big == nil {
			m.big = map[Number][]Numbers{}
		}
		m.big[first] = chunks
		a |= flagBig
	}
	if c.tx() != 0 {
		m.enqueuePart(c, s, run{first, last, a}, fx)
		return
	}
	if m.extra != nil || c.Terms != nil && (c.Terms.TTL > 0 || c.Terms.Delay > 0 || c.Terms.Screen != nil) {
		m.rare()
		m.admit(c, s, before, run{first, last, a}, fx)
		return
	}
	l.runs.pushBack(run{first, last, a})
	m.gain(c.Lane, uint64(c.Count))
	m.serve(fx)
}

// chunk keeps the next chunks of a big message for its session. Those of a
// session that is not there are released at once.
func (m *Machine) chunk(c *Command, fx *Effects) {
	if c.Count == 0 || uint64(c.Count) > MaxOrdinal-m.chunks {
		invariant.Failf("queue: %d chunks", c.Count)
	}
	first := MakeNumber(ChunkLane, m.chunks+1)
	last := first + Number(c.Count) - 1
	m.chunks += uint64(c.Count)
	s := m.session(c.Session)
	if s == nil {
		fx.free(first, last, Aborted)
		return
	}
	u := s.upload(c.Upload)
	u.count += uint64(c.Count)
	if n := len(u.chunks); n > 0 && u.chunks[n-1].Last+1 == first {
		u.chunks[n-1].Last = last
		return
	}
	u.chunks = append(u.chunks, Numbers{first, last})
}

// upload returns the upload of that key, begun if it is new.
func (s *session) upload(key uint64) *upload {
	for i := range s.uploads {
		if s.uploads[i].key == key {
			return &s.uploads[i]
		}
	}
	s.uploads = append(s.uploads, upload{key: key})
	return &s.uploads[len(s.uploads)-1]
}

// takeUpload ends an upload and returns its chunks, and whether they are the n that
// belong to the message. There may be no such session.
func (s *session) takeUpload(key uint64, n uint32) (chunks []Numbers, whole bool) {
	if s == nil {
		return nil, false
	}
	for i := range s.uploads {
		if u := s.uploads[i]; u.key == key {
			s.uploads[i] = s.uploads[len(s.uploads)-1]
			s.uploads[len(s.uploads)-1] = upload{}
			s.uploads = s.uploads[:len(s.uploads)-1]
			return u.chunks, u.count == uint64(n)
		}
	}
	return nil, false
}
