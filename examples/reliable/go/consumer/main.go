// Command consumer handles orders, each of them once, whatever happens to it, to them, or to the broker.
package main

import (
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/examples/reliable/go/topology"
)

// Ways for an order to fail.
var (
	errNonsense = errors.New("this is no order, and will never be one")
	errTryAgain = errors.New("the warehouse does not answer")
)

// shop is what orders are handled in. In a real one the ids that were seen are rows of the database in which the order is
// written, in the same transaction: so both are there, or neither.
type shop struct {
	seen   map[string]bool
	asked  map[string]int
	report []string
}

// handle carries out one order.
func (s *shop) handle(id, text string) error {
	var n int
	if _, err := fmt.Sscanf(text, "%d", &n); err != nil {
		return errNonsense
	}
	s.asked[id]++
	if strings.Contains(text, "unsure") && s.asked[id] < 2 || strings.Contains(text, "nobody") {
		return errTryAgain
	}
	s.seen[id] = true
	s.report = append(s.report, id+": "+text)
	return nil
}

func main() {
	s := &shop{seen: map[string]bool{}, asked: map[string]int{}}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		err := s.consume()
		if err == nil {
			break
		}
		log.Printf("%v; once more in %v", err, wait)
		time.Sleep(wait)
	}
	slices.Sort(s.report) // an order that is tried again is handled after others
	for _, line := range s.report {
		fmt.Println(line)
	}
}

// orders is how many there are to handle here. A real consumer goes on for ever.
const orders = 6

// consume handles orders until all are done with, or the connection is lost. What it has not acknowledged then comes again.
func (s *shop) consume() error {
	conn, err := amqp.Dial(topology.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := topology.Declare(ch); err != nil {
		return err
	}
	if err := ch.Qos(10, 0, false); err != nil { // so many at a time; the rest is for others
		return err
	}
	in, err := ch.Consume(topology.Orders, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	dead, err := ch.Consume(topology.Dead, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for len(s.report) < orders {
		var d amqp.Delivery
		var open bool
		select {
		case d, open = <-in:
			if open {
				err = s.take(d)
			}
		case d, open = <-dead:
			if open {
				s.report = append(s.report, fmt.Sprintf("%s is set aside: %v", d.MessageId, d.Headers["x-first-death-reason"]))
				err = d.Ack(false)
			}
		}
		if !open {
			return errors.New("the consumer has ended")
		}
		if err != nil {
			return err
		}
	}
	return clean(ch)
}

// take handles a delivery and settles it, always after the work.
func (s *shop) take(d amqp.Delivery) error {
	if s.seen[d.MessageId] {
		s.report = append(s.report, d.MessageId+" is known")
		return d.Ack(false)
	}
	switch err := s.handle(d.MessageId, string(d.Body)); {
	case errors.Is(err, errNonsense):
		return d.Reject(false) // to the dead letters
	case err != nil:
		return d.Reject(true) // once more, a little later; then to the dead letters
	}
	return d.Ack(false)
}

// clean removes the queues: this is an example.
func clean(ch *amqp.Channel) error {
	for _, q := range []string{topology.Orders, topology.Dead} {
		if _, err := ch.QueueDelete(q, false, false, false); err != nil {
			return err
		}
	}
	return nil
}
