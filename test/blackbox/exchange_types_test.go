package blackbox

import (
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// special is an exchange of a type that RabbitMQ has in a plugin; where that is not to be had the test is left out.
func special(t *testing.T, kind string, args amqp.Table) string {
	t.Helper()
	if target.rabbit {
		c := dial(t)
		probe := name(t)
		if err := channel(t, c).ExchangeDeclare(probe, kind, false, true, false, false, args); err != nil {
			t.Skipf("RabbitMQ without %s: %v", kind, err)
		}
		_ = channel(t, c).ExchangeDelete(probe, false, false)
	}
	return exchange(t, open(t), kind, args)
}

// bound declares queues and binds each with its key.
func bound(t *testing.T, ch *amqp.Channel, x string, keys ...string) (queues []string) {
	t.Helper()
	for _, key := range keys {
		q := must(ch.QueueDeclare("", false, true, true, false, nil))(t).Name
		ok(t, ch.QueueBind(q, key, x, false, nil))
		queues = append(queues, q)
	}
	return queues
}

// spread publishes and returns how many messages each queue got.
func spread(t *testing.T, ch *amqp.Channel, x string, queues []string, n int, message func(i int) (key string, m amqp.Publishing)) []int {
	t.Helper()
	var last *amqp.DeferredConfirmation
	for i := range n {
		key, m := message(i)
		last = must(ch.PublishWithDeferredConfirm(x, key, false, false, m))(t)
	}
	equal(t, "confirmed", last.Wait(), true)
	counts := make([]int, len(queues))
	for i, q := range queues {
		counts[i] = must(ch.QueuePurge(q, false))(t)
	}
	return counts
}

func byKey(i int) (string, amqp.Publishing) { return fmt.Sprint("key ", i), amqp.Publishing{} }

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// used is how many are not zero.
func used(counts []int) (n int) {
	for _, c := range counts {
		if c > 0 {
			n++
		}
	}
	return n
}

// R360 R361: keys are divided by weight, each always goes to the same queue, and most stay where they are when a queue
// comes.
func TestConsistentHashExchange(t *testing.T) {
	t.Parallel()
	x := special(t, "x-consistent-hash", nil)
	ch := confirming(t)
	queues := bound(t, ch, x, "1", "1", "2", "4")
	counts := spread(t, ch, x, queues, 800, byKey)
	equal(t, "in all queues", sum(counts), 800)
	for i, due := range []int{100, 100, 200, 400} {
		if counts[i] < due/2 || counts[i] > due*2 {
			t.Errorf("%v messages by weights of 1, 1, 2, 4", counts)
		}
	}
	same := spread(t, ch, x, queues, 50, func(int) (string, amqp.Publishing) { return "one key", amqp.Publishing{} })
	equal(t, "queues of one key", used(same), 1)
	copies := spread(t, ch, x, queues, 50, func(int) (string, amqp.Publishing) {
		return "one key", amqp.Publishing{Headers: amqp.Table{"CC": []any{"a", "b", "c", "d", "e", "f"}}}
	})
	if !slices.Equal(same, copies) {
		t.Errorf("one key goes to %v, with copies to %v", same, copies)
	}
	more := append(queues, bound(t, ch, x, "1")...)
	after := spread(t, ch, x, more, 800, byKey)
	equal(t, "in all queues", sum(after), 800)
	if got := after[len(queues)]; got < 40 || got > 200 {
		t.Errorf("%d of 800 messages for a weight of one in nine", got)
	}
	for i, n := range counts {
		if after[i] > n+20 {
			t.Errorf("%v messages before, %v with another queue", counts, after)
		}
	}
	for _, q := range more {
		_ = must(ch.QueueDelete(q, false, false, false))(t)
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	d := must(ch.PublishWithDeferredConfirm(x, "key", true, false, amqp.Publishing{}))(t)
	equal(t, "confirmed", d.Wait(), true)
	equal(t, "returned without a queue", (<-returns).ReplyCode, 312)
}

// R361: a header or a property instead of the key. Messages without it go one way.
func TestConsistentHashByHeaderOrProperty(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		args    amqp.Table
		message func(i int) amqp.Publishing
	}{
		"header":         {amqp.Table{"hash-header": "h"}, func(i int) amqp.Publishing { return amqp.Publishing{Headers: amqp.Table{"h": fmt.Sprint(i)}} }},
		"number":         {amqp.Table{"hash-header": "h"}, func(i int) amqp.Publishing { return amqp.Publishing{Headers: amqp.Table{"h": int32(i)}} }},
		"message_id":     {amqp.Table{"hash-property": "message_id"}, func(i int) amqp.Publishing { return amqp.Publishing{MessageId: fmt.Sprint(i)} }},
		"correlation_id": {amqp.Table{"hash-property": "correlation_id"}, func(i int) amqp.Publishing { return amqp.Publishing{CorrelationId: fmt.Sprint(i)} }},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := special(t, "x-consistent-hash", c.args)
			ch := confirming(t)
			queues := bound(t, ch, x, "1", "1", "1", "1")
			equal(t, "queues of different ones", used(spread(t, ch, x, queues, 100, func(i int) (string, amqp.Publishing) { return "same", c.message(i) })), 4)
			equal(t, "queues of one", used(spread(t, ch, x, queues, 100, func(i int) (string, amqp.Publishing) { return fmt.Sprint(i), c.message(5) })), 1)
			equal(t, "queues of none", used(spread(t, ch, x, queues, 100, byKey)), 1)
		})
	}
}

// R361 R364 R365: arguments and binding keys that cannot be.
func TestExchangeTypeMistakes(t *testing.T) {
	t.Parallel()
	declare := func(kind string, args amqp.Table) error {
		return open(t).ExchangeDeclare(name(t), kind, false, true, false, false, args)
	}
	x := special(t, "x-consistent-hash", nil)
	q := queue(t, open(t))
	bind := func(x, key string) error { return open(t).QueueBind(q, key, x, false, nil) }
	refused(t, declare("x-consistent-hash", amqp.Table{"hash-property": "app_id"}), 406)
	refused(t, declare("x-consistent-hash", amqp.Table{"hash-property": "message_id", "hash-header": "h"}), 406)
	for _, key := range []string{"", "0", "-1", "1.5", "many"} {
		refused(t, bind(x, key), 406)
	}
	ok(t, bind(x, "10000"))
	if err := bind(x, "10001"); pick(t, "hash-weight", true, false) {
		ok(t, err)
	} else {
		refused(t, err, 406)
	}
	special(t, "x-recent-history", nil)
	for _, length := range []any{0, -1, "5"} {
		refused(t, declare("x-recent-history", amqp.Table{"x-recent-history-length": length}), 406)
	}
	if pick(t, "local-random", true, false) {
		return
	}
	x = special(t, "x-local-random", nil)
	refused(t, bind(x, "key"), 406)
	refused(t, open(t).ExchangeBind("amq.fanout", "", x, false, nil), 406)
	ok(t, bind(x, ""))
}

// R362 R363 R364: one queue a message, by a hash of its key, or by chance.
func TestOneOfManyQueues(t *testing.T) {
	t.Parallel()
	for kind, varies := range map[string]bool{"x-modulus-hash": false, "x-random": true, "x-local-random": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind == "x-local-random" && pick(t, "local-random", true, false) {
				t.Skip("there is no such type")
			}
			x := special(t, kind, nil)
			ch := confirming(t)
			queues := bound(t, ch, x, "", "", "", "")
			counts := spread(t, ch, x, queues, 400, byKey)
			equal(t, "in all queues", sum(counts), 400)
			equal(t, "queues of 400 messages", used(counts), 4)
			want := 1
			if varies {
				want = 4
			}
			same := spread(t, ch, x, queues, 400, func(int) (string, amqp.Publishing) { return "same", amqp.Publishing{} })
			equal(t, "in all queues", sum(same), 400)
			equal(t, "queues of one key", used(same), want)
		})
	}
}

// R365: the latest messages go to a queue that is bound later, before the bind is answered, the oldest first; so do they
// through an exchange that is bound.
func TestRecentHistoryExchange(t *testing.T) {
	t.Parallel()
	x, short := special(t, "x-recent-history", nil), special(t, "x-recent-history", amqp.Table{"x-recent-history-length": 3})
	ch := confirming(t)
	for i := range 25 {
		route(t, x, "key", fmt.Sprint(i))
		route(t, short, "key", fmt.Sprint(i))
	}
	publish(t, x, "key", amqp.Publishing{Body: []byte("not kept"), Headers: amqp.Table{"x-recent-history-no-store": true}})
	read := func(q string) (bodies []string) {
		t.Helper()
		for {
			d, there, err := ch.Get(q, true)
			ok(t, err)
			if !there {
				return bodies
			}
			equal(t, "key", d.RoutingKey, "key")
			bodies = append(bodies, string(d.Body))
		}
	}
	want := []string{"5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "24"}
	q := bound(t, ch, x, "any")[0]
	if got := read(q); !slices.Equal(got, want) {
		t.Errorf("the latest 20: %v", got)
	}
	ok(t, ch.QueueBind(q, "any", x, false, nil))
	empty(t, ch, q)
	ok(t, ch.QueueBind(q, "another", x, false, nil))
	equal(t, "by another binding", len(read(q)), 20)
	direct := exchange(t, ch, "direct", nil)
	ok(t, ch.QueueBind(q, "key", direct, false, nil))
	ok(t, ch.ExchangeBind(direct, "", short, false, nil))
	if got := read(q); !slices.Equal(got, pick(t, "history-order", []string{"24", "23", "22"}, want[17:])) {
		t.Errorf("the latest 3, through an exchange: %v", got)
	}
}

// R361 R365: after a restart keys go where they went. A history starts anew.
func TestExchangeTypesOverARestart(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	ok(t, ch.ExchangeDeclare("hash", "x-consistent-hash", true, false, false, false, nil))
	ok(t, ch.ExchangeDeclare("recent", "x-recent-history", true, false, false, false, nil))
	var queues []string
	for i := range 6 {
		q := must(ch.QueueDeclare(fmt.Sprint("q", i), true, false, false, false, nil))(t).Name
		ok(t, ch.QueueBind(q, fmt.Sprint(i+1), "hash", false, nil))
		queues = append(queues, q)
	}
	must(ch.PublishWithDeferredConfirm("recent", "", false, false, amqp.Publishing{Body: []byte("before")}))(t).Wait()
	before := spread(t, ch, "hash", queues, 300, byKey)
	restarts["killed"](n)
	ch = n.open()
	if after := spread(t, ch, "hash", queues, 300, byKey); !slices.Equal(before, after) {
		t.Errorf("%v messages before, %v after", before, after)
	}
	ok(t, ch.QueueBind("q0", "", "recent", false, nil))
	empty(t, ch, "q0")
}
