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

// deadAgain hands over the dead letters that this member, which begins to lead, does not know to have arrived.
func (h *host) deadAgain() {
	fx := &h.lane.again
	h.m.Redead(fx)
	for i := range fx.List {
		h.died(&fx.List[i])
	}
	fx.Reset()
}
