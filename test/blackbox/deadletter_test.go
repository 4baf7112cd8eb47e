package blackbox

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// buriesIn is a queue of each type whose dead letters go to another queue, which is given, too.
func buriesIn(t *testing.T, kind string, args amqp.Table) (ch *amqp.Channel, source, grave string) {
	t.Helper()
	ch = open(t)
	grave = queue(t, ch)
	all := amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
	for k, v := range args {
		all[k] = v
	}
	return ch, queueWith(t, ch, all), grave
}

// eachType runs a test for classic and for quorum queues.
func eachType(t *testing.T, f func(t *testing.T, kind string)) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f(t, kind)
		})
	}
}

// onEachType is a whole test of queues of each type, beside others.
func onEachType(t *testing.T, f func(t *testing.T, kind string)) {
	t.Parallel()
	eachType(t, f)
}

// deaths are the entries of x-death.
func deaths(t *testing.T, m amqp.Delivery) (list []amqp.Table) {
	t.Helper()
	entries, _ := m.Headers["x-death"].([]any)
	for _, e := range entries {
		list = append(list, e.(amqp.Table))
	}
	if len(list) == 0 {
		t.Fatalf("no x-death in %v", m.Headers)
	}
	return list
}

func death(e amqp.Table) string {
	return fmt.Sprint(e["count"], " ", e["reason"], " ", e["exchange"], " ", e["routing-keys"], " ", e["original-expiration"])
}

// R380 R381: a rejected message arrives with its history; all else is as it was published.
// R54: there are dead letters.
func TestRejectedMessageIsDeadLettered(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x"), MessageId: "m", Headers: amqp.Table{"n": int32(7)}})
		d := next(t, consume(t, ch, source))
		ok(t, d.Reject(false))
		m := next(t, consume(t, open(t), grave))
		equal(t, "body", string(m.Body), "x")
		equal(t, "message id", m.MessageId, "m")
		equal(t, "key", m.RoutingKey, grave)
		equal(t, "header", m.Headers["n"], any(int32(7)))
		list := deaths(t, m)
		equal(t, "entries", len(list), 1)
		equal(t, "entry", death(list[0]), fmt.Sprint("1 rejected  [", source, "] <nil>"))
		equal(t, "queue", list[0]["queue"], any(source))
		for key, want := range map[string]string{"x-first-death-queue": source, "x-first-death-reason": "rejected", "x-first-death-exchange": ""} {
			equal(t, key, m.Headers[key], any(want))
		}
	})
}

// R384: a message that has expired does so once: its expiration is in the history.
func TestExpiredMessageIsDeadLettered(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		_, source, grave := buriesIn(t, kind, nil)
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: "1", Body: []byte("x")})
		m := next(t, consume(t, open(t), grave))
		equal(t, "expiration", m.Expiration, "")
		equal(t, "entry", death(deaths(t, m)[0]), fmt.Sprint("1 expired  [", source, "] 1"))
	})
}

// R381: a message that goes round, rejected each time, has its deaths counted.
func TestDeathsAreCounted(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		source, back := name(t), name(t)
		for q, to := range map[string]string{source: back, back: source} {
			args := amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
			if q == back {
				args["x-message-ttl"] = int32(1)
			}
			must(ch.QueueDeclare(q, true, false, false, false, args))(t)
		}
		removeQueue(t, source, back)
		put(t, source, "x")
		in := consume(t, ch, source)
		for range 4 {
			ok(t, next(t, in).Reject(false))
		}
		m := next(t, in)
		list := deaths(t, m)
		equal(t, "entries", len(list), 2)
		equal(t, "last", death(list[0]), fmt.Sprint("4 expired  [", back, "] <nil>"))
		equal(t, "before", death(list[1]), fmt.Sprint("4 rejected  [", source, "] <nil>"))
	})
}

// R382: the history is the broker's own.
func TestForgedDeathsAreNotCounted(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		forged := amqp.Table{"count": int64(5), "reason": "rejected", "queue": source, "exchange": "x", "routing-keys": []any{"k"}}
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-death": []any{forged}}})
		ok(t, next(t, consume(t, ch, source)).Reject(false))
		m := next(t, consume(t, open(t), grave))
		equal(t, "count", deaths(t, m)[0]["count"], any(pick(t, "forged-deaths", int64(6), int64(1))))
	})
}

// R380 R385: without a key of its queue a dead letter goes by all of its keys; the hidden ones stay hidden.
func TestDeadLetterKeepsItsKeys(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		x := exchange(t, ch, "direct", nil)
		source := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": x})
		var graves []string
		for _, key := range []string{source, "cc", "bcc"} {
			q := queue(t, ch)
			ok(t, ch.QueueBind(q, key, x, false, nil))
			graves = append(graves, q)
		}
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: amqp.Table{"CC": []any{"cc"}, "BCC": []any{"bcc"}}})
		ok(t, next(t, consume(t, ch, source)).Reject(false))
		for i, q := range graves {
			if i == 2 && pick(t, "dead-letter-bcc", true, false) {
				continue
			}
			m := next(t, consume(t, open(t), q))
			equal(t, "key", m.RoutingKey, source)
			equal(t, "keys", fmt.Sprint(deaths(t, m)[0]["routing-keys"]), fmt.Sprint("[", source, " cc]"))
			if _, has := m.Headers["BCC"]; has {
				t.Error("BCC is shown")
			}
		}
	})
}
