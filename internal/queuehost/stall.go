package queuehost

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/queue"
)

// A queue stalls if messages are ready, a consumer could have them as far as the queue can see, and for some time none was delivered. That never
// happens unless something here is wrong. A queue comes to be watched when an entry leaves it with ready messages and
// a consumer, and is watched until a sweep finds it without either. A sweep compares counts; only a queue that has delivered nothing for as long
// as Options.StallAfter has its worker look, and what it says counts if it is still so at the next sweep.

// stallSweeps is how many sweeps there are in the time after which a queue counts as stalled.
const stallSweeps = 8

// The least time between sweeps.
const leastSweep = 100 * time.Millisecond

// stalls is the queues that are watched.
type stalls struct {
	mu    sync.Mutex
	list  []*watched
	next  int64         // when they are swept next, clock.Mono
	total atomic.Uint64 // stalls
	now   atomic.Int64  // queues that are stalled

	verdicts map[*host]*stallVerdict // of queues that were to look, since the last sweep
}

// watched is a queue that may stall. The mutex of stalls guards it.
type watched struct {
	h         *host
	delivered uint64
	since     int64 // when it had delivered so many, at the latest
	asked     bool  // its worker is to look, or has
	suspect   bool  // it had looked before, and found it stalled
	told      bool
}

// stallVerdict is what a queue's worker has found.
type stallVerdict struct {
	stalled bool
	lines   []string
}

// stallNews is what a sweep has found of a queue, to be logged when no lock is held.
type stallNews struct {
	h     *host
	ns    int64    // for how long
	lines []string // how it stands; nil: it is not stalled any more
}

// stallLines is how many queues a sweep names in the log that are stalled, and that are not any more; the others it counts.
const stallLines = 20

// watchStall has the queue watched, if it may stall. It is called after each entry.
func (h *host) watchStall() {
	if h.m.Ready() == 0 || h.alert.Load()&watchedStall != 0 || h.m.Consumers() == 0 || h.reg.o.StallAfter <= 0 {
		return
	}
	if h.alert.Or(watchedStall)&watchedStall != 0 {
		return
	}
	x := &h.reg.stalls
	x.mu.Lock()
	x.list = append(x.list, &watched{h: h, delivered: h.stats.delivered.Load(), since: h.reg.o.Clock.Mono()})
	x.mu.Unlock()
}

// idle reports whether the queue cannot stall: nothing is ready, nobody is there, or another node leads it.
func (w *watched) idle() bool {
	h := w.h
	return h.stats.ready.Load() == 0 || h.stats.consumers.Load() == 0 || h.lead != nil && !h.lead.leads()
}

// sweepStalls looks at the queues that are watched, if it is time.
func (r *Registry) sweepStalls() {
	after := int64(r.o.StallAfter)
	x := &r.stalls
	if after <= 0 {
		return
	}
	now := r.o.Clock.Mono()
	x.mu.Lock()
	if now < x.next || len(x.list) == 0 {
		if len(x.list) == 0 {
			x.verdicts = nil // of queues that are not watched any more
		}
		x.mu.Unlock()
		return
	}
	x.next = now + max(after/stallSweeps, int64(leastSweep))
	var look []*watched
	var news []stallNews
	verdicts := x.verdicts
	x.verdicts = nil
	x.list = slices.DeleteFunc(x.list, func(w *watched) bool {
		idle := w.idle()
		if idle {
			w.h.alert.And(^watchedStall)                                    // the worker stores its counts, and then looks at this
			idle = w.idle() || w.h.alert.Or(watchedStall)&watchedStall != 0 // else it is watched anew already
		}
		if n := w.h.stats.delivered.Load(); idle || n != w.delivered {
			if w.told {
				x.now.Add(-1)
				news = append(news, stallNews{h: w.h, ns: now - w.since})
			}
			*w = watched{h: w.h, delivered: n, since: now}
			return idle
		}
		if w.told || now-w.since < after {
			return false
		}
		v := verdicts[w.h]
		switch {
		case v == nil && w.asked: // it has not come to look
			return false
		case v != nil && !v.stalled:
			w.since, w.asked, w.suspect = now, false, false // so much later it is looked at again
			return false
		case v != nil && w.suspect:
			w.told = true
			x.total.Add(1)
			x.now.Add(1)
			news = append(news, stallNews{w.h, now - w.since, v.lines})
			return false
		}
		w.suspect, w.asked = v != nil, true
		look = append(look, w)
		return false
	})
	x.mu.Unlock()
	r.tellStalls(news)
	slices.SortFunc(look, func(a, b *watched) int { return cmp.Compare(a.h.def.ID, b.h.def.ID) })
	for _, w := range look {
		w.h.alert.Or(alertStall)
		w.h.group.Wake()
	}
}

// lookStalled has the sweep know whether the queue is stalled. It runs on the worker.
func (h *host) lookStalled() {
	v := h.judgeStall()
	x := &h.reg.stalls
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.verdicts == nil {
		x.verdicts = map[*host]*stallVerdict{}
	}
	x.verdicts[h] = v
}

// tellStalls logs what a sweep has found.
func (r *Registry) tellStalls(news []stallNews) {
	slices.SortFunc(news, func(a, b stallNews) int { return cmp.Compare(a.h.def.ID, b.h.def.ID) })
	stalled, others := 0, 0
	for i := range news {
		n := &news[i]
		def, d := n.h.known(), time.Duration(n.ns).Round(time.Millisecond)
		if n.lines == nil {
			if others++; others <= stallLines {
				r.o.Logger.Info("a queue is not stalled any more", "vhost", def.VHost, "queue", def.Name, "after", d)
			}
		} else if stalled++; stalled <= stallLines {
			r.o.Logger.Warn("a queue is stalled: it does not deliver although it could", "vhost", def.VHost, "queue", def.Name,
				"for", d, "state", strings.Join(n.lines, " "))
		}
	}
	if stalled > stallLines {
		r.o.Logger.Warn("more queues are stalled at the same time", "queues", stalled-stallLines)
	}
	if others > stallLines {
		r.o.Logger.Info("more queues are not stalled any more", "queues", others-stallLines)
	}
}

// judgeStall says whether the queue is stalled.
func (h *host) judgeStall() *stallVerdict {
	if h.m == nil || h.sealed || h.lead != nil && !h.lead.serving {
		return &stallVerdict{}
	}
	e := h.m.Explain()
	if e.Ready == 0 || e.Paused {
		return &stallVerdict{}
	}
	stalled := e.Standings[queue.Inactive] > 0 && h.m.Active() == 0 // nobody was made the active one
	for i := range e.Consumers {
		switch c := &e.Consumers[i]; c.Standing {
		case queue.Waiting:
			stalled = true
		case queue.NoCredit:
			stalled = stalled || h.forgotten(c.ID)
		}
	}
	if !stalled {
		return &stallVerdict{}
	}
	return &stallVerdict{stalled: true, lines: h.explain().Lines}
}

// Waiter is a Consumer that can say whether it grants no credit for a reason of its client's: that has yet to take, or to settle, what it was
// given.
type Waiter interface {
	WaitsForClient() bool
}

// forgotten reports whether a consumer without credit could have some, and has not given any. Of one on another node nobody here can say.
func (h *host) forgotten(id queue.ConsumerID) bool {
	if c := h.consumers[id]; c != nil && c.sink != nil {
		w, says := c.sink.(Waiter)
		return says && !w.WaitsForClient()
	}
	return false
}

// Stalls is how often a queue whose commands this node puts in order did not deliver although it could, and how many do not now.
func (r *Registry) Stalls() (total uint64, now int) {
	return r.stalls.total.Load(), int(r.stalls.now.Load())
}
