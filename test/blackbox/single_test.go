package blackbox

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R404 R405: one consumer of the queue gets messages, the listings say which; the next one does as soon as it has left.
func TestSingleActiveConsumer(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			one, two := open(t), open(t)
			q := queueWith(t, one, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
			first := must(one.Consume(q, "first", true, false, false, false, nil))(t)
			second := must(two.Consume(q, "second", true, false, false, false, nil))(t)
			put(t, q, "a", "b", "c")
			equal(t, "the first one", strings.Join(bodies(t, first, 3), " "), "a b c")
			quiet(t, two, second)
			listed := func(active string, rows ...string) {
				t.Helper()
				for _, row := range rows {
					eventually(t, "consumers: "+row, func() bool {
						return strings.Contains(ctl(t, "list_consumers", "-q", "queue_name", "consumer_tag", "active", "activity_status"), q+"\t"+row+"\n")
					})
				}
				if pick(t, "active-column", true, false) {
					return
				}
				eventually(t, "queues: "+active, func() bool {
					return strings.Contains(ctl(t, "list_queues", "-q", "name", "single_active_consumer_tag"), q+"\t"+active+"\n")
				})
			}
			listed("first", "first\ttrue\tsingle_active", "second\tfalse\twaiting")
			ok(t, one.Cancel("first", false))
			put(t, q, "d")
			equal(t, "the second one", strings.Join(bodies(t, second, 1), " "), "d")
			listed("second", "second\ttrue\tsingle_active")
		})
	}
}

// R406: basic.get of a queue with a single active consumer is refused where that is a quorum queue.
func TestGetOfSingleActive(t *testing.T) {
	t.Parallel()
	for kind, code := range map[string]int{"classic": 0, "quorum": 405} {
		ch := open(t)
		q := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-single-active-consumer": true})
		_, _, err := ch.Get(q, true)
		got := 0
		if e, is := err.(*amqp.Error); is {
			got = e.Code
		}
		equal(t, kind, got, code)
	}
}
