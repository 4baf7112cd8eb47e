package queuehost

import (
	"slices"

	"holdfast/internal/amqperr"
	"holdfast/internal/queue"
)

// refuse answers an op of a queue that is gone or cannot be read.
func (h *host) refuse(o *op) {
	if o.kind == opDrop {
		h.dropQueue(o.call)
		return
	}
	o.refuse(h.refusal(), h.publishRefused(), h.stats.read())
}

// refuse answers an op that is not carried out, or of which nobody knows whether it was. It is no publish.
func (o *op) refuse(err error, out Outcome, st Stats) {
	switch o.kind {
	case opAttach:
		o.call.attached(o.consumer, err)
	case opGet:
		o.call.got(Delivery{}, 0, false, err)
	case opPurge, opSeal:
		o.call.counted(0, err)
	case opCancel, opDetach:
		run0(o.call.done)
	case opExplain:
		o.call.explained(Explanation{Stats: st, BlockedBy: "unavailable", Lines: []string{err.Error()}})
	case opConsumers:
		o.call.listed(nil)
	case opCount:
		o.call.totals(0, 0, err)
	case opBarrier:
		o.call.ticket.Settled(o.first, o.last, out)
	}
}

// administer carries out an op that is no command of the machine's. The
// machine is as of the last op.
func (h *host) administer(o *op) {
	switch o.kind {
	case opSeal:
		h.sealQueue(o)
	case opDrop:
		h.dropQueue(o.call)
	case opQuarantine:
		h.quarantine(o.call.reason)
	case opExplain:
		o.call.explained(h.explain())
	case opConsumers:
		o.call.listed(h.listConsumers())
	case opCount:
		h.touch() // somebody declares it
		o.call.totals(h.m.Ready(), uint64(h.m.Consumers()), h.refusal())
	}
}

func (h *host) sealQueue(o *op) {
	ready := h.m.Ready()
	switch {
	case h.refusal() != nil:
		o.call.counted(0, h.refusal())
	case o.flag && h.m.Consumers() > 0:
		o.call.counted(0, amqperr.QueueInUse(h.known().VHost, h.known().Name))
	case o.flag2 && ready+h.m.Delayed()+h.m.DeadCount() > 0: // nobody else may have those
		o.call.counted(0, amqperr.QueueNotEmpty(h.known().VHost, h.known().Name))
	default:
		h.sealed = true
		o.call.counted(ready, nil)
	}
}

// dropQueue ends the queue: everybody is told, nothing is kept.
func (h *host) dropQueue(c *call) {
	if !h.gone {
		h.gone = true
		h.end(c.reason, h.noQueue())
		if h.lead != nil {
			h.resign()
		}
		settleAll(h.unpark(), Gone)
		for h.waits.len() > 0 {
			h.waits.front().settle(Gone)
			h.waits.pop()
		}
		h.stats.unstable.Store(0)
		h.group.Drop()
	}
	run0(c.done)
}

// quarantine takes the queue out of service: its log is damaged. What waits
// for the disk goes on waiting.
func (h *host) quarantine(err error) {
	if h.gone || h.m == nil {
		return
	}
	e := amqperr.QueueUnavailable(h.known().VHost, h.known().Name, err.Error())
	h.unavailable.Store(e)
	if h.lead != nil { // its sessions go on with another member
		h.resign()
	}
	h.end(e, e)
	h.turnAway(h.unpark(), Refused)
	h.group.Fail(err)
	h.reg.o.Logger.Error("queue is quarantined", "vhost", h.known().VHost, "queue", h.known().Name,
		"group", uint64(h.def.ID), "reason", err)
}

// end tells consumers and getters that there is nothing more to come, because of
// reason, answers what is held back with err, and forgets the messages.
func (h *host) end(reason, err error) {
	ids := make([]queue.ConsumerID, 0, len(h.consumers))
	for id := range h.consumers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for i := range h.held {
		h.held[i].fail(err)
	}
	for _, id := range ids {
		if sink := h.consumers[id].sink; sink != nil && h.lead == nil {
			sink.Cancelled(reason)
		}
	}
	h.held, h.holding = nil, false
	h.consumers = nil
	h.endWeighing()
	h.bodies.clear(h.lane)
	h.unstable = fifo[logged]{}
	h.m = nil
	h.stats.ready.Store(0)
	h.stats.unacked.Store(0)
	h.stats.consumers.Store(0)
	h.countRare(rareCounts{})
	h.countBodies()
	h.lane.trim()
}

func run0(fn func()) {
	if fn != nil {
		fn()
	}
}
