// Command go shows the two ways of a queue that may not grow: it lets the oldest messages go, or it refuses new ones.
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

	// The latest three readings are all that counts.
	_, err = ch.QueueDeclare("readings", true, false, false, false, amqp.Table{"x-max-length": 3})
	check(err)
	for n := 1; n <= 5; n++ {
		fmt.Printf("reading %d: %s\n", n, publish(ch, "readings", fmt.Sprint("reading ", n)))
	}
	fmt.Println("the oldest that is left:", first(ch, "readings"))

	// No job may be lost: who is too fast is told so, and may try again later.
	_, err = ch.QueueDeclare("jobs", true, false, false, false, amqp.Table{
		"x-queue-type":       "quorum",
		"x-max-length":       3,
		"x-max-length-bytes": 1_000_000, // of bodies
		"x-overflow":         "reject-publish",
	})
	check(err)
	for n := 1; n <= 5; n++ {
		fmt.Printf("job %d: %s\n", n, publish(ch, "jobs", fmt.Sprint("job ", n)))
	}
	fmt.Println("the first one to do:", first(ch, "jobs"))
	fmt.Printf("job 4: %s\n", publish(ch, "jobs", "job 4"))

	for _, q := range []string{"readings", "jobs"} {
		_, err := ch.QueueDelete(q, false, false, false)
		check(err)
	}
}

// publish says what became of a publish: a nack means that a queue did not take it.
func publish(ch *amqp.Channel, queue, body string) string {
	c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
	check(err)
	if c.Wait() {
		return "taken"
	}
	return "refused"
}

// first takes the first message of a queue.
func first(ch *amqp.Channel, queue string) string {
	d, there, err := ch.Get(queue, true)
	check(err)
	if !there {
		log.Fatalf("%s is empty", queue)
	}
	return string(d.Body)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
