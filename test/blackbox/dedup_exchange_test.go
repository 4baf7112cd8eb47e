package blackbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const dedupExchange = "x-message-deduplication"

// R550: of messages with an equal header each queue that is bound gets one, whatever the keys of bindings; all are confirmed.
func TestDeduplicationExchange(t *testing.T) {
	t.Parallel()
	x := special(t, dedupExchange, amqp.Table{"x-cache-size": int32(2), "x-cache-ttl": int32(600_000)})
	ch := confirming(t)
	queues := bound(t, ch, x, "", "k")
	plain := persistent("plain")
	for _, m := range []amqp.Publishing{keyed("a", "a"), keyed("A", "a"), plain, plain, keyed("7", int32(7)), keyed("seven", "7"), keyed("again", "a")} {
		equal(t, "confirmed", must(ch.PublishWithDeferredConfirm(x, "any", false, false, m))(t).Wait(), true)
	}
	for _, q := range queues {
		equal(t, "messages", drain(t, ch, q), "a plain plain 7 seven again") // two are remembered
	}
}

// R552: a message may say for how long it is to be known.
func TestDeduplicationExchangeForSomeTime(t *testing.T) {
	t.Parallel()
	x := special(t, dedupExchange, amqp.Table{"x-cache-size": "100", "x-cache-ttl": "600000"})
	ch := confirming(t)
	q := bound(t, ch, x, "")[0]
	in := func(body string, ttl any) {
		m := keyed(body, "a")
		m.Headers["x-cache-ttl"] = ttl
		equal(t, "confirmed", must(ch.PublishWithDeferredConfirm(x, "", false, false, m))(t).Wait(), true)
	}
	in("a", int32(400))
	eventually(t, "the time is over", func() bool { in("b", int64(tenYears)); return depth(t, ch, q) == 2 })
	in("c", int32(1))
	equal(t, "messages", drain(t, ch, q), "a b")
}

// R553: what leads nowhere is not known afterwards, and comes back if it is mandatory.
func TestDeduplicationExchangeWithoutBindings(t *testing.T) {
	t.Parallel()
	if pick(t, "dedup-exchange", true, false) {
		t.Skip("RabbitMQ's plugin knows it afterwards")
	}
	x := special(t, dedupExchange, amqp.Table{"x-cache-size": int32(5)})
	ch := confirming(t)
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	equal(t, "confirmed", must(ch.PublishWithDeferredConfirm(x, "", true, false, keyed("a", "a")))(t).Wait(), true)
	equal(t, "returned", string((<-returns).Body), "a")
	q := bound(t, ch, x, "")[0]
	for _, body := range []string{"b", "c"} {
		equal(t, "confirmed", must(ch.PublishWithDeferredConfirm(x, "", true, false, keyed(body, "a")))(t).Wait(), true)
	}
	equal(t, "messages", drain(t, ch, q), "b")
	equal(t, "returned", len(returns), 0) // a duplicate is not
}

// R557: arguments and headers that make no sense.
func TestDeduplicationExchangeMistakes(t *testing.T) {
	t.Parallel()
	x := special(t, dedupExchange, amqp.Table{"x-cache-size": int8(1), "x-cache-persistence": "memory"})
	for _, args := range []amqp.Table{
		nil, {"x-cache-size": int32(0)}, {"x-cache-size": "many"}, {"x-cache-size": true}, {"x-cache-size": int32(1), "x-cache-ttl": int32(0)},
		{"x-cache-size": int32(1), "x-cache-ttl": "soon"}, {"x-cache-size": int32(1), "x-cache-persistence": "tape"},
	} {
		refused(t, open(t).ExchangeDeclare(name(t), dedupExchange, false, false, false, false, args), 406)
	}
	if pick(t, "dedup-exchange", true, false) {
		return
	}
	ch := open(t)
	gone := closing(ch)
	m := keyed("a", "a")
	m.Headers["x-cache-ttl"] = "soon"
	ok(t, ch.Publish(x, "", false, false, m))
	refused(t, gone(t), 406)
}

// R551: what queues know of what has come survives a restart.
func TestDeduplicationExchangeOverRestart(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		ok(t, ch.ExchangeDeclare("x", dedupExchange, true, false, false, false, amqp.Table{"x-cache-size": int32(1000)}))
		for _, kind := range []string{"classic", "quorum"} {
			must(ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
			ok(t, ch.QueueBind(kind, "", "x", false, nil))
		}
		n.put(ch, "x", "", keyed("a", "a"), keyed("b", "b"), keyed("A", "a"))
		restart()
		ch = n.open()
		n.put(ch, "x", "", keyed("A", "a"), keyed("c", "c"), keyed("C", "c"), keyed("B", "b"))
		for _, q := range []string{"classic", "quorum"} {
			equal(t, "messages of the "+q+" queue", strings.ReplaceAll(drain(t, ch, q), "!", ""), "a b c")
		}
	})
}

// repeater publishes messages with keys, each until it is confirmed, through any node that answers.
type repeater struct {
	t    *testing.T
	web  *web
	at   int
	conn *amqp.Connection
	ch   *amqp.Channel
}

func (r *repeater) connect() bool {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.at = (r.at + 1) % len(r.web.node)
	var err error
	if r.conn, err = amqp.DialConfig(r.web.node[r.at].URL(), amqp.Config{Dial: amqp.DefaultDial(2 * time.Second)}); err != nil {
		r.conn = nil
		return false
	}
	r.ch, err = r.conn.Channel()
	return err == nil && r.ch.Confirm(false) == nil
}

// all has all bodies confirmed, each of which is its own key. It returns how many publishes that took.
func (r *repeater) all(exchange string, bodies []string, done *atomic.Int64) (publishes int) {
	limit := time.Now().Add(2 * time.Minute)
	const batch = 25
	for len(bodies) > 0 && time.Now().Before(limit) {
		if r.ch == nil && !r.connect() {
			r.ch = nil
			time.Sleep(50 * time.Millisecond)
			continue
		}
		some := bodies[:min(len(bodies), batch)]
		var waits []*amqp.DeferredConfirmation
		var err error
		for _, body := range some {
			var w *amqp.DeferredConfirmation
			if w, err = r.ch.PublishWithDeferredConfirm(exchange, "", true, false, keyed(body, body)); err != nil {
				break
			}
			waits = append(waits, w)
			publishes++
		}
		good := err == nil
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		for _, w := range waits {
			acked, err := w.WaitContext(ctx)
			good = good && err == nil && acked
		}
		cancel()
		if !good {
			if r.ch.IsClosed() || err != nil {
				r.ch = nil
			}
			continue // all of them again
		}
		done.Add(int64(len(some)))
		bodies = bodies[len(some):]
	}
	if len(bodies) > 0 {
		r.t.Errorf("%d messages were never confirmed", len(bodies))
	}
	if r.conn != nil {
		_ = r.conn.Close()
	}
	return publishes
}

// R551 R553 R558: in a cluster, too, each queue has each message once, whoever publishes it how often through which node, and whichever nodes are killed meanwhile.
func TestClusterDeduplicationExchange(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	ch := w.node[0].open()
	ok(t, ch.ExchangeDeclare("x", dedupExchange, true, false, false, false, amqp.Table{"x-cache-size": int32(100_000)}))
	w.quorum(0, "q")
	w.quorum(1, "r")
	must(w.node[2].open().QueueDeclare("c", true, false, false, false, nil))(t)
	for _, q := range []string{"q", "r", "c"} {
		ok(t, ch.QueueBind(q, "", "x", false, nil))
	}
	const publishers, each = 4, 800
	var done atomic.Int64
	var total atomic.Int64
	var wg sync.WaitGroup
	for i := range publishers { // two of each: they have the same messages
		var bodies []string
		for j := range each {
			bodies = append(bodies, fmt.Sprint(i/2, "-", j))
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			total.Add(int64((&repeater{t: t, web: w, at: i}).all("x", bodies, &done)))
		}()
	}
	for k, victim := range []int{0, 1, 0} {
		until(t, "some are confirmed", func() bool { return done.Load() > int64(publishers*each*(k+1)/5) })
		ok(t, w.node[victim].Kill())
		ok(t, w.node[victim].Start())
	}
	wg.Wait()
	t.Logf("%d publishes of %d messages", total.Load(), publishers/2*each)
	ch = w.node[2].open()
	for _, q := range []string{"q", "r", "c"} {
		n := map[string]int{}
		for _, body := range strings.Fields(strings.ReplaceAll(drain(t, ch, q), "!", "")) {
			n[body]++
		}
		equal(t, "messages in "+q, len(n), publishers/2*each)
		for body, times := range n {
			equal(t, body+" in "+q, times, 1)
		}
	}
}
