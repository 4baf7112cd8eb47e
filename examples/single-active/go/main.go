// Command go shows a single active consumer: one gets all messages in their order, others stand ready to take its place.
package main

import (
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		url = "amqp://guest:guest@localhost:5672/%2F"
	}
	conn, err := amqp.Dial(url)
	check(err)
	defer conn.Close()
	ch, err := conn.Channel()
	check(err)
	check(ch.Confirm(false))
	_, err = ch.QueueDeclare("ledger", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true})
	check(err)

	// Two processes would be two connections; two channels do for showing it.
	other, err := conn.Channel()
	check(err)
	active, err := other.Consume("ledger", "one", false, false, false, false, nil)
	check(err)
	waiting, err := ch.Consume("ledger", "two", false, false, false, false, nil)
	check(err)

	publish(ch, "ledger", amqp.Publishing{Body: []byte("a")})
	publish(ch, "ledger", amqp.Publishing{Body: []byte("b")})
	a := next(active)
	fmt.Printf("%s: %s\n", a.ConsumerTag, a.Body)
	check(a.Ack(false))
	b := next(active)
	fmt.Printf("%s: %s, and ends before it is done\n", b.ConsumerTag, b.Body)
	check(other.Close())

	b = next(waiting)
	fmt.Printf("%s: %s (redelivered: %v)\n", b.ConsumerTag, b.Body, b.Redelivered)
	check(b.Ack(false))

	_, err = ch.QueueDelete("ledger", false, false, false)
	check(err)
}

// publish puts a message into a queue and waits until it is there.
func publish(ch *amqp.Channel, queue string, m amqp.Publishing) {
	m.DeliveryMode = amqp.Persistent
	c, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
	check(err)
	if !c.Wait() {
		log.Fatalf("%q was not taken", m.Body)
	}
}

// next is the next delivery, which has to come.
func next(in <-chan amqp.Delivery) amqp.Delivery {
	select {
	case d, open := <-in:
		if !open {
			log.Fatal("the consumer was cancelled")
		}
		return d
	case <-time.After(time.Minute):
		log.Fatal("no delivery")
	}
	panic("unreachable")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
