// Command go shows messages that are published now and delivered later: by a queue that delays, and by an exchange that does.
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

	// Every message waits in this queue for as long as its header says, and for 100 ms if it says nothing.
	_, err = ch.QueueDeclare("reminders", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-delay": 100})
	check(err)
	sent := time.Now()
	publish(ch, "", "reminders", amqp.Publishing{Headers: amqp.Table{"x-delay": 300}, Body: []byte("tea")})
	publish(ch, "", "reminders", amqp.Publishing{Body: []byte("water")})
	in, err := ch.Consume("reminders", "", true, false, false, false, nil)
	check(err)
	came := arrivals(in, 2)
	fmt.Println("water, after 100 ms:", came["water"].Sub(sent) >= 100*time.Millisecond)
	fmt.Println("tea, after 300 ms:", came["tea"].Sub(sent) >= 300*time.Millisecond)

	// With an exchange only messages that say so are late. It routes as its other type does, when the time has come.
	check(ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "topic"}))
	_, err = ch.QueueDeclare("news", true, false, false, false, nil)
	check(err)
	check(ch.QueueBind("news", "news.#", "later", false, nil))
	sent = time.Now()
	publish(ch, "later", "news.embargo", amqp.Publishing{Headers: amqp.Table{"x-delay": 200}, Body: []byte("the winner")})
	publish(ch, "later", "news", amqp.Publishing{Body: []byte("the candidates")})
	in, err = ch.Consume("news", "", true, false, false, false, nil)
	check(err)
	came = arrivals(in, 2)
	fmt.Println("the candidates, not delayed:", !came["the candidates"].IsZero())
	fmt.Println("the winner, after 200 ms:", came["the winner"].Sub(sent) >= 200*time.Millisecond)

	for _, q := range []string{"reminders", "news"} {
		_, err := ch.QueueDelete(q, false, false, false)
		check(err)
	}
	check(ch.ExchangeDelete("later", false, false))
}

// publish sends a message and waits until the broker has it.
func publish(ch *amqp.Channel, exchange, key string, m amqp.Publishing) {
	m.DeliveryMode = amqp.Persistent
	c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	check(err)
	if !c.Wait() {
		log.Fatalf("%q was not taken", m.Body)
	}
}

// arrivals is when each of n messages came, which have to come. What is due earlier comes earlier, if both are there in time.
func arrivals(in <-chan amqp.Delivery, n int) map[string]time.Time {
	came := map[string]time.Time{}
	for range n {
		select {
		case d, open := <-in:
			if !open {
				log.Fatal("the consumer was cancelled")
			}
			came[string(d.Body)] = time.Now()
		case <-time.After(time.Minute):
			log.Fatal("no delivery")
		}
	}
	return came
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
