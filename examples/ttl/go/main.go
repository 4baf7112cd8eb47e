// Command go shows times to live: of a message, of all messages of a queue, and of a queue that nobody uses.
package main

import (
	"errors"
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

	// No offer is good for longer than a minute. What has expired is a dead letter here, so that it can be seen.
	_, err = ch.QueueDeclare("offers.expired", true, false, false, false, nil)
	check(err)
	_, err = ch.QueueDeclare("offers", true, false, false, false, amqp.Table{
		"x-message-ttl":             60_000, // milliseconds
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": "offers.expired",
	})
	check(err)
	defer func() {
		for _, q := range []string{"offers", "offers.expired"} {
			_, err := ch.QueueDelete(q, false, false, false)
			check(err)
		}
	}()

	check(ch.Confirm(false))
	publish(ch, "offers", "today only", "100") // the shorter time counts
	publish(ch, "offers", "all week", "")

	expired, err := ch.Consume("offers.expired", "", true, false, false, false, nil)
	check(err)
	d := next(expired)
	why := d.Headers["x-death"].([]any)[0].(amqp.Table)
	fmt.Printf("expired: %s (%v, it had %v ms)\n", d.Body, why["reason"], why["original-expiration"])

	offers, err := ch.Consume("offers", "", true, false, false, false, nil)
	check(err)
	fmt.Printf("still there: %s\n", next(offers).Body)

	// With a time to live of 0 a message is for who is there.
	publish(ch, "offers", "for the consumer", "0")
	fmt.Printf("at once: %s\n", next(offers).Body)

	// A queue that has no consumer and is not asked for anything goes after a while, with what is in it.
	_, err = ch.QueueDeclare("replies", true, false, false, false, amqp.Table{"x-expires": 100})
	check(err)
	for {
		// To publish is no use of the queue; to declare it, in whatever way, would be one.
		other, err := conn.Channel()
		check(err)
		check(other.Confirm(false))
		returned := other.NotifyReturn(make(chan amqp.Return, 1))
		c, err := other.PublishWithDeferredConfirm("", "replies", true, false, amqp.Publishing{})
		check(err)
		if !c.Wait() {
			check(errors.New("not taken"))
		}
		check(other.Close())
		if _, is := <-returned; is {
			break // no such queue
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println("gone: replies")
}

// publish puts a message into a queue, with a time to live in milliseconds, and waits until it is there.
func publish(ch *amqp.Channel, queue, body, ttl string) {
	c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: ttl, Body: []byte(body)})
	check(err)
	if !c.Wait() {
		log.Fatalf("%q was not taken", body)
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
