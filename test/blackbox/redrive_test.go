package blackbox

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R475 R476: what a consumer has rejected goes back to its queue, as it was, with its history to be read. What has none stays.
func TestRedrive(t *testing.T) {
	if pick(t, "redrive", true, false) {
		ctlFails(t, "redrive", "q")
		return
	}
	eachType(t, func(t *testing.T, kind string) {
		ch, source, grave := buriesIn(t, kind, nil)
		x := exchange(t, ch, "topic", nil)
		ok(t, ch.QueueBind(source, "#", x, false, nil))
		in := must(ch.Consume(source, "first", false, false, false, false, nil))(t)
		for i := range 3 {
			publish(t, x, "a.b", amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(fmt.Sprint(i)), Headers: amqp.Table{"n": int32(i)}})
			ok(t, next(t, in).Reject(false))
		}
		put(t, grave, "stranger")
		ok(t, ch.Cancel("first", false))
		eventually(t, "all are dead", func() bool { return depth(t, ch, grave) == 4 })
		if out := ctl(t, "redrive", grave, "--dry-run", "--limit", "2"); !strings.Contains(out, "2 would be sent back: "+source+" 2\n") {
			t.Errorf("dry: %s", out)
		}
		equal(t, "after it", depth(t, ch, grave), 4)
		out := ctl(t, "redrive", grave)
		if !strings.Contains(out, "3 sent back: "+source+" 3\n") || !strings.Contains(out, "1 left: they do not say where they died\n") {
			t.Error(out)
		}
		in = must(ch.Consume(source, "", false, false, false, false, nil))(t)
		for i := range 3 {
			d := next(t, in)
			equal(t, "body", string(d.Body), fmt.Sprint(i))
			equal(t, "exchange", d.Exchange, x)
			equal(t, "key", d.RoutingKey, "a.b")
			equal(t, "redelivered", d.Redelivered, false)
			equal(t, "header", d.Headers["n"], any(int32(i)))
			equal(t, "died", death(deaths(t, d)[0]), "1 rejected "+x+" [a.b] <nil>")
		}
		equal(t, "what is left", depth(t, ch, grave), 1)
		d := next(t, consume(t, open(t), grave))
		equal(t, "the stranger", string(d.Body), "stranger")
	})
}
