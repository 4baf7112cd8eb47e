package blackbox

import (
	"fmt"
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
// R229: never before.
func TestQueueWithADelay(t *testing.T) {
	t.Parallel()
	if pick(t, "delivery-delay", true, false) {
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
	eachType(t, func(t *testing.T, kind string) {
		for _, delay := range []any{"100", int32(-1), tenYears + 1, 1.5} {
			q := name(t)
			removeQueue(t, q)
			_, err := open(t).QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": kind, "x-delivery-delay": delay})
			if pick(t, "delivery-delay", true, false) {
				ok(t, err)
				continue
			}
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

// delayedExchange is an exchange that delays; where RabbitMQ has no plugin for it the test is left out.
func delayedExchange(t *testing.T, kind string) string {
	t.Helper()
	return special(t, "x-delayed-message", amqp.Table{"x-delayed-type": kind})
}

// R452: a message with the header x-delay is routed when that is over, with the keys it has, and the header then says so by a minus
// sign; any other one is routed at once.
func TestDelayedExchange(t *testing.T) {
	t.Parallel()
	x := delayedExchange(t, "topic")
	ch := open(t)
	q := bound(t, ch, x, "a.*")[0]
	in := consume(t, ch, q)
	began := time.Now()
	delayedFor(t, x, "a.b", "later", int32(400))
	delayedFor(t, x, "a.b", "text", "300")
	route(t, x, "a.b", "plain")
	for _, delay := range []any{int32(0), int32(-400)} {
		delayedFor(t, x, "a.b", "now", delay)
	}
	delayedFor(t, x, "elsewhere", "nobody's", int32(1))
	all := ""
	for range 5 {
		d := next(t, in)
		body := string(d.Body)
		all += body[:1]
		equal(t, "exchange", d.Exchange, x)
		equal(t, "key", d.RoutingKey, "a.b")
		switch body {
		case "later":
			notBefore(t, body, began.Add(400*time.Millisecond))
			equal(t, "header", d.Headers["x-delay"], any(int64(-400)))
		case "text":
			notBefore(t, body, began.Add(300*time.Millisecond))
			equal(t, "header", d.Headers["x-delay"], any(int64(-300)))
		}
		ok(t, d.Ack(false))
	}
	equal(t, "at once", strings.NewReplacer("l", "", "t", "").Replace(all), "pnn")
	quiet(t, ch, in)
}

// R453: ten years and no more; 45 days, too, which are more than 32 bits of milliseconds. What is no number is refused.
// R227: a delay is honoured or refused, and not made another one.
func TestDelayOfManyDays(t *testing.T) {
	t.Parallel()
	x := delayedExchange(t, "fanout")
	if pick(t, "delayed-exchange", true, false) {
		t.Skip("RabbitMQ routes such a message at once")
	}
	ch := open(t)
	q := bound(t, ch, x, "")[0]
	for _, days := range []int64{45, 50, 3650} {
		delayedFor(t, x, "k", "x", days*24*3600*1000)
	}
	equal(t, "ready", depth(t, ch, q), 0)
	equal(t, "delayed", cell(t, x, "messages_delayed", "list_exchanges"), "3")
	for _, delay := range []any{"soon", tenYears + 1, "99999999999999"} {
		ch := confirming(t)
		closed := closing(ch)
		ok(t, ch.Publish(x, "k", false, false, amqp.Publishing{Headers: amqp.Table{"x-delay": delay}}))
		refused(t, closed(t), 406)
	}
}

// R452: what is wrong with a declaration is said in RabbitMQ's words; the type behind says what a binding may be.
func TestDelayedExchangeMistakes(t *testing.T) {
	t.Parallel()
	delayedExchange(t, "direct")
	for _, args := range []amqp.Table{nil, {"x-delayed-type": int32(1)}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": "foo"}} {
		refused(t, open(t).ExchangeDeclare(name(t), "x-delayed-message", true, false, false, false, args), 406)
	}
	if pick(t, "delayed-exchange", true, false) {
		return
	}
	x := exchange(t, open(t), "x-delayed-message", amqp.Table{"x-delayed-type": "x-consistent-hash"})
	q := queue(t, open(t))
	refused(t, open(t).QueueBind(q, "no weight", x, false, nil), 406)
}

// R454: a delayed message counts as routed: it does not come back, nor does the alternate exchange get it, before its time has come. Then its route is
// that of the bindings as they are by then, or of the alternate exchange.
func TestDelayedMessageIsRoutedLater(t *testing.T) {
	t.Parallel()
	delayedExchange(t, "direct")
	if pick(t, "delayed-exchange", true, false) {
		t.Skip("RabbitMQ's plugin returns it at once, and gives it to the alternate exchange")
	}
	ch := confirming(t)
	other := exchange(t, ch, "fanout", nil)
	x := exchange(t, ch, "x-delayed-message", amqp.Table{"x-delayed-type": "direct", "alternate-exchange": other})
	rest := bound(t, ch, other, "")[0]
	returns := ch.NotifyReturn(make(chan amqp.Return, 3))
	for _, key := range []string{"k", "nobody's"} {
		d := must(ch.PublishWithDeferredConfirm(x, key, true, false, amqp.Publishing{Body: []byte(key), Headers: amqp.Table{"x-delay": int32(1500)}}))(t)
		equal(t, "confirmed", d.Wait(), true)
	}
	q := bound(t, ch, x, "k")[0]
	equal(t, "routed by the binding", string(next(t, consume(t, ch, q)).Body), "k")
	equal(t, "routed to the alternate exchange", string(next(t, consume(t, ch, rest)).Body), "nobody's")
	select {
	case r := <-returns:
		t.Errorf("%s came back", r.Body)
	default:
	}
}

// R455: the messages of an exchange go with it.
func TestDelayedMessagesGoWithTheirExchange(t *testing.T) {
	t.Parallel()
	delayedExchange(t, "direct")
	if pick(t, "delayed-exchange", true, false) {
		t.Skip("RabbitMQ's plugin keeps them")
	}
	ch := open(t)
	x := name(t)
	declare := func() {
		ok(t, ch.ExchangeDeclare(x, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}))
	}
	declare()
	q := bound(t, ch, x, "")[0]
	delayedFor(t, x, "", "gone", tenYears)
	equal(t, "delayed", cell(t, x, "messages_delayed", "list_exchanges"), "1")
	ok(t, ch.ExchangeDelete(x, false, false))
	declare()
	t.Cleanup(func() { _ = open(t).ExchangeDelete(x, false, false) })
	ok(t, ch.QueueBind(q, "", x, false, nil))
	equal(t, "delayed", cell(t, x, "messages_delayed", "list_exchanges"), "0")
	delayedFor(t, x, "", "new", int32(1))
	equal(t, "body", string(next(t, consume(t, ch, q)).Body), "new")
	equal(t, "a queue of an exchange's store is nowhere", strings.Contains(ctl(t, "-q", "list_queues", "name"), x), false)
}

// R452: all keys count, those of CC and BCC, too, and nobody sees the latter; by way of another exchange a message is delayed as well.
func TestDelayedKeysAndExchanges(t *testing.T) {
	t.Parallel()
	x := delayedExchange(t, "direct")
	ch := open(t)
	queues := bound(t, ch, x, "key", "cc", "bcc")
	entry := exchange(t, ch, "fanout", nil)
	ok(t, ch.ExchangeBind(x, "", entry, false, nil))
	began := time.Now()
	publish(t, entry, "key", amqp.Publishing{Headers: amqp.Table{"x-delay": int32(200), "CC": []any{"cc"}, "BCC": []any{"bcc"}}})
	for _, q := range queues {
		d := next(t, consume(t, ch, q))
		notBefore(t, "the message", began.Add(200*time.Millisecond))
		equal(t, "exchange", d.Exchange, entry)
		equal(t, "bcc", d.Headers["BCC"], any(nil))
	}
}

// R451: delayed messages of a durable exchange are there after a restart; what came due meanwhile is routed then.
func TestDelayedExchangeOverRestart(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		ok(t, ch.ExchangeDeclare("x", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}))
		must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
		ok(t, ch.QueueBind("q", "", "x", false, nil))
		began := time.Now()
		for body, ms := range map[string]any{"second": int32(1500), "first": int32(1), "never": tenYears} {
			m := persistent(body)
			m.Headers = amqp.Table{"x-delay": ms}
			n.put(ch, "x", "k", m)
		}
		restart()
		ch = n.open()
		in := must(ch.Consume("q", "", true, false, false, false, nil))(t)
		for range 2 {
			if d := next(t, in); string(d.Body) == "second" {
				notBefore(t, "the second", began.Add(1500*time.Millisecond))
			}
		}
		ok(t, ch.ExchangeDelete("x", false, false))
		quiet(t, ch, in)
	})
}

// R451 R457: in a cluster, what is delayed is kept by several nodes: whoever leads may be killed, and messages can be published through any node.
func TestClusterDelayedExchange(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	until(t, "the nodes know of each other that they know such exchanges", func() bool {
		return w.node[0].open().ExchangeDeclare("x", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "direct"}) == nil
	})
	ch := w.node[0].open()
	w.quorum(1, "q")
	must(ch.QueueDeclare("slow", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-delay": int32(2500)}))(t)
	ok(t, ch.QueueBind("q", "k", "x", false, nil))
	ok(t, ch.QueueBind("slow", "s", "x", false, nil))
	began := time.Now()
	const each = 30
	for i, n := range w.node {
		ch := n.confirming()
		for j := range each {
			m := persistent(fmt.Sprint(i, " ", j))
			m.Headers = amqp.Table{"x-delay": int32(2500)}
			n.put(ch, "x", "k", m)
		}
		n.put(ch, "", "slow", persistent("x"))
		m := persistent("never")
		m.Headers = amqp.Table{"x-delay": tenYears}
		n.put(ch, "x", "k", m)
	}
	ok(t, w.node[0].Kill()) // where the exchange was declared, and what it keeps is led
	ch = w.node[2].open()
	in := must(ch.Consume("q", "", true, false, false, false, nil))(t)
	came := map[string]bool{}
	for len(came) < 3*each { // at least once
		d := next(t, in)
		came[string(d.Body)] = true
		notBefore(t, string(d.Body), began.Add(2500*time.Millisecond))
	}
	in = must(ch.Consume("slow", "", true, false, false, false, nil))(t)
	for range 3 {
		next(t, in)
		notBefore(t, "a message of the queue", began.Add(2500*time.Millisecond))
	}
	equal(t, "never", came["never"], false)
	until(t, "the others are delayed still", func() bool {
		return strings.Contains(w.node[1].does("list_exchanges", "-q", "name", "messages_delayed"), "x\t3")
	})
}
