package queuehost

import (
	"cmp"
	"slices"
	"sync"

	"holdfast/internal/queue"
)

// In a quorum queue an entry costs a sync on every member. Acknowledgements that nobody waits for, because
// no message is ready that could go out instead, are held back until something else needs an entry, or for one
// Registry.Tick. Their sessions keep them until they are applied, so nothing is lost with the leader.

// holdAtMost is how many are held back.
const holdAtMost = 256

// holders is the queues that hold acknowledgements back.
type holders struct {
	mu   sync.Mutex
	list []*host
}

func (x *holders) add(h *host) {
	x.mu.Lock()
	x.list = append(x.list, h)
	x.mu.Unlock()
}

// tick has the queues go on that have held something back.
func (x *holders) tick() {
	x.mu.Lock()
	list := slices.Clone(x.list)
	clear(x.list)
	x.list = x.list[:0]
	x.mu.Unlock()
	slices.SortFunc(list, func(a, b *host) int { return cmp.Compare(a.def.ID, b.def.ID) })
	for _, h := range list {
		h.lead.release.Store(true)
		h.group.Wake()
	}
}

// holdBack reports whether there is nothing to pack but what can wait.
func (h *host) holdBack() bool {
	l := h.lead
	released := l.release.Swap(false)
	if released {
		l.listed = false
	}
	if h.taken != nil || h.urgent != nil && h.nextUrgent > 0 || h.m == nil || h.m.Ready() > 0 || l.look.Load() || h.alert.Load()&^watchedStall != 0 {
		return false
	}
	more := h.handle.in.takeUrgent()
	switch {
	case h.urgent == nil:
		h.urgent, h.nextUrgent, l.looked = more, 0, 0
	case more != nil:
		h.urgent.ops = append(h.urgent.ops, more.ops...)
		more.recycle()
	}
	if h.urgent == nil {
		return false
	}
	for ; l.looked < len(h.urgent.ops); l.looked++ {
		switch o := &h.urgent.ops[l.looked]; {
		case o.kind == opSettle && o.how == queue.Ack || o.kind == opMark || o.kind == opCredit && !o.flag:
		default:
			return false
		}
	}
	if released || len(h.urgent.ops) > holdAtMost {
		return false
	}
	if !l.listed {
		l.listed = true
		h.reg.holders.add(h)
	}
	return true
}
