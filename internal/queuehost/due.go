package queuehost

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// What a worker is to look at when it is woken.
const (
	alertSettings uint32 = 1 << iota // the catalog says something else
	alertDue                         // the time has come for something
	alertStall                       // the queue may be stalled

	watchedStall  // nothing to look at: the queue is among Registry.stalls
	alertReweigh  // it is to be found out anew of which messages the size is not known
	alertWeighing // there is something to do about sizes
)

// dues is the queues in which something is due at a time. An idle queue is not among them.
type dues struct {
	mu   sync.Mutex
	heap dueHeap

	// Where they are woken at that very time, and not by somebody who calls tick now and then.
	clock clock.Clock // nil: they are not
	timer clock.Timer
	rings int64 // when the timer does; 0: it does not
	rang  int64 // when it did last
}

// duesApart is how long there is between two times at which queues are woken, at least: what is due in between is done with it.
const duesApart = int64(5 * time.Millisecond)

// due is a queue and a time. It counts only if it is the one that the queue has.
type due struct {
	at int64 // clock.Mono
	h  *host
}

type dueHeap []due

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].at < d[j].at }
func (d dueHeap) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dueHeap) Push(x any)        { *d = append(*d, x.(due)) }

// Pop implements heap.Interface.
func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = due{}
	*d = (*d)[:last]
	return x
}

// set has a queue woken at a time, if it is not earlier anyhow.
func (x *dues) set(h *host, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h.due != 0 && h.due <= at {
		return
	}
	h.due = at
	heap.Push(&x.heap, due{at, h})
	x.arm()
}

// arm sets the timer for what is due first.
func (x *dues) arm() {
	if x.clock == nil || len(x.heap) == 0 {
		return
	}
	at := max(x.heap[0].at, x.rang+duesApart)
	if x.rings != 0 && x.rings <= at {
		return
	}
	x.rings = at
	d := time.Duration(max(at-x.clock.Mono(), 0))
	if x.timer == nil {
		x.timer = x.clock.AfterFunc(d, x.ring)
	} else {
		x.timer.Reset(d)
	}
}

// ring is what the timer does.
func (x *dues) ring() {
	now := x.clock.Mono()
	x.mu.Lock()
	x.rings, x.rang = 0, now
	x.mu.Unlock()
	x.tick(now)
}

// tick wakes the queues whose time has come.
func (x *dues) tick(now int64) {
	var list []*host
	x.mu.Lock()
	for len(x.heap) > 0 && x.heap[0].at <= now {
		d := heap.Pop(&x.heap).(due)
		if d.h.due == d.at {
			d.h.due = 0
			list = append(list, d.h)
		}
	}
	x.arm()
	x.mu.Unlock()
	slices.SortFunc(list, func(a, b *host) int { return cmp.Compare(a.def.ID, b.def.ID) })
	for _, h := range list {
		h.alert.Or(alertDue)
		h.group.Wake()
	}
}

// schedule has the worker woken when something is due next. now is the time of the queue.
func (h *host) schedule(now int64) {
	if h.m == nil || h.lead != nil && !h.lead.serving {
		return
	}
	if at, ok := h.m.NextDeadline(); ok && !planted.Is(planted.DueUndone) {
		h.reg.dues.set(h, max(h.reg.o.Clock.Mono()+max(at-now, 0), 1))
	}
	h.scheduleOverdue(now)
	h.watchStall()
	if period := h.expires(); period > 0 {
		if there := h.m.Consumers() > 0; there || h.consumed || h.used == 0 { // until the last one has left
			h.touch()
			h.consumed = there
		}
		if h.m.Consumers() == 0 {
			h.reg.dues.set(h, h.used+period)
		}
	}
}

// packDue packs what is due.
func (h *host) packDue(e *replica.Entry, p *pack) {
	if at, ok := h.m.NextDeadline(); ok && at <= e.Time {
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Due})
		p.must = true
	}
	h.packOverdue(e, p)
	if period := h.expires(); period > 0 && h.m.Consumers() == 0 && h.used > 0 {
		if now := h.reg.o.Clock.Mono(); now-h.used >= period && h.refusal() == nil {
			h.used = now // should it still be there then, it is looked at again
			h.tellExpired(now, period)
		}
	}
}

// confirmed is how long a leader waits to hear that it leads still.
const confirmed = time.Second

// tellExpired tells the owner that nobody has used the queue for long. The leader of a quorum queue makes sure that it leads
// still: one that has stood still does not know who has used the queue by way of another one meanwhile.
func (h *host) tellExpired(now, period int64) {
	o := h.reg.owner
	switch {
	case o == nil:
		return
	case h.lead == nil:
		o.Expired(h.def.ID)
		return
	}
	h.group.ReadIndex(confirmed, func(_ uint64, err error) {
		if !h.lead.serving || h.m == nil || h.used != now || h.m.Consumers() > 0 || h.refusal() != nil {
			return
		}
		if at := h.reg.o.Clock.Mono(); err != nil || at-now >= int64(confirmed) {
			h.used = now - period
			h.reg.dues.set(h, at+int64(confirmed))
			return
		}
		o.Expired(h.def.ID)
	})
}
