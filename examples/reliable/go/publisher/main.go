// Command publisher sends orders, and knows of each whether the broker has it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/examples/reliable/go/topology"
)

func main() {
	p := &publisher{}
	defer p.close()
	orders := []struct{ id, text string }{
		{"order-1", "3 apples"}, {"order-2", "apples, many"}, {"order-3", "5 pears, of which the warehouse is unsure"},
		{"order-4", "7 plums, of which nobody has heard"}, {"order-5", "9 cherries"},
		{"order-1", "3 apples"}, // as of a publisher that did not hear the confirm
	}
	for _, o := range orders {
		p.send(o.id, o.text)
	}
	fmt.Printf("%d messages are confirmed\n", len(orders))
}

// publisher has a connection, which it makes anew when it is lost.
type publisher struct {
	conn     *amqp.Connection
	ch       *amqp.Channel
	returned chan amqp.Return
}

// send publishes until the broker has confirmed it. After a lost connection, or a nack, nobody knows whether the message is there: it
// is sent again under the same id, and the consumer tells that it has it already.
func (p *publisher) send(id, text string) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		err := p.try(id, text)
		if err == nil {
			return
		}
		log.Printf("%s: %v; once more in %v", id, err, wait)
		time.Sleep(wait)
	}
}

func (p *publisher) try(id, text string) error {
	if p.ch == nil || p.ch.IsClosed() {
		if err := p.open(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := p.ch.PublishWithDeferredConfirmWithContext(ctx, "", topology.Orders, true, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, MessageId: id, Timestamp: time.Now(), ContentType: "text/plain", Body: []byte(text),
	})
	if err != nil {
		return err
	}
	taken, err := c.WaitContext(ctx)
	if err != nil {
		return err
	}
	select {
	case r := <-p.returned: // comes before the confirm
		return fmt.Errorf("returned: %s", r.ReplyText)
	default:
	}
	if !taken {
		return errors.New("not taken")
	}
	return nil
}

func (p *publisher) open() (err error) {
	p.close()
	if p.conn, err = amqp.Dial(topology.URL()); err != nil {
		return err
	}
	if p.ch, err = p.conn.Channel(); err != nil {
		return err
	}
	p.returned = p.ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := p.ch.Confirm(false); err != nil {
		return err
	}
	return topology.Declare(p.ch)
}

func (p *publisher) close() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
}
