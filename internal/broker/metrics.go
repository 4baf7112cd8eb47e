package broker

import (
	"sync/atomic"

	"holdfast/internal/queuehost"
)

// counters count what happens in the broker, apart from messages: those are
// counted by queues and publishers.
type counters struct {
	connectionsOpened, connectionsClosed atomic.Uint64
	queuesDeclared, queuesDeleted        atomic.Uint64
	logins, loginsRefused                atomic.Uint64
	published, routed                    atomic.Uint64 // added to by Publisher.Flush
	unroutableDropped                    atomic.Uint64
	unroutableReturned                   atomic.Uint64

	// What the queues that are gone had counted: sums over all queues never step back.
	goneDelivered, goneRedelivered, goneAcked, goneGetsEmpty atomic.Uint64
}

// gone keeps the counts of a queue that is about to be dropped.
func (c *counters) gone(h *queuehost.Handle) {
	if h.Quorum() || h.Home() != 0 {
		return // others count them
	}
	s := h.Stats()
	c.goneDelivered.Add(s.Delivered)
	c.goneRedelivered.Add(s.Redelivered)
	c.goneAcked.Add(s.Acked)
	c.goneGetsEmpty.Add(s.GetsEmpty)
}

// Totals are the counters of the broker since it started, and what is open now.
type Totals struct {
	Connections                              uint64 // open
	ConnectionsOpened, ConnectionsClosed     uint64
	QueuesCreated, QueuesDeleted             uint64
	Logins, LoginsRefused                    uint64
	Published, Routed                        uint64 // messages of clients; once for each queue
	UnroutableDropped, UnroutableReturned    uint64
	Delivered, Redelivered, Acked, GetsEmpty uint64 // by queues, those that are gone included
	Queues, Quarantined, Ready, Unacked      uint64 // of the queues that are there
	Consumers, WaitingForDisk, Delayed       uint64
	Dead                                     uint64 // letters that have not arrived
	BodiesInMemory, BodiesSpilled            uint64 // bytes; on disk and not in the log
	DeadLetters                              DeadLetterTotals
	Forwarded                                uint64            // messages that an exchange had delayed and that were routed
	ForwardedDropped                         map[string]uint64 // of these: not arrived, by cause
	BlockedReason                            string            // what publishers are told while an alarm is on, also elsewhere, else ""
}

// Totals sums up over all queues that the node serves; it disturbs nobody. What was delivered by quorum queues is not in the
// sums: their counts move from node to node with their leaders, and a counter must not fall.
func (b *Broker) Totals() Totals {
	c := &b.counters
	t := Totals{
		ConnectionsOpened: c.connectionsOpened.Load(), ConnectionsClosed: c.connectionsClosed.Load(),
		QueuesCreated: c.queuesDeclared.Load(), QueuesDeleted: c.queuesDeleted.Load(),
		Logins: c.logins.Load(), LoginsRefused: c.loginsRefused.Load(),
		Published: c.published.Load(), Routed: c.routed.Load(),
		UnroutableDropped: c.unroutableDropped.Load(), UnroutableReturned: c.unroutableReturned.Load(),
		Delivered: c.goneDelivered.Load(), Redelivered: c.goneRedelivered.Load(),
		Acked: c.goneAcked.Load(), GetsEmpty: c.goneGetsEmpty.Load(),
		DeadLetters: b.letters.totals(), Forwarded: b.letters.counts.forwarded.Load(), ForwardedDropped: b.letters.forwardedDropped(),
	}
	b.mu.Lock()
	t.Connections, t.BlockedReason = uint64(len(b.conns)), b.blockReason()
	b.mu.Unlock()
	if far := b.AlarmsElsewhere(); len(far) > 0 && t.BlockedReason == "" {
		t.BlockedReason = far[0].short()
	}
	for h := range b.queues.Served() {
		if !h.Def().Store {
			t.Queues++
		}
		if h.Unavailable() != nil {
			t.Quarantined++
			continue
		}
		s := h.Stats()
		t.Ready += s.Ready
		t.Unacked += s.Unacked
		t.Delayed += s.Delayed
		t.Dead += s.Dead
		t.Consumers += s.Consumers
		t.BodiesInMemory += s.BodiesInMemory
		t.BodiesSpilled += s.BodiesSpilled
		t.WaitingForDisk += s.Unstable
		if h.Quorum() {
			continue
		}
		t.Delivered += s.Delivered
		t.Redelivered += s.Redelivered
		t.Acked += s.Acked
		t.GetsEmpty += s.GetsEmpty
	}
	return t
}
