package blackbox

import (
	"context"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// acked publishes on a channel in confirm mode, and reports whether it was acknowledged.
func acked(t *testing.T, ch *amqp.Channel, exchange, key string, m amqp.Publishing) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	m.DeliveryMode = amqp.Persistent
	d, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
	ok(t, err)
	return must(d.WaitContext(ctx))(t)
}

// emptied are the bodies of all ready messages.
func emptied(t *testing.T, q string) string {
	t.Helper()
	ch := open(t)
	var list []string
	for {
		d, there, err := ch.Get(q, true)
		ok(t, err)
		if !there {
			return strings.Join(list, " ")
		}
		list = append(list, string(d.Body))
	}
}

// R510 T43: beyond its length, in messages or bytes, a queue lets its oldest messages go, with that reason; what comes is confirmed.
func TestDropHead(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		size := 4
		if kind == "quorum" {
			size = pick(t, "quorum-bytes", 200, size)
		}
		pad := func(s string) string { return s + strings.Repeat(".", size-len(s)) }
		for what, args := range map[string]amqp.Table{
			"messages": {"x-max-length": 3}, "bytes": {"x-max-length-bytes": size*3 + size/2}, "both": {"x-max-length": 3, "x-max-length-bytes": 100 * size},
		} {
			_, source, grave := buriesIn(t, kind, args)
			for _, b := range []string{"1", "2", "3", "4", "5"} {
				put(t, source, pad(b))
			}
			in := consume(t, open(t), grave)
			for _, want := range []string{"1", "2"} {
				m := next(t, in)
				equal(t, what, string(m.Body), pad(want))
				equal(t, "reason", deaths(t, m)[0]["reason"], any("maxlen"))
			}
			equal(t, what, emptied(t, source), pad("3")+" "+pad("4")+" "+pad("5"))
		}
	})
}

// R510 T43: a message longer than the queue may be goes at once; so does everything where nothing may wait, unless somebody takes it.
func TestDropAtOnce(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		for what, args := range map[string]amqp.Table{"messages": {"x-max-length": 0}, "bytes": {"x-max-length-bytes": 3}} {
			ch, source, grave := buriesIn(t, kind, args)
			body := strings.Repeat("x", 10)
			put(t, source, body)
			m := next(t, consume(t, open(t), grave))
			equal(t, what, string(m.Body), body)
			equal(t, "reason", deaths(t, m)[0]["reason"], any("maxlen"))
			in := consume(t, ch, source)
			put(t, source, body)
			ok(t, next(t, in).Ack(false))
		}
	})
}

// R510: with priorities the one that would be delivered next goes first.
func TestDropHeadOfTheHighest(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-priority", true, false) {
			t.Skip("there are none")
		}
		args := amqp.Table{"x-max-length": 2}
		if kind == "classic" {
			args["x-max-priority"] = 5
		}
		_, source, grave := buriesIn(t, kind, args)
		for _, m := range []struct {
			body     string
			priority uint8
		}{{"low", 1}, {"high", 5}, {"next", 1}} {
			publish(t, "", source, amqp.Publishing{DeliveryMode: amqp.Persistent, Priority: m.priority, Body: []byte(m.body)})
		}
		equal(t, "dropped", string(next(t, consume(t, open(t), grave)).Body), "high")
		equal(t, "left", emptied(t, source), "low next")
	})
}

// R511 T43: a queue that refuses what is too much says so by a nack, to whom asked for confirms; nobody else hears of it.
func TestRejectPublish(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		for _, overflow := range []string{"reject-publish", "reject-publish-dlx"} {
			if kind == "quorum" && pick(t, "quorum-refusal", true, false) {
				continue
			}
			_, source, grave := buriesIn(t, kind, amqp.Table{"x-max-length": 2, "x-overflow": overflow})
			ch := confirming(t)
			for i, body := range []string{"1", "2", "3", "4"} {
				equal(t, "acknowledged "+body, acked(t, ch, "", source, amqp.Publishing{Body: []byte(body), Priority: uint8(i / 2 * 9)}), i < 2)
			}
			silent := open(t)
			send(t, silent, "", source, "5")
			ok(t, silent.Confirm(false)) // from here on: so much for the one before
			equal(t, "acknowledged 6", acked(t, silent, "", source, amqp.Publishing{Body: []byte("6")}), false)
			if overflow == "reject-publish-dlx" {
				in := consume(t, open(t), grave)
				for _, want := range []string{"3", "4", "5", "6"} {
					m := next(t, in)
					equal(t, "refused", string(m.Body), want)
					equal(t, "reason", deaths(t, m)[0]["reason"], any("maxlen"))
				}
			} else {
				equal(t, "dead letters", depth(t, ch, grave), 0)
			}
			get(t, ch, source, true)
			equal(t, "acknowledged when there is room", acked(t, ch, "", source, amqp.Publishing{Body: []byte("7")}), true)
			equal(t, "what is there", emptied(t, source), "2 7")
		}
	})
}

// R511: bytes are counted as messages are.
func TestRejectPublishOfBytes(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-refusal", true, false) {
			t.Skip("it is full later")
		}
		ch := confirming(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length-bytes": 10, "x-overflow": "reject-publish"})
		equal(t, "five bytes", acked(t, ch, "", q, amqp.Publishing{Body: []byte("12345")}), true)
		equal(t, "six more", acked(t, ch, "", q, amqp.Publishing{Body: []byte("123456")}), false)
		equal(t, "five more", acked(t, ch, "", q, amqp.Publishing{Body: []byte("67890")}), true)
		equal(t, "one more", acked(t, ch, "", q, amqp.Publishing{Body: []byte("1")}), false)
		equal(t, "none", acked(t, ch, "", q, amqp.Publishing{}), true)
		equal(t, "what is there", emptied(t, q), "12345 67890 ")
	})
}

// R511: a queue that may hold nothing refuses everything.
func TestRejectEverything(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-refusal", true, false) {
			t.Skip("it is full later")
		}
		ch := confirming(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 0, "x-overflow": "reject-publish"})
		equal(t, "acknowledged", acked(t, ch, "", q, amqp.Publishing{}), false)
		if kind == "classic" {
			consume(t, open(t), q)
			equal(t, "acknowledged with a consumer", acked(t, ch, "", q, amqp.Publishing{}), false)
		}
	})
}

// R512: of several queues one that is full makes a nack; the others keep the message.
func TestOneQueueIsFull(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		if kind == "quorum" && pick(t, "quorum-refusal", true, false) {
			t.Skip("it is full later")
		}
		ch := confirming(t)
		x := exchange(t, ch, "fanout", nil)
		full, other := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"}), queue(t, ch)
		for _, q := range []string{full, other} {
			ok(t, ch.QueueBind(q, "", x, false, nil))
		}
		equal(t, "first", acked(t, ch, x, "", amqp.Publishing{Body: []byte("1")}), true)
		equal(t, "second", acked(t, ch, x, "", amqp.Publishing{Body: []byte("2")}), false)
		equal(t, "the full one", emptied(t, full), "1")
		equal(t, "the other one", emptied(t, other), "1 2")
	})
}

// R513: what comes back beyond the length of the queue makes its head go.
func TestRequeueOverTheLimit(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, amqp.Table{"x-max-length": 2})
		put(t, source, "1")
		d := get(t, ch, source, false)
		put(t, source, "2", "3")
		ok(t, d.Nack(false, true))
		dropped, left := "1", "2 3"
		if kind == "quorum" {
			dropped, left = pick(t, "quorum-return-drop", "2", dropped), pick(t, "quorum-return-drop", "3 1", left)
		}
		equal(t, "dropped", string(next(t, consume(t, open(t), grave)).Body), dropped)
		equal(t, "left", emptied(t, source), left)
	})
}

// R514: messages that are unacknowledged do not count.
func TestUnackedDoNotCount(t *testing.T) {
	t.Parallel()
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 2})
		put(t, q, "1", "2")
		get(t, ch, q, false)
		get(t, ch, q, false)
		put(t, q, "3", "4")
		equal(t, "ready", emptied(t, q), "3 4")
	})
}
