package queuehost

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// Apply implements replica.Host: it applies the entry that was packed last and
// carries out what follows.
func (h *host) Apply(e *replica.Entry) {
	l, p := h.lane, h.pack
	h.pack = nil
	if h.m == nil { // it was given up in this very turn: whose commands these were knows
		if p.done != nil {
			p.done.recycle()
		}
		l.freePack(p)
		return
	}
	l.entry = queue.Entry{Index: e.Index, Time: e.Time, Commands: p.cmds}
	h.m.Apply(&l.entry, &l.fx)
	h.countMessages() // whoever is answered below finds the counts as of this entry

	// The first hand-out of a persistent message since the last Recover waits
	// for the disk, and everything behind it with it: a crash that forgets it
	// would otherwise hide that messages had been delivered. Later ones need
	// not wait: from then on a crash marks all that is left as redelivered.
	if h.lead != nil {
		h.appliedOwn(e.Index)
	} else if h.logged && !h.handedOut && !h.holding && h.m.HandedOut() {
		h.holding, h.holdUntil = true, e.Index
	}
	h.settlePublishes(e, p)
	h.sealUnused()
	h.carryOut(e, p)
	h.flush()
	if h.lead != nil {
		h.forgetEnded(p)
		p.tellMarks()
		for i := range p.seals {
			h.sealQueue(&p.seals[i])
		}
		h.applied(e.Index)
	}
	l.trim()
	h.count(p)
	h.schedule(e.Time)
	if p.sets {
		h.reweigh()
	}
	l.fx.Reset()
	l.entry.Commands = nil
	if p.done != nil {
		p.done.recycle()
	}
	l.freePack(p)
}

// settlePublishes answers the publishes of the entry, or puts them in line for the disk.
func (h *host) settlePublishes(e *replica.Entry, p *pack) {
	refused := h.refusals()
	for _, r := range p.runs {
		ps := p.from.publishes[r.from:r.to]
		taken := len(ps) - refused[r.cmd]
		waits(&h.lane.wait, ps[:taken], func(w *wait) {
			w.applied()
			if h.lead != nil { // a majority has it
				w.settle(Accepted)
				return
			}
			if !r.persistent {
				h.lane.giveInTime(w)
				w.tell(Accepted)
				return
			}
			if w.ticket != nil || w.credit != nil {
				w.index = e.Index
				h.waits.push(*w)
				h.stats.unstable.Add(int32(w.n))
			}
		})
		if taken < len(ps) {
			h.turnAway(ps[taken:], Refused)
		}
	}
	for _, w := range p.barriers {
		if !h.logged || h.lead != nil {
			w.settle(Accepted)
			continue
		}
		w.index = e.Index
		h.waits.push(w)
	}
}

// sealUnused seals the queue if its last consumer has left and the owner wants it deleted for that. It does so before
// whoever took the consumer away is answered: nobody who knows of that finds the queue there any more.
func (h *host) sealUnused() {
	if h.m.Consumers() > 0 || h.reg.owner == nil { // another one may have come with the same entry
		return
	}
	for i := range h.lane.fx.List {
		if h.lane.fx.List[i].Kind == queue.Unused {
			if h.refusal() == nil { // else it is as good as deleted, or cannot be
				h.sealed = h.reg.owner.Unused(h.def.ID)
			}
			return
		}
	}
}

// refusals says of how many publishes of an Enqueue, the last ones of it, the machine has refused; nil: of none.
func (h *host) refusals() (of map[uint32]int) {
	for i := range h.lane.fx.List {
		ef := &h.lane.fx.List[i]
		n := int(ef.Count)
		switch ef.Kind {
		case queue.Overflowed:
		case queue.Uncommitted:
			n = 1 // what closes it
		default:
			continue
		}
		if of == nil {
			of = map[uint32]int{}
		}
		of[ef.Command] += n
	}
	return of
}

// carryOut carries out the effects in order.
func (h *host) carryOut(e *replica.Entry, p *pack) {
	l := h.lane
	l.released = l.released[:0]
	for i := range l.fx.List {
		ef := &l.fx.List[i]
		switch ef.Kind {
		case queue.Deliver:
			h.deliver(p, ef)
		case queue.Released:
			h.releasedMessages(ef)
			h.dropped(ef)
			h.countDuplicates(ef)
		case queue.Overflowed:
			h.countDuplicates(ef)
		case queue.Attached:
			if c := p.call(ef); c != nil && c.attached != nil {
				c.attached(ef.Consumer, nil)
			}
		case queue.Refused:
			h.refused(p, ef)
		case queue.Cancelled, queue.Detached:
			// A cancelled consumer gets nothing more; what it holds is between
			// its channel and the machine.
			c := h.consumers[ef.Consumer]
			delete(h.consumers, ef.Consumer)
			if ef.Kind == queue.Cancelled {
				h.parts(c)
			} else {
				h.parted(ef.Consumer)
			}
			h.hand(held{kind: ef.Kind, c: c, call: p.call(ef)})
		case queue.TimedOut:
			h.timedOut(ef)
		case queue.Active:
			h.activated(ef)
		case queue.Drained, queue.Wake:
			if c := h.consumers[ef.Consumer]; c != nil && c.sink != nil {
				h.hand(held{kind: ef.Kind, c: c, n: ef.Count})
			}
		case queue.Empty:
			h.stats.getsEmpty.Add(1)
			h.hand(held{kind: ef.Kind, call: p.call(ef)})
		case queue.Purged:
			if c := p.call(ef); c != nil && c.counted != nil {
				c.counted(ef.Count, nil)
			}
		case queue.EpochOpened:
			h.resumed(p, ef)
		case queue.Dead:
			h.died(ef)
		}
	}
	h.tellDropped()
	if len(l.released) > 0 {
		h.reg.o.Log.Release(h.def.ID, e.Index, l.released)
	}
}

// call returns the call whose command caused an effect, or nil.
func (p *pack) call(ef *queue.Effect) *call {
	for i := range p.asks {
		if p.asks[i].cmd == ef.Command {
			return p.asks[i].call
		}
	}
	return nil
}

// refused answers an Attach that the machine does not allow.
func (h *host) refused(p *pack, ef *queue.Effect) {
	c := h.consumers[ef.Consumer]
	delete(h.consumers, ef.Consumer)
	if h.lead != nil && ef.Reason == queue.NoSession {
		if r, is := c.sink.(*relay); is {
			r.session.lost(h.reg.self())
		}
		return
	}
	switch ef.Reason {
	case queue.NotAlone, queue.ExclusiveUse:
	default:
		invariant.Failf("queue %d refuses consumer %d: %v", h.def.ID, ef.Consumer, ef.Reason)
	}
	if c := p.call(ef); c != nil && c.attached != nil {
		c.attached(ef.Consumer, amqperr.ConsumeExclusive(h.known().VHost, h.known().Name))
	}
}

// releasedMessages forgets messages that have left the queue.
func (h *host) releasedMessages(ef *queue.Effect) {
	r := ef.Numbers()
	h.bodies.remove(h.lane, r)
	if h.items {
		h.lane.released = append(h.lane.released, seglog.Range{First: uint64(r.First), Last: uint64(r.Last)})
	}
	if ef.Reason == queue.Acked && r.First.Lane() != queue.ChunkLane {
		h.stats.acked.Add(r.Len())
	}
}

// deliver makes the deliveries of one effect. Bodies are fetched, or pinned in
// the log, right away: the release of the same messages may follow.
func (h *host) deliver(p *pack, ef *queue.Effect) {
	invariant.Pass("queuehost", "delivery handed out")
	c := h.consumers[ef.Consumer]
	if c == nil {
		invariant.Failf("queue %d delivers to consumer %d, which is not there", h.def.ID, ef.Consumer)
	}
	n := ef.Numbers().Len()
	h.countDelivered(ef)
	if c.sink == nil {
		return // it is given them when it is attached again
	}
	d := Delivery{Consumer: ef.Consumer, ID: ef.Delivery, Redelivered: ef.Redelivered, Count: ef.DeliveryCount}
	if d.Counted = h.counts(); d.Counted {
		d.Acquired = ef.Acquired
	}
	var get *call
	if c.getter {
		get = p.call(ef)
		h.stats.gets.Add(n)
		if ef.NoAck {
			d.ID = 0
		}
	}
	last := ef.Numbers().Last
	for i := queue.Number(0); i < queue.Number(n); i++ {
		d.Message, d.Load = h.body(ef.First+i, last, ef.Chunks)
		switch {
		case c.getter || h.holding:
			h.hand(held{kind: queue.Deliver, c: c, d: d, n: ef.Left, call: get})
		default:
			h.collect(c, d)
		}
		d.ID++
	}
	h.lane.unpinned()
}

func (h *host) countDelivered(ef *queue.Effect) {
	n := ef.Numbers().Len()
	h.stats.delivered.Add(n)
	if ef.Redelivered {
		h.stats.redelivered.Add(n)
	}
}

// body returns a message, or how to load it. Those up to last are asked for next.
func (h *host) body(n, last queue.Number, chunks []queue.Numbers) (message.Message, *Loader) {
	head := h.bodies.item(n)
	if len(chunks) > 0 {
		return h.bigBody(n, head, chunks)
	}
	if head != nil {
		return message.Message{Head: head}, nil
	}
	load := h.lane.newLoader()
	load.head = h.pin(n, last)
	return message.Message{}, load
}

// bigBody does the same for a message in chunks.
func (h *host) bigBody(n queue.Number, head []byte, chunks []queue.Numbers) (message.Message, *Loader) {
	big := &bigLoad{head: head}
	load := &Loader{big: big}
	whole := head != nil
	if !whole {
		load.head = h.pin(n, n)
	}
	for _, r := range chunks {
		for c := r.First; c <= r.Last; c++ {
			item := h.bodies.item(c)
			if item == nil {
				whole = false
				big.chunks = append(big.chunks, chunk{pin: h.pin(c, r.Last)})
				continue
			}
			big.chunks = append(big.chunks, chunk{item: item})
		}
	}
	if !whole {
		return message.Message{}, load
	}
	m := message.Message{Head: head, Chunks: make([][]byte, len(big.chunks))}
	for i := range big.chunks {
		m.Chunks[i] = big.chunks[i].item
	}
	return m, nil
}

// pin keeps an item that is on disk. Neighbours in the log are pinned together,
// as far as they go up to last; unpinned must follow.
func (h *host) pin(n, last queue.Number) pin {
	p, ok := h.findPin(n, last)
	if !ok {
		invariant.Failf("queue %d: message %v is neither in memory nor on disk", h.def.ID, n)
	}
	return p
}

// findPin does that for an item that may not be there any more.
func (h *host) findPin(n, last queue.Number) (p pin, ok bool) {
	if x := h.bodies.spilled.find(n); x != nil {
		x.block.Hold(1)
		return pin{block: x.block, number: uint64(n)}, true
	}
	l := h.lane
	if p := l.pinned; p == nil || uint64(n) < p.first || uint64(n) > p.last {
		l.unpinned()
		ref, k := h.reg.o.Log.PinRange(h.def.ID, uint64(n), uint64(last))
		if k == 0 {
			return pin{}, false
		}
		l.pinned = &pinned{ref: ref, first: uint64(n), last: uint64(n) + k - 1}
		l.pinned.refs.Store(1)
	}
	l.pinned.refs.Add(1)
	return pin{log: l.pinned, number: uint64(n)}, true
}

// unpinned ends the giving out of pins: what comes next is no neighbour.
func (l *lane) unpinned() {
	if l.pinned != nil {
		l.pinned.let()
		l.pinned = nil
	}
}

// held is an effect for a consumer or caller that may have to wait.
type held struct {
	kind queue.EffectKind
	c    *consumer // of a Cancelled or Detached: nil if it was not there
	d    Delivery
	n    uint64 // of a get: messages left; of a Drained: credit left
	call *call
}

// hand carries out an effect, or holds it back behind those that wait.
func (h *host) hand(x held) {
	if h.holding {
		h.held = append(h.held, x)
		return
	}
	h.handNow(&x)
}

func (h *host) handNow(x *held) {
	if x.kind == queue.Deliver && x.call == nil {
		h.collect(x.c, x.d)
		return
	}
	if x.c != nil {
		h.flushConsumer(x.c) // what came before goes first
	}
	switch x.kind {
	case queue.Deliver:
		x.call.got(x.d, x.n, true, nil)
	case queue.Empty:
		x.call.got(Delivery{}, 0, false, nil)
	case queue.Cancelled, queue.Detached:
		if x.call != nil {
			run0(x.call.done)
		}
	case queue.TimedOut:
		if x.c.sink != nil {
			x.c.sink.Cancelled(x.c.overtime())
		}
	case queue.Drained:
		x.c.sink.Drained(uint32(x.n))
	case queue.Wake:
		x.c.sink.Wake()
	}
}

// fail answers an effect that will not be carried out.
func (x *held) fail(err error) {
	if x.d.Load != nil {
		x.d.Load.Drop()
	}
	switch {
	case x.call == nil:
	case x.call.got != nil:
		x.call.got(Delivery{}, 0, false, err)
	default:
		run0(x.call.done)
	}
}

// collect lines a delivery up for its consumer.
func (h *host) collect(c *consumer, d Delivery) {
	if c.out == nil {
		c.out = h.lane.newList()
		h.lane.touched = append(h.lane.touched, c)
	}
	c.out = append(c.out, d)
}

// flush hands the deliveries over.
func (h *host) flush() {
	l := h.lane
	for _, c := range l.touched {
		h.flushConsumer(c)
	}
	clear(l.touched)
	l.touched = l.touched[:0]
}

func (h *host) flushConsumer(c *consumer) {
	if c.out == nil {
		return
	}
	out := c.out
	c.out = nil
	c.sink.Deliver(out)
	h.lane.freeList(out)
}
