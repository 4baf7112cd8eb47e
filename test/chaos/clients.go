package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

const (
	answerBound = 60 * time.Second // for anything a client asks for: far over what the broker allows itself, as processes stand still now and then
	// publishBound is for the answer to a publish, not counting the time its node stood still: 15 s and what a busy machine adds.
	publishBound = 22 * time.Second
	window       = 20              // publishes of a channel without an answer
	bigSize      = 16 << 20        // of a big message: as large as they may be
	bigGap       = 8 * time.Second // between two big ones of a publisher
)

// clients are all publishers and consumers.
type clients struct {
	j       *journal
	nodes   []*rig.Node
	gap     time.Duration // between two publishes of a publisher
	publish sync.WaitGroup
	consume sync.WaitGroup
	// quiet ends publishing, stop consuming too.
	quiet, stop context.Context
	mu          sync.Mutex
	live        map[string]*reader // consumers that are subscribed, by name
	seen        map[string]int     // deliveries by consumer
	outstanding map[string]int     // by publisher: messages that are not confirmed yet
}

// connect opens a connection to a node, or to the next one that takes it.
func (c *clients) connect(ctx context.Context, at int) (*amqp.Connection, int, error) {
	for k := 0; ctx.Err() == nil; k++ {
		i := (at + k) % len(c.nodes)
		conn, err := amqp.DialConfig(c.nodes[i].URL(), amqp.Config{Heartbeat: 10 * time.Second, Locale: "en_US", Dial: amqp.DefaultDial(5 * time.Second)})
		if err == nil {
			c.j.count("connections")
			return conn, i, nil
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil, 0, ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// bounded runs something that asks the broker, and finds fault if there is no answer.
func (c *clients) bounded(who string, conn *amqp.Connection, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(answerBound):
		c.j.fault("%s has no answer after %v", who, answerBound)
		conn.Close()
		return errors.New("no answer")
	}
}

// place is where a publisher publishes to.
type place struct {
	exchange, key string
	queues        []string                                                            // where it comes out
	say           func(p *publish, first string, body *amqp.Publishing, r *rand.Rand) // what else there is to say of a publish; nil: nothing
}

// publisher publishes to a place, over one connection after the other, until it is told to be quiet and everything is
// confirmed. What is nacked, or lost with a connection, it publishes again.
func (c *clients) publisher(name string, to place, at int, r *rand.Rand) {
	type message struct {
		number  int
		first   string // its first publish
		attempt int
	}
	var again []message
	next := 0
	left := func() int { return len(again) }
	for life := 0; ; life++ {
		if c.quiet.Err() != nil && left() == 0 || c.stop.Err() != nil {
			c.note(name, left())
			return
		}
		conn, on, err := c.connect(c.stop, at)
		if err != nil {
			c.note(name, left())
			return
		}
		at = on
		var ch *amqp.Channel
		err = c.bounded(name+" opening a channel", conn, func() (err error) {
			if ch, err = conn.Channel(); err == nil {
				err = ch.Confirm(false)
			}
			return err
		})
		if err != nil {
			conn.Close()
			pause(c.stop, 100*time.Millisecond)
			continue
		}
		channel := fmt.Sprintf("%s.%d", name, life)
		answers := ch.NotifyPublish(make(chan amqp.Confirmation, 4*window))
		type sent struct {
			m message
			p *publish
		}
		flight := map[uint64]sent{}
		seq := 0
		gap, window := c.gap, window
		if strings.HasPrefix(name, big) {
			gap, window = bigGap, 1 // the next one would wait for it
		}
		tick := time.NewTimer(time.Duration(r.Float64() * float64(gap)))
		bound := time.NewTicker(time.Second)
	life:
		for {
			select {
			case a, open := <-answers:
				if !open {
					break life
				}
				s := flight[a.DeliveryTag]
				delete(flight, a.DeliveryTag)
				if s.p == nil {
					c.j.fault("%s got a confirm for tag %d, which is not open", channel, a.DeliveryTag)
					continue
				}
				if a.Ack {
					c.j.answer(s.p, acked)
				} else {
					c.j.answer(s.p, nacked)
					again = append(again, s.m)
				}
			case <-tick.C:
				tick.Reset(time.Duration((0.5 + r.Float64()) * float64(gap)))
				quiet := c.quiet.Err() != nil
				if len(flight) >= window || quiet && len(again) == 0 {
					if quiet && len(flight) == 0 {
						break life
					}
					continue
				}
				m := message{number: next}
				if len(again) > 0 {
					m, again = again[0], again[1:]
				} else {
					next++
				}
				seq++
				p := &publish{id: fmt.Sprintf("%s/%d/m%d", channel, seq, m.number), channel: channel, seq: seq, queues: to.queues, repeats: m.first, node: c.nodes[on].Name}
				if m.first == "" {
					m.first = p.id
				}
				m.attempt++
				body := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: p.id, Body: []byte(content(p.id))}
				if to.say != nil {
					to.say(p, m.first, &body, r)
				}
				c.j.sent(p)
				flight[uint64(seq)] = sent{m, p}
				err := ch.PublishWithContext(c.stop, to.exchange, to.key, false, false, body)
				if err != nil {
					break life
				}
			case <-bound.C:
				for _, s := range flight {
					if c.j.now()-s.p.at > answerBound {
						c.j.fault("publish %s has no answer after %v, on %s", s.p.id, answerBound, c.nodes[on].Name)
						break life
					}
				}
			case <-c.stop.Done():
				break life
			}
		}
		tick.Stop()
		bound.Stop()
		_ = conn.Close()
		for a := range answers { // what had come already
			if s := flight[a.DeliveryTag]; s.p != nil {
				delete(flight, a.DeliveryTag)
				if a.Ack {
					c.j.answer(s.p, acked)
				} else {
					c.j.answer(s.p, nacked)
					again = append(again, s.m)
				}
			}
		}
		for tag := uint64(1); tag <= uint64(seq); tag++ {
			if s := flight[tag]; s.p != nil {
				c.j.answer(s.p, lost)
				again = append(again, s.m)
			}
		}
	}
}

func (c *clients) note(publisher string, left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outstanding[publisher] = left
}

// consumer consumes from a queue, over one connection after the other.
func (c *clients) consumer(name, queue string, at int, r *rand.Rand) {
	for life := 0; c.stop.Err() == nil; life++ {
		conn, _, err := c.connect(c.stop, at)
		if err != nil {
			return
		}
		who := fmt.Sprintf("%s.%d", name, life)
		c.consumeOn(conn, name, who, queue, r)
		_ = conn.Close()
		pause(c.stop, 200*time.Millisecond)
	}
}

// consumeOn consumes until something ends it.
func (c *clients) consumeOn(conn *amqp.Connection, name, who, queue string, r *rand.Rand) {
	rd := c.j.newReader(who, queue)
	var ch *amqp.Channel
	var in <-chan amqp.Delivery
	err := c.bounded(who+" subscribing", conn, func() (err error) {
		if ch, err = conn.Channel(); err == nil {
			err = ch.Qos(1+r.IntN(30), 0, false)
		}
		if err == nil {
			in, err = ch.Consume(queue, "", false, false, false, false, nil)
		}
		return err
	})
	if err != nil {
		return
	}
	c.subscribed(name, rd)
	defer c.subscribed(name, nil)
	life := time.NewTimer(time.Duration(20+r.IntN(200)) * time.Second) // it goes by itself now and then
	defer life.Stop()
	for {
		select {
		case d, open := <-in:
			if !open {
				return
			}
			c.j.delivered(rd, d.MessageId, d.Body, d.Redelivered, deliveryCount(d.Headers))
			c.sawOne(name)
			if r.IntN(50) == 0 {
				pause(c.stop, time.Duration(r.IntN(300))*time.Millisecond)
			}
			if err := c.settle(rd, d, r); err != nil {
				return
			}
		case <-life.C:
			if c.quiet.Err() == nil {
				c.j.count("consumers left by themselves")
				return
			}
		case <-c.stop.Done():
			return
		}
	}
}

// settle acknowledges a message, or gives it back.
func (c *clients) settle(rd *reader, d amqp.Delivery, r *rand.Rand) error {
	if r.IntN(30) == 0 && c.quiet.Err() == nil {
		c.j.settled(rd, d.MessageId, "nacked")
		return d.Nack(false, true)
	}
	c.j.settled(rd, d.MessageId, "acknowledged")
	return d.Ack(false)
}

func deliveryCount(h amqp.Table) int64 {
	switch n := h["x-delivery-count"].(type) {
	case int64:
		return n
	case int32:
		return int64(n)
	}
	return -1
}

func (c *clients) subscribed(name string, rd *reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[name] = rd
}

func (c *clients) sawOne(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[name]++
}

// getter gets messages one by one.
func (c *clients) getter(name, queue string, at int, r *rand.Rand) {
	for life := 0; c.stop.Err() == nil; life++ {
		conn, _, err := c.connect(c.stop, at)
		if err != nil {
			return
		}
		rd := c.j.newReader(fmt.Sprintf("%s.%d", name, life), queue)
		var ch *amqp.Channel
		err = c.bounded(rd.name+" opening a channel", conn, func() (err error) { ch, err = conn.Channel(); return err })
		for err == nil && c.stop.Err() == nil {
			var d amqp.Delivery
			var there bool
			rd.began = c.j.now()
			err = c.bounded(rd.name+" getting", conn, func() (err error) { d, there, err = ch.Get(queue, false); return err })
			if err != nil {
				break
			}
			if there {
				c.j.delivered(rd, d.MessageId, d.Body, d.Redelivered, deliveryCount(d.Headers))
				c.j.count("got")
				err = c.settle(rd, d, r)
			}
			pause(c.stop, time.Duration(300+r.IntN(700))*time.Millisecond)
		}
		_ = conn.Close()
		pause(c.stop, 200*time.Millisecond)
	}
}
