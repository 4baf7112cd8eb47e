package queuehost

import (
	"maps"
	"sync"
	"sync/atomic"
)

// alarmedNodes are those that publishes wait for with patience: while their alarm is on, the time of publishes to queues that they serve does not run. Their
// publishers are held back, and wait for room, not for an answer.
type alarmedNodes struct {
	mu   sync.Mutex
	with atomic.Pointer[map[uint64]int64] // by node: clock.Mono of the alarm's end, or forever; nil: nobody. What it points to is not changed
}

// SetAlarmed says whether a node, this one or another, has an alarm.
func (r *Registry) SetAlarmed(node uint64, on bool) {
	p := &r.alarmed
	p.mu.Lock()
	defer p.mu.Unlock()
	with := map[uint64]int64{}
	now := r.o.Clock.Mono()
	if old := p.with.Load(); old != nil {
		maps.Copy(with, *old)
		maps.DeleteFunc(with, func(_ uint64, end int64) bool { return now-end >= int64(r.o.Wait) })
	}
	switch end, is := with[node]; {
	case on:
		with[node] = forever
	case is && end == forever:
		with[node] = now
	}
	p.with.Store(&with)
	if len(with) == 0 {
		p.with.Store(nil)
	}
}

// patient reports whether publishes wait for a node with patience.
func (r *Registry) patient(node uint64, now int64) bool {
	p := r.alarmed.with.Load()
	if p == nil {
		return false
	}
	end, is := (*p)[node]
	return is && now-end < int64(r.o.Wait) // forever is far away
}

// waited is how long a publish has waited for a node since a time, as far as that counts; alarms that are over count as its beginning.
func (r *Registry) waited(node uint64, since, now int64) int64 {
	p := r.alarmed.with.Load()
	if p == nil {
		return now - since
	}
	switch end, is := (*p)[node]; {
	case !is:
		return now - since
	case end == forever:
		return 0
	default:
		return now - max(since, end)
	}
}
