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
	)
	declared := []struct {
		name string
		args amqp.Table
		out  string // where what is published to it comes out; "" for those that nobody publishes to
		rule rule   // of that
	}{
		{name: deadQuorum},
		{name: deadClassic},
		{name: due},
		{"quorum-expiring", letters(amqp.Table{"x-message-ttl": 700}, deadClassic), deadClassic, rule{carried: true}},
		{"classic-expiring", letters(amqp.Table{"x-message-ttl": 700}, deadQuorum), deadQuorum, rule{carried: true}},
		{"quorum-rejected", letters(amqp.Table{}, deadQuorum), deadQuorum, rule{carried: true}},
		{"quorum-tried", letters(amqp.Table{"x-delivery-limit": 2}, deadClassic), deadClassic, rule{carried: true}},
		{"quorum-short", letters(amqp.Table{"x-max-length": 5, "x-message-ttl": 2000}, deadQuorum), deadQuorum, rule{carried: true}},
		{"quorum-later", amqp.Table{"x-delivery-delay": 1500}, "quorum-later", rule{}},
		{"classic-later", amqp.Table{"x-delivery-delay": 1500}, "classic-later", rule{}},
		{"quorum-once", amqp.Table{"x-message-deduplication": true, "x-deduplication-window": 3600000}, "quorum-once", rule{once: true}},
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
	c.j.rules[due] = rule{carried: true}
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
			c.j.rules[d.out] = d.rule
			to := place{key: d.name, queues: []string{d.out}}
			switch {
			case strings.HasSuffix(d.name, "-later"):
				to.say = func(p *publish, _ string, _ *amqp.Publishing, _ *rand.Rand) { p.delay = 1500 * time.Millisecond }
			case d.rule.once:
				to.say = func(_ *publish, first string, body *amqp.Publishing, _ *rand.Rand) {
					body.Headers = amqp.Table{"x-deduplication-header": first}
				}
			}
			s := seed()
			c.publish.Go(func() { c.publisher("p."+d.name, to, i%3, s) })
		}
		s := seed()
		switch d.name {
		case "quorum-rejected", "quorum-tried":
			c.consume.Go(func() { c.refuser("r."+d.name, d.name, i%3, d.name == "quorum-tried") })
		default:
			if d.out == "" || d.out == d.name {
				c.consume.Go(func() { c.consumer("c."+d.name, d.name, (i+1)%3, s) })
			}
		}
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

// refuser rejects all that comes, for good or to be tried again.
func (c *clients) refuser(name, queue string, at int, again bool) {
	for c.stop.Err() == nil {
		conn, _, err := c.connect(c.stop, at)
		if err != nil {
			return
		}
		var in <-chan amqp.Delivery
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
			c.j.count("refused by their consumer")
			err = d.Reject(again)
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
