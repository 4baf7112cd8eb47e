package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// carried is what is published to queues that the broker takes it out of by itself: messages that expire there, that are too many for
// their queue, or that wait for their time in an exchange. Whatever was confirmed has to come out of the queue that all of it is carried to, once at
// least, however often the broker dies in between.
type carried struct {
	mu        sync.Mutex
	sent      map[string]bool
	confirmed map[string]bool
	came      map[string]bool
	faults    []string
}

// carriedTo is the queue where all of it comes out.
const carriedTo = "carried"

// ways are how it comes there: the exchange and key to publish to, and what is to be said of a publish.
var ways = []struct {
	exchange, key string
	args          amqp.Table // of the queue that the key names, beside where its dead letters go; nil: there is none
	headers       amqp.Table
}{
	{key: "expiring", args: amqp.Table{"x-message-ttl": 300}},
	{key: "short", args: amqp.Table{"x-max-length": 3, "x-message-ttl": 1000}},
	{exchange: "delayed", headers: amqp.Table{"x-delay": 400}},
}

func newCarried() *carried {
	return &carried{sent: map[string]bool{}, confirmed: map[string]bool{}, came: map[string]bool{}}
}

// declare makes the queues and the exchange.
func (c *carried) declare(url string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(carriedTo, true, false, false, false, nil); err != nil {
		return err
	}
	for _, w := range ways {
		if w.args == nil {
			if err := ch.ExchangeDeclare(w.exchange, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}); err != nil {
				return err
			}
			if err := ch.QueueBind(carriedTo, "", w.exchange, false, nil); err != nil {
				return err
			}
			continue
		}
		args := maps.Clone(w.args)
		args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", carriedTo
		if _, err := ch.QueueDeclare(w.key, true, false, false, false, args); err != nil {
			return err
		}
	}
	return nil
}

// start publishes and consumes until the broker is gone.
func (c *carried) start(l *load) {
	for i := range ways {
		l.wait.Go(func() { c.publish(l, i) })
	}
	l.wait.Go(func() { c.consume(l) })
}

func (c *carried) publish(l *load, way int) {
	ch, err := l.channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		l.trouble("publisher of what is carried", err)
		return
	}
	w := ways[way]
	for seq := 0; !l.stopped(); seq++ {
		id := fmt.Sprintf("%s%s.%d.%d", w.exchange, w.key, l.round, seq)
		c.note(c.sent, id)
		d, err := ch.PublishWithDeferredConfirm(w.exchange, w.key, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: id, Headers: w.headers, Body: body(id, len(id)*37)})
		if err != nil {
			l.trouble("publish of what is carried", err)
			return
		}
		if seq%20 > 0 {
			continue // one confirm tells of those before it, too, but is asked for only now and then
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		acked, err := d.WaitContext(ctx)
		cancel()
		if err != nil {
			l.trouble("waiting a minute for a confirm of "+id, err)
			return
		}
		if acked {
			c.note(c.confirmed, id)
		}
	}
}

func (c *carried) consume(l *load) {
	ch, err := l.channel()
	if err == nil {
		err = ch.Qos(50, 0, false)
	}
	var in <-chan amqp.Delivery
	if err == nil {
		in, err = ch.Consume(carriedTo, "", false, false, false, false, nil)
	}
	if err != nil {
		l.trouble("consumer of what is carried", err)
		return
	}
	for d := range in {
		c.delivered(d)
		if err := d.Ack(false); err != nil {
			break
		}
	}
	l.trouble("consumer of what is carried", fmt.Errorf("cancelled or closed"))
}

func (c *carried) note(set map[string]bool, id string) {
	c.mu.Lock()
	set[id] = true
	c.mu.Unlock()
}

func (c *carried) delivered(d amqp.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch id := d.MessageId; {
	case !c.sent[id]:
		c.faults = append(c.faults, fmt.Sprintf("%q was carried, which nobody has published", id))
	case string(d.Body) != string(body(id, len(id)*37)):
		c.faults = append(c.faults, fmt.Sprintf("%q was carried with another body, of %d bytes", id, len(d.Body)))
	default:
		c.came[id] = true
	}
}

// missing returns what was confirmed and has not come.
func (c *carried) missing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ids []string
	for id := range c.confirmed {
		if !c.came[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// await consumes until all that was confirmed has come, or nothing comes any more for long.
func (c *carried) await(url string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	in, err := ch.Consume(carriedTo, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	for ids := c.missing(); len(ids) > 0; ids = c.missing() {
		select {
		case d, open := <-in:
			if !open {
				return fmt.Errorf("the consumer of what is carried has ended")
			}
			c.delivered(d)
		case <-time.After(45 * time.Second): // longer than the longest pause between two tries of a letter
			c.faults = append(c.faults, fmt.Sprintf("%d confirmed messages were not carried to where they were to go: %v", len(ids), ids[:min(len(ids), 5)]))
			return nil
		}
	}
	return nil
}
