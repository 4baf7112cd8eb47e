// Command go shows priorities: of messages in a classic and in a quorum queue, and of consumers.
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

	// A classic queue has the levels that it is declared with: 0, if a message names none, to 5 here.
	_, err = ch.QueueDeclare("mail", true, false, false, false, amqp.Table{"x-max-priority": 5})
	check(err)
	// A quorum queue has 32, and a message that names none has the fifth: 4.
	_, err = ch.QueueDeclare("mail.safe", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	check(err)
	for _, queue := range []string{"mail", "mail.safe"} {
		for body, priority := range map[string]uint8{"urgent": 5, "newsletter": 1} {
			publish(ch, queue, amqp.Publishing{Priority: priority, Body: []byte(body)})
		}
		in, err := ch.Consume(queue, "", true, false, false, false, nil)
		check(err)
		fmt.Printf("%s: %s, then %s\n", queue, next(in).Body, next(in).Body)
	}

	// Messages go to the consumer of the highest priority that has room, to others only while it has none.
	check(ch.Qos(1, 0, false)) // room for one
	_, err = ch.QueueDeclare("work", true, false, false, false, nil)
	check(err)
	spare, err := ch.Consume("work", "spare", false, false, false, false, amqp.Table{"x-priority": -1})
	check(err)
	first, err := ch.Consume("work", "first", false, false, false, false, amqp.Table{"x-priority": 10})
	check(err)
	publish(ch, "work", amqp.Publishing{Body: []byte("one")})
	one := next(first)
	fmt.Printf("%s is for the %s\n", one.Body, one.ConsumerTag)
	publish(ch, "work", amqp.Publishing{Body: []byte("two")})
	two := next(spare)
	fmt.Printf("%s is for the %s, as the other one is busy\n", two.Body, two.ConsumerTag)
	check(two.Ack(false))
	check(one.Ack(false))
	publish(ch, "work", amqp.Publishing{Body: []byte("three")})
	three := next(first)
	fmt.Printf("%s is for the %s again\n", three.Body, three.ConsumerTag)

	for _, q := range []string{"mail", "mail.safe", "work"} {
		_, err := ch.QueueDelete(q, false, false, false)
		check(err)
	}
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
