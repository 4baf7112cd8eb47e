package session

import (
	"sync"

	"holdfast/internal/broker"
	"holdfast/internal/message"
)

// vanishing are the mandatory publishes under way of a channel that is not in confirm mode. A queue can be deleted between the moment
// in which a message is routed to it and that in which it would have it; then the message led nowhere, and goes back. It is the Ticket of
// these publishes.
type vanishing struct {
	mu   sync.Mutex
	ch   *channel
	last uint64
	open map[uint64]*vanisher // by number
}

// vanisher is one of them.
type vanisher struct {
	queues  int  // that have not answered
	met     bool // one was there
	message message.Message
}

// add notes a publish to so many queues and returns its number.
func (v *vanishing) add(queues int, m message.Message) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last++
	v.open[v.last] = &vanisher{queues: queues, message: m}
	return v.last
}

// Settled implements broker.Ticket.
func (v *vanishing) Settled(first, last uint64, o broker.Outcome) {
	var back []*returned
	v.mu.Lock()
	for n := first; n <= last; n++ {
		x := v.open[n]
		x.met = x.met || o != broker.Gone
		if x.queues--; x.queues > 0 {
			continue
		}
		if delete(v.open, n); !x.met {
			back = append(back, noRoute(x.message, 0))
		}
	}
	v.mu.Unlock()
	for _, r := range back {
		v.ch.giveBackLate(r)
	}
}

// giveBackLate has a message go back that led nowhere after all.
func (ch *channel) giveBackLate(r *returned) {
	ch.conn.broker.ReturnedLate()
	ch.conn.out.giveBack(ch, r)
}
