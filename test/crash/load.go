package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// largest is the one large message of some rounds: the broker's limit.
const largest = 16 << 20

// body is the content that goes with an id and a size.
func body(id string, size int) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	x := h.Sum64() | 1
	b := make([]byte, size+8)
	for i := 0; i < size; i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	return b[:size]
}

// checkBody finds fault with a delivered body.
func (j *journal) checkBody(m *message, got []byte) {
	if m != nil && string(got) != string(body(m.id, m.size)) {
		j.mu.Lock()
		j.fault("the body is not what was sent (%d bytes came): %v", len(got), m)
		j.mu.Unlock()
	}
}

// randomSize is 0 to 1 MiB, small ones far more often.
func randomSize(r *rand.Rand) int {
	if r.IntN(10) == 0 {
		return 0
	}
	u := r.Float64()
	return int(math.Pow(2, u*u*20))
}

// load is the work on one queue until the broker dies.
type load struct {
	url     string
	journal *journal
	round   int
	wait    sync.WaitGroup
	stop    chan struct{} // closed when the broker was killed
}

// stopped says whether the broker is gone.
func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// channel opens a connection with one channel; it is closed with the load.
func (l *load) channel() (*amqp.Channel, error) {
	c, err := amqp.Dial(l.url)
	if err != nil {
		return nil, err
	}
	l.wait.Go(func() { <-l.stop; _ = c.Close() })
	return c.Channel()
}

// trouble reports an error that is not the broker's death.
func (l *load) trouble(who string, err error) {
	if l.stopped() {
		return
	}
	select { // the kill may be a moment ahead of the word of it
	case <-l.stop:
		return
	case <-time.After(15 * time.Second):
	}
	l.journal.mu.Lock()
	defer l.journal.mu.Unlock()
	if !l.journal.deleting {
		l.journal.fault("%s: %v", who, err)
	}
}

// start begins publishing and consuming.
func (l *load) start(r *rand.Rand, withLargest bool) {
	for p := range 2 {
		seed := rand.New(rand.NewPCG(r.Uint64(), 0))
		large := withLargest && p == 0
		l.wait.Go(func() { l.publish(fmt.Sprintf("r%d.%d", l.round, p), seed, large) })
	}
	for range 2 {
		seed := rand.New(rand.NewPCG(r.Uint64(), 0))
		l.wait.Go(func() { l.consume(seed) })
	}
}

// publish sends messages, a bounded number of bytes of them unconfirmed.
func (l *load) publish(publisher string, r *rand.Rand, large bool) {
	ch, err := l.channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		l.trouble("publisher", err)
		return
	}
	const window = 100
	type sent struct {
		m *message
		d *amqp.DeferredConfirmation
	}
	inFlight := make(chan sent, window)
	l.wait.Go(func() {
		for s := range inFlight {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			acked, err := s.d.WaitContext(ctx)
			cancel()
			if err != nil {
				l.trouble("waiting a minute for a confirm of "+s.m.id, err)
			}
			if acked {
				l.journal.confirm(s.m)
			}
		}
	})
	defer close(inFlight)
	budget := 24 << 20 // bytes a round
	for seq := 1; !l.stopped() && budget > 0; seq++ {
		size := randomSize(r)
		if large && seq == 10 {
			size = largest
		}
		budget -= size + 1000
		m := l.journal.sent(publisher, seq, size, r.IntN(5) > 0)
		mode := amqp.Transient
		if m.persistent {
			mode = amqp.Persistent
		}
		d, err := ch.PublishWithDeferredConfirm("", l.journal.queue, false, false,
			amqp.Publishing{DeliveryMode: mode, MessageId: m.id, Body: body(m.id, size)})
		if err != nil {
			l.trouble("publish", err)
			return
		}
		inFlight <- sent{m, d}
		if r.IntN(20) == 0 {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	}
}

// consume takes messages, holds some, and settles them in any order and any way.
func (l *load) consume(r *rand.Rand) {
	ch, err := l.channel()
	if err == nil {
		err = ch.Qos(1+r.IntN(60), 0, false)
	}
	var in <-chan amqp.Delivery
	if err == nil {
		in, err = ch.Consume(l.journal.queue, "", false, false, false, false, nil)
	}
	if err != nil {
		l.trouble("consumer", err)
		return
	}
	type holding struct {
		m *message
		d amqp.Delivery
	}
	var held []holding
	last := map[string]int{}
	most := 1 + r.IntN(30)
	for {
		select {
		case d, open := <-in:
			if !open {
				l.trouble("consumer", fmt.Errorf("cancelled or closed"))
				return
			}
			m := l.journal.delivered(d.MessageId, d.Redelivered, last)
			l.journal.checkBody(m, d.Body)
			if m != nil {
				held = append(held, holding{m, d})
			}
		case <-time.After(20 * time.Millisecond):
		case <-l.stop:
			return
		}
		for len(held) > 0 && (len(held) >= most || r.IntN(4) == 0) {
			i := r.IntN(len(held))
			h := held[i]
			held[i] = held[len(held)-1]
			held = held[:len(held)-1]
			switch r.IntN(12) {
			case 0, 1:
				l.journal.returned(h.m, "nacked, requeue")
				err = h.d.Nack(false, true)
			case 2:
				l.journal.settle(h.m, "rejected")
				err = h.d.Reject(false)
			case 3: // held till the end
			default:
				l.journal.settle(h.m, "acked")
				err = h.d.Ack(false)
			}
			if err != nil {
				l.trouble("settle", err)
				return
			}
		}
	}
}

// purge empties the queue once, at some time.
func (l *load) purge(after time.Duration) {
	ch, err := l.channel()
	if err != nil {
		l.trouble("purger", err)
		return
	}
	select {
	case <-l.stop:
		return
	case <-time.After(after):
	}
	all := l.journal.before()
	if _, err := ch.QueuePurge(l.journal.queue, false); err != nil {
		l.journal.unanswered("purged")
		l.trouble("purge", err)
		return
	}
	l.journal.ended(all, "purged", true)
}

// remove deletes the queue and declares it anew.
func (l *load) remove(after time.Duration) {
	ch, err := l.channel()
	if err != nil {
		l.trouble("deleter", err)
		return
	}
	select {
	case <-l.stop:
		return
	case <-time.After(after):
	}
	l.journal.mu.Lock()
	l.journal.deleting = true
	l.journal.mu.Unlock()
	all := l.journal.before()
	if _, err := ch.QueueDelete(l.journal.queue, false, false, false); err != nil {
		l.journal.unanswered("deleted")
		l.trouble("delete", err)
		return
	}
	if _, err := ch.QueueDeclare(l.journal.queue, true, false, false, false, nil); err != nil {
		l.journal.unanswered("deleted and declared anew")
		l.trouble("declare", err)
		return
	}
	l.journal.ended(all, "deleted with its queue", false)
}
