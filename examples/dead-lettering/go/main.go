// Command go shows dead letters: what a consumer rejects goes to another queue, and says why it is there.
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

	// Where dead letters go: an exchange, and a queue that gets all of them.
	check(ch.ExchangeDeclare("orders.dlx", "fanout", true, false, false, false, nil))
	_, err = ch.QueueDeclare("orders.dead", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	check(err)
	check(ch.QueueBind("orders.dead", "", "orders.dlx", false, nil))

	// The queue that they come from. A letter stays in it until it has arrived.
	_, err = ch.QueueDeclare("orders", true, false, false, false, amqp.Table{
		"x-queue-type":           "quorum",
		"x-dead-letter-exchange": "orders.dlx",
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish", // RabbitMQ wants it with at-least-once
	})
	check(err)
	defer func() {
		for _, q := range []string{"orders", "orders.dead"} {
			_, err := ch.QueueDelete(q, false, false, false)
			check(err)
		}
		check(ch.ExchangeDelete("orders.dlx", false, false))
	}()

	check(ch.Confirm(false))
	for _, body := range []string{"12 apples", "no number at all", "7 pears"} {
		c, err := ch.PublishWithDeferredConfirm("", "orders", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
		check(err)
		if !c.Wait() {
			log.Fatalf("%q was not taken", body)
		}
	}

	orders, err := ch.Consume("orders", "", false, false, false, false, nil)
	check(err)
	for range 3 {
		d := next(orders)
		var n int
		if _, err := fmt.Sscanf(string(d.Body), "%d", &n); err != nil {
			check(d.Reject(false)) // it will not be better the next time
			continue
		}
		fmt.Printf("handled: %s\n", d.Body)
		check(d.Ack(false))
	}

	dead, err := ch.Consume("orders.dead", "", false, false, false, false, nil)
	check(err)
	d := next(dead)
	why := d.Headers["x-death"].([]any)[0].(amqp.Table) // the latest first
	fmt.Printf("dead: %s (%v in %v, %v time)\n", d.Body, why["reason"], why["queue"], why["count"])
	check(d.Ack(false))
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
