package queuehost

import (
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/internal/queue"
)

// Stats are a queue's counters. Counts are as of the last round; totals are
// since the node started.
type Stats struct {
	Ready, Unacked, Consumers uint64
	Published, Delivered      uint64
	Acked, Redelivered        uint64
	Gets, GetsEmpty           uint64
	BodiesInMemory            uint64 // bytes
	BodiesSpilled             uint64 // bytes of bodies that are on disk and not in the log, about
	Unstable                  uint64 // publishes that wait for the disk
	Delayed                   uint64 // messages that wait for a time, and those whose time has come and which have yet to be carried on
	Dead, DeadBytes           uint64 // dead letters that are not buried; bytes of the bodies, where sizes count
}

// counters are what Stats are read from; the worker writes them.
type counters struct {
	ready, unacked                                            atomic.Uint64
	published, delivered, acked, redelivered, gets, getsEmpty atomic.Uint64
	bodies, spilled                                           atomic.Int64
	consumers                                                 atomic.Uint32
	unstable                                                  atomic.Int32
	rare                                                      atomic.Pointer[rareCounters] // nil: there never was any
}

// rareCounters count what few queues have any of: dead letters, the bytes of their bodies, delayed messages, and duplicates that did not
// come in while commands were put in order here.
type rareCounters struct{ dead, deadBytes, delayed, duplicates atomic.Uint64 }

type rareCounts struct{ dead, deadBytes, delayed uint64 }

func (c *counters) read() Stats {
	s := Stats{
		Ready: c.ready.Load(), Unacked: c.unacked.Load(), Consumers: uint64(c.consumers.Load()),
		Published: c.published.Load(), Delivered: c.delivered.Load(),
		Acked: c.acked.Load(), Redelivered: c.redelivered.Load(),
		Gets: c.gets.Load(), GetsEmpty: c.getsEmpty.Load(),
		BodiesInMemory: uint64(max(c.bodies.Load(), 0)), BodiesSpilled: uint64(max(c.spilled.Load(), 0)),
		Unstable: uint64(max(c.unstable.Load(), 0)),
	}
	if r := c.rare.Load(); r != nil {
		s.Dead, s.DeadBytes, s.Delayed = r.dead.Load(), r.deadBytes.Load(), r.delayed.Load()
	}
	return s
}

// count brings the counters up to date after an entry.
func (h *host) count(p *pack) {
	h.countMessages()
	h.countBodies()
	if p != nil {
		h.stats.published.Add(uint64(p.messages))
	}
}

// countBodies tells where the bodies are.
func (h *host) countBodies() {
	h.stats.bodies.Store(h.bodies.bytes)
	h.stats.spilled.Store(h.bodies.spilled.bytes)
}

// countMessages takes the counts that clients ask for from the machine.
func (h *host) countMessages() {
	h.stats.ready.Store(h.m.Ready())
	h.stats.unacked.Store(h.m.Unacked())
	h.stats.consumers.Store(uint32(h.m.Consumers()))
	c := rareCounts{dead: h.m.DeadCount(), deadBytes: h.m.DeadBytes(), delayed: h.m.Delayed()}
	if c.dead > 0 && h.m.Settings().Forward { // it is no letter, and has yet to be carried on
		c.delayed += c.dead
		c.dead, c.deadBytes = 0, 0
	}
	h.countRare(c)
}

// countRare notes what few queues have anything of.
func (h *host) countRare(c rareCounts) {
	r := h.stats.rare.Load()
	if r == nil {
		if c == (rareCounts{}) {
			return
		}
		r = new(rareCounters)
		h.stats.rare.Store(r)
	}
	r.dead.Store(c.dead)
	r.deadBytes.Store(c.deadBytes)
	r.delayed.Store(c.delayed)
}

// Explanation says how a queue stands and why its ready messages do not move.
type Explanation struct {
	Stats
	// OldestUnacked is how long the oldest checkout has been out; 0 if there is none.
	OldestUnacked time.Duration
	// BlockedBy says in a few words what the ready messages wait for: empty if
	// there are none or they are being delivered.
	BlockedBy string
	// Lines say the same and more in sentences.
	Lines []string
}

// explain looks at the machine.
func (h *host) explain() Explanation {
	e := h.m.Explain()
	x := Explanation{Stats: h.stats.read()}
	now := h.reg.o.Clock.Now().UnixNano()
	if e.OldestUnacked > 0 {
		x.OldestUnacked = time.Duration(max(now-e.OldestUnacked, 0))
	}
	say := func(format string, args ...any) { x.Lines = append(x.Lines, fmt.Sprintf(format, args...)) }
	say("%d ready, %d unacked, %s.", e.Ready, e.Unacked, count(h.m.Consumers(), "consumer"))
	if e.Delayed > 0 {
		why, in := "was delayed when it was published", max(time.Duration(e.NextAt-now), 0)
		if e.NextReturned {
			why = "has come back, and is to be tried again"
		}
		say("Waiting for their time: %s. The next one %s; it is ready in %v.", count(e.Delayed, "message"), why, in.Round(100*time.Millisecond))
	}
	standings := map[queue.Standing]int{}
	for _, c := range e.Consumers {
		if c.Standing != queue.Getting {
			standings[c.Standing]++
		}
		if c.Unacked > 0 {
			say("Consumer %s holds %s, the oldest for %v.", h.tagOf(c.ID), count(c.Unacked, "message"),
				time.Duration(max(now-c.OldestUnacked, 0)).Round(time.Millisecond))
		}
	}
	switch {
	case h.sealed:
		x.BlockedBy = "deletion"
		say("The queue is being deleted.")
	case h.holding:
		x.BlockedBy = "disk"
		say("The first deliveries since the start wait until entry %d is on disk.", h.holdUntil)
	case h.wanted().Paused: // an empty queue is set to that with the next entry
		if e.Ready > 0 {
			x.BlockedBy = "paused"
		}
		say("The queue is paused: nothing of it is delivered until it goes on with: holdfast ctl resume_queue QUEUE")
	case e.Ready == 0 || standings[queue.Waiting] > 0:
	case len(standings) == 0 || len(standings) == 1 && standings[queue.Ended] > 0:
		x.BlockedBy = "no consumers"
		say("Messages wait because nobody consumes.")
	case standings[queue.AtPrefetch] > 0 && standings[queue.NoCredit] == 0:
		x.BlockedBy = "prefetch"
		say("Messages wait because every consumer holds as many messages as its prefetch allows.")
	case standings[queue.NoCredit] > 0 && standings[queue.AtPrefetch] == 0:
		x.BlockedBy = "credit"
		say("Messages wait because the consumers' clients read more slowly than messages come.")
	default:
		x.BlockedBy = "prefetch and credit"
		say("Messages wait because consumers have reached their prefetch or read slowly.")
	}
	if e.Dead > 0 && !h.m.Settings().Forward {
		say("On their way, or held until they can arrive: %s.", count(e.Dead, "dead letter"))
		if o := h.reg.owner; o != nil {
			x.Lines = append(x.Lines, o.WhyHeld(&h.handle)...)
		}
	}
	if n, bytes := h.m.Keys(); n > 0 {
		say("Kept in mind to find duplicates: %s, for which %s count.", count(n, "key"), count(bytes, "byte"))
	}
	if r := h.stats.rare.Load(); r != nil && r.duplicates.Load() > 0 {
		say("Duplicates that were not taken since the node started: %s.", count(r.duplicates.Load(), "message"))
	}
	if n := x.Unstable; n > 0 {
		say("Waiting for the disk: %s.", count(n, "message"))
	}
	return x
}

// count says how many of something there are.
func count[N int | uint64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (h *host) tagOf(id queue.ConsumerID) string {
	if c := h.consumers[id]; c != nil && c.spec.Tag != "" {
		return fmt.Sprintf("%q", c.spec.Tag)
	}
	return fmt.Sprint(uint64(id))
}

// listConsumers describes the consumers.
func (h *host) listConsumers() []ConsumerInfo {
	var list []ConsumerInfo
	for _, s := range h.m.Explain().Consumers {
		c := h.consumers[s.ID]
		if c == nil || c.getter || s.Standing == queue.Ended {
			continue
		}
		list = append(list, ConsumerInfo{ID: s.ID, Spec: c.spec, Unacked: s.Unacked, Is: h.activity(&s)})
	}
	return list
}

// activity says what a consumer is.
func (h *host) activity(s *queue.ConsumerState) Activity {
	switch {
	case s.Standing == queue.Suspended && h.reg.examines():
		return SuspectedDown
	case s.Standing == queue.Suspended:
		return Waiting // the first level has no other word
	case !h.m.Settings().SingleActive:
		return Up
	case s.ID == h.m.Active():
		return SingleActive
	}
	return Waiting
}

// activated tells operators that another consumer is the single active one.
func (h *host) activated(ef *queue.Effect) {
	h.reg.activations.Add(1)
	log, def := h.reg.o.Logger, h.known()
	c := h.consumers[ef.Consumer]
	if c == nil {
		log.Info("no consumer is active", "vhost", def.VHost, "queue", def.Name)
		return
	}
	log.Info("another consumer is the active one", "vhost", def.VHost, "queue", def.Name,
		"consumer", c.spec.Tag, "channel", c.spec.Channel, "connection", c.spec.Connection, "node", c.spec.Node)
}

// Activations is how often another consumer, or none any more, became the single active one of a queue whose commands this node
// puts in order.
func (r *Registry) Activations() uint64 { return r.activations.Load() }
