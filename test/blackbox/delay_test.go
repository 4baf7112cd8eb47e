package blackbox

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const tenYears = int64(315_360_000_000) // ms

// delayedFor publishes a message with the header x-delay.
func delayedFor(t *testing.T, exchange, key, body string, delay any) {
	t.Helper()
	publish(t, exchange, key, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body), Headers: amqp.Table{"x-delay": delay}})
}

// notBefore fails the test if a time has not come.
func notBefore(t *testing.T, what string, at time.Time) {
	t.Helper()
	if early := time.Until(at); early > 0 {
		t.Errorf("%s came %v too early", what, early)
	}
}

// R450: a queue with a delay gives messages out when that is over, or when the message's own is, whichever is later.
func TestQueueWithADelay(t *testing.T) {
	t.Parallel()
	if target.rabbit {
		t.Skip("RabbitMQ has no such argument")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-delivery-delay": int32(300)})
		in := consume(t, ch, q)
		began := time.Now()
		delayedFor(t, "", q, "c", int32(700))
		delayedFor(t, "", q, "a", int32(1))
		put(t, q, "b")
		delayedFor(t, "", q, "never", tenYears)
		all := ""
		for range 3 {
			d := next(t, in)
			notBefore(t, string(d.Body), began.Add(map[string]time.Duration{"a": 300, "b": 300, "c": 700}[string(d.Body)]*time.Millisecond))
			all += string(d.Body)
			ok(t, d.Ack(false))
		}
		equal(t, "those of one delay", strings.ReplaceAll(all, "c", ""), "ab")
		quiet(t, ch, in)
		equal(t, "delayed", cell(t, q, "messages_delayed", "list_queues"), "1")
		equal(t, "ready", depth(t, ch, q), 0)
		equal(t, "purged", must(ch.QueuePurge(q, false))(t), 1)
	})
}

// R450: no more than ten years, and a number.
func TestQueueDelayMistakes(t *testing.T) {
	t.Parallel()
	if target.rabbit {
		t.Skip("RabbitMQ has no such argument")
	}
	eachType(t, func(t *testing.T, kind string) {
		for _, delay := range []any{"100", int32(-1), tenYears + 1, 1.5} {
			_, err := open(t).QueueDeclare(name(t), true, false, false, false, amqp.Table{"x-queue-type": kind, "x-delivery-delay": delay})
			refused(t, err, 406)
		}
		queueWith(t, open(t), amqp.Table{"x-queue-type": kind, "x-delivery-delay": tenYears})
	})
}

// R451: what waits is there after a restart, and comes when it would have come.
func TestDelayOverRestart(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		must(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-delivery-delay": int32(100)}))(t)
		began := time.Now()
		for body, ms := range map[string]int32{"second": 1500, "first": 0} {
			m := persistent(body)
			m.Headers = amqp.Table{"x-delay": ms}
			n.put(ch, "", "q", m)
		}
		restart()
		in := must(n.open().Consume("q", "", true, false, false, false, nil))(t)
		for range 2 {
			if d := next(t, in); string(d.Body) == "second" {
				notBefore(t, "the second", began.Add(1500*time.Millisecond))
			}
		}
	})
}
