package session

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// dial connects with a client that others wrote.
func (r *rig) dial(t testing.TB) *amqp.Connection {
	t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + r.addr + "/?heartbeat=0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestClientOfOthers(t *testing.T) {
	r := newRig(t)
	c := r.dial(t)
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 100))
	deliveries, err := ch.Consume(q.Name, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := ch.Publish("", q.Name, false, false, amqp.Publishing{Body: fmt.Appendf(nil, "m%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if m := <-confirms; !m.Ack || m.DeliveryTag != uint64(i+1) {
			t.Fatalf("confirm %d: %+v", i, m)
		}
		d := <-deliveries
		if string(d.Body) != fmt.Sprintf("m%d", i) || d.DeliveryTag != uint64(i+1) || d.Redelivered {
			t.Fatalf("delivery %d: %q %d", i, d.Body, d.DeliveryTag)
		}
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func publishText(ch *amqp.Channel, queue, text string) error {
	return ch.Publish("", queue, false, false, amqp.Publishing{Body: []byte(text)})
}
