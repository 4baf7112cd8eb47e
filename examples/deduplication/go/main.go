// Command go shows a queue that takes each message once: a publisher that does not know whether a message has arrived sends it again.
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

	_, err = ch.QueueDelete("payments", false, false, false)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
