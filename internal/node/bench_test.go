package node

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
)

// BenchmarkStart is the start of a node with 100,000 durable queues, of which
// every tenth has a message.
func BenchmarkStart(b *testing.B) {
	const queues = 100_000
	p := newPlace(b)
	n := p.run(b)
	ch := open(b, n)
	for i := range queues {
		name := fmt.Sprint(i)
		if err := n.Broker().AdminDeclareQueue(broker.AdminQueue{VHost: "/", Name: name, Durable: true}); err != nil {
			b.Fatal(err)
		}
		if i%10 == 0 {
			if err := ch.Publish("", name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(name)}); err != nil {
				b.Fatal(err)
			}
		}
	}
	send(b, ch, "0", amqp.Persistent, "last")
	stop(b, n)
	for b.Loop() {
		n := p.run(b)
		if n.Report().Queues != queues {
			b.Fatal(n.Report().Queues)
		}
		b.StopTimer()
		stop(b, n)
		b.StartTimer()
	}
}
