package queue

import (
	"slices"
	"testing"
)

// What the model does about settings and what follows from them.

func (m *model) configure(set *Settings) {
	m.set = *set
	m.autoDelete = set.AutoDelete
}

func (m *model) enqueue(c *Command, s *modelSession) {
	before := uint64(0)
	if s != nil {
		before = s.lastSeq
		s.lastSeq = max(s.lastSeq, c.Seq)
		s.refused = slices.DeleteFunc(s.refused, func(n uint64) bool { return n <= c.Heard })
	}
	var refused []*modelMessage
	for i := range uint64(c.Count) {
		x := &modelMessage{number: m.number(c.Lane), transient: !c.Persistent}
		m.messages = append(m.messages, x)
		if c.Chunks > 0 {
			if s != nil {
				x.chunks = s.uploads[c.Upload]
				delete(s.uploads, c.Upload)
			}
			if len(x.chunks) != int(c.Chunks) {
				m.release(x, Aborted)
				continue
			}
		}
		x.coming = true
		if m.full() {
			refused = append(refused, x)
			if seq := c.Seq - uint64(c.Count) + 1 + i; s != nil && seq > before && seq <= c.Seq {
				s.refused = append(s.refused, seq)
			}
			continue
		}
		x.coming = false
		if m.set.Overflow != OverflowDropHead {
			m.serve()
		}
	}
	if len(refused) > 0 {
		m.serve()
		all := Numbers{refused[0].number, refused[len(refused)-1].number}
		m.event("overflowed %d of %d: %v %v", len(refused), c.Session, all, NoRoom)
		for _, x := range refused {
			m.release(x, NoRoom)
		}
	}
}

// full reports whether no message is let in.
func (m *model) full() bool {
	most, ok := m.set.MaxLength.Get()
	return ok && m.set.Overflow != OverflowDropHead && uint64(len(m.ready())) >= most
}

func (m *model) keepLimit() {
	most, ok := m.set.MaxLength.Get()
	for ok && m.set.Overflow == OverflowDropHead && uint64(len(m.ready())) > most {
		m.release(m.first(), Dropped)
	}
}

// rareCommand makes a command that has to do with settings.
func (g *generator) rareCommand() Command {
	c := Command{Kind: Set, Set: &Settings{AutoDelete: g.flip()}}
	if g.flip() {
		c.Set.MaxLength = Most(g.Uint64N(12))
	}
	c.Set.Overflow = Overflow(g.IntN(3))
	return c
}

func (g *generator) rareEnqueue(c *Command) {
	if g.IntN(3) == 0 {
		c.Heard = g.seq - min(g.seq, g.Uint64N(10))
	}
}

// compareRare compares what few machines have.
func compareRare(t *testing.T, m *Machine, mod *model, fx *Effects) {
	t.Helper()
	want := mod.set
	want.AutoDelete = mod.autoDelete
	if m.Settings() != want {
		t.Errorf("settings %+v, want %+v", m.Settings(), want)
	}
	for _, id := range sorted(mod.sessions) {
		var refused []uint64
		m.Refused(id, func(r Range) {
			for n := r.First; n <= r.Last; n++ {
				refused = append(refused, n)
			}
		})
		if !slices.Equal(refused, mod.sessions[id].closedRefused) {
			t.Errorf("session %d: refused %v, want %v", id, refused, mod.sessions[id].closedRefused)
		}
	}
}
