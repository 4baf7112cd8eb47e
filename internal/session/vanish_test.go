package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// R566: a mandatory message whose queues all go before they have it comes back, and is confirmed behind that; one that a queue has,
// or that nobody wants back, does not come back.
func TestMandatoryMessageOfQueuesThatGo(t *testing.T) {
	for _, confirm := range []bool{false, true} {
		for _, gone := range []string{"both", "one"} {
			t.Run(fmt.Sprint(gone, " confirms ", confirm), func(t *testing.T) {
				r := newRig(t)
				ch, err := r.dial(t).Channel()
				if err != nil {
					t.Fatal(err)
				}
				returns, confirms := ch.NotifyReturn(make(chan amqp.Return, 9)), ch.NotifyPublish(make(chan amqp.Confirmation, 9))
				if confirm {
					if err := ch.Confirm(false); err != nil {
						t.Fatal(err)
					}
				}
				for _, q := range []string{"q1", "q2"} {
					if _, err := ch.QueueDeclare(q, false, true, false, false, nil); err != nil {
						t.Fatal(err)
					}
					if err := ch.QueueBind(q, "", "amq.fanout", false, nil); err != nil {
						t.Fatal(err)
					}
				}
				handles := slices.Collect(r.queues.All())
				if gone == "one" {
					handles = handles[:1]
				}
				for _, h := range handles { // as when their last consumers leave
					sealed := make(chan error, 1)
					h.Seal(true, false, func(_ uint64, err error) { sealed <- err })
					if err := <-sealed; err != nil {
						t.Fatal(err)
					}
				}
				before := func(h *queuehost.Handle) bool { return h.Stats().Published == 0 }
				if !slices.ContainsFunc(handles, before) {
					t.Fatal("the queues have messages")
				}
				for _, mandatory := range []bool{true, false, true} {
					if err := ch.Publish("amq.fanout", "k", mandatory, false, amqp.Publishing{Body: []byte(fmt.Sprint(mandatory))}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := ch.QueueDeclare("last", false, false, true, false, nil); err != nil { // they are where they go
					t.Fatal(err)
				}
				if n := len(returns) + len(confirms); n != 0 {
					t.Fatalf("%d are answered before it is decided", n)
				}
				for _, h := range handles {
					r.queues.Drop(h.ID(), fmt.Errorf("it is not used"), nil)
				}
				want := 0
				if gone == "both" {
					want = 2
				}
				for range want {
					if got := <-returns; got.ReplyCode != amqp.NoRoute || string(got.Body) != "true" || got.Exchange != "amq.fanout" || got.RoutingKey != "k" {
						t.Errorf("returned %+v", got)
					}
				}
				for i := range 3 {
					if confirm {
						if got := <-confirms; got.DeliveryTag != uint64(i+1) || !got.Ack {
							t.Errorf("confirmed %+v", got)
						}
					}
				}
				if _, err := ch.QueueDeclare("more", false, false, true, false, nil); err != nil {
					t.Fatal(err)
				}
				if len(returns) > 0 {
					t.Errorf("more comes back: %+v", <-returns)
				}
			})
		}
	}
}

// The return of a message comes before its confirm.
func TestReturnComesBeforeConfirm(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	c.write(encodeLines(t, "1 confirm.select\n1 queue.declare queue=q auto-delete"))
	c.expect(wire.IDConfirmSelectOk)
	c.expect(wire.IDQueueDeclareOk)
	h := slices.Collect(r.queues.All())[0]
	sealed := make(chan error, 1)
	h.Seal(true, false, func(_ uint64, err error) { sealed <- err })
	if err := <-sealed; err != nil {
		t.Fatal(err)
	}
	c.write(encodeLines(t, "1 publish key=q body=x mandatory\n1 queue.declare queue=last exclusive"))
	c.expect(wire.IDQueueDeclareOk)
	r.queues.Drop(h.ID(), fmt.Errorf("it is not used"), nil)
	for _, want := range []string{"basic.return reply-code=312", "basic.ack delivery-tag=1"} {
		if got := c.next(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
