// Command go shows what a publisher hears when the broker runs short of memory: it is blocked, and goes on when there is room again.
package main

import (
	"fmt"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

// most is how many messages of a MiB are published: a broker that has room for them is not the one that this example is for.
const most = 1024

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
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 10))
	_, err = ch.QueueDeclare("flood", false, false, false, false, nil)
	check(err)

	// A consumer has a connection of its own: the one that publishes is not read while it is blocked.
	other, err := amqp.Dial(url)
	check(err)
	defer other.Close()
	drain, err := other.Channel()
	check(err)

	// What is transient, and whose queue is not durable, waits in memory.
	body := make([]byte, 1<<20)
	stop := make(chan struct{})
	ended := make(chan *amqp.DeferredConfirmation)
	go func() {
		var last *amqp.DeferredConfirmation
		for range most {
			select {
			case <-stop:
				ended <- last
				return
			default:
				c, err := ch.PublishWithDeferredConfirm("", "flood", true, false, amqp.Publishing{Body: body})
				check(err) // while it is blocked this waits, as soon as the socket is full
				last = c
			}
		}
		_, err := drain.QueueDelete("flood", false, false, false)
		check(err)
		log.Fatal("the broker has more memory than this example fills: start it with holdfast.conf")
	}()

	b := <-blocked
	fmt.Printf("blocked: %v\n", b.Active)
	close(stop)
	_, err = drain.QueuePurge("flood", false)
	check(err)
	last := <-ended
	for b.Active {
		b = <-blocked
	}
	fmt.Printf("blocked: %v\n", b.Active)
	if !last.Wait() {
		log.Fatal("the last one was not taken")
	}
	fmt.Println("the last message is confirmed")

	_, err = drain.QueueDelete("flood", false, false, false)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
