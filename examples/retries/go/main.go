// Command go shows what becomes of a message that fails: it is tried again, a little later each time, and set aside when it goes on failing.
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
	_, err = ch.QueueDeclare("calls.failed", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	check(err)
	_, err = ch.QueueDeclare("calls", true, false, false, false, amqp.Table{
		"x-queue-type":              "quorum",
		"x-delivery-limit":          2,        // two more tries, then it is a dead letter
		"x-delayed-retry-type":      "failed", // who failed waits; what is only given back does not
		"x-delayed-retry-min":       50,       // milliseconds, times the number of failures
		"x-delayed-retry-max":       1000,
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": "calls.failed",
	})
	check(err)

	publish(ch, "calls", amqp.Publishing{Body: []byte("hello")})
	in, err := ch.Consume("calls", "", false, false, false, false, nil)
	check(err)

	// To give a message back is no failure: somebody else may do better, at once.
	d := next(in)
	fmt.Println("first delivery, given back")
	check(d.Nack(false, true))

	last := time.Now()
	for range 3 {
		d := next(in)
		fmt.Printf("delivered %v times before, failures: %v, waited long enough: %v\n",
			d.Headers["x-acquired-count"], failures(d), time.Since(last) >= time.Duration(failures(d))*50*time.Millisecond)
		last = time.Now()
		check(d.Reject(true)) // it went wrong: try again
	}

	dead, err := ch.Consume("calls.failed", "", true, false, false, false, nil)
	check(err)
	d = next(dead)
	fmt.Printf("set aside: %s (%v)\n", d.Body, d.Headers["x-first-death-reason"])

	for _, q := range []string{"calls", "calls.failed"} {
		_, err := ch.QueueDelete(q, false, false, false)
		check(err)
	}
}

// failures is how often a message has failed. Before the first time the header is not there.
func failures(d amqp.Delivery) int64 {
	n, _ := d.Headers["x-delivery-count"].(int64)
	return n
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
