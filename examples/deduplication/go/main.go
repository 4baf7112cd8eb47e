// Command go shows a queue that takes each message once, and an exchange whose queues do: a publisher that does not know whether a message has arrived sends it again.
package main

import (
	"fmt"
	"log"
	"os"

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

	// By message id, for a minute: within that time the same id is the same message, also when it was consumed meanwhile.
	_, err = ch.QueueDeclare("payments", true, false, false, false, amqp.Table{
		"x-queue-type":            "quorum",
		"x-message-deduplication": true,
		"x-deduplication-key":     "message-id",
		"x-deduplication-window":  60_000, // milliseconds
	})
	check(err)
	for _, id := range []string{"pay-1", "pay-2", "pay-1"} { // the last one as after a lost connection
		c, err := ch.PublishWithDeferredConfirm("", "payments", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: id})
		check(err)
		fmt.Printf("%s: confirmed %v\n", id, c.Wait()) // what is there already is there
	}
	for {
		d, there, err := ch.Get("payments", true)
		check(err)
		if !there {
			break
		}
		fmt.Println("got", d.MessageId)
	}

	// By an exchange, for all queues that are bound to it: each takes what it has not had.
	check(ch.ExchangeDeclare("events", "x-message-deduplication", true, false, false, false, amqp.Table{"x-cache-size": 100_000, "x-cache-ttl": 60_000}))
	queues := []string{"billing", "audit"}
	for _, q := range queues {
		_, err = ch.QueueDeclare(q, true, false, false, false, nil)
		check(err)
		check(ch.QueueBind(q, "", "events", false, nil))
	}
	for _, event := range []string{"event-1", "event-2", "event-1"} {
		c, err := ch.PublishWithDeferredConfirm("events", "", true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-deduplication-header": event}, Body: []byte(event),
		})
		check(err)
		fmt.Printf("%s: confirmed %v\n", event, c.Wait())
	}
	for _, q := range queues {
		for {
			d, there, err := ch.Get(q, true)
			check(err)
			if !there {
				break
			}
			fmt.Printf("%s got %s\n", q, d.Body)
		}
		_, err = ch.QueueDelete(q, false, false, false)
		check(err)
	}

	check(ch.ExchangeDelete("events", false, false))
	_, err = ch.QueueDelete("payments", false, false, false)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
