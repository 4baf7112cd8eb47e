package topology

import (
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The queue of the orders, and the one of those that nobody could handle.
const (
	Orders = "shop.orders"
	Dead   = "shop.orders.dead"
)

// URL is where the broker is: AMQP_URL says, or it is on this machine.
func URL() string {
	if url := os.Getenv("AMQP_URL"); url != "" {
		return url
	}
	return "amqp://guest:guest@localhost:5672/%2F"
}

// Declare makes sure that both queues are there. Publisher and consumer do it both, so that neither has to wait for the other; it
// changes nothing when they are.
func Declare(ch *amqp.Channel) error {
	if _, err := ch.QueueDeclare(Dead, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return err
	}
	_, err := ch.QueueDeclare(Orders, true, false, false, false, amqp.Table{
		"x-queue-type":              "quorum", // survives the loss of a node
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": Dead,
		"x-dead-letter-strategy":    "at-least-once", // a dead letter stays where it is until it has arrived
		"x-overflow":                "reject-publish",
		"x-max-length":              100_000, // then publishers have to wait
		"x-delivery-limit":          1,       // one more try
		"x-delayed-retry-type":      "failed",
		"x-delayed-retry-min":       100, // milliseconds
	})
	return err
}
