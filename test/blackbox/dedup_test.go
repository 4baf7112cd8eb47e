package blackbox

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// keyed is a persistent message with a value of the header that duplicates are found by.
func keyed(body string, key any) amqp.Publishing {
	m := persistent(body)
	m.Headers = amqp.Table{"x-deduplication-header": key}
	return m
}

func numbered(body, publisher string, sequence int64) amqp.Publishing {
	m := persistent(body)
	m.Headers = amqp.Table{"x-publisher-id": publisher, "x-publisher-sequence": sequence}
	return m
}

// accepted publishes a message and says whether it was confirmed, and not refused.
func accepted(t *testing.T, ch *amqp.Channel, q string, m amqp.Publishing) bool {
	t.Helper()
	d, err := ch.PublishWithDeferredConfirm("", q, false, false, m)
	ok(t, err)
	return d.Wait()
}

func deduplicating(kind string, more amqp.Table) amqp.Table {
	args := amqp.Table{"x-queue-type": kind, "x-message-deduplication": true}
	for k, v := range more {
		args[k] = v
	}
	return args
}

// R430 R433 R434: a queue refuses a message of which an equal one is in it. Where dead letters are wanted it is one.
func TestDuplicatesAreRefused(t *testing.T) {
	t.Parallel()
	if pick(t, "deduplication", true, false) {
		t.Skip("RabbitMQ has it in a plugin")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := confirming(t)
		grave := queue(t, ch)
		q := queueWith(t, ch, deduplicating(kind, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}))
		in := func(m amqp.Publishing) bool { t.Helper(); return accepted(t, ch, q, m) }
		equal(t, "the first", in(keyed("a", "a")), true)
		equal(t, "its duplicate", in(keyed("again", "a")), false)
		equal(t, "another type", in(keyed("7", "7")), true)
		equal(t, "another type", in(keyed("seven", int32(7))), true)
		equal(t, "no key", in(persistent("plain")), true)
		equal(t, "no key", in(persistent("plain")), true)
		d := next(t, consume(t, open(t), grave))
		equal(t, "the dead letter", string(d.Body), "again")
		equal(t, "its reason", deaths(t, d)[0]["reason"], any("maxlen"))
		a := get(t, ch, q, false)
		equal(t, "while it is held", in(keyed("again", "a")), false)
		ok(t, a.Reject(true))
		equal(t, "when it is back", in(keyed("again", "a")), false)
		a = get(t, ch, q, false)
		equal(t, "the first one again", string(a.Body), "a")
		ok(t, a.Ack(false))
		if kind == "classic" { // the acknowledgement comes first
			equal(t, "when it has left", in(keyed("a", "a")), true)
		} else { // it goes another way to the leader than the publish
			eventually(t, "it has left", func() bool { return in(keyed("a", "a")) })
		}
		equal(t, "messages", drain(t, ch, q), "7 seven plain plain a")
	})
}

// R435 R436 R439: with a window, duplicates are accepted and not there, whatever has become of the first message, until the time is over;
// a restart changes nothing of it. The key may be the message id.
func TestDuplicatesInAWindow(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		for _, kind := range []string{"classic", "quorum"} {
			short := deduplicating(kind, amqp.Table{"x-deduplication-window": int32(1000)})
			long := deduplicating(kind, amqp.Table{"x-deduplication-window": int32(3600_000), "x-deduplication-key": "message-id"})
			ch := n.open()
			must(ch.QueueDeclare(kind+"-short", true, false, false, false, short))(t)
			must(ch.QueueDeclare(kind+"-long", true, false, false, false, long))(t)
			id := persistent("a")
			id.MessageId = "a"
			n.put(ch, "", kind+"-long", id, id, id, persistent("b"), persistent("b"))
			n.put(ch, "", kind+"-short", keyed("a", "a"))
			equal(t, "messages", drain(t, ch, kind+"-long"), "a b b")
		}
		restart()
		for _, kind := range []string{"classic", "quorum"} {
			ch := n.open()
			id := persistent("again")
			id.MessageId = "a"
			n.put(ch, "", kind+"-long", id)
			id.MessageId = "b"
			n.put(ch, "", kind+"-long", id, id)
			equal(t, "messages after it", drain(t, ch, kind+"-long"), "again")
			eventually(t, "the time is over", func() bool {
				n.put(ch, "", kind+"-short", keyed("again", "a"))
				return depth(t, ch, kind+"-short") > 1
			})
		}
	})
}

// R437: a publisher that does not know what has arrived sends it again, with the numbers it had.
// R240
func TestDuplicatesOfPublishers(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		for _, kind := range []string{"classic", "quorum"} {
			ch := n.open()
			args := deduplicating(kind, amqp.Table{"x-deduplication-key": "publisher", "x-max-length": int32(3), "x-overflow": "reject-publish"})
			must(ch.QueueDeclare(kind, true, false, false, false, args))(t)
			n.put(ch, "", kind, numbered("p1", "p", 1), numbered("p2", "p", 2), numbered("p1", "p", 1), numbered("q1", "q", 1))
			equal(t, "beyond the limit", accepted(t, ch, kind, numbered("p3", "p", 3)), false)
			equal(t, "a duplicate beyond the limit", accepted(t, ch, kind, numbered("p2", "p", 2)), true)
			equal(t, "messages", drain(t, ch, kind), "p1 p2 q1")
		}
		restart()
		for _, kind := range []string{"classic", "quorum"} {
			ch := n.open()
			n.put(ch, "", kind, numbered("p4", "p", 4), numbered("p3", "p", 3), numbered("p3", "p", 3), numbered("p1", "p", 1), numbered("q2", "q", 2), numbered("q2", "q", 2))
			equal(t, "messages after it", drain(t, ch, kind), "p4 p3 q2")
		}
	})
}

// R440: a policy asks for it, too.
func TestDeduplicationByPolicy(t *testing.T) {
	t.Parallel()
	if pick(t, "deduplication", true, false) {
		t.Skip("RabbitMQ has it in a plugin")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := confirming(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
		equal(t, "before", accepted(t, ch, q, keyed("0", "a")), true)
		ctl(t, "set_policy", q, "^"+q+"$", `{"x-message-deduplication":true,"deduplication-window":3600000}`, "--apply-to", "queues")
		n := 1
		eventually(t, "a duplicate", func() bool {
			before := n
			accepted(t, ch, q, keyed("1", "a"))
			n = depth(t, ch, q)
			return n == before
		})
		ctl(t, "clear_policy", q)
		eventually(t, "none", func() bool { accepted(t, ch, q, keyed("2", "a")); return depth(t, ch, q) > n })
	})
}

// R441: arguments that make no sense.
func TestDeduplicationMistakes(t *testing.T) {
	t.Parallel()
	if pick(t, "deduplication", true, false) {
		t.Skip("RabbitMQ has it in a plugin")
	}
	eachType(t, func(t *testing.T, kind string) {
		for _, args := range []amqp.Table{
			{"x-message-deduplication": "yes"},
			{"x-message-deduplication": true, "x-deduplication-window": int32(-1)},
			{"x-message-deduplication": true, "x-deduplication-window-bytes": "16"},
			{"x-message-deduplication": true, "x-deduplication-key": "body"},
		} {
			args["x-queue-type"] = kind
			_, err := open(t).QueueDeclare(name(t), true, false, false, false, args)
			refused(t, err, 406)
		}
	})
}
