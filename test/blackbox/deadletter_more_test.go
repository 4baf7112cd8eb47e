package blackbox

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R381: in a circle with a rejection each round both entries count, the newest first; the time of each is that of its first event, and
// what is said of the first death stays.
func TestDeathsKeepTheirFirstTime(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		put(t, source, "x")
		ok(t, next(t, consume(t, ch, source)).Reject(false))
		m := next(t, consume(t, open(t), grave))
		first := deaths(t, m)[0]["time"]
		if first == nil {
			t.Fatal("no time")
		}
		for _, key := range []string{"x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"} {
			if _, has := m.Headers[key]; !has {
				t.Errorf("no %s", key)
			}
		}
		for _, key := range []string{"x-last-death-reason", "x-last-death-queue", "x-last-death-exchange"} {
			if _, has := m.Headers[key]; has != pick(t, "last-death", false, true) {
				t.Errorf("%s: %v", key, has)
			}
		}
	})
}

// R382: a consumer that publishes a dead letter anew begins a new history.
func TestRepublishedDeadLetter(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		put(t, source, "x")
		in, out := consume(t, ch, source), consume(t, open(t), grave)
		ok(t, next(t, in).Reject(false))
		m := next(t, out)
		ok(t, m.Ack(false))
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: m.Headers, Body: m.Body})
		again := next(t, in)
		equal(t, "what the client sent is shown", len(deaths(t, again)), 1)
		ok(t, again.Reject(false))
		equal(t, "count", deaths(t, next(t, out))[0]["count"], any(pick(t, "forged-deaths", int64(2), int64(1))))
	})
}

// R383 T19: a message that has expired in a queue does not come back to it by itself, over whatever other queues.
func TestCirclesEnd(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		ring := func(n int) []string {
			list := make([]string, n)
			for i := range list {
				list[i] = name(t)
			}
			for i, q := range list {
				args := amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": list[(i+1)%n], "x-message-ttl": 1}
				must(ch.QueueDeclare(q, true, false, false, false, args))(t)
			}
			removeQueue(t, list...)
			return list
		}
		for _, n := range []int{1, 2, 3} {
			list := ring(n)
			put(t, list[0], "x")
			eventually(t, fmt.Sprint("a circle of ", n, " is empty"), func() bool {
				for _, q := range list {
					if depth(t, ch, q) > 0 {
						return false
					}
				}
				return true
			})
		}
	})
}

// R384: an expiration that a message has lost does not count in the next queue.
func TestDeadLetterDoesNotExpireAgain(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: "1", Body: []byte("x")})
		eventually(t, "it is there", func() bool { return depth(t, ch, grave) == 1 })
		other := queue(t, ch)
		publish(t, "", other, amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: "2", Body: []byte("y")})
		eventually(t, "another one has expired", func() bool { return depth(t, ch, other) == 0 })
		equal(t, "expiration", get(t, ch, grave, true).Expiration, "")
	})
}

// R380: with a key of the queue a dead letter goes by that alone, and the CC header stays.
func TestDeadLetterWithAKey(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		x := exchange(t, ch, "direct", nil)
		source := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": x, "x-dead-letter-routing-key": "key"})
		grave, other := queue(t, ch), queue(t, ch)
		ok(t, ch.QueueBind(grave, "key", x, false, nil))
		ok(t, ch.QueueBind(other, "cc", x, false, nil))
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: amqp.Table{"CC": []any{"cc"}}})
		ok(t, next(t, consume(t, ch, source)).Reject(false))
		m := next(t, consume(t, open(t), grave))
		equal(t, "key", m.RoutingKey, "key")
		equal(t, "CC", fmt.Sprint(m.Headers["CC"]), pick(t, "dead-letter-cc", "<nil>", "[cc]"))
		equal(t, "by the other key", depth(t, ch, other), 0)
	})
}

// R388: without an exchange a dead letter is dropped; one that is declared later counts from then on.
func TestDeadLetterExchangeComesLater(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		x := name(t)
		source := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": x})
		in := consume(t, ch, source)
		put(t, source, "1")
		ok(t, next(t, in).Reject(false))
		put(t, source, "2") // behind the first one
		d := next(t, in)
		ok(t, ch.ExchangeDeclare(x, "fanout", false, true, false, false, nil))
		grave := queue(t, ch)
		ok(t, ch.QueueBind(grave, "", x, false, nil))
		ok(t, d.Reject(false))
		got := string(next(t, consume(t, open(t), grave)).Body)
		if got != "2" && got != "1" {
			t.Errorf("got %q", got)
		}
	})
}

// R387: a letter that its target has no room for waits, and comes when there is.
func TestDeadLetterWaitsForRoom(t *testing.T) {
	t.Parallel()
	if pick(t, "dead-letter-room", true, false) {
		t.Skip("it looks again after three minutes")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		grave := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"})
		source := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave,
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
		put(t, source, "1", "2", "3")
		in := consume(t, ch, source)
		for range 3 {
			ok(t, next(t, in).Reject(false))
		}
		out := open(t)
		ok(t, out.Qos(1, 0, false))
		waiting := consume(t, out, grave)
		var got []string
		for range 3 {
			m := next(t, waiting)
			got = append(got, string(m.Body))
			ok(t, m.Ack(false))
		}
		equal(t, "all of them", strings.Join(got, " "), "1 2 3")
	})
}

// R386: what one nack rejects dies in its order.
func TestDeadLettersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		var list []string
		for i := range 100 {
			list = append(list, fmt.Sprint(i))
			send(t, ch, "", source, list[i])
		}
		in := consume(t, ch, source)
		var last amqp.Delivery
		for range list {
			last = next(t, in)
		}
		ok(t, last.Nack(true, false))
		equal(t, "order", strings.Join(bodies(t, consume(t, open(t), grave), len(list)), " "), strings.Join(list, " "))
	})
}

// R380: what is purged, and what goes with its queue, is no dead letter.
func TestWhatDoesNotDie(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		put(t, source, "purged")
		must(ch.QueuePurge(source, false))(t)
		put(t, source, "taken")
		get(t, ch, source, true)
		put(t, source, "last") // shows that all before it has been dealt with
		ok(t, get(t, ch, source, false).Reject(false))
		equal(t, "dead letter", string(next(t, consume(t, open(t), grave)).Body), "last")
		put(t, source, "deleted", "held")
		get(t, ch, source, false)
		must(ch.QueueDelete(source, false, false, false))(t)
		equal(t, "dead letters", depth(t, ch, grave), 0)
	})
}

// R387: a target that is deleted while a letter waits for it is waited for no longer.
func TestDeadLetterTargetIsDeleted(t *testing.T) {
	t.Parallel()
	if pick(t, "dead-letter-room", true, false) {
		t.Skip("it looks again after three minutes")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		x := exchange(t, ch, "fanout", nil)
		source := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": x,
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"})
		full, grave := queueWith(t, ch, amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"}), queue(t, ch)
		for _, q := range []string{full, grave} {
			ok(t, ch.QueueBind(q, "", x, false, nil))
		}
		put(t, source, "1", "2")
		in := consume(t, ch, source)
		for range 2 {
			ok(t, next(t, in).Reject(false))
		}
		out := must(open(t).Consume(grave, "", true, false, false, false, nil))(t)
		equal(t, "what the other one has", strings.Join(bodies(t, out, 2), " "), "1 2")
		must(ch.QueueDelete(full, false, false, false))(t)
		put(t, source, "3")
		ok(t, next(t, in).Reject(false))
		equal(t, "what comes then", string(next(t, out).Body), "3")
	})
}
