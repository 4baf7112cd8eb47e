"""What the publisher and the consumer of this example agree on: the queues and how they behave."""
import os

import pika

PARAMETERS = pika.URLParameters(os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F"))

ORDERS = "shop.orders"
DEAD = "shop.orders.dead"


def declare(channel):
    """Make sure that both queues are there.

    Publisher and consumer do it both, so that neither has to wait for the other; it changes nothing when they are.
    """
    channel.queue_declare(DEAD, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare(ORDERS, durable=True, arguments={
        "x-queue-type": "quorum",  # survives the loss of a node
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": DEAD,
        "x-dead-letter-strategy": "at-least-once",  # a dead letter stays where it is until it has arrived
        "x-overflow": "reject-publish",
        "x-max-length": 100000,  # then publishers have to wait
        "x-delivery-limit": 1,  # one more try
        "x-delayed-retry-type": "failed",
        "x-delayed-retry-min": 100,  # milliseconds
    })
