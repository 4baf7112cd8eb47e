package broker

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
)

// Conn is one client's connection to one virtual host. Its methods may be
// called from any goroutine; those that return an *amqperr.Error may wait, for
// the bounded time of Settings.DeclareTimeout, and belong on a goroutine that
// may wait. Publishes of the same channel that come before such a call must
// have been flushed before it.
type Conn struct {
	b       *Broker
	id      catalog.ConnID
	name    string
	user    *Identity
	vhost   string
	control Control
	credit  *Credit
	closed  chan struct{} // closed when the connection is out of the registry
	permits permits
	over    bool // it has ended; guarded by the mutex of Broker.farAlarms

	mu       sync.Mutex
	channels map[uint16]*channel
	// An exclusive queue belongs to its connection from the moment its declare
	// is proposed. Close cleans up when no such declare is under way any more:
	// otherwise a queue declared in the last moment would stay.
	owns      bool // an exclusive queue was declared
	declaring int  // exclusive declares under way
	ended     bool // Close was called
	cleaned   func()
}

// channel is what the broker knows of a channel: what must be detached with it.
type channel struct {
	subscriptions map[*Subscription]struct{}
	getters       map[catalog.QueueID]*Subscription
	reply         *replyQueue
}

// Register opens vhost for a connection: it checks that the virtual host is
// there and that the user may use it (530 otherwise), and makes the connection
// known under name. The session calls Conn.Close exactly once when the
// connection ends.
func (b *Broker) Register(user *Identity, vhost, name string, control Control) (*Conn, *amqperr.Error) {
	c := &Conn{
		b: b, name: name, user: user, vhost: vhost, control: control,
		credit: b.queues.NewCredit(),
		closed: make(chan struct{}),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing != nil {
		return nil, b.closing
	}
	// Under b.mu, so that a vhost or user deleted meanwhile is either seen as
	// missing here or finds the connection in the registry.
	if err := b.mayOpen(user, vhost); err != nil {
		return nil, err
	}
	b.lastConn++
	c.id = catalog.MakeConnID(b.incarnation, b.lastConn)
	b.conns[c.id] = c
	b.counters.connectionsOpened.Add(1)
	if reason := b.blockReason(); reason != "" {
		control.Block(true, reason)
	}
	return c, nil
}

// ID names the connection; it is never reused, not even by a later start of the node.
func (c *Conn) ID() uint64 { return uint64(c.id) }

// User is who has logged in.
func (c *Conn) User() *Identity { return c.user }

// VHost is the virtual host that is open.
func (c *Conn) VHost() string { return c.vhost }

// Credit bounds what the connection may have in flight towards queues. The
// connection's reader waits on it before it reads on.
func (c *Conn) Credit() *Credit { return c.credit }

// Close ends the connection: what its channels still have is detached and its
// exclusive queues are deleted, all of them with one command. It waits for
// nothing; done, if not nil, runs when all that has happened, on any goroutine.
// A quorum queue, which may have nobody to answer, is not waited for.
func (c *Conn) Close(done func()) {
	c.mu.Lock()
	channels := make([]uint16, 0, len(c.channels))
	for n := range c.channels {
		channels = append(channels, n)
	}
	one := countdown(len(channels)+1, done)
	c.ended, c.cleaned = true, one
	ready := c.declaring == 0
	c.mu.Unlock()
	for _, n := range channels {
		c.closeChannel(n, false, one)
	}

	b := c.b
	b.farAlarms.leave(c)
	b.mu.Lock()
	delete(b.conns, c.id)
	b.counters.connectionsClosed.Add(1)
	close(c.closed)
	b.mu.Unlock()

	if ready {
		c.cleanUp()
	}
}

// cleanUp deletes the exclusive queues of an ended connection.
func (c *Conn) cleanUp() {
	if !c.owns {
		c.cleaned()
		return
	}
	c.b.deleteConnectionQueues(c.id, c.cleaned)
}

// countdown returns what runs done, if it is not nil, when it is called for the nth time.
func countdown(n int, done func()) func() {
	var left atomic.Int64
	left.Store(int64(n))
	return func() {
		if left.Add(-1) == 0 && done != nil {
			done()
		}
	}
}

// beginExclusive notes that an exclusive queue is being declared; false: the
// connection has ended and may own nothing any more.
func (c *Conn) beginExclusive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.owns = true
	c.declaring++
	return true
}

func (c *Conn) endExclusive() {
	c.mu.Lock()
	c.declaring--
	ready := c.ended && c.declaring == 0
	c.mu.Unlock()
	if ready {
		c.cleanUp()
	}
}

// channel returns what is kept of a channel. c.mu is held.
func (c *Conn) channel(n uint16) *channel {
	ch := c.channels[n]
	if ch == nil {
		if c.channels == nil {
			c.channels = make(map[uint16]*channel)
		}
		ch = &channel{}
		c.channels[n] = ch
	}
	return ch
}

// CloseChannel detaches what the channel still has: consumers, getters and the
// direct reply-to consumer. Unacked messages go back to their queues. done, if
// not nil, runs when they have, on any goroutine.
func (c *Conn) CloseChannel(n uint16, done func()) { c.closeChannel(n, true, done) }

// closeChannel is CloseChannel that waits for quorum queues only if it is patient.
func (c *Conn) closeChannel(n uint16, patient bool, done func()) {
	c.mu.Lock()
	ch := c.channels[n]
	delete(c.channels, n)
	c.mu.Unlock()
	if ch == nil {
		countdown(1, done)()
		return
	}
	if ch.reply != nil {
		c.b.dropReplies(ch.reply)
	}
	all := make([]*Subscription, 0, len(ch.subscriptions)+len(ch.getters))
	for s := range ch.subscriptions {
		all = append(all, s)
	}
	for _, s := range ch.getters {
		all = append(all, s)
	}
	// In the order in which they were attached, so that two runs do the same.
	sort.Slice(all, func(i, j int) bool { return all[i].order < all[j].order })
	one := countdown(len(all)+1, done)
	for _, s := range all {
		if patient || !s.handle.Quorum() {
			s.detach(one)
			continue
		}
		s.detach(nil)
		one()
	}
	one()
}

// CloseConnections takes no further connections, closes those that are open
// with reason, and returns when all are gone or limit has passed. It returns
// the number of those that were not.
func (b *Broker) CloseConnections(reason *amqperr.Error, limit time.Duration) int {
	b.mu.Lock()
	b.closing = reason
	open := make([]*Conn, 0, len(b.conns))
	for _, c := range b.conns {
		open = append(open, c)
		c.control.Close(reason)
	}
	b.mu.Unlock()
	expired, done := clock.After(b.clock, limit)
	defer done()
	for i, c := range open {
		select {
		case <-c.closed:
		case <-expired:
			return len(open) - i
		}
	}
	return 0
}

// closeWhere closes the connections that match and says how many.
func (b *Broker) closeWhere(match func(*Conn) bool, reason *amqperr.Error) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.conns {
		if match(c) {
			c.control.Close(reason)
			n++
		}
	}
	return n
}
