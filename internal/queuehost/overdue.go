package queuehost

import (
	"errors"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// timeoutArgument of a consumer says how many ms it may hold a delivery, whatever the queue says.
const timeoutArgument = "x-consumer-timeout"

// mostTimeout is the longest timeout that anybody can ask for: a longer one is no other.
const mostTimeout = int64(10 * 365 * 24 * time.Hour)

// overdue is when the host looks for deliveries that have been out for too long. Nothing is done for a delivery: as long as
// any is out, one time to look is known, and what each is out since the machine knows. Times are ns.
type overdue struct {
	shortest int64                      // the smallest timeout of a consumer that is there, or was; 0: none has one
	next     int64                      // when to look, as the queue counts time; 0: to be found
	exact    bool                       // it has to be found among what is out: some of that may be older than this entry
	parting  map[queue.ConsumerID]int64 // timeouts of consumers that are cancelled, and may hold something
}

// timeoutOf is for how long a consumer may hold a delivery, 0: for ever. That is fixed when it is attached.
func (h *host) timeoutOf(spec *ConsumerSpec) int64 {
	if spec.NoAck || !h.reg.examines() {
		return 0
	}
	if v, is := spec.Arguments.Get(timeoutArgument); is {
		if ms, isInt := v.Int(); isInt {
			return max(min(ms, mostTimeout/int64(time.Millisecond)), 1) * int64(time.Millisecond)
		}
	}
	if s := h.known().Settings; s != nil {
		return min(int64(s.ConsumerTimeout), mostTimeout)
	}
	return 0
}

// limitHolding fixes the timeout of a consumer that is attached. again: it may hold something already, and if its attach has named a
// timeout, that is its own.
func (h *host) limitHolding(c *consumer, again bool) {
	if !again || c.timeout == 0 {
		c.timeout = h.timeoutOf(&c.spec)
	}
	if c.timeout == 0 {
		return
	}
	o := &h.besides().overdue
	if again || o.shortest == 0 || c.timeout < o.shortest {
		o.next, o.exact = 0, true
	}
	if o.shortest == 0 || c.timeout < o.shortest {
		o.shortest = c.timeout
	}
}

// limitAll begins anew with the timeouts of the consumers that are there, before any of them is attached again: of some nobody may
// ever say more.
func (h *host) limitAll() {
	if h.aside != nil {
		h.aside.overdue = overdue{}
	}
	for _, c := range h.consumers {
		if c.timeout > 0 {
			h.limitHolding(c, true)
		}
	}
}

// parts notes the timeout of a consumer that gets nothing more: what it holds may still be out for too long.
func (h *host) parts(c *consumer) {
	if c == nil || c.timeout == 0 {
		return
	}
	o := &h.besides().overdue
	if o.parting == nil {
		o.parting = map[queue.ConsumerID]int64{}
	}
	o.parting[c.id] = c.timeout
}

// parted forgets a consumer that is gone.
func (h *host) parted(id queue.ConsumerID) {
	if h.aside != nil {
		delete(h.aside.overdue.parting, id)
	}
}

// timeout is that of a consumer, 0: it may hold what it has for ever, or nobody has said yet.
func (h *host) timeout(id queue.ConsumerID) int64 {
	if c := h.consumers[id]; c != nil {
		return c.timeout
	}
	return h.aside.overdue.parting[id]
}

// scheduleOverdue sees to it that somebody looks when the next delivery has been out for too long. now is the time of the queue.
func (h *host) scheduleOverdue(now int64) {
	if h.aside == nil {
		return
	}
	o := &h.aside.overdue
	if o.shortest == 0 || o.next != 0 || h.m.Unacked() == 0 {
		return
	}
	if o.exact {
		o.exact = false
		h.findOverdue(now)
	} else {
		o.next = now + o.shortest // what goes out from now on is not over before
	}
	h.reg.dues.set(h, h.reg.o.Clock.Mono()+max(o.next-now, 0))
}

// findOverdue finds when the next one is over, and forgets what does not count any more.
func (h *host) findOverdue(now int64) {
	o := &h.aside.overdue
	o.shortest = 0
	shorten := func(ns int64) {
		if ns > 0 && (o.shortest == 0 || ns < o.shortest) {
			o.shortest = ns
		}
	}
	for _, c := range h.consumers {
		shorten(c.timeout)
	}
	kept := map[queue.ConsumerID]int64{}
	first := int64(0)
	h.m.HeldSince(func(id queue.ConsumerID, oldest int64) {
		ns := h.timeout(id)
		if ns == 0 {
			return
		}
		shorten(ns)
		if first == 0 || oldest+ns < first {
			first = oldest + ns
		}
		if h.consumers[id] == nil {
			kept[id] = ns
		}
	})
	if o.parting = kept; len(kept) == 0 {
		o.parting = nil
	}
	if o.shortest == 0 {
		return
	}
	if o.next = now + o.shortest; first != 0 && first < o.next {
		o.next = first
	}
	o.next = max(o.next, 1)
}

// packOverdue takes back what has been out for too long. It is no fault of the consumer's, as far as the message's history goes.
func (h *host) packOverdue(e *replica.Entry, p *pack) {
	if h.aside == nil || h.aside.overdue.next == 0 {
		return
	}
	o := &h.aside.overdue
	if o.next > e.Time {
		h.reg.dues.set(h, h.reg.o.Clock.Mono()+o.next-e.Time)
		return
	}
	o.next, o.exact = 0, true
	h.m.HeldSince(func(id queue.ConsumerID, oldest int64) {
		ns := h.timeout(id)
		if ns == 0 || oldest+ns > e.Time || len(p.cmds) >= replica.MaxEntryCommands/2 {
			return
		}
		p.cmds = append(p.cmds, queue.Command{Kind: queue.TimeOut, Consumer: id, Last: uint64(e.Time - ns), Blameless: true})
		p.must = true
	})
}

// timedOut tells a consumer that it has held messages for too long.
func (h *host) timedOut(ef *queue.Effect) {
	h.reg.timeouts.Add(1)
	c := h.consumers[ef.Consumer]
	if c == nil {
		return // it was told, or has said so itself: nothing more can be ended
	}
	if c.sink == nil && c.ended {
		return
	}
	h.reg.o.Logger.Warn("a consumer held messages for too long", "vhost", h.known().VHost, "queue", h.known().Name,
		"consumer", c.spec.Tag, "channel", c.spec.Channel, "connection", c.spec.Connection, "node", c.spec.Node,
		"messages", ef.Count, "timeout", time.Duration(c.timeout))
	switch {
	case c.getter:
	case c.sink == nil: // it is told when it is attached again, should that be
		c.ended = true
	default:
		delete(h.consumers, c.id)
		h.parts(c)
	}
	h.hand(held{kind: queue.TimedOut, c: c})
}

// overtime is what a consumer is told that has held messages for too long.
func (c *consumer) overtime() *amqperr.Error {
	return amqperr.DeliveryTimeout(c.spec.Channel, time.Duration(c.timeout))
}

// IsDeliveryTimeout reports whether a consumer was cancelled because it held messages for too long. Queues say nothing else with
// the code of that.
func IsDeliveryTimeout(reason error) bool {
	var e *amqperr.Error
	return errors.As(reason, &e) && e.Scope == amqperr.Channel && e.Code == amqperr.PreconditionFailed
}

// Timeouts is how often a consumer, of queues whose commands this node puts in order, has held messages for too long.
func (r *Registry) Timeouts() uint64 { return r.timeouts.Load() }
