package broker

import (
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// mostDead is how many dead letters a queue holds at most that have not arrived. At it publishes are refused.
const mostDead = 1_000_000

// queueDef is a queue as queuehost wants it.
func (b *Broker) queueDef(q *catalog.Queue) queuehost.QueueDef {
	def := QueueDef(q)
	if s := b.hostSettings(q); s != (queuehost.Settings{}) {
		def.Settings = &s
	}
	return def
}

// hostSettings is what arguments and policies make of a queue. In a cluster of the first level, whose nodes could not all
// read it, that is nothing.
func (b *Broker) hostSettings(q *catalog.Queue) (s queuehost.Settings) {
	v := b.view()
	if v.Level() < catalog.PolicyLevel {
		return s
	}
	if now := v.QueueByID(q.ID); now != nil {
		q = now // what is said of it is all as of one view
	}
	if q.Of != 0 {
		s = storeSettings(q)
		s.Generation = b.generation(q, v)
		return s
	}
	s.Generation = b.generation(q, v)
	e := v.Effective(q)
	s.Settings = queue.Settings{
		MaxLength: queue.Limit(e.MaxLength), MaxBytes: queue.Limit(e.MaxBytes), Overflow: queue.Overflow(e.Overflow),
		DeliveryLimit: queue.Limit(e.DeliveryLimit), TTL: queue.Limit(e.MessageTTL),
		SingleActive: e.SingleActive, TopPriority: e.MaxPriority,
		Retry: retryTypes[e.Retry.Type], RetryMin: e.Retry.Min, RetryMax: e.Retry.Max,
	}
	if d := &e.Deduplicate; d.By != "" {
		s.Deduplicate, s.WindowBytes = keySources[d.By], d.Bytes
		if d.Window > 0 {
			s.Window = queue.Most(d.Window)
		}
	}
	s.Backoff = s.Settings != queue.Settings{}
	if e.DeadLetter.On {
		s.DeadLetter = queue.DeadLetterHeld
		if e.DeadLetter.Strategy == "at-most-once" || !q.Durable {
			s.DeadLetter = queue.DeadLetterOnce
		}
		s.HeldMost = queue.Most(mostDead)
	}
	if ms, is := e.Expires.Value(); is {
		s.Expires = time.Duration(ms) * time.Millisecond
	}
	s.Paused = q.Paused
	if ms, is := e.Delay.Value(); is {
		s.Delays, s.Delay = true, time.Duration(ms)*time.Millisecond
	}
	switch ms, is := e.ConsumerTimeout.Value(); {
	case is:
		s.ConsumerTimeout = max(time.Duration(ms)*time.Millisecond, time.Millisecond)
	case q.Type == catalog.Quorum:
		s.ConsumerTimeout = b.settings.ConsumerTimeout
	}
	if ms, is := e.DisconnectedTimeout.Value(); is && q.Type == catalog.Quorum {
		s.Disconnected = max(time.Duration(ms)*time.Millisecond, time.Millisecond)
	}
	return s
}

// generation is that of a view, for a quorum queue.
func (b *Broker) generation(q *catalog.Queue, v *catalog.View) uint64 {
	if q.Type != catalog.Quorum {
		return 0
	}
	return b.behindForces(v.Generation())
}

// behindForces is a number of the catalog's as queues are told of it. A catalog that was forced goes on where the node was that is left, which may
// be before what queues have heard of, and gives the same numbers again: so the forces count first.
func (b *Broker) behindForces(n uint64) uint64 {
	const numbers = 48 // bits; more commands than a catalog sees
	if b.forces != nil {
		n |= uint64(b.forces()) << numbers
	}
	return n
}

// storeSettings is what the store of an exchange does: it keeps each message for as long as that says, and then forwards it.
func storeSettings(q *catalog.Queue) (s queuehost.Settings) {
	s.Forward, s.Delays, s.HeldMost = true, true, queue.Most(mostDead)
	s.DeadLetter = queue.DeadLetterHeld
	if !q.Durable {
		s.DeadLetter = queue.DeadLetterOnce
	}
	return s
}

var keySources = map[string]queue.KeySource{"header": queue.HeaderKey, "message-id": queue.MessageIDKey, "publisher": queue.PublisherKey}

var retryTypes = map[string]queue.RetryType{"all": queue.RetryAll, "failed": queue.RetryFailed, "returned": queue.RetryReturned}

// settingsChanged has a queue that lives here go by what holds for it now. Of two that say so at once the later one knows what the earlier
// one does, and more.
func (b *Broker) settingsChanged(q *catalog.Queue) {
	b.settingsMu.Lock()
	defer b.settingsMu.Unlock()
	if q = b.view().QueueByID(q.ID); q == nil {
		return
	}
	e := b.view().Effective(q)
	b.log.Debug("settings of a queue", "queue", q.Name, "vhost", q.VHost, "policy", policyName(e.Policy), "operator_policy", policyName(e.Operator))
	b.queues.SetSettings(seglog.GroupID(q.ID), b.hostSettings(q))
}

// levelRaised has all queues that live here go by what the cluster's new level allows. There may be very many, so it is done elsewhere.
func (b *Broker) levelRaised() {
	if planted.Is(planted.LevelUnheard) {
		return
	}
	b.later(func() {
		for q := range b.view().QueuesOn(b.node).All() {
			b.settingsChanged(q)
		}
	})
}
