package queuehost

import (
	"sync"
	"sync/atomic"

	"holdfast/internal/clock"
)

// Credit bounds what one connection has in flight towards queues. Publishes
// charge it and never wait; whoever takes in more for the connection (its
// reader, the workers of its channels) calls Wait before it goes on. The queues' workers give it back.
type Credit struct {
	pool    *creditPool
	inflow  *inflow      // of another node, if it is that one's
	inbox   atomic.Int64 // of used, what no queue has applied yet
	used    atomic.Int64
	coming  atomic.Int64  // bytes of what is not complete
	came    atomic.Int64  // of those, all that have ever come
	giveUp  func()        // see OnGivenUp
	waiting atomic.Bool   // somebody waits; the pool's mutex guards the rest
	waits   int           // how many
	slow    bool          // did not keep up when it had the turn
	wake    chan struct{} // closed when they may look again
}

// creditPool is what all connections of a node share.
type creditPool struct {
	perConnection, node int64
	used                atomic.Int64
	coming              coming
	clock               clock.Clock

	mu      sync.Mutex
	waiters map[*Credit]struct{}
}

// shareUnderPressure is what a connection may have in flight when the node's
// whole credit is used up. It is more than what the log waits for before it
// commits messages that nobody waits for, so that a publisher cannot starve it.
const shareUnderPressure = 512 << 10

// inboxLimit is what a connection may have in the inboxes of queues. It is
// small: what lies there delays whoever comes behind it. The rest of the credit
// is for what waits for the disk.
const inboxLimit = 512 << 10

// overhead is what a message costs in memory beside its bytes.
const overhead = 256

// cost is what a publish is charged with.
func (p *Publish) cost() int64 { return int64(p.Message.Size()+p.For.size()) + overhead }

// newCreditPool makes one that lets a connection hold incomplete of what is not complete, or as much as all may together, if that is more.
func newCreditPool(perConnection, node, incomplete int64) *creditPool {
	p := &creditPool{perConnection: perConnection, node: node, waiters: map[*Credit]struct{}{}, clock: clock.System()}
	p.coming.most = max(node, incomplete)
	return p
}

// Enough reports whether Wait would return at once.
func (c *Credit) Enough() bool { return !c.spent() && c.inbox.Load() < inboxLimit }

// spent reports whether all credit is charged.
func (c *Credit) spent() bool {
	limit := c.pool.perConnection
	if c.pool.used.Load() >= c.pool.node {
		limit = min(limit, shareUnderPressure)
	}
	return c.used.Load() >= limit
}

// outOfCredit reports whether the publisher's connection waits until the disk
// has something of its own.
func (p *Publish) outOfCredit() bool { return p.Credit != nil && p.Credit.spent() }

// hurried reports whether somebody waits for the publish to be on disk.
func (p *Publish) hurried() bool { return p.Ticket != nil && !p.Unhurried || p.outOfCredit() }

// InFlight returns the bytes charged and not given back.
func (c *Credit) InFlight() int64 { return c.used.Load() }

// Wait returns true when there is credit, at once in the ordinary case, and
// false when stop was closed first. Any number of goroutines may wait.
func (c *Credit) Wait(stop <-chan struct{}) bool {
	for !c.Enough() {
		wake := c.register()
		// A give between Enough and register has not seen the waiter.
		if c.Enough() {
			c.unregister(wake)
			return true
		}
		select {
		case <-wake:
			c.came.Add(turnLeast) // for the time in which nothing could come
		case <-stop:
			c.unregister(wake)
			return false
		}
	}
	return true
}

func (c *Credit) register() <-chan struct{} {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.wake == nil {
		c.wake = make(chan struct{})
		p.waiters[c] = struct{}{}
		c.waiting.Store(true)
	}
	c.waits++
	return c.wake
}

// unregister takes one waiter back that goes on without having been woken.
func (c *Credit) unregister(wake <-chan struct{}) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.wake != wake {
		return // it has been woken meanwhile
	}
	if c.waits--; c.waits == 0 {
		p.forget(c)
	}
}

func (c *Credit) charge(n int64) {
	c.inbox.Add(n)
	c.used.Add(n)
	c.pool.used.Add(n)
}

// applied says that a queue has taken n out of its inbox.
func (c *Credit) applied(n int64) {
	c.inbox.Add(-n)
	c.look()
}

func (c *Credit) give(n int64) {
	c.used.Add(-n)
	if c.inflow != nil {
		c.inflow.given.Add(n)
	}
	p := c.pool
	left := p.used.Add(-n)
	if left < p.node && left+n >= p.node {
		p.wakeAll()
	} else {
		p.comeOn(p.coming.bytes.Load())
	}
	c.look()
}

// look ends a Wait if there is credit.
func (c *Credit) look() {
	if c.waiting.Load() && c.Enough() {
		c.pool.mu.Lock()
		c.pool.release(c)
		c.pool.mu.Unlock()
	}
}

// wakeAll lets everybody look again: the node has credit.
func (p *creditPool) wakeAll() {
	p.mu.Lock()
	for c := range p.waiters {
		p.release(c)
	}
	p.mu.Unlock()
}

// release wakes all who wait for c. The mutex is held.
func (p *creditPool) release(c *Credit) {
	if c.wake != nil {
		close(c.wake)
		p.forget(c)
	}
}

// forget strikes c off the list of those who wait. The mutex is held.
func (p *creditPool) forget(c *Credit) {
	delete(p.waiters, c)
	c.waits, c.wake = 0, nil
	c.waiting.Store(false)
}
