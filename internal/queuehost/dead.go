package queuehost

import (
	"holdfast/internal/queue"
)

// died hands over dead letters. They come again should they not be buried.
func (h *host) died(ef *queue.Effect) {
	o := h.reg.owner
	if o == nil {
		return
	}
	list := h.lane.letters[:0]
	last := ef.Numbers().Last
	for i := range ef.Numbers().Len() {
		d := DeadLetter{ID: ef.Delivery + i, Reason: ef.Reason, Time: int64(ef.Left)}
		d.Message, d.Load = h.body(ef.First+queue.Number(i), last, ef.Chunks)
		list = append(list, d)
	}
	h.lane.unpinned()
	o.DeadLetters(&h.handle, list)
	clear(list)
	h.lane.letters = list[:0]
}

// drops counts the messages that leave a queue with one entry although nobody has had them, by reason.
type drops struct {
	any bool
	n   [len(dropReasons)]uint64
}

var dropReasons = [...]queue.Reason{queue.Discarded, queue.Expired, queue.Dropped, queue.Exhausted, queue.DeadDropped}

// dropped notes messages that are released. If letters are wanted, they have had one, but for those that were too many.
func (h *host) dropped(ef *queue.Effect) {
	if ef.Reason == queue.Acked || ef.Reason == queue.AutoAcked || ef.First.Lane() == queue.ChunkLane ||
		ef.Reason != queue.DeadDropped && h.m.Settings().DeadLetter != queue.NoDeadLetter {
		return
	}
	for i, reason := range dropReasons {
		if ef.Reason == reason {
			h.lane.drops.any = true
			h.lane.drops.n[i] += ef.Numbers().Len()
		}
	}
}

// tellDropped tells the owner what was dropped with an entry.
func (h *host) tellDropped() {
	d := &h.lane.drops
	if !d.any {
		return
	}
	for i, n := range d.n {
		if n > 0 && h.reg.owner != nil {
			h.reg.owner.Dropped(&h.handle, dropReasons[i], n)
		}
	}
	*d = drops{}
}

// deadAgain hands over the dead letters that this member, which begins to lead, does not know to have arrived.
func (h *host) deadAgain() {
	fx := &h.lane.again
	h.m.Redead(fx)
	for i := range fx.List {
		h.died(&fx.List[i])
	}
	fx.Reset()
}
