package queuehost

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"holdfast/internal/seglog"
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
// something back, or in which something is due. The node calls it every 50 ms, or a simulator.
func (r *Registry) Tick() {
	for _, q := range r.near.watch.take() {
		q.f.handle.group.Wake()
	}
	r.holders.tick()
	r.dues.tick(r.o.Clock.Mono())
	r.sweepStalls()
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

// LeaderlessFor is how long a quorum queue may have no leader before that is told: an election takes less.
const LeaderlessFor = 3 * time.Second

// Leaderless says for how long a quorum queue has had no leader, as far as this node can find out: its member here knows of
// none, or who asked for one here has had no answer. 0: it has one, or nobody here needs to know.
func (h *Handle) Leaderless() time.Duration {
	if !h.Quorum() {
		return 0
	}
	r := h.far.reg
	since := h.far.entry.leaderless.Load()
	if m := h.member(); m != nil && m.unavailable.Load() == nil && m.lead.leaderNode() == 0 {
		if at := r.vacant.since(h.far.def.ID); at != 0 && (since == 0 || at < since) {
			since = at
		}
	}
	if since == 0 {
		return 0
	}
	return max(time.Duration(r.o.Clock.Mono()-since), 0)
}

// vacancies says since when members here know of no leader: clock.Mono, by group. A member that has joined a group and has
// yet to hear of it is not in it.
type vacancies struct {
	mu sync.Mutex
	at map[seglog.GroupID]int64
}

func (v *vacancies) begin(id seglog.GroupID, now int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.at == nil {
		v.at = map[seglog.GroupID]int64{}
	}
	v.at[id] = max(now, 1)
}

func (v *vacancies) end(id seglog.GroupID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.at, id)
}

// since is 0 if nothing is known.
func (v *vacancies) since(id seglog.GroupID) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at[id]
}
