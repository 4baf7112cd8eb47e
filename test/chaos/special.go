package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// mostDelay is for how long a message waits in an exchange, at most.
const mostDelay = 4 * time.Second

// special declares queues that do more than keep messages, begins to publish to them and to consume from where that comes out, and
// returns their names: those of quorum queues begin with "quorum".
func (c *clients) special(cluster *rig.Cluster, seed func() *rand.Rand) (queues []string, err error) {
	letters := func(args amqp.Table, to string) amqp.Table {
		args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", to
		return args
	}
	const (
		deadQuorum, deadClassic = "quorum-dead", "classic-dead"
		due                     = "quorum-due"
		back, aside             = "quorum-back", "classic-aside"
	)
	declared := []struct {
		name string
		args amqp.Table
		out  string // where what is published to it comes out; "" for those that nobody publishes to by their name
		rule rule   // of that
	}{
		{name: deadQuorum},
		{name: deadClassic},
		{name: due},
		{name: aside},
		{name: "quorum-screened"},
		{name: "classic-screened"},
		{"quorum-expiring", letters(amqp.Table{"x-message-ttl": 700}, deadClassic), deadClassic, rule{carried: true}},
		{"classic-expiring", letters(amqp.Table{"x-message-ttl": 700}, deadQuorum), deadQuorum, rule{carried: true}},
		{"quorum-rejected", letters(amqp.Table{}, deadQuorum), deadQuorum, rule{carried: true}},
		{"quorum-tried", letters(amqp.Table{"x-delivery-limit": 2}, deadClassic), deadClassic, rule{carried: true}},
		{"quorum-short", letters(amqp.Table{"x-max-length": 5, "x-message-ttl": 2000}, deadQuorum), deadQuorum, rule{carried: true}},
		{"quorum-later", amqp.Table{"x-delivery-delay": 1500}, "quorum-later", rule{}},
		{"classic-later", amqp.Table{"x-delivery-delay": 1500}, "classic-later", rule{}},
		{"quorum-once", amqp.Table{"x-message-deduplication": true, "x-deduplication-window": 3600000}, "quorum-once", rule{once: true}},
		{"quorum-alone", amqp.Table{"x-message-deduplication": true}, "quorum-alone", rule{alone: true}},
		{"quorum-full", amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"}, "quorum-full", rule{}},
		{"classic-full", amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"}, "classic-full", rule{}},
		{back, letters(amqp.Table{}, aside), back, rule{carried: true}},
	}
	var at [3]*amqp.Channel
	for i, n := range cluster.Nodes {
		conn, err := amqp.Dial(n.URL())
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if at[i], err = conn.Channel(); err != nil {
			return nil, err
		}
	}
	c.j.rule(due, rule{carried: true})
	for i, d := range declared {
		args, ch := amqp.Table{}, at[1] // a node without classic queues can be replaced
		for k, v := range d.args {
			args[k] = v
		}
		if strings.HasPrefix(d.name, "quorum") {
			args["x-queue-type"], ch = "quorum", at[i%3]
		}
		if _, err := ch.QueueDeclare(d.name, true, false, false, false, args); err != nil {
			return nil, fmt.Errorf("declaring %s: %w", d.name, err)
		}
		queues = append(queues, d.name)
		if d.out != "" {
			c.j.rule(d.out, d.rule)
			to := place{key: d.name, queues: []string{d.out}}
			switch {
			case strings.HasSuffix(d.name, "-later"):
				to.say = func(p *publish, _ string, _ *amqp.Publishing, _ *rand.Rand) { p.delay = 1500 * time.Millisecond }
			case d.rule.once, d.rule.alone:
				to.say = sayKey
			}
			s := seed()
			c.publish.Go(func() { c.publisher("p."+d.name, to, i%3, s) })
		}
		s := seed()
		switch d.name {
		case "quorum-rejected", "quorum-tried":
			c.consume.Go(func() { c.refuser("r."+d.name, d.name, i%3, d.name == "quorum-tried") })
		case back:
			c.consume.Go(func() { c.returner("r."+back, back, i%3) })
		case "quorum-full", "classic-full": // who gets one at a time is slower than their publishers
			c.consume.Go(func() { c.getter("g."+d.name, d.name, (i+1)%3, s) })
		case "quorum-screened", "classic-screened":
			c.consume.Go(func() { c.consumer("c."+d.name, d.name, (i+1)%3, s) })
		case aside:
			c.consume.Go(func() { c.redriver(cluster, aside) })
		default:
			if d.out == "" || d.out == d.name {
				c.consume.Go(func() { c.consumer("c."+d.name, d.name, (i+1)%3, s) })
			}
		}
	}
	if err := c.screened(at[2], seed()); err != nil {
		return nil, err
	}
	err = at[0].ExchangeDeclare("delayed", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"})
	if err == nil {
		err = at[0].QueueBind(due, "", "delayed", false, nil)
	}
	if err != nil {
		return nil, err
	}
	s := seed()
	c.publish.Go(func() {
		c.publisher("p.delayed", place{exchange: "delayed", queues: []string{due}, say: func(p *publish, _ string, body *amqp.Publishing, r *rand.Rand) {
			ms := r.IntN(int(mostDelay.Milliseconds()))
			p.delay = time.Duration(ms) * time.Millisecond
			body.Headers = amqp.Table{"x-delay": ms}
		}}, 2, s)
	})
	return queues, nil
}

// sayKey gives a message and its repeats one key.
func sayKey(_ *publish, first string, body *amqp.Publishing, _ *rand.Rand) {
	body.Headers = amqp.Table{"x-deduplication-header": first}
}

// screened begins to publish to an exchange that lets nothing through twice, to a queue of each type.
func (c *clients) screened(ch *amqp.Channel, r *rand.Rand) error {
	queues := []string{"quorum-screened", "classic-screened"}
	err := ch.ExchangeDeclare("screen", "x-message-deduplication", true, false, false, false, amqp.Table{"x-cache-size": 100_000, "x-cache-ttl": 3600000})
	for _, q := range queues {
		c.j.rule(q, rule{once: true})
		if err == nil {
			err = ch.QueueBind(q, "", "screen", false, nil)
		}
	}
	if err == nil {
		c.publish.Go(func() { c.publisher("p.screen", place{exchange: "screen", queues: queues, say: sayKey}, 0, r) })
	}
	return err
}

// refuser rejects all that comes, for good or to be tried again.
func (c *clients) refuser(name, queue string, at int, again bool) {
	c.each(name, queue, at, func(_ *reader, d amqp.Delivery) error {
		c.j.count("refused by their consumer")
		return d.Reject(again)
	})
}

// returner rejects what has not died yet, and takes what was sent back to it.
func (c *clients) returner(name, queue string, at int) {
	c.each(name, queue, at, func(rd *reader, d amqp.Delivery) error {
		if _, died := d.Headers["x-death"]; !died {
			c.j.count("refused by their consumer")
			return d.Reject(false)
		}
		c.j.count("sent back to where they died")
		c.j.delivered(rd, d.MessageId, d.Body, d.Redelivered, deliveryCount(d.Headers))
		c.j.settled(rd, d.MessageId, "acknowledged")
		return d.Ack(false)
	})
}

// redriver sends dead letters back every now and then, by one node after the other.
func (c *clients) redriver(cluster *rig.Cluster, queue string) {
	for k := 0; c.stop.Err() == nil; k++ {
		pause(c.stop, 2*time.Second)
		if out, err := cluster.Nodes[k%3].Ctl("redrive", queue); err != nil {
			c.j.act("redrive by %s: %v %s", cluster.Nodes[k%3].Name, err, strings.TrimSpace(out))
		}
	}
}

// each does something with each message that comes, over one connection after the other.
func (c *clients) each(name, queue string, at int, do func(rd *reader, d amqp.Delivery) error) {
	for c.stop.Err() == nil {
		conn, _, err := c.connect(c.stop, at)
		if err != nil {
			return
		}
		var in <-chan amqp.Delivery
		rd := c.j.newReader(name, queue)
		err = c.bounded(name+" subscribing", conn, func() error {
			ch, err := conn.Channel()
			if err == nil {
				err = ch.Qos(20, 0, false)
			}
			if err == nil {
				in, err = ch.ConsumeWithContext(c.stop, queue, "", false, false, false, false, nil)
			}
			return err
		})
		for err == nil {
			d, open := <-in
			if !open {
				break
			}
			err = do(rd, d)
		}
		_ = conn.Close()
		pause(c.stop, 200*time.Millisecond)
	}
}

// quorumOf returns the quorum queues among the special ones.
func quorumOf(special []string) (names []string) {
	for _, name := range special {
		if strings.HasPrefix(name, "quorum") {
			names = append(names, name)
		}
	}
	return names
}
