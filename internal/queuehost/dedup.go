package queuehost

import (
	"holdfast/internal/message"
	"holdfast/internal/queue"
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
	if p.keys == queue.NoKey || m.Carried {
		return
	}
	v, err := message.Parse(m.Message.Head)
	if err != nil {
		return
	}
	var key queue.Key
	var sequence queue.Limit
	ok := false
	switch p.keys {
	case queue.HeaderKey:
		key, ok = message.HeaderKey(v.Properties)
	case queue.MessageIDKey:
		key, ok = message.IDKey(v.Properties)
	case queue.PublisherKey:
		var n uint64
		key, n, ok = message.PublisherKey(v.Properties)
		sequence = queue.Most(n)
	}
	if !ok {
		return
	}
	if c.Terms == nil {
		c.Terms = &queue.Terms{}
	}
	c.Terms.Key, c.Terms.Sequence = key, sequence
}

// countDuplicates counts what an effect says of duplicates. One that is a dead letter leaves for another reason.
func (h *host) countDuplicates(ef *queue.Effect) {
	if ef.Reason != queue.Duplicate || ef.First.Lane() == queue.ChunkLane {
		return
	}
	if ef.Kind == queue.Released || h.m.Settings().DeadLetter != queue.NoDeadLetter {
		h.reg.duplicates.Add(ef.Numbers().Len())
	}
}

// Duplicates is how many messages queues whose commands this node puts in order did not take since they had come before.
func (r *Registry) Duplicates() uint64 { return r.duplicates.Load() }
