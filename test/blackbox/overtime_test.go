package blackbox

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// timed declares a queue of a type in which a delivery may be held for 100 ms.
func timed(t *testing.T, ch *amqp.Channel, kind string) string {
	return queueWith(t, ch, amqp.Table{"x-queue-type": kind, "x-consumer-timeout": 100})
}

// comes receives within the bound of the tests.
func comes[T any](t *testing.T, what string, in <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-in:
	case <-time.After(raw.Wait):
		t.Fatalf("no %s", what)
	}
	return v
}

// R400 T18: a consumer that holds a delivery for longer than it may is cancelled, and others get the message. Its late acknowledgement
// is taken and means nothing, and its channel goes on.
func TestConsumerTimeout(t *testing.T) {
	if pick(t, "consumer-timeout", true, false) {
		t.Skip("RabbitMQ 3.10 looks once a minute, and knows no argument for it")
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			slow, other := open(t), open(t)
			q := timed(t, slow, kind)
			cancelled := slow.NotifyCancel(make(chan string, 1))
			in := must(slow.Consume(q, "slow", false, false, false, false, nil))(t)
			put(t, q, "a")
			late := next(t, in)
			equal(t, "cancelled", comes(t, "cancellation", cancelled), "slow")
			d := next(t, must(other.Consume(q, "patient", false, false, false, false, amqp.Table{"x-consumer-timeout": 3600_000}))(t))
			equal(t, "redelivered", d.Redelivered, true)
			if kind == "quorum" { // it is no failed delivery
				equal(t, "counts", countsOf(d), "true 1 <nil>")
			}
			ok(t, late.Ack(false))
			settled(t, slow)
			ok(t, d.Ack(false))
			settled(t, other)
			equal(t, "what is left", depth(t, other, q), 0)
		})
	}
}

// R403: a channel that holds a message of basic.get for longer than it may is closed with 406, while it says nothing.
func TestGetTimeout(t *testing.T) {
	if pick(t, "consumer-timeout", true, false) {
		t.Skip("RabbitMQ 3.10 looks once a minute, and knows no argument for it")
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			slow, other := open(t), open(t)
			q := timed(t, slow, kind)
			put(t, q, "a")
			closed := slow.NotifyClose(make(chan *amqp.Error, 1))
			if _, there, err := slow.Get(q, false); err != nil || !there {
				t.Fatal(there, err)
			}
			e := comes(t, "close", closed)
			if e == nil || e.Code != 406 || !strings.Contains(e.Reason, "delivery acknowledgement on channel 1 timed out. Timeout value used: 100 ms.") {
				t.Errorf("the channel: %v", e)
			}
			d := next(t, must(other.Consume(q, "", true, false, false, false, nil))(t))
			equal(t, "redelivered", d.Redelivered, true)
		})
	}
}

// R403: a client that does not know of cancellations is told by 406 on its channel.
func TestTimeoutOfAnOldClient(t *testing.T) {
	if pick(t, "consumer-timeout", true, false) {
		t.Skip("RabbitMQ 3.10 looks once a minute, and knows no argument for it")
	}
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			other := open(t)
			q := timed(t, other, kind)
			s := socket(t)
			must(s.Start())(t)
			must(s.Call(0, raw.ConnectionStartOk, raw.ConnectionTune, raw.Fields(), "PLAIN", raw.Long("\x00guest\x00guest"), "en_US"))(t)
			ok(t, s.Tune(2047, 131072, 0))
			ok(t, s.Open("/"))
			ok(t, s.OpenChannel(1))
			must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "tag", raw.Bits{false, false, false, false}, raw.Table{}))(t)
			put(t, q, "a")
			faults(t, s, chanFault, 406)
			d := next(t, must(other.Consume(q, "", true, false, false, false, nil))(t))
			equal(t, "redelivered", d.Redelivered, true)
		})
	}
}
