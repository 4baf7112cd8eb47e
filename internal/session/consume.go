package session

import (
	"crypto/rand"
	"encoding/base64"
	"errors"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// holder holds deliveries of one queue for a channel: a consumer, or what keeps
// the messages of basic.get. It is the queue's Consumer.
type holder struct {
	ch    *channel
	tag   []byte // consumer tag; nil for a getter
	noAck bool
	reply bool // consumes direct replies

	sub    *broker.Subscription // set before the first delivery
	window queuehost.Window     // the writer's
	inTurn uint32               // the writer's: deliveries written since window was told
	lost   bool                 // the writer's: a message was lost, and that was logged

	// Guarded by the channel's flow lock.
	outstanding int    // deliveries not settled, those not yet written included
	unwritten   int    // of a consumer's, those not yet written
	counted     bool   // under the channel's common limit
	granted     int64  // credit granted under that limit and not yet used
	slow        bool   // under that limit, woken, and its window is full
	woken       bool   // the queue has a message for which the window left no credit
	kept        uint32 // grants kept back by maxUnacked
	leaving     bool   // cancelled by the client: detach when nothing is outstanding
	ended       bool   // gets no more deliveries
}

// Deliver puts messages into the outbox. It runs on a shard worker.
func (h *holder) Deliver(ds []broker.Delivery) {
	if !h.noAck {
		h.ch.flow.delivered(h, len(ds))
	}
	h.ch.conn.out.deliver(h, ds)
}

// Cancelled says that the queue has ended the consumer.
func (h *holder) Cancelled(reason error) {
	ch := h.ch
	overtime := queuehost.IsDeliveryTimeout(reason)
	ch.mu.Lock()
	mine := h.tag != nil && ch.consumers[string(h.tag)] == h
	if mine {
		delete(ch.consumers, string(h.tag))
	}
	ch.mu.Unlock()
	if !overtime {
		ch.flow.end(h)
	} else if !mine {
		return // the client has cancelled it
	}
	if mine && ch.conn.client.cancelNotify {
		ch.conn.out.method(ch, &wire.BasicCancel{ConsumerTag: string(h.tag), NoWait: true})
	}
	switch {
	case !overtime:
	case ch.conn.client.cancelNotify:
		ch.leave(h)
	default:
		ch.timedOut(reason)
	}
}

// timedOut closes the channel: its client has held deliveries for too long, and cannot be told otherwise. It runs on a shard worker.
func (ch *channel) timedOut(reason error) {
	var e *amqperr.Error
	errors.As(reason, &e)
	ch.conn.doom(ch, e)
}

// Drained takes back credit that the queue could not use.
func (h *holder) Drained(left uint32) { h.ch.flow.drained(h, left) }

// Wake says that a message waits for which the consumer has no credit.
func (h *holder) Wake() { h.ch.flow.wake(h) }

// WaitsForClient implements queuehost.Waiter.
func (h *holder) WaitsForClient() bool {
	f := &h.ch.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case h.noAck, h.ended, h.leaving: // of the first nobody counts what is unwritten
		return true
	case h.counted:
		limit := int64(f.limit)
		if limit == 0 {
			limit = maxUnacked
		}
		return f.used >= limit || h.unwritten > 0 || h.granted > 0
	}
	return h.unwritten > 0 || h.kept > 0 || f.outstanding >= maxUnacked
}

// consume carries out basic.consume, on a worker.
func (ch *channel) consume(m *wire.BasicConsume) *amqperr.Error {
	queue, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	tag := m.ConsumerTag
	if tag == "" {
		tag = newConsumerTag()
	}
	h := &holder{ch: ch, tag: []byte(tag), noAck: m.NoAck, reply: queue == broker.ReplyTo}
	h.window.Size = windowSize
	r := broker.Consume{
		Queue: queue, Tag: tag, Channel: ch.number, NoAck: m.NoAck, Exclusive: m.Exclusive,
		Credit: windowSize, Arguments: m.Arguments.Clone(), Consumer: h,
		Started: func(s *broker.Subscription) {
			h.sub = s
			if !m.NoWait {
				ch.conn.out.method(ch, &wire.BasicConsumeOk{ConsumerTag: tag})
			}
		},
	}
	ch.mu.Lock()
	if ch.consumers[tag] != nil {
		ch.mu.Unlock()
		return amqperr.ConsumerTagInUse(tag)
	}
	if most := ch.conn.server.settings.ConsumerMax; most > 0 && len(ch.consumers) >= int(most) {
		ch.mu.Unlock()
		return amqperr.TooManyConsumers(most)
	}
	if ch.consumers == nil {
		ch.consumers = make(map[string]*holder)
	}
	ch.consumers[tag] = h
	if !m.NoAck {
		r.Prefetch = ch.prefetch
		r.Wake = true
		ch.flow.mu.Lock()
		if h.counted = ch.flow.global; h.counted {
			r.Credit = 0
		}
		ch.flow.mu.Unlock()
	}
	ch.mu.Unlock()

	s, err := ch.conn.broker.Consume(r)
	if err != nil {
		ch.mu.Lock()
		if ch.consumers[tag] == h {
			delete(ch.consumers, tag)
		}
		ch.mu.Unlock()
		ch.flow.end(h)
		return err
	}
	if h.reply {
		ch.replyTo = s.ReplyTo()
	}
	return nil
}

// newConsumerTag makes a tag for a client that gave none.
func newConsumerTag() string {
	var bits [16]byte
	rand.Read(bits[:])
	return "amq.ctag-" + base64.RawURLEncoding.EncodeToString(bits[:])
}

// cancel carries out basic.cancel, on a worker. What the consumer has been
// given stays with the channel. A tag that is not there is answered too.
func (ch *channel) cancel(m *wire.BasicCancel) *amqperr.Error {
	ch.mu.Lock()
	h := ch.consumers[m.ConsumerTag]
	delete(ch.consumers, m.ConsumerTag)
	ch.mu.Unlock()
	if h != nil && h.sub != nil {
		last := make(chan struct{})
		h.sub.Cancel(func() { close(last) })
		ch.conn.await(last)
		if h.reply {
			ch.replyTo = ""
		}
		ch.leave(h)
	}
	return ch.answer(nil, m.NoWait, &wire.BasicCancelOk{ConsumerTag: m.ConsumerTag})
}

// leave lets go of a cancelled consumer as soon as nothing of it is outstanding.
func (ch *channel) leave(h *holder) {
	f := &ch.flow
	f.mu.Lock()
	h.leaving = true
	empty := h.outstanding == 0
	if h.counted && !h.ended {
		// What it still holds goes on counting until it is settled.
		f.used -= h.granted
		h.granted = 0
	}
	f.mu.Unlock()
	f.serve()
	if empty {
		f.end(h)
		h.sub.Detach(nil)
	}
}

// get carries out basic.get, on a worker.
func (ch *channel) get(m *wire.BasicGet) *amqperr.Error {
	queue, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if !m.NoAck && ch.flow.tooMany() {
		return amqperr.Overloaded("too many deliveries on this channel are not acknowledged")
	}
	tagged := make(chan struct{})
	ok, err := ch.conn.broker.Get(broker.Get{
		Queue: queue, Channel: ch.number, NoAck: m.NoAck,
		TimedOut: func(reason *amqperr.Error) { ch.conn.doom(ch, reason) },
		Got: func(s *broker.Subscription, d broker.Delivery, left uint64) {
			h := ch.getter(s)
			if m.NoAck {
				h = &holder{ch: ch, noAck: true, sub: s}
			} else {
				ch.flow.delivered(h, 1)
			}
			ch.conn.out.got(h, d, count32(left), tagged)
		},
	})
	if err != nil {
		return err
	}
	if ok {
		// A client that is in a hurry may have sent its ack already.
		select {
		case <-tagged:
		case <-ch.conn.stop:
		}
		return nil
	}
	ch.conn.out.method(ch, &wire.BasicGetEmpty{})
	return nil
}

// getter returns what holds the messages that basic.get fetched from a queue.
func (ch *channel) getter(s *broker.Subscription) *holder {
	if s.Session == nil {
		s.Session = &holder{ch: ch, sub: s}
	}
	return s.Session.(*holder)
}

// rejection is what basic.reject means.
func rejection(requeue bool) broker.Settlement {
	if requeue {
		return broker.Requeue
	}
	return broker.Discard
}

// refusal is what basic.nack means: it is no failure.
func refusal(requeue bool) broker.Settlement {
	if requeue {
		return broker.Return
	}
	return broker.Decline
}

// settle carries out an acknowledgement: of one delivery, or of all up to a tag;
// tag 0 then means all there are.
func (ch *channel) settle(tag uint64, multiple bool, how broker.Settlement) *amqperr.Error {
	f := &ch.flow
	f.mu.Lock()
	defer f.mu.Unlock()
	if !multiple {
		c, ok := f.unacked.take(tag)
		if !ok {
			return amqperr.UnknownDeliveryTag(tag)
		}
		ch.settleOne(tag, c, how)
		return nil
	}
	if tag == 0 {
		tag = ^uint64(0)
	} else if !f.unacked.has(tag) {
		return amqperr.UnknownDeliveryTag(tag)
	}
	f.unacked.takeUpTo(tag, func(tag uint64, c checkout) { ch.settleOne(tag, c, how) })
	return nil
}

// settleOne collects one settled delivery. The flow lock is held.
func (ch *channel) settleOne(tag uint64, c checkout, how broker.Settlement) {
	if ch.tx != nil {
		ch.tx.ack(txAck{tag, c, how})
		return
	}
	ch.touch()
	ch.settling.add(c, how)
	ch.flow.settledLocked(c.holder)
}

// recover returns everything that is outstanding to its queues.
func (ch *channel) recover(requeue, answer bool) *amqperr.Error {
	if !requeue {
		return amqperr.Unsupported("requeue=false")
	}
	ch.requeueAll(&ch.settling)
	ch.flush()
	if answer {
		ch.conn.out.methodOn(itemRecovered, ch, ch.number, &wire.BasicRecoverOk{})
	} else {
		ch.conn.out.recovered(ch)
	}
	return nil
}

// requeueAll collects the requeue of everything that is outstanding.
func (ch *channel) requeueAll(s *settling) {
	f := &ch.flow
	f.mu.Lock()
	f.unacked.takeUpTo(^uint64(0), func(_ uint64, c checkout) {
		s.add(c, broker.Return)
		f.settledLocked(c.holder)
	})
	f.mu.Unlock()
}

// giveUp settles a delivery that cannot be written. It runs on the writer.
func (ch *channel) giveUp(c checkout) {
	ch.flow.settled(c.holder)
	c.holder.sub.Settle([]broker.Range{{First: c.id, Last: c.id}}, broker.Discard)
	ch.flow.serve()
}

// giveUpLast does that for the delivery of which a part was written.
func (ch *channel) giveUpLast() {
	ch.flow.mu.Lock()
	c, ok := ch.flow.unacked.take(ch.tag)
	ch.flow.mu.Unlock()
	if ok {
		ch.giveUp(c)
	}
}

// requeueWritten returns what the client was sent between its basic.recover and
// the answer: it takes all that comes before the answer for returned. It runs
// on the writer.
func (ch *channel) requeueWritten() {
	var s settling
	ch.requeueAll(&s)
	if len(s.parts) > 0 {
		s.flush()
		ch.flow.serve()
	}
}
