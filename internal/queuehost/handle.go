package queuehost

import (
	"sync/atomic"

	"holdfast/internal/invariant"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// Handle reaches one queue. Its methods may be called from any goroutine and
// never block; callbacks run on the queue's shard worker, must not block, and
// may call Handle methods. After the queue is gone the operations still answer:
// publishes as Gone, everything else with 404. While the node that serves it
// cannot be reached they fail at once: publishes as Refused, or Unknown if they
// were under way, everything else with 404.
//
// Behind it is a host, if the queue runs on this node, or a far.
type Handle struct {
	group *replica.Group
	host  *host
	far   *far
	ids   atomic.Uint64 // consumer ids given out
	nacks nacks
	in    inbox
}

// ID returns the queue's group.
func (h *Handle) ID() seglog.GroupID {
	if h.far != nil {
		return h.far.def.ID
	}
	return h.group.ID()
}

func (h *Handle) registry() *Registry {
	if h.far != nil {
		return h.far.reg
	}
	return h.host.reg
}

// Def returns the queue's definition.
func (h *Handle) Def() QueueDef {
	if h.far != nil {
		return h.far.def
	}
	return *h.host.known()
}

// Home returns the node that serves the queue; 0: this one, or, of a quorum queue, nobody
// is known to.
func (h *Handle) Home() uint64 {
	switch {
	case h.far == nil:
		return 0
	case h.far.entry != nil:
		return h.Leader()
	}
	return h.far.home.Load().node
}

// Publish hands in messages, in this order. The slice is free after the call.
func (h *Handle) Publish(ps []Publish) {
	h.Put(ps)
	h.Go(false)
}

// Put is Publish without waking the queue's worker: Go must follow.
func (h *Handle) Put(ps []Publish) {
	invariant.Pass("queuehost", "publish put")
	if len(ps) == 0 {
		return
	}
	charge(ps)
	h.in.lock().publish(ps)
	h.in.mu.Unlock()
	h.group.Mark()
}

// Go has what was put carried out; with here on the caller's goroutine, if the
// worker sleeps. The caller then must hold no lock that a Ticket or Consumer takes.
func (h *Handle) Go(here bool) { h.group.Go(here) }

// charge charges the credits of publishes, neighbours with the same one together.
func charge(ps []Publish) {
	var c *Credit
	var n int64
	for i := range ps {
		if p := &ps[i]; p.Credit != c {
			if c != nil {
				c.charge(n)
			}
			c, n = p.Credit, 0
		}
		if c != nil {
			n += ps[i].cost()
		}
	}
	if c != nil {
		c.charge(n)
	}
}

// release unlocks the inbox and wakes the worker.
func (h *Handle) release() {
	h.in.mu.Unlock()
	h.group.Wake()
}

func (h *Handle) put(o op) {
	b := h.in.lock()
	b.ops = append(b.ops, o)
	h.release()
}

func (h *Handle) newConsumer() queue.ConsumerID { return queue.ConsumerID(h.ids.Add(1)) }

// urge puts something into the line that goes first, without waking the worker.
func (h *Handle) urge(o op) {
	b := h.in.lockUrgent()
	if n := len(b.ops); o.kind == opSettle && n > 0 && b.ops[n-1].call == o.call {
		b.settle(o.consumer, queue.Range{First: o.first, Last: o.last}, o.how)
		b.ops[len(b.ops)-1].call = o.call
	} else {
		b.ops = append(b.ops, o)
	}
	h.in.mu.Unlock()
	h.group.Mark()
}

// Attach adds a consumer. done runs before its first delivery; the id is valid
// for the other operations as soon as Attach has returned it.
func (h *Handle) Attach(spec ConsumerSpec, c Consumer, done func(id queue.ConsumerID, err error)) queue.ConsumerID {
	id := h.newConsumer()
	h.put(op{kind: opAttach, consumer: id, call: &call{spec: spec, sink: c, attached: done}})
	return id
}

// Getter adds a consumer that gets nothing by itself: it holds the checkouts
// of Get. Nothing is written for it before the first Get that finds a message.
func (h *Handle) Getter(spec ConsumerSpec, c Consumer) queue.ConsumerID {
	id := h.newConsumer()
	h.put(op{kind: opGetter, consumer: id, call: &call{spec: spec, sink: c}})
	return id
}

// Get fetches one message for a getter. ok is false if the queue had none
// ready; left is the number of ready messages that remain. With noAck the
// message is settled and the delivery's ID is 0.
func (h *Handle) Get(id queue.ConsumerID, noAck bool, done func(d Delivery, left uint64, ok bool, err error)) {
	h.put(op{kind: opGet, consumer: id, flag: noAck, call: &call{got: done}})
}

// Cancel ends deliveries to a consumer; its checkouts stay. done, if not nil,
// runs after the last delivery.
func (h *Handle) Cancel(id queue.ConsumerID, done func()) {
	h.put(op{kind: opCancel, consumer: id, call: &call{done: done}})
}

// Detach removes a consumer; its checkouts go back to the queue. done, if not
// nil, runs after that.
func (h *Handle) Detach(id queue.ConsumerID, done func()) {
	h.put(op{kind: opDetach, consumer: id, call: &call{done: done}})
}

// Settle ends the checkouts of a consumer's deliveries. Ids that are not
// checked out are ignored. The slice is free after the call.
func (h *Handle) Settle(id queue.ConsumerID, ranges []queue.Range, how queue.Settlement) {
	h.settle(id, ranges, how)
	h.Go(false)
}

// SettleHere is Settle, carried out as Go does with here.
func (h *Handle) SettleHere(id queue.ConsumerID, ranges []queue.Range, how queue.Settlement) {
	h.settle(id, ranges, how)
	h.Go(true)
}

func (h *Handle) settle(id queue.ConsumerID, ranges []queue.Range, how queue.Settlement) {
	invariant.Pass("queuehost", "settlement put")
	if len(ranges) == 0 {
		return
	}
	if how == Return || how == Decline {
		how = h.registry().blameless(how)
	}
	b := h.in.lockUrgent()
	for _, r := range ranges {
		b.settle(id, r, how)
	}
	h.in.mu.Unlock()
	h.group.Mark()
}

// Credit grants a consumer n more deliveries. With drain, what is left of the
// credit after that comes back at once as Consumer.Drained.
func (h *Handle) Credit(id queue.ConsumerID, n uint32, drain bool) {
	b := h.in.lockUrgent()
	b.ops = append(b.ops, op{kind: opCredit, consumer: id, n: n, flag: drain})
	h.release()
}

// Purge removes the ready messages and says how many.
func (h *Handle) Purge(done func(n uint64, err error)) {
	h.put(op{kind: opPurge, call: &call{counted: done}})
}

// Seal prepares the queue's deletion: from then on publishes wait for what
// follows, and new consumers and gets are refused. n is the number of ready
// messages. It fails with 406 if the queue has consumers (ifUnused) or ready
// messages (ifEmpty), and then changes nothing. Registry.Drop or Unseal must follow.
func (h *Handle) Seal(ifUnused, ifEmpty bool, done func(n uint64, err error)) {
	h.put(op{kind: opSeal, flag: ifUnused, flag2: ifEmpty, call: &call{counted: done}})
}

// Unseal takes a Seal back. The queue takes the publishes that came meanwhile.
func (h *Handle) Unseal() { h.put(op{kind: opUnseal}) }

// Count says how many ready messages and consumers the queue has after
// everything that was handed in before.
func (h *Handle) Count(done func(ready, consumers uint64, err error)) {
	h.put(op{kind: opCount, call: &call{totals: done}})
}

// Barrier settles seq of t when everything that was handed in before is
// applied, and on disk if the queue is durable.
func (h *Handle) Barrier(t Ticket, seq uint64) {
	h.put(op{kind: opBarrier, first: seq, last: seq, call: &call{ticket: t}})
}

// Bury ends dead letters that Owner.DeadLetters was given: they have arrived, or nobody is to have them. Ids that are
// buried already are ignored. The slice is free after the call.
func (h *Handle) Bury(ids []queue.Range) {
	if len(ids) == 0 {
		return
	}
	b := h.in.lock()
	for _, r := range ids {
		b.ops = append(b.ops, op{kind: opBury, first: r.First, last: r.Last})
	}
	h.release()
}

// TellDead has the dead letters that are not buried, as far as the window goes, handed to the owner again.
func (h *Handle) TellDead() { h.put(op{kind: opTellDead}) }

// Stats returns the queue's counters without disturbing its worker. Those of a
// queue on another node are as of the last Explain, its counts as of the last Count;
// those of a quorum queue as the member here knows them, if there is one.
func (h *Handle) Stats() Stats {
	if m := h.member(); m != nil {
		return m.stats.read()
	}
	if h.far != nil {
		return *h.far.stats.Load()
	}
	return h.host.stats.read()
}

// Explain says how the queue stands and what its ready messages wait for.
func (h *Handle) Explain(done func(Explanation)) {
	h.put(op{kind: opExplain, call: &call{explained: done}})
}

// Consumers lists the consumers, getters not counted, in order of their ids.
func (h *Handle) Consumers(done func([]ConsumerInfo)) {
	h.put(op{kind: opConsumers, call: &call{listed: done}})
}

// Unavailable returns nil, or why the queue cannot serve (it is quarantined, or
// the node that serves it is away); every operation then fails with this error.
func (h *Handle) Unavailable() error {
	if h.far != nil {
		return h.far.refusal()
	}
	if e := h.host.unavailable.Load(); e != nil {
		return e
	}
	return nil
}
