package broker

import (
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
)

// Unlimited is the credit of a consumer that is not counted.
const Unlimited = queuehost.Unlimited

// Subscription is a consumer attached to a queue, or a channel's getter of a
// queue. Its methods may be called from any goroutine and never block; what
// one goroutine does through it happens in that order.
type Subscription struct {
	// Session is the session's own: what it keeps with the subscription. A getter
	// has it until its queue is gone.
	Session any

	conn    *Conn
	handle  *queuehost.Handle
	queue   catalog.QueueID
	name    string
	channel uint16
	id      queue.ConsumerID // valid from state attached on
	order   uint64
	state   atomic.Uint32
	replyTo string
	replies *replyQueue
}

// The states of a Subscription.
const (
	attaching uint32 = iota // the queue has not answered yet
	attached
	ended // the wait was over, the queue refused, or it is detached
)

var subscriptionOrder atomic.Uint64

// Queue is the name of the queue.
func (s *Subscription) Queue() string { return s.name }

// ReplyTo is the name by which replies reach a direct reply-to consumer, and
// which publishes of its channel carry in place of the pseudo queue ReplyTo in
// their reply_to property; "" for any other subscription.
func (s *Subscription) ReplyTo() string { return s.replyTo }

// Settle ends the checkouts of the deliveries in ranges. Ids unknown or
// settled already are ignored. The slice is free after the call. What follows may
// be carried out at once on the caller's goroutine, as of Publisher.Flush.
func (s *Subscription) Settle(ranges []Range, how Settlement) {
	s.handle.SettleHere(s.id, ranges, how)
}

// Barrier settles seq of t when everything settled before is, and is on disk if
// the queue is durable.
func (s *Subscription) Barrier(t Ticket, seq uint64) { s.handle.Barrier(t, seq) }

// Grant lets n more deliveries come. With drain, what is left of the credit
// after the ready messages were delivered comes back as Consumer.Drained.
func (s *Subscription) Grant(n uint32, drain bool) { s.handle.Credit(s.id, n, drain) }

// Cancel stops deliveries; unacked messages stay with the channel, and Detach
// must still follow. done, if not nil, runs on a shard worker after the last
// delivery.
func (s *Subscription) Cancel(done func()) {
	if s.replies != nil {
		s.Detach(done)
		return
	}
	s.handle.Cancel(s.id, done)
}

// Detach ends the subscription: unacked messages go back to the queue. done,
// if not nil, runs after that, on any goroutine.
func (s *Subscription) Detach(done func()) {
	s.conn.forget(s)
	s.detach(done)
}

func (s *Subscription) detach(done func()) {
	was := s.state.Swap(ended)
	if s.replies != nil {
		s.conn.b.dropReplies(s.replies)
	}
	if was == attaching {
		// The queue has not answered yet; when it does, its callback sees the
		// state and detaches. It holds no messages until then.
		if done != nil {
			done()
		}
		return
	}
	s.handle.Detach(s.id, done)
}

// consumer is what a queue delivers to: the session's consumer, with the end
// of the subscription noticed on the way.
type consumer struct {
	Consumer
	s *Subscription
}

// Cancelled forgets the subscription and tells the session. One that has held messages for too long is forgotten when the session
// detaches it: it may hold others.
func (c *consumer) Cancelled(reason error) {
	if queuehost.IsDeliveryTimeout(reason) {
		if c.s.state.Load() == attached {
			c.Consumer.Cancelled(reason)
		}
		return
	}
	c.s.conn.forget(c.s)
	if c.s.state.Swap(ended) == attached {
		c.Consumer.Cancelled(reason)
	}
}

// WaitsForClient implements queuehost.Waiter.
func (c *consumer) WaitsForClient() bool {
	w, is := c.Consumer.(queuehost.Waiter)
	return !is || w.WaitsForClient()
}

// remember keeps a subscription with its channel, to be detached with it; false: the connection has ended.
func (c *Conn) remember(s *Subscription, getter bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	ch := c.channel(s.channel)
	if getter {
		if ch.getters == nil {
			ch.getters = make(map[catalog.QueueID]*Subscription)
		}
		ch.getters[s.queue] = s
		return true
	}
	if ch.subscriptions == nil {
		ch.subscriptions = make(map[*Subscription]struct{})
	}
	ch.subscriptions[s] = struct{}{}
	return true
}

func (c *Conn) forget(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.channels[s.channel]
	if ch == nil {
		return
	}
	delete(ch.subscriptions, s)
	if ch.getters[s.queue] == s {
		delete(ch.getters, s.queue)
	}
	if ch.reply != nil && ch.reply == s.replies {
		ch.reply = nil
	}
}

// Consume attaches a consumer to a queue. The pseudo queue ReplyTo opens the
// channel's direct reply-to consumer.
func (c *Conn) Consume(r Consume) (*Subscription, *amqperr.Error) {
	if r.Queue == ReplyTo {
		return c.consumeReplies(r)
	}
	name := r.Queue
	if err := c.mayRead(amqperr.Queue, name); err != nil {
		return nil, err
	}
	q, h, err := c.use(name)
	if err != nil {
		return nil, err
	}
	if err := c.b.checkConsumerArguments(q, r.Arguments); err != nil {
		return nil, err
	}
	if r.Exclusive && c.b.view().Effective(q).SingleActive {
		return nil, amqperr.ConsumeExclusive(c.vhost, q.Name) // where one is active anyway the others are to wait for it
	}
	return c.attach(r, q, h, nil)
}

// attach attaches a consumer to a queue that has been found and may be used.
func (c *Conn) attach(r Consume, q *catalog.Queue, h *queuehost.Handle, replies *replyQueue) (*Subscription, *amqperr.Error) {
	s := &Subscription{
		conn: c, handle: h, queue: q.ID, name: q.Name, channel: r.Channel,
		order: subscriptionOrder.Add(1), replies: replies,
	}
	if replies != nil {
		s.replyTo = replies.name
	}
	if !c.remember(s, false) {
		return nil, amqperr.Shutdown()
	}
	spec := queuehost.ConsumerSpec{
		Tag: r.Tag, Prefetch: r.Prefetch, NoAck: r.NoAck, Exclusive: r.Exclusive,
		Credit: r.Credit, Wake: r.Wake, Priority: consumerPriority(r.Arguments),
		Connection: c.ID(), Channel: r.Channel, Arguments: r.Arguments,
	}
	if spec.Prefetch == 0 && !spec.NoAck && h.Quorum() {
		spec.Prefetch = quorumPrefetch
	}
	_, err := await(c.b, func(done func(struct{}, error)) {
		h.Attach(spec, &consumer{r.Consumer, s}, func(id queue.ConsumerID, err error) {
			s.id = id
			switch {
			case err != nil:
				s.state.Store(ended)
			case !s.state.CompareAndSwap(attaching, attached):
				// The wait is over, or the channel was closed meanwhile.
				h.Detach(id, nil)
			case r.Started != nil:
				r.Started(s)
			}
			done(struct{}{}, err)
		})
	})
	if err == nil {
		return s, nil
	}
	if unanswered(err) && !s.state.CompareAndSwap(attaching, ended) {
		return s, nil // it came at the last moment
	}
	c.forget(s)
	return nil, c.b.clientError(err, "consume", amqperr.Queue, c.vhost, q.Name)
}

// Get fetches one message; ok is false if the queue has none ready.
func (c *Conn) Get(r Get) (ok bool, err *amqperr.Error) {
	if err := c.mayRead(amqperr.Queue, r.Queue); err != nil {
		return false, err
	}
	q, h, err := c.use(r.Queue)
	if err != nil {
		return false, err
	}
	if q.Type == catalog.Quorum && c.b.view().Effective(q).SingleActive {
		return false, amqperr.GetOfSingleActive(c.vhost, q.Name)
	}
	s, err := c.getter(&r, q, h)
	if err != nil {
		return false, err
	}
	ok, e := c.b.fetch(h, s.id, r.NoAck, func(d Delivery, left uint64) { r.Got(s, d, left) })
	return ok, c.b.clientError(e, "get", amqperr.Queue, c.vhost, q.Name)
}

// fetch gets one message for a getter. got runs on a shard worker with it, once
// at most; what comes when nobody waits any more goes back to the queue.
func (b *Broker) fetch(h *queuehost.Handle, id queue.ConsumerID, noAck bool, got func(d Delivery, left uint64)) (ok bool, err error) {
	var over atomic.Bool // the wait is over, or the message has come: whoever is first
	ok, err = await(b, func(done func(bool, error)) {
		h.Get(id, noAck, func(d Delivery, left uint64, ok bool, err error) {
			if ok && err == nil {
				if over.CompareAndSwap(false, true) {
					got(d, left)
				} else {
					giveBack(h, id, d)
				}
			}
			done(ok, err)
		})
	})
	if unanswered(err) && !over.CompareAndSwap(false, true) {
		return true, nil // it came at the last moment
	}
	return ok, err
}

// giveBack returns a message that came when nobody waited any more.
func giveBack(h *queuehost.Handle, id queue.ConsumerID, d Delivery) {
	if d.Load != nil {
		d.Load.Drop()
	}
	if d.ID != 0 {
		h.Settle(id, []Range{{First: d.ID, Last: d.ID}}, queuehost.Return)
	}
}

// getter returns the channel's getter of a queue.
func (c *Conn) getter(r *Get, q *catalog.Queue, h *queuehost.Handle) (*Subscription, *amqperr.Error) {
	channel := r.Channel
	c.mu.Lock()
	if ch := c.channels[channel]; ch != nil && ch.getters[q.ID] != nil {
		s := ch.getters[q.ID]
		c.mu.Unlock()
		return s, nil
	}
	c.mu.Unlock()
	s := &Subscription{
		conn: c, handle: h, queue: q.ID, name: q.Name, channel: channel,
		order: subscriptionOrder.Add(1),
	}
	s.state.Store(attached)
	s.id = h.Getter(queuehost.ConsumerSpec{Connection: c.ID(), Channel: channel}, &consumer{noConsumer{r.TimedOut}, s})
	if !c.remember(s, true) {
		h.Detach(s.id, nil)
		return nil, amqperr.Shutdown()
	}
	return s, nil
}

// noConsumer is the session's side of a getter: it gets nothing by itself.
type noConsumer struct{ timedOut func(reason *amqperr.Error) }

func (noConsumer) Deliver([]Delivery) {}

// Cancelled tells the session of messages that it held for too long; of the end of its queue it hears when it asks for more.
func (n noConsumer) Cancelled(reason error) {
	if err, is := reason.(*amqperr.Error); is && queuehost.IsDeliveryTimeout(err) && n.timedOut != nil {
		n.timedOut(err)
	}
}

func (noConsumer) Drained(uint32) {}
func (noConsumer) Wake()          {}
