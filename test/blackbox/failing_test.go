package blackbox

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R254: the reasons for which a message dies, each in the history of its letter.
func TestReasonsOfDeaths(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		dies := map[string]struct {
			args amqp.Table
			do   func(t *testing.T, q string)
		}{
			"rejected": {nil, func(t *testing.T, q string) { ok(t, get(t, open(t), q, false).Reject(false)) }},
			"expired":  {amqp.Table{"x-message-ttl": 1}, func(*testing.T, string) {}},
			"maxlen":   {amqp.Table{"x-max-length": 1}, func(t *testing.T, q string) { put(t, q, "another") }},
		}
		if kind == "quorum" || pick(t, "classic-limits", false, true) {
			dies["delivery_limit"] = struct {
				args amqp.Table
				do   func(t *testing.T, q string)
			}{amqp.Table{"x-delivery-limit": 0}, func(t *testing.T, q string) { ok(t, get(t, open(t), q, false).Reject(true)) }}
		}
		for reason, d := range dies {
			_, source, grave := buriesIn(t, kind, d.args)
			put(t, source, "x")
			d.do(t, source)
			m := next(t, consume(t, open(t), grave))
			equal(t, "letter", string(m.Body), "x")
			equal(t, "reason", deaths(t, m)[0]["reason"], any(reason))
			equal(t, "first reason", m.Headers["x-first-death-reason"], any(reason))
		}
	})
}

// R256: a message that fails again and again leaves the queue; what is behind it waits no longer than that. A quorum queue does so unless it is
// told otherwise.
func TestPoisonousMessage(t *testing.T) {
	t.Parallel()
	if pick(t, "counted-returns", true, false) {
		t.Skip("there is no limit if none is set")
	}
	eachType(t, func(t *testing.T, kind string) {
		args, tries := amqp.Table{}, 21
		if kind == "classic" {
			args, tries = amqp.Table{"x-delivery-limit": 5}, 6
		}
		ch, source, grave := buriesIn(t, kind, args)
		ok(t, ch.Qos(1, 0, false))
		put(t, source, "poison", "a", "b")
		in := consume(t, ch, source)
		var seen []string
		for len(seen) < tries+2 {
			d := next(t, in)
			seen = append(seen, string(d.Body))
			if string(d.Body) == "poison" {
				ok(t, d.Reject(true))
			} else {
				ok(t, d.Ack(false))
			}
		}
		equal(t, "deliveries", strings.Join(seen, " "), strings.Repeat("poison ", tries)+"a b")
		m := next(t, consume(t, open(t), grave))
		equal(t, "reason", fmt.Sprint(string(m.Body), " ", deaths(t, m)[0]["reason"]), "poison delivery_limit")
	})
}

// R257: what fails for the first time is given back, what fails again is a dead letter.
func TestOneMoreTry(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		put(t, source, "today", "for good")
		in := consume(t, ch, source)
		var done []string
		for range 4 {
			d := next(t, in)
			switch {
			case !d.Redelivered:
				ok(t, d.Nack(false, true))
			case string(d.Body) == "today":
				done = append(done, string(d.Body))
				ok(t, d.Ack(false))
			default:
				ok(t, d.Reject(false))
			}
		}
		equal(t, "handled", strings.Join(done, " "), "today")
		m := next(t, consume(t, open(t), grave))
		equal(t, "letter", string(m.Body), "for good")
		equal(t, "deaths", fmt.Sprint(deaths(t, m)[0]["reason"], deaths(t, m)[0]["count"]), "rejected1")
		eventually(t, "nothing is left", func() bool { return depth(t, open(t), source) == 0 })
	})
}

// R112: nothing is delivered exactly once: a consumer that dies after its work sees the message again, and does its work once since it keeps the
// ids of what it has done.
func TestWorkIsDoneOnce(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		q := queueWith(t, open(t), amqp.Table{"x-queue-type": kind})
		for i := range 5 {
			publish(t, "", q, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint("id-", i), Body: []byte("work")})
		}
		done, again := map[string]bool{}, 0
		for again < 5 {
			c := dial(t)
			ch := channel(t, c)
			ok(t, ch.Qos(1, 0, false))
			in := consume(t, ch, q)
			for {
				d := next(t, in)
				if done[d.MessageId] {
					equal(t, "of what was done before redelivered", d.Redelivered, true)
					again++
					ok(t, d.Ack(false))
					if again == 5 {
						break
					}
					continue
				}
				done[d.MessageId] = true // and dies before it can say so
				break
			}
			ok(t, c.Close())
		}
		equal(t, "messages", len(done), 5)
		check := open(t)
		eventually(t, "nothing is left", func() bool { return depth(t, check, q) == 0 })
	})
}
