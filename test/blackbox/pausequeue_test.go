package blackbox

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R470: nothing of a paused queue is delivered, nor got, while consumers stay and publishes are taken; then it goes on.
func TestPauseQueue(t *testing.T) {
	if pick(t, "pause-queue", true, false) {
		ctlFails(t, "pause_queue", "q")
		return
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ch := open(t)
			q := queueWith(t, ch, amqp.Table{"x-queue-type": kind})
			in := must(ch.Consume(q, "", false, false, false, false, nil))(t)
			put(t, q, "a")
			ok(t, next(t, in).Ack(false))
			ctl(t, "pause_queue", q)
			equal(t, "listed", cell(t, q, "paused", "list_queues"), "true")
			put(t, q, "b", "c")
			_, there, err := open(t).Get(q, true)
			ok(t, err)
			equal(t, "got", there, false)
			quiet(t, ch, in)
			equal(t, "consumers", cell(t, q, "consumers", "list_queues"), "1")
			if out := ctl(t, "explain", q); !strings.Contains(out, "The queue is paused") {
				t.Errorf("explained: %s", out)
			}
			ctl(t, "resume_queue", q)
			equal(t, "listed in the end", cell(t, q, "paused", "list_queues"), "false")
			for _, body := range []string{"b", "c"} {
				d := next(t, in)
				equal(t, "delivered", string(d.Body), body)
				equal(t, "redelivered", d.Redelivered, false)
			}
		})
	}
}

// R471: a queue that is paused still is when the node comes back, a quorum queue that is led anew, too.
func TestPausedQueueAfterRestart(t *testing.T) {
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		kinds := []string{"classic", "quorum"}
		declare := func(ch *amqp.Channel) {
			for _, kind := range kinds {
				must(ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
			}
		}
		ch := n.open()
		declare(ch)
		for _, kind := range kinds {
			must(n.Ctl("pause_queue", kind))(t)
			n.put(ch, "", kind, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("a")})
		}
		restart()
		ch = n.open()
		declare(ch) // as it was, and no other queue
		for _, kind := range kinds {
			in := must(ch.Consume(kind, "", true, false, false, false, nil))(t)
			quiet(t, ch, in)
			must(n.Ctl("resume_queue", kind))(t)
			equal(t, "delivered", string(next(t, in).Body), "a")
		}
	})
}

// R472: neither a paused queue counts as stalled, nor one whose consumers hold what they may, or do not read.
func TestNoQueueIsStalled(t *testing.T) {
	t.Parallel()
	n := ownBroker(t, config(t, "delivery_stall = 1\n")...)
	for _, kind := range []string{"classic", "quorum"} {
		ch := n.open()
		ok(t, ch.Qos(1, 0, false))
		must(ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
		must(ch.QueueDeclare(kind+"-paused", true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
		must(n.Ctl("pause_queue", kind+"-paused"))(t)
		for range 2 {
			n.put(ch, "", kind, amqp.Publishing{Body: []byte("a")})
			n.put(ch, "", kind+"-paused", amqp.Publishing{Body: []byte("a")})
		}
		next(t, must(ch.Consume(kind, "", false, false, false, false, nil))(t))
		must(ch.Consume(kind+"-paused", "", false, false, false, false, nil))(t)
	}
	time.Sleep(2 * time.Second) // that is long enough for four to be told of, if they were stalled
	series := must(n.Series("/metrics"))(t)
	stalls, there := series["holdfast_queue_stalls_total"]
	equal(t, "told", there, true)
	equal(t, "stalls", stalls, 0)
}
