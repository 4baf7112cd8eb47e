"""Times to live: of a message, of all messages of a queue, and of a queue that nobody uses."""
import os
import time

import pika
from pika.exceptions import UnroutableError

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()

    # No offer is good for longer than a minute. What has expired is a dead letter here, so that it can be seen.
    channel.queue_declare("offers.expired", durable=True)
    channel.queue_declare("offers", durable=True, arguments={
        "x-message-ttl": 60000,  # milliseconds
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "offers.expired",
    })

    channel.confirm_delivery()
    publish(channel, "offers", "today only", "100")  # the shorter time counts
    publish(channel, "offers", "all week")

    properties, body = next(take(channel, "offers.expired"))
    why = properties.headers["x-death"][0]
    print("expired: %s (%s, it had %s ms)" % (body.decode(), why["reason"], why["original-expiration"]))
    channel.cancel()

    offers = take(channel, "offers")
    print("still there:", next(offers)[1].decode())

    # With a time to live of 0 a message is for who is there.
    publish(channel, "offers", "for the consumer", "0")
    print("at once:", next(offers)[1].decode())
    channel.cancel()

    # A queue that has no consumer and is not asked for anything goes after a while, with what is in it.
    channel.queue_declare("replies", durable=True, arguments={"x-expires": 100})
    try:
        while True:
            publish(channel, "replies", "anybody there?")  # which is no use; a declare of any kind would be one
            time.sleep(0.05)
    except UnroutableError:
        print("gone: replies")

    for queue in ["offers", "offers.expired"]:
        channel.queue_delete(queue)
    connection.close()


def publish(channel, queue, body, ttl=None):
    """Put a message into a queue, with a time to live in milliseconds, and wait until it is there."""
    channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2, expiration=ttl), mandatory=True)


def take(channel, queue):
    """Deliveries, which have to come."""
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):
        if method is None:
            raise SystemExit("no delivery")
        yield properties, body


main()
