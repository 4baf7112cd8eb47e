package session

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/amqperr"
)

// holding returns a channel whose only consumer holds a message, and what the queue delivers to.
func (r *rig) holding(t *testing.T) (*amqp.Channel, amqp.Delivery, *holder) {
	t.Helper()
	ch, err := r.dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	in, err := ch.Consume("q", "c", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := publishText(ch, "q", "one"); err != nil {
		t.Fatal(err)
	}
	d := <-in
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for c := range r.server.conns {
		c.mu.Lock()
		defer c.mu.Unlock()
		on := c.channels[1]
		on.mu.Lock()
		defer on.mu.Unlock()
		return ch, d, on.consumers["c"]
	}
	t.Fatal("no connection")
	return nil, amqp.Delivery{}, nil
}

// R400: a consumer that has held messages for too long is cancelled, and its channel goes on. It holds what it was not told to
// have lost, until it settles that.
func TestConsumerHeldTooLong(t *testing.T) {
	r := newRig(t)
	ch, d, h := r.holding(t)
	cancelled := ch.NotifyCancel(make(chan string, 1))
	h.Cancelled(amqperr.DeliveryTimeout(1, 0))
	if tag := <-cancelled; tag != "c" {
		t.Errorf("cancelled: %q", tag)
	}
	if err := d.Ack(false); err != nil {
		t.Fatal(err)
	}
	if err := ch.Qos(1, 0, false); err != nil { // it is answered: the channel is open
		t.Fatal(err)
	}
	until(t, "the consumer is detached", func() bool { s := r.bodies(); return s.Consumers == 0 && s.Unacked == 0 })
}

// R403: a channel whose client knows no cancellations is closed, whoever owns it: the reader, which waits for the client, or a
// worker.
func TestChannelHeldTooLong(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			r := newRig(t)
			ch, _, h := r.holding(t)
			closed := ch.NotifyClose(make(chan *amqp.Error, 1))
			h.ch.conn.client.cancelNotify = false
			if busy {
				go ch.QueuePurge("q", false) // answered, or not any more
			}
			h.Cancelled(amqperr.DeliveryTimeout(1, 0))
			if e := <-closed; e == nil || e.Code != 406 || !strings.Contains(e.Reason, "delivery acknowledgement on channel 1 timed out") {
				t.Errorf("the channel: %v", e)
			}
			until(t, "the message is back", func() bool { return r.bodies().Unacked == 0 })
		})
	}
}

// A channel that is doomed in the moment in which the client closes it is closed once, and its connection goes on.
func TestDoomedWhileClosing(t *testing.T) {
	r := newRig(t)
	c := r.dial(t)
	for range 50 {
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		var on *channel
		r.server.mu.Lock()
		for conn := range r.server.conns {
			conn.mu.Lock()
			for _, x := range conn.channels {
				on = x
			}
			conn.mu.Unlock()
		}
		r.server.mu.Unlock()
		if on == nil {
			t.Fatal("no channel")
		}
		done := make(chan struct{})
		go func() {
			on.conn.doom(on, amqperr.DeliveryTimeout(1, 0))
			close(done)
		}()
		ch.Close()
		<-done
	}
	if c.IsClosed() {
		t.Error("the connection is closed")
	}
}
