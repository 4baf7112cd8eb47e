package queuehost

// Stable implements replica.Host: the entries up to index are on disk.
func (h *host) Stable(index uint64) {
	for h.unstable.len() > 0 && h.unstable.front().index <= index {
		h.bodies.stable(h.lane, h.unstable.front().Numbers)
		h.unstable.pop()
	}
	h.lane.trim()
	for h.waits.len() > 0 && h.waits.front().index <= index {
		w := *h.waits.front()
		h.waits.pop()
		h.stats.unstable.Add(-int32(w.n))
		w.settle(Accepted)
	}
	if h.holding && h.holdUntil <= index {
		h.letGo()
	}
	h.countBodies()
}

// letGo carries out what was held back: the hand-out that had to be on disk is.
func (h *host) letGo() {
	h.holding, h.handedOut = false, true
	held := h.held
	h.held = nil
	for i := range held {
		h.handNow(&held[i])
	}
	h.flush()
}

// Overdue implements replica.Host: nobody knows when, or whether, entries up
// to index will be on disk. The credit stays charged: the log still holds the messages.
func (h *host) Overdue(index uint64) {
	if r := h.reg; r.patient(r.self(), r.o.Clock.Mono()) {
		return // it comes again
	}
	for i := h.waits.head; i < len(h.waits.list) && h.waits.list[i].index <= index; i++ {
		w := &h.waits.list[i]
		if w.overdue {
			continue
		}
		w.overdue = true
		if guestOf(w.ticket) == nil {
			h.handle.nacks.add(Unknown, uint64(w.n))
		}
		w.tell(Unknown)
	}
}
