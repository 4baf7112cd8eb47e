package blackbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// expiring publishes bodies that expire after so many milliseconds, and waits for the confirms.
func expiring(t *testing.T, q, ms string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		publish(t, "", q, amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: ms, Body: []byte(body)})
	}
}

// R505: of the queue's time to live and the message's own the shorter one counts.
func TestShorterTimeToLive(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		for _, c := range []struct {
			queue   int32
			message string
		}{{1, "100000"}, {100_000, "1"}, {1, ""}, {0, "1"}} {
			args := amqp.Table{}
			if c.queue != 0 {
				args["x-message-ttl"] = c.queue
			}
			_, source, grave := buriesIn(t, kind, args)
			expiring(t, source, c.message, "x")
			m := next(t, consume(t, open(t), grave))
			var had any
			if c.message != "" {
				had = c.message
			}
			equal(t, "expiration it had", deaths(t, m)[0]["original-expiration"], had)
			equal(t, "reason", deaths(t, m)[0]["reason"], any("expired"))
		}
	})
}

// R506: messages expire at the head of the queue, in its order: behind one that lives on they wait, and are counted.
func TestExpiryAtTheHead(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		put(t, source, "lives")
		expiring(t, source, "1", "a", "b")
		put(t, source, "stays")
		first := queue(t, ch) // by the time that this one's message has expired, so would have the others
		expiring(t, first, "1", "x")
		eventually(t, "a message at the head is gone", func() bool { return depth(t, ch, first) == 0 })
		equal(t, "messages", depth(t, ch, source), 4)
		equal(t, "body", string(get(t, ch, source, true).Body), "lives")
		equal(t, "expired", strings.Join(bodies(t, consume(t, open(t), grave), 2), " "), "a b")
		equal(t, "messages left", depth(t, ch, source), 1)
		equal(t, "body", string(get(t, ch, source, true).Body), "stays")
	})
}

// R506: a message of another priority is another head.
func TestExpiryOfEachPriority(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-priority", true, false) {
			t.Skip("there are none")
		}
		args := amqp.Table{}
		if kind == "classic" {
			args["x-max-priority"] = int32(5)
		}
		ch, source, grave := buriesIn(t, kind, args)
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Priority: 1, Body: []byte("lives")})
		publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Priority: 5, Expiration: "1", Body: []byte("high")})
		if pick(t, "expiry-of-the-higher", true, false) {
			return
		}
		equal(t, "body", string(next(t, consume(t, open(t), grave)).Body), "high")
		equal(t, "messages", depth(t, ch, source), 1)
	})
}

// R507: what a consumer holds does not expire; once it is back, it does, by the time that it was given when it came.
func TestHeldMessagesDoNotExpire(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		in := consume(t, ch, source)
		expiring(t, source, "100", "held")
		d := next(t, in)
		other := queue(t, ch)
		expiring(t, other, "100", "x") // came later, and goes earlier
		eventually(t, "the other one is gone", func() bool { return depth(t, open(t), other) == 0 })
		ok(t, d.Nack(false, true))
		select {
		case again := <-in:
			t.Fatalf("%q is delivered again, %v", again.Body, again.Redelivered)
		case m := <-consume(t, open(t), grave):
			equal(t, "reason", deaths(t, m)[0]["reason"], any("expired"))
		}
	})
}

// R508: without time to live a message is delivered to who can take it at once, and expires otherwise; it is confirmed either way.
func TestTimeToLiveZero(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		for what, c := range map[string]struct {
			args       amqp.Table
			expiration string
		}{"queue": {amqp.Table{"x-message-ttl": int32(0)}, ""}, "message": {nil, "0"}} {
			ch, source, grave := buriesIn(t, kind, c.args)
			expiring(t, source, c.expiration, "nobody waits")
			equal(t, what, string(next(t, consume(t, open(t), grave)).Body), "nobody waits")
			equal(t, what+": messages", depth(t, ch, source), 0)
			in := consume(t, ch, source)
			expiring(t, source, c.expiration, "somebody waits")
			d := next(t, in)
			equal(t, what, string(d.Body), "somebody waits")
			ok(t, d.Ack(false))
		}
	})
}

// R509: a queue that is not used for so long is deleted, whatever is in it; a consumer, a get or a declare is a use, a publish is none.
func TestQueueExpires(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		there := func(q string) bool {
			return strings.Contains("\n"+ctl(t, "-q", "list_queues", "name"), "\n"+q+"\n")
		}
		_, idle, grave := buriesIn(t, kind, amqp.Table{"x-expires": 100})
		used := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
		consumer := open(t)
		in := consume(t, consumer, used)
		policyFor(t, used, `{"expires":50}`)
		put(t, idle, "goes with it, or comes too late")
		eventually(t, "the queue is gone", func() bool { return !there(idle) })
		equal(t, "the one with a consumer is there", there(used), true)
		put(t, used, "x")
		next(t, in)
		ok(t, consumer.Close())
		eventually(t, "the other one is gone", func() bool { return !there(used) })
		equal(t, "dead letters", depth(t, ch, grave), 0)
	})
}

// R509: a get, of nothing even, and a declare keep a queue alive.
func TestQueueIsKeptByUse(t *testing.T) {
	t.Parallel()
	const expires, lasts = 400 * time.Millisecond, time.Second
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-expires", true, false) {
			t.Skip("a declare does not keep it")
		}
		args := amqp.Table{"x-queue-type": kind, "x-expires": int32(expires.Milliseconds())}
		uses := map[string]func(ch *amqp.Channel, q string) error{
			"get": func(ch *amqp.Channel, q string) error { _, _, err := ch.Get(q, true); return err },
			"declare": func(ch *amqp.Channel, q string) error {
				d, err := ch.QueueDeclare(q, true, false, false, false, args)
				if err == nil && d.Messages == 0 {
					err = errors.New("it is another one")
				}
				return err
			},
			"passive declare": func(ch *amqp.Channel, q string) error {
				_, err := ch.QueueDeclarePassive(q, true, false, false, false, args)
				return err
			},
		}
		for how, use := range uses {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				for range 5 { // the machine may stand still for so long that the queue is unused
					ch := open(t)
					before := time.Now() // of the last use
					q := queueWith(t, ch, args)
					if how != "get" {
						put(t, q, "stays")
					}
					unused, longest := time.Duration(0), time.Duration(0)
					for start := time.Now(); time.Since(start) < lasts && longest < expires; time.Sleep(expires / 10) {
						now := time.Now()
						if err := use(ch, q); err != nil {
							unused = time.Since(before)
							break
						}
						before, longest = now, max(longest, time.Since(before))
					}
					switch {
					case unused > 0 && unused < expires:
						t.Fatalf("the queue is gone, and was used %v ago", unused)
					case unused == 0 && longest < expires:
						return
					}
				}
				t.Skip("the machine is too slow")
			})
		}
	})
}
