package queuehost

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// watch is the entries of quorum queues that wait for something, so that time has to pass for them.
type watch struct {
	mu   sync.Mutex
	list []*entry
}

// set says whether an entry waits.
func (w *watch) set(q *entry, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waits && !q.watched {
		w.list = append(w.list, q)
	}
	q.watched = q.watched || waits
	q.idle = !waits
}

// take returns the entries that wait, in the order of their queues, and forgets the others.
func (w *watch) take() []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.list[:0]
	for _, q := range w.list {
		if q.watched = !q.idle; q.watched {
			kept = append(kept, q)
		}
	}
	clear(w.list[len(kept):])
	w.list = kept
	list := slices.Clone(kept)
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.f.def.ID, b.f.def.ID) })
	return list
}

// Tick lets time pass for the entries of quorum queues that wait for something, and for queues that hold
// something back. The node calls it every 50 ms, or a simulator.
func (r *Registry) Tick() {
	for _, q := range r.near.watch.take() {
		q.f.handle.group.Wake()
	}
	r.holders.tick()
	r.tickStrangers()
}

// Leaderless is a quorum queue that somebody here needs and that has no leader, as far as this
// node can find out: publishes are kept for Options.Wait and then Unknown, consumers get nothing.
type Leaderless struct {
	Handle    *Handle
	For       time.Duration
	Consumers int // that wait here
}

// Leaderless lists the queues that have been without a leader for at least so long, in the
// order of their ids.
func (r *Registry) Leaderless(atLeast time.Duration) (list []Leaderless) {
	now := r.o.Clock.Mono()
	for _, q := range r.near.watch.take() {
		since := q.leaderless.Load()
		if lost := time.Duration(now - since); since != 0 && lost >= atLeast {
			list = append(list, Leaderless{&q.f.handle, lost, int(q.waiting.Load())})
		}
	}
	return list
}
