package blackbox

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R480 R481 R482: what dies in a queue is counted, with its rate, whether somebody wants its letter or not, and what waits for a place to go is listed.
// R267
func TestDeadLettersAreCounted(t *testing.T) {
	if pick(t, "dead-letter-counts", true, false) {
		t.Skip("RabbitMQ counts in its metrics alone")
	}
	eachType(t, func(t *testing.T, kind string) {
		ch := open(t)
		short := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length": 1, "x-delivery-limit": 0})
		put(t, short, "a", "b", "c")
		in := must(ch.Consume(short, "", false, false, false, false, nil))(t)
		ok(t, next(t, in).Reject(true))
		counts := `[{"delivery_limit",1},{"dropped",3},{"expired",0},{"maxlen",2},{"rejected",0}]`
		eventually(t, "all three are counted", func() bool { return cell(t, short, "dead_letters", "list_queues") == counts })
		if rates := cell(t, short, "dead_letter_rates", "list_queues"); !strings.Contains(rates, `{"expired",0},{"maxlen",0.0`) {
			t.Errorf("rates: %s", rates)
		}

		held := queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-max-length-bytes": 1000, "x-overflow": "reject-publish",
			"x-dead-letter-exchange": name(t), "x-dead-letter-strategy": "at-least-once"})
		put(t, held, "abc")
		ok(t, next(t, must(ch.Consume(held, "", false, false, false, false, nil))(t)).Reject(false))
		eventually(t, "one is dead", func() bool { return cell(t, held, "messages_dlx", "list_queues") == "1" })
		equal(t, "its bytes", cell(t, held, "message_bytes_dlx", "list_queues"), "3")
		equal(t, "messages", cell(t, held, "messages", "list_queues"), "0")
		if out := ctl(t, "explain", held); !strings.Contains(out, "1 dead letter.") {
			t.Errorf("explained: %s", out)
		}
	})
}
