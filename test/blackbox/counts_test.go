package blackbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// returns are the ways for a message to come back to its queue, and whether each counts as a failed delivery.
var returns = map[string]struct {
	failed bool
	do     func(t *testing.T, ch *amqp.Channel, d amqp.Delivery)
}{
	"nack":       {false, func(t *testing.T, _ *amqp.Channel, d amqp.Delivery) { ok(t, d.Nack(false, true)) }},
	"recover":    {false, func(t *testing.T, ch *amqp.Channel, _ amqp.Delivery) { ok(t, ch.Recover(true)) }},
	"reject":     {true, func(t *testing.T, _ *amqp.Channel, d amqp.Delivery) { ok(t, d.Reject(true)) }},
	"close":      {true, func(t *testing.T, ch *amqp.Channel, _ amqp.Delivery) { ok(t, ch.Close()) }},
	"connection": {true, nil},
}

// held is a message that a new consumer, on a connection of its own, holds; it is cancelled, so that it gets no more.
func held(t *testing.T, q string) (c *amqp.Connection, ch *amqp.Channel, d amqp.Delivery) {
	t.Helper()
	c = dial(t)
	ch = channel(t, c)
	d = next(t, must(ch.Consume(q, "", false, false, false, false, nil))(t))
	ok(t, ch.Cancel(d.ConsumerTag, false))
	return c, ch, d
}

// countsOf are the redelivered flag and both counts of a delivery.
func countsOf(d amqp.Delivery) string {
	return fmt.Sprintf("%v %v %v", d.Redelivered, d.Headers["x-acquired-count"], d.Headers["x-delivery-count"])
}

// R516 R517 T18: a delivery that failed is counted, one that was given back is not; both show in the headers of the next one. Over the
// limit a message leaves with that reason. The limit is of failures that may be followed by another try.
func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	if pick(t, "counted-returns", true, false) {
		t.Skip("every return is counted")
	}
	eachType(t, func(t *testing.T, kind string) {
		for way, r := range returns {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				ch, source, grave := buriesIn(t, kind, amqp.Table{"x-delivery-limit": 2})
				put(t, source, "x")
				for n := range 5 {
					c, ch, d := held(t, source)
					headers := countsOf(d)
					switch {
					case n == 0:
						equal(t, "first delivery", headers, "false <nil> <nil>")
					case r.failed:
						equal(t, "delivery after failures", headers, fmt.Sprintf("true %d %d", n, n))
					default:
						equal(t, "delivery after returns", headers, fmt.Sprintf("true %d <nil>", n))
					}
					if r.do != nil {
						r.do(t, ch, d)
					}
					ok(t, c.Close())
					if r.failed && n == 2 {
						break
					}
				}
				if !r.failed {
					return
				}
				m := next(t, consume(t, ch, grave))
				equal(t, "reason", deaths(t, m)[0]["reason"], any("delivery_limit"))
				equal(t, "redelivered", m.Redelivered, false)
				for _, h := range []string{"x-acquired-count", "x-delivery-count"} {
					equal(t, h, m.Headers[h], nil)
				}
			})
		}
	})
}

// R516: a limit of none: the first failure is the last; one of -1 is no limit, and the default of quorum queues is 20.
func TestDeliveryLimits(t *testing.T) {
	t.Parallel()
	if pick(t, "counted-returns", true, false) {
		t.Skip("every return is counted")
	}
	for _, c := range []struct {
		kind  string
		limit any
		fails int // after which it is dead, 0: it lives on after 25
	}{{"classic", 0, 1}, {"quorum", 0, 1}, {"quorum", nil, 21}, {"quorum", -1, 0}, {"classic", nil, 0}} {
		t.Run(fmt.Sprint(c.kind, c.limit), func(t *testing.T) {
			t.Parallel()
			args := amqp.Table{}
			if c.limit != nil {
				args["x-delivery-limit"] = c.limit
			}
			ch, source, grave := buriesIn(t, c.kind, args)
			put(t, source, "x")
			in := consume(t, ch, source)
			n := c.fails
			if n == 0 {
				n = 25
			}
			for range n {
				ok(t, next(t, in).Reject(true))
			}
			if c.fails == 0 {
				next(t, in)
				return
			}
			m := next(t, consume(t, open(t), grave))
			equal(t, "reason", deaths(t, m)[0]["reason"], any("delivery_limit"))
		})
	}
}

// R518: counts are kept over a restart. A node that stops ends its connections, which counts; one that is killed has no say.
func TestCountsOverRestart(t *testing.T) {
	t.Parallel()
	kinds := []string{"classic", "quorum"}
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		for _, kind := range kinds {
			must(ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind, "x-delivery-limit": 4}))(t)
			n.put(ch, "", kind, persistent("x"))
			in := consume(t, ch, kind)
			for range 3 {
				ok(t, next(t, in).Reject(true))
			}
			ok(t, next(t, in).Nack(false, true))
			equal(t, kind, countsOf(next(t, in)), "true 4 3")
		}
		n.settledOnDisk(ch, kinds...)
		restart()
		for _, kind := range kinds {
			want := "true 5 3"
			if strings.HasSuffix(t.Name(), "stopped") {
				want = "true 5 4"
			}
			equal(t, kind+" after the restart", countsOf(next(t, consume(t, n.open(), kind))), want)
		}
	})
}

// R519 R595: with delayed retry a returned message waits, longer with each failure, up to the most; then it is delivered again.
func TestDelayedRetry(t *testing.T) {
	t.Parallel()
	if pick(t, "delayed-retry", true, false) {
		t.Skip("nothing is delayed")
	}
	eachType(t, func(t *testing.T, kind string) {
		for _, which := range []string{"all", "failed", "returned", "disabled"} {
			for way, r := range returns {
				t.Run(which+" "+way, func(t *testing.T) {
					t.Parallel()
					q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind, "x-delayed-retry-type": which, "x-delayed-retry-min": 3_600_000})
					put(t, q, "x")
					c, ch, d := held(t, q)
					if r.do != nil {
						r.do(t, ch, d)
					}
					ok(t, c.Close())
					if which == "all" || which == "failed" && r.failed || which == "returned" && !r.failed {
						check := open(t)
						eventually(t, "the message is back", func() bool { return must(check.QueuePurge(q, false))(t) == 1 })
						return
					}
					held(t, q)
				})
			}
		}
	})
}

// R519: by a policy it is for classic queues as well.
func TestDelayedRetryByPolicy(t *testing.T) {
	t.Parallel()
	if pick(t, "delayed-retry", true, false) {
		t.Skip("nothing is delayed")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
		policyFor(t, q, `{"delayed-retry-type":"all","delayed-retry-min":3600000}`)
		put(t, q, "x")
		eventually(t, "what is given back waits", func() bool {
			giver := open(t)
			d, there, err := giver.Get(q, false)
			ok(t, err)
			if !there {
				return true
			}
			ok(t, d.Nack(false, true))
			return giver.Close() != nil
		})
		equal(t, "purged", must(ch.QueuePurge(q, false))(t), 1)
	})
}

// R519: the wait is the least one times the number of failures.
func TestDelayGrows(t *testing.T) { onEachType(t, testDelayGrows) }

func testDelayGrows(t *testing.T, kind string) {
	if pick(t, "delayed-retry", true, false) {
		t.Skip("nothing is delayed")
	}
	ch := open(t)
	q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-delayed-retry-type": "failed", "x-delayed-retry-min": 100, "x-delayed-retry-max": 250})
	in := consume(t, ch, q)
	put(t, q, "x")
	d := next(t, in)
	for _, least := range []time.Duration{100, 200, 250} {
		began := time.Now()
		ok(t, d.Reject(true))
		d = next(t, in)
		if took := time.Since(began); took < least*time.Millisecond {
			t.Errorf("delivered again after %s, wanted %d ms", took, least)
		}
	}
}

// R520: the length of a queue counts what waits to be tried again; so does a purge.
func TestDelayedCount(t *testing.T) { onEachType(t, testDelayedCount) }

func testDelayedCount(t *testing.T, kind string) {
	if pick(t, "delayed-retry", true, false) {
		t.Skip("nothing is delayed")
	}
	ch := confirming(t)
	q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-delayed-retry-type": "all", "x-delayed-retry-min": 3_600_000,
		"x-max-length": 2, "x-overflow": "reject-publish"})
	put(t, q, "1", "2")
	giver := open(t)
	get(t, giver, q, false)
	ok(t, giver.Close())
	equal(t, "ready", depth(t, ch, q), 1)
	equal(t, "a third one is taken", acked(t, ch, "", q, amqp.Publishing{}), false)
	equal(t, "purged", must(ch.QueuePurge(q, false))(t), 2)
	equal(t, "a third one is taken", acked(t, ch, "", q, amqp.Publishing{}), true)
}
