package broker

import (
	"errors"
	"iter"
	"strings"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/planted"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// find returns the queue of this name and its handle; 404 if it is not there
// or cannot serve. It does not look at permissions or owners.
func (b *Broker) find(vhost, name string) (*catalog.Queue, *queuehost.Handle, *amqperr.Error) {
	q := b.view().Queue(vhost, name)
	if q == nil && b.barrier != nil {
		// Perhaps it was declared on another node just now. If the wait fails, the view is as good as it gets.
		_, _ = await(b, b.barrier)
		q = b.view().Queue(vhost, name)
	}
	if q == nil {
		return nil, nil, amqperr.NoQueue(vhost, name)
	}
	h := b.handle(q)
	if h == nil {
		return nil, nil, amqperr.NoQueue(vhost, name)
	}
	if err := h.Unavailable(); err != nil {
		return nil, nil, b.clientError(err, "use", amqperr.Queue, vhost, name)
	}
	return q, h, nil
}

// use is find for an operation of this connection: 405 for an exclusive queue of another one.
func (c *Conn) use(name string) (*catalog.Queue, *queuehost.Handle, *amqperr.Error) {
	q := c.b.view().Queue(c.vhost, name)
	if q != nil && q.Exclusive && q.Owner != c.id {
		return nil, nil, amqperr.QueueLocked(c.vhost, name)
	}
	return c.b.find(c.vhost, name)
}

// handle returns the running queue behind a definition, nil if it does not run
// (yet, or any more).
//
// A queue appears in the catalog's view before its declare is answered. One
// that is not durable is made to run by whoever meets it first. A durable one
// is not there for others until the declare is on disk: otherwise a message
// could be confirmed in a queue that a power cut takes away. In a cluster the
// view shows nothing that is not on disk.
func (b *Broker) handle(q *catalog.Queue) *queuehost.Handle {
	if h := b.queues.Get(seglog.GroupID(q.ID)); h != nil || q.Durable && b.self == 0 {
		return h
	}
	return b.make(q)
}

// handleByID is handle for a queue that a route of v leads to.
func (b *Broker) handleByID(v *catalog.View, id catalog.QueueID) *queuehost.Handle {
	if h := b.queues.Get(seglog.GroupID(id)); h != nil {
		return h
	}
	if q := v.QueueByID(id); q != nil {
		return b.handle(q)
	}
	return nil
}

// Handle returns the handle of a queue of the catalog's view, nil if it does not run.
func (b *Broker) Handle(id catalog.QueueID) *queuehost.Handle { return b.handleByID(b.view(), id) }

// make makes a queue run, if it does not and is still in the catalog.
func (b *Broker) make(q *catalog.Queue) *queuehost.Handle {
	b.queueMu.Lock()
	defer b.queueMu.Unlock()
	if h := b.queues.Get(seglog.GroupID(q.ID)); h != nil {
		return h
	}
	b.settingsMu.Lock() // whoever says that they have changed says so of a queue that is there, or before they are looked at
	defer b.settingsMu.Unlock()
	if q = b.view().QueueByID(q.ID); q == nil {
		return nil
	}
	var h *queuehost.Handle
	var err error
	switch {
	case q.Type == catalog.Quorum:
		h, err = b.makeQuorum(q)
	case b.isHere(q):
		h, err = b.queues.Create(b.queueDef(q))
	default:
		h, err = b.queues.CreateFar(b.queueDef(q), q.Home)
	}
	if err != nil {
		b.log.Error("queue cannot be made", "queue", q.Name, "vhost", q.VHost, "error", err)
		return nil
	}
	return h
}

// isHere reports whether a queue, or a member of it, lives on this node.
func (b *Broker) isHere(q *catalog.Queue) bool {
	if q.Type == catalog.Quorum {
		_, here := q.MemberOn(b.node)
		return here
	}
	return b.self == 0 || q.Home == b.self
}

// takes reports whether a queue of v is here and can take messages.
func (b *Broker) takes(v *catalog.View, id catalog.QueueID) bool {
	q := v.QueueByID(id)
	if q == nil || !b.isHere(q) {
		return false
	}
	h := b.handle(q)
	return h != nil && h.Unavailable() == nil
}

// Changed says, on the catalog's worker, that a command was applied: a queue that is to live here begins to run, before
// anybody is told of it, and one whose members changed has them here. Those that were deleted go, unless somebody here
// awaits the result, who sees to that.
func (b *Broker) Changed(r *catalog.Result, awaited bool) {
	if level := uint32(b.view().Level()); b.level.Swap(level) != level {
		b.levelRaised()
	}
	switch q := r.Queue; {
	case q == nil:
	case q.Type == catalog.Quorum:
		b.follow(q.ID)
	case r.Created && b.isHere(q):
		b.make(q)
	}
	for _, q := range r.Stores {
		if b.isHere(q) {
			b.make(q)
		}
	}
	for _, lost := range r.Removed.Members {
		b.follow(lost.Queue.ID)
	}
	b.histories.forget(r.Removed.Exchanges)
	if len(r.Removed.Queues) > 0 && !awaited {
		b.later(func() { b.dropQueues(r.Removed.Queues, func() {}) })
	}
	if len(r.Removed.VHosts)+len(r.Removed.Users) > 0 && !awaited {
		b.later(func() { b.closeRemoved(&r.Removed) })
	}
}

// Sync brings what runs here and the catalog's view together: at the start of a node in a cluster, and when the catalog
// came whole.
func (b *Broker) Sync() {
	b.dropUnknown()
	b.histories.forgetUnknown(b.view())
	b.closeUnknown()
	v := b.view()
	for q := range v.QueuesOn(b.node).All() {
		if planted.Is(planted.SyncForgets) {
			break
		}
		if b.queues.Get(seglog.GroupID(q.ID)) == nil {
			b.make(q)
		} else {
			b.settingsChanged(q)
		}
	}
	for _, handles := range []iter.Seq[*queuehost.Handle]{b.queues.All(), b.queues.Far()} {
		for h := range handles {
			if h.Quorum() {
				b.follow(catalog.QueueID(h.ID()))
			}
		}
	}
}

// QueueDef is a queue of the catalog as queuehost wants it.
func QueueDef(q *catalog.Queue) queuehost.QueueDef {
	return queuehost.QueueDef{
		ID: seglog.GroupID(q.ID), VHost: q.VHost, Name: q.Name,
		Durable: q.Durable, Exclusive: q.Exclusive, AutoDelete: q.AutoDelete, Store: q.Of != 0, Args: q.Args,
	}
}

// DeclareQueue declares a queue or checks that it is there.
func (c *Conn) DeclareQueue(r DeclareQueue) (DeclaredQueue, *amqperr.Error) {
	name := catalog.CleanName(r.Name)
	if strings.HasPrefix(name, ReplyTo) {
		return c.declareReplies(name)
	}
	if r.Passive {
		return c.passiveQueue(name)
	}
	d := catalog.QueueDecl{
		VHost: c.vhost, Name: name,
		Durable: r.Durable, AutoDelete: r.AutoDelete, Exclusive: r.Exclusive,
		Args: r.Arguments, Conn: c.id, User: c.user.Name,
	}
	if name == "" {
		made, err := catalog.ServerName(c.vhost, r.Arguments, random())
		if err != nil {
			return DeclaredQueue{}, err
		}
		d.Name, d.ServerNamed = made, true
	} else if strings.HasPrefix(name, "amq.") {
		return DeclaredQueue{}, amqperr.ReservedName(amqperr.Queue, c.vhost, name)
	}
	if err := c.mayConfigure(amqperr.Queue, d.Name); err != nil {
		return DeclaredQueue{}, err
	}
	if err := c.mayDeadLetter(d.Name, r.Arguments); err != nil {
		return DeclaredQueue{}, err
	}
	if d.Exclusive {
		if !c.beginExclusive() {
			return DeclaredQueue{}, amqperr.Shutdown()
		}
		defer c.endExclusive()
	}
	return c.b.declareQueue(d)
}

// mayDeadLetter checks, for a queue that is not there yet, that the user may have its dead letters go where its arguments say.
func (c *Conn) mayDeadLetter(name string, args wire.Table) *amqperr.Error {
	v, _ := args.Get("x-dead-letter-exchange")
	exchange, is := v.Str()
	if !is || c.b.view().Queue(c.vhost, name) != nil {
		return nil
	}
	if err := c.mayRead(amqperr.Queue, name); err != nil {
		return err
	}
	return c.mayWrite(amqperr.Exchange, exchange)
}

// declareQueue answers a declare from the view where the queue runs, and has
// the catalog make it where it does not.
func (b *Broker) declareQueue(d catalog.QueueDecl) (DeclaredQueue, *amqperr.Error) {
	d = b.withType(d)
	fail := func(err error) (DeclaredQueue, *amqperr.Error) {
		return DeclaredQueue{}, b.clientError(err, "declare", amqperr.Queue, d.VHost, d.Name)
	}
	again := b.again()
	for !again.over() {
		q, e := b.view().DeclaredQueue(&d)
		if e != nil && b.orphaned(d.VHost, d.Name) {
			if err := b.removeOrphan(d.VHost, d.Name); err != nil {
				return fail(err)
			}
			continue
		}
		if e != nil {
			return DeclaredQueue{}, e
		}
		var h *queuehost.Handle
		if q != nil {
			h = b.handle(q)
		}
		if h == nil {
			// Or it is there, and somebody's declare is on its way to the disk:
			// ours gets there behind it.
			var err error
			if q, h, err = b.proposeQueue(d); err != nil {
				return fail(err)
			}
		}
		// A queue that is sealed is as good as deleted: wait until it is, and declare anew.
		if going, err := b.awaitGoing(q.ID); err != nil {
			return fail(err)
		} else if going {
			continue
		}
		if h != nil {
			answer, err := b.declared(q, h)
			if !isGone(err) {
				return answer, err
			}
			// Sealed, or gone this very moment, perhaps by another node: this one will hear of it.
			if err := again.pause(); err != nil {
				return fail(err)
			}
			continue
		}
		if b.view().QueueByID(q.ID) != nil {
			return DeclaredQueue{}, amqperr.QueueUnavailable(d.VHost, d.Name, "it could not be made")
		}
		// It was deleted in between.
	}
	return fail(errTimedOut)
}

// proposeQueue has the catalog declare a queue and makes it run. It does so
// even when nobody waits for the answer any more.
func (b *Broker) proposeQueue(d catalog.QueueDecl) (*catalog.Queue, *queuehost.Handle, error) {
	type made struct {
		q *catalog.Queue
		h *queuehost.Handle
	}
	m, err := await(b, func(done func(made, error)) {
		b.Declare(d, func(q *catalog.Queue, h *queuehost.Handle, err error) { done(made{q, h}, err) })
	})
	return m.q, m.h, err
}

// Declare has the catalog declare a queue, wherever it decides it to live, and makes it run. done gets the queue, new or
// existing, and its handle, nil if it was deleted meanwhile; on any goroutine, and must not block.
func (b *Broker) Declare(d catalog.QueueDecl, done func(*catalog.Queue, *queuehost.Handle, error)) {
	d.Level = b.view().Level()
	b.submit(catalog.DeclareQueue(b.place(d)), d.Durable && !d.Exclusive, func(result any, err error) {
		if err != nil {
			done(nil, nil, err)
			return
		}
		r := result.(*catalog.Result)
		if r.Err != nil {
			done(nil, nil, r.Err)
			return
		}
		if r.Created {
			b.counters.queuesDeclared.Add(1)
		}
		done(r.Queue, b.make(r.Queue), nil)
	})
}

func (b *Broker) declared(q *catalog.Queue, h *queuehost.Handle) (DeclaredQueue, *amqperr.Error) {
	if err := h.Unavailable(); err != nil {
		return DeclaredQueue{}, b.clientError(err, "declare", amqperr.Queue, q.VHost, q.Name)
	}
	// The worker is asked, so that the counts know of what this channel did before.
	n, err := await(b, func(done func(DeclaredQueue, error)) {
		h.Count(func(ready, consumers uint64, err error) {
			done(DeclaredQueue{Name: q.Name, Messages: ready, Consumers: consumers}, err)
		})
	})
	if err != nil {
		return DeclaredQueue{}, b.clientError(err, "declare", amqperr.Queue, q.VHost, q.Name)
	}
	return n, nil
}

// passiveQueue checks that a queue is there.
func (c *Conn) passiveQueue(name string) (DeclaredQueue, *amqperr.Error) {
	if err := c.mayAnything(amqperr.Queue, name); err != nil {
		return DeclaredQueue{}, err
	}
	q, h, err := c.use(name)
	if err != nil {
		return DeclaredQueue{}, err
	}
	return c.b.declared(q, h)
}

// DeleteQueue deletes a queue and says how many ready messages went with it; a
// missing one is no error.
func (c *Conn) DeleteQueue(r DeleteQueue) (messages uint64, err *amqperr.Error) {
	name := catalog.CleanName(r.Name)
	if err := c.mayConfigure(amqperr.Queue, name); err != nil {
		return 0, err
	}
	if q := c.b.view().Queue(c.vhost, name); q == nil || c.b.handle(q) == nil {
		return 0, nil
	}
	q, h, err := c.use(name)
	if err != nil {
		if c.b.view().Queue(c.vhost, name) == nil {
			return 0, nil // somebody else has deleted it this very moment
		}
		return 0, err
	}
	return c.b.deleteQueue(q, h, r.IfUnused, r.IfEmpty)
}

// deleteQueue deletes a queue. If somebody else is deleting it, here or on another node, their success is
// ours, with nothing left to count.
func (b *Broker) deleteQueue(q *catalog.Queue, h *queuehost.Handle, ifUnused, ifEmpty bool) (uint64, *amqperr.Error) {
	fail := func(err error) (uint64, *amqperr.Error) {
		return 0, b.clientError(err, "delete", amqperr.Queue, q.VHost, q.Name)
	}
	for again := b.again(); ; {
		messages, err := b.sealAndDelete(q, h, ifUnused, ifEmpty)
		refused := b.clientError(err, "delete", amqperr.Queue, q.VHost, q.Name)
		if !isGone(refused) {
			return messages, refused
		}
		going, err := b.awaitGoing(q.ID)
		switch {
		case err != nil:
			return fail(err)
		case b.view().QueueByID(q.ID) == nil:
			return 0, nil
		case going:
			continue
		case again.over():
			return fail(errTimedOut)
		}
		if err := again.pause(); err != nil {
			return fail(err)
		}
	}
}

// isGone reports whether a queue has answered that it is not there: it is gone, or sealed, which is as good.
func isGone(err *amqperr.Error) bool { return err != nil && errors.Is(err, amqperr.ErrNoQueue) }

// How long is waited before something is tried again that another node decides: twice as long each time.
const (
	againFirst = 5 * time.Millisecond
	againMost  = 200 * time.Millisecond
)

// again paces and bounds what is tried until another node has decided.
type again struct {
	b     *Broker
	began int64 // clock.Mono
	wait  time.Duration
}

func (b *Broker) again() *again { return &again{b, b.clock.Mono(), againFirst} }

// over reports whether it has taken as long as a client waits for a declare.
func (a *again) over() bool { return a.b.clock.Mono()-a.began > int64(a.b.settings.DeclareTimeout) }

// pause waits a moment; an error says that the node can go on no longer.
func (a *again) pause() error {
	passed, stop := clock.After(a.b.clock, a.wait)
	defer stop()
	a.wait = min(2*a.wait, againMost)
	select {
	case <-passed:
		return nil
	case <-a.b.failed:
		return errFailed
	}
}

// sealAndDelete is Delete, waited for.
func (b *Broker) sealAndDelete(q *catalog.Queue, h *queuehost.Handle, ifUnused, ifEmpty bool) (messages uint64, err error) {
	return await(b, func(done func(uint64, error)) { b.Delete(q, h, ifUnused, ifEmpty, done) })
}

// Delete seals a queue, has the catalog delete it, and drops it. One step
// leads to the next whether or not somebody still waits: a queue that is sealed
// must be deleted or unsealed. Waiting for the drop as well puts the consumers'
// cancels before the answer. done gets how many ready messages went with it; on any goroutine, and must not block.
func (b *Broker) Delete(q *catalog.Queue, h *queuehost.Handle, ifUnused, ifEmpty bool, done func(messages uint64, err error)) {
	h.Seal(ifUnused, ifEmpty, func(n uint64, err error) {
		if err != nil {
			done(0, err)
			return
		}
		b.begin(q.ID)
		b.remove(catalog.DeleteQueues([]catalog.QueueID{q.ID}), q.Durable, func(_ *catalog.Result, err error) {
			if err != nil {
				h.Unseal()
			}
			b.finish(q.ID)
			done(n, err)
		})
	})
}

// PurgeQueue removes the ready messages of a queue and says how many.
func (c *Conn) PurgeQueue(name string) (messages uint64, err *amqperr.Error) {
	if err := c.mayRead(amqperr.Queue, name); err != nil {
		return 0, err
	}
	q, h, err := c.use(name)
	if err != nil {
		return 0, err
	}
	return c.b.purgeQueue(q, h)
}

func (b *Broker) purgeQueue(q *catalog.Queue, h *queuehost.Handle) (uint64, *amqperr.Error) {
	n, err := await(b, func(done func(uint64, error)) { h.Purge(done) })
	return n, b.clientError(err, "purge", amqperr.Queue, q.VHost, q.Name)
}
