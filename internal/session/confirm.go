package session

import (
	"sync"

	"holdfast/internal/broker"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// confirms keeps what a channel in confirm mode owes its publisher. Sequence
// numbers are dense from 1. A publish is settled when every queue it went to
// has answered, and refused if one of them did not take it. It is the Ticket of
// the channel's publishes.
//
// Three goroutines meet here: the channel's owner adds publishes, shard workers
// settle them, the writer takes what is to be told.
type confirms struct {
	ch *channel

	mu sync.Mutex
	// states[off+i] is the state of publish base+i; everything below base has
	// been settled and told.
	states []uint32
	off    int
	base   uint64
	open   int                        // publishes not settled
	vanish map[uint64]message.Message // mandatory publishes not settled, that go back should all their queues be gone; nil: none yet
	done   []span                     // settled since the last take, in the order they were
	listed bool                       // the channel is in the outbox's list of confirms
	idle   chan struct{}              // closed when open becomes 0; nil: nobody waits
	acked  uint64                     // told to the publisher, for counters
	nacked uint64
	ack    wire.BasicAck // scratch
	nack   wire.BasicNack
}

// The state of one publish: how many queues have yet to answer, and flags.
const (
	waitingMask uint32 = 1<<24 - 1
	flagMet     uint32 = 1 << 28 // a queue was there, whatever it said
	flagNack    uint32 = 1 << 29 // a queue refused it
	flagSettled uint32 = 1 << 30
	flagTold    uint32 = 1 << 31
)

// span is a run of publishes settled one after the other.
type span struct{ first, last uint64 }

// add notes publishes that are about to be handed on, with the number of queues
// each of them goes to.
func (c *confirms) add(queues []uint32) {
	c.mu.Lock()
	for _, n := range queues {
		seq := c.base + uint64(len(c.states)-c.off)
		c.states = append(c.states, n)
		if n == 0 {
			c.finish(seq)
		} else {
			c.open++
		}
	}
	notify := c.list()
	c.mu.Unlock()
	if notify {
		c.ch.conn.out.confirm(c.ch)
	}
}

// mayVanish notes a mandatory publish that is about to be handed on.
func (c *confirms) mayVanish(seq uint64, m message.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vanish == nil {
		c.vanish = map[uint64]message.Message{}
	}
	c.vanish[seq] = m
}

// vanished returns what goes back of a publish that all queues have answered: the message, if it was mandatory and none of them was
// there any more. c.mu is held.
func (c *confirms) vanished(seq uint64, state uint32) *returned {
	if len(c.vanish) == 0 {
		return nil
	}
	m, mandatory := c.vanish[seq]
	delete(c.vanish, seq)
	if !mandatory || state&(flagMet|flagNack) != 0 {
		return nil
	}
	return noRoute(m, seq)
}

// Settled notes the answer of one queue.
func (c *confirms) Settled(first, last uint64, o broker.Outcome) {
	invariant.Pass("session", "confirm due")
	var back []*returned
	c.mu.Lock()
	for seq := first; seq <= last; seq++ {
		if seq < c.base || seq-c.base >= uint64(len(c.states)-c.off) {
			c.mu.Unlock()
			invariant.Failf("session: publish %d settled, %d to %d are open", seq, c.base, c.base+uint64(len(c.states)-c.off)-1)
		}
		s := &c.states[c.off+int(seq-c.base)]
		if *s&waitingMask == 0 {
			c.mu.Unlock()
			invariant.Failf("session: publish %d settled more often than it was published", seq)
		}
		*s--
		if o == broker.Refused || o == broker.Unknown {
			*s |= flagNack
		}
		if o != broker.Gone {
			*s |= flagMet
		}
		if *s&waitingMask == 0 {
			if r := c.vanished(seq, *s); r != nil {
				*s++ // settled by the writer, so that the return goes first
				back = append(back, r)
				continue
			}
			c.open--
			c.finish(seq)
		}
	}
	notify := c.list()
	if c.open == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
	c.mu.Unlock()
	for _, r := range back {
		c.ch.giveBackLate(r)
	}
	if notify {
		c.ch.conn.out.confirm(c.ch)
	}
}

// finish marks a publish settled. c.mu is held.
func (c *confirms) finish(seq uint64) {
	c.states[c.off+int(seq-c.base)] |= flagSettled
	if n := len(c.done); n > 0 && c.done[n-1].last+1 == seq {
		c.done[n-1].last = seq
		return
	}
	c.done = append(c.done, span{seq, seq})
}

// list reports whether the channel has to be put into the outbox's list: there
// is something to tell and it is not there yet. c.mu is held.
func (c *confirms) list() bool {
	if c.listed || len(c.done) == 0 {
		return false
	}
	c.listed = true
	return true
}

// take appends the frames that tell the publisher what was settled. What is
// settled up to some publish without a gap is told in runs with the multiple
// flag, the rest one by one.
func (c *confirms) take(dst []byte, channel uint16) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = false
	dst = c.takePrefix(dst, channel)
	for _, s := range c.done {
		for seq := max(s.first, c.base); seq <= s.last; seq++ {
			state := &c.states[c.off+int(seq-c.base)]
			*state |= flagTold
			dst = c.tell(dst, channel, seq, 1, *state&flagNack != 0)
		}
	}
	c.done = c.done[:0]
	return dst
}

// takePrefix tells what is settled from base on without a gap and forgets it.
func (c *confirms) takePrefix(dst []byte, channel uint16) []byte {
	var last uint64 // last publish of the run under way
	run, nack := 0, false
	states := c.states[c.off:]
	n := 0
	for ; n < len(states) && states[n]&flagSettled != 0; n++ {
		if states[n]&flagTold != 0 {
			continue
		}
		if refused := states[n]&flagNack != 0; run > 0 && refused != nack {
			dst = c.tell(dst, channel, last, run, nack)
			run, nack = 0, refused
		} else {
			nack = refused
		}
		last = c.base + uint64(n)
		run++
	}
	if run > 0 {
		dst = c.tell(dst, channel, last, run, nack)
	}
	c.base += uint64(n)
	c.off += n
	switch {
	case c.off == len(c.states):
		c.off = 0
		if cap(c.states) > 4096 {
			c.states = nil
		} else {
			c.states = c.states[:0]
		}
	case c.off > 1024 && c.off > len(c.states)/2:
		c.states = c.states[:copy(c.states, c.states[c.off:])]
		c.off = 0
	}
	return dst
}

// tell appends one ack or nack for n publishes that ends with seq.
func (c *confirms) tell(dst []byte, channel uint16, seq uint64, n int, nack bool) []byte {
	if nack {
		c.nacked += uint64(n)
		c.nack = wire.BasicNack{DeliveryTag: seq, Multiple: n > 1}
		return wire.AppendMethod(dst, channel, &c.nack)
	}
	c.acked += uint64(n)
	c.ack = wire.BasicAck{DeliveryTag: seq, Multiple: n > 1}
	return wire.AppendMethod(dst, channel, &c.ack)
}

// unsettled returns the number of publishes that wait for a queue.
func (c *confirms) unsettled() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// whenIdle returns a channel that is closed when every publish is settled, nil
// if that is so already.
func (c *confirms) whenIdle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == 0 {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// told returns how many publishes were acked and nacked.
func (c *confirms) told() (acked, nacked uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acked, c.nacked
}
