package broker

import (
	"iter"
	"sync"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// remove has the catalog carry out a command that may take queues away, and
// then drops those queues. done, if not nil, runs on any goroutine when they
// are dropped, or with the error. It waits for nothing, so that the queues go
// even when whoever asked has stopped waiting.
func (b *Broker) remove(cmd []byte, waitStable bool, done func(*catalog.Result, error)) {
	b.submit(cmd, waitStable, func(result any, err error) {
		// On the catalog's worker: there may be very many queues, so not here.
		b.later(func() {
			r, _ := result.(*catalog.Result)
			if err == nil && r.Err != nil {
				err = r.Err
			}
			if err != nil {
				b.dropUnknown()
				if done != nil {
					done(r, err)
				}
				return
			}
			b.dropQueues(r.Removed.Queues, func() {
				if done != nil {
					done(r, nil)
				}
			})
		})
	})
}

// dropQueues drops queues that the catalog has deleted and runs done after the last one.
func (b *Broker) dropQueues(queues []*catalog.Queue, done func()) {
	one := countdown(len(queues)+1, done)
	for _, q := range queues {
		id := seglog.GroupID(q.ID)
		b.queueMu.Lock()
		h := b.queues.Get(id)
		if h == nil {
			b.queueMu.Unlock()
			one()
			continue
		}
		b.counters.gone(h)
		b.counters.queuesDeleted.Add(1)
		b.letters.drop(id)
		b.queues.Drop(id, amqperr.NoQueue(q.VHost, q.Name), one)
		b.queueMu.Unlock()
	}
	one()
}

// dropUnknown drops the queues that run and that the catalog does not know: a
// command that was not answered in time may have been carried out.
func (b *Broker) dropUnknown() {
	b.dropUnknownOf(b.queues.All())
	b.dropUnknownOf(b.queues.Far())
}

func (b *Broker) dropUnknownOf(handles iter.Seq[*queuehost.Handle]) {
	for h := range handles {
		b.queueMu.Lock()
		if h.ID() < firstReplyQueue && b.view().QueueByID(catalog.QueueID(h.ID())) == nil {
			d := h.Def()
			b.counters.gone(h)
			b.letters.drop(h.ID())
			b.queues.Drop(h.ID(), amqperr.NoQueue(d.VHost, d.Name), nil)
		}
		b.queueMu.Unlock()
	}
}

// deleteConnectionQueues deletes the exclusive queues of a connection that has
// ended, however many, with one command.
func (b *Broker) deleteConnectionQueues(conn catalog.ConnID, done func()) {
	b.remove(catalog.DeleteConnectionQueues(conn), false, func(_ *catalog.Result, err error) {
		if err != nil {
			// The catalog is closed: the node's next incarnation removes them.
			b.log.Warn("exclusive queues of a closed connection are still there", "error", err)
		}
		done()
	})
}

// begin notes that a queue is sealed and will be deleted.
func (b *Broker) begin(id catalog.QueueID) {
	b.goingMu.Lock()
	defer b.goingMu.Unlock()
	if b.going[id] == nil {
		b.going[id] = make(chan struct{})
	}
}

// finish notes that a deletion has ended, one way or the other.
func (b *Broker) finish(id catalog.QueueID) {
	b.goingMu.Lock()
	defer b.goingMu.Unlock()
	if g := b.going[id]; g != nil {
		delete(b.going, id)
		close(g)
	}
}

// isGoing reports whether the queue is being deleted.
func (b *Broker) isGoing(id catalog.QueueID) bool {
	b.goingMu.Lock()
	defer b.goingMu.Unlock()
	return b.going[id] != nil
}

// awaitGoing waits until the deletion of a queue has been decided, and reports
// whether there was one under way.
func (b *Broker) awaitGoing(id catalog.QueueID) (bool, error) {
	b.goingMu.Lock()
	going := b.going[id]
	b.goingMu.Unlock()
	if going == nil {
		return false, nil
	}
	expired, done := clock.After(b.clock, b.settings.DeclareTimeout)
	defer done()
	select {
	case <-going:
		return true, nil
	case <-b.failed:
		return true, errFailed
	case <-expired:
		return true, errTimedOut
	}
}

// collector deletes auto-delete queues that have lost their last consumer, and those that nobody has used for too long.
// Many at once, as when a node full of clients goes away, become few commands.
type collector struct {
	b       *Broker
	mu      sync.Mutex
	unused  []catalog.QueueID // sealed, and noted as going
	expired []catalog.QueueID // not sealed yet: somebody may use them
	running bool
	stopped bool
}

func newCollector(b *Broker) *collector { return &collector{b: b} }

// Unused says that a queue's last consumer has left, and reports whether it goes for that: then it is sealed by whoever
// asks. It runs on a shard worker.
func (b *Broker) Unused(id seglog.GroupID) (seal bool) {
	q := b.view().QueueByID(catalog.QueueID(id))
	if q == nil || !q.AutoDelete {
		return false
	}
	c := b.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	b.begin(q.ID)
	c.unused = append(c.unused, q.ID)
	c.start()
	return true
}

// Expired says that nobody has used a queue for as long as its settings say. It runs on a shard worker.
func (b *Broker) Expired(id seglog.GroupID) {
	q := b.view().QueueByID(catalog.QueueID(id))
	if q == nil || b.view().Effective(q).Expires == 0 {
		return
	}
	c := b.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.expired = append(c.expired, q.ID)
		c.start()
	}
}

// start makes it run. c.mu is held.
func (c *collector) start() {
	if !c.running {
		c.running = true
		go c.run()
	}
}

// stop leaves alone what is not used any more from now on.
func (c *collector) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}

// run deletes what is unused until nothing is.
func (c *collector) run() {
	for {
		c.mu.Lock()
		unused, expired := c.unused, c.expired
		c.unused, c.expired = nil, nil
		if len(unused)+len(expired) == 0 {
			c.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.collect(append(unused, c.seal(expired)...))
	}
}

// seal seals those that still nobody uses, and returns them.
func (c *collector) seal(ids []catalog.QueueID) []catalog.QueueID {
	b := c.b
	var (
		mu     sync.Mutex
		sealed []catalog.QueueID
		wait   sync.WaitGroup
	)
	for _, id := range ids {
		h := b.queues.Get(seglog.GroupID(id))
		if h == nil {
			continue
		}
		wait.Add(1)
		h.Seal(true, false, func(_ uint64, err error) {
			if err == nil { // else a consumer came, or it is gone
				b.begin(id)
				mu.Lock()
				sealed = append(sealed, id)
				mu.Unlock()
			}
			wait.Done()
		})
	}
	wait.Wait()
	return sealed
}

// collect deletes sealed queues with one command, and returns when that is decided. They stay if it fails.
func (c *collector) collect(ids []catalog.QueueID) {
	if len(ids) == 0 {
		return
	}
	b := c.b
	durable := false // then the end is, too, before publishes count as accepted by it
	for _, id := range ids {
		if h := b.queues.Get(seglog.GroupID(id)); h != nil {
			durable = durable || h.Def().Durable
		}
	}
	decided := make(chan struct{})
	b.remove(catalog.DeleteQueues(ids), durable, func(_ *catalog.Result, err error) {
		for _, id := range ids {
			if err != nil {
				if h := b.queues.Get(seglog.GroupID(id)); h != nil {
					h.Unseal()
				}
			}
			b.finish(id)
		}
		close(decided)
	})
	<-decided
}
