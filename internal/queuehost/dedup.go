package queuehost

import (
	"holdfast/internal/message"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/wire"
)

// keyed gives an Enqueue of one message the key that duplicates of it are found by, where the queue looks for them. Of messages that are
// carried it says so instead, if that matters.
func (p *pack) keyed(c *queue.Command, m *Publish) {
	if m.Carried && p.refuses {
		if c.Terms == nil {
			c.Terms = &queue.Terms{}
		}
		c.Terms.Carried = true
	}
	keys := p.keys
	if m.Carried {
		keys = queue.NoKey
	}
	if keys == queue.NoKey && m.Screen == nil {
		return
	}
	v, err := message.Parse(m.Message.Head)
	if err != nil {
		return
	}
	var key, byHeader queue.Key
	var sequence queue.Limit
	ok, has := false, false
	if m.Screen != nil || keys == queue.HeaderKey {
		byHeader, has = message.HeaderKey(v.Properties)
	}
	switch keys {
	case queue.HeaderKey:
		key, ok = byHeader, has
	case queue.MessageIDKey:
		key, ok = message.IDKey(v.Properties)
	case queue.PublisherKey:
		var n uint64
		key, n, ok = message.PublisherKey(v.Properties)
		sequence = queue.Most(n)
	}
	screened := m.Screen != nil && has
	if !ok && !screened {
		return
	}
	if c.Terms == nil {
		c.Terms = &queue.Terms{}
	}
	if ok {
		c.Terms.Key, c.Terms.Sequence = key, sequence
	}
	if screened {
		c.Terms.Screen = m.Screen.of(byHeader, v.Properties)
	}
}

// of is what an Enqueue says of the screen, with the time that the message asks for, if it does.
func (s *Screen) of(key queue.Key, p wire.Properties) *queue.Screen {
	x := &queue.Screen{Exchange: s.Exchange, Key: key, Window: s.Window, Keys: s.Keys}
	if planted.Is(planted.ScreensMixed) {
		x.Exchange = 1
	}
	if ms, ok := message.CacheTTL(p); ok {
		x.Window = queue.Most(ms)
	}
	return x
}

// countDuplicates counts what an effect says of duplicates. One that is a dead letter leaves for another reason.
func (h *host) countDuplicates(ef *queue.Effect) {
	if ef.Reason != queue.Duplicate || ef.First.Lane() == queue.ChunkLane {
		return
	}
	if ef.Kind == queue.Released || h.m.Settings().DeadLetter != queue.NoDeadLetter {
		n := ef.Numbers().Len()
		h.reg.duplicates.Add(n)
		if h.stats.rare.Load() == nil {
			h.stats.rare.Store(new(rareCounters))
		}
		h.stats.rare.Load().duplicates.Add(n)
	}
}

// Duplicates is how many messages queues whose commands this node puts in order did not take since they had come before.
func (r *Registry) Duplicates() uint64 { return r.duplicates.Load() }
