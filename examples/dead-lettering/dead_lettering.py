"""Dead letters: what a consumer rejects goes to another queue, and says why it is there."""
import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()

    # Where dead letters go: an exchange, and a queue that gets all of them.
    channel.exchange_declare("orders.dlx", "fanout", durable=True)
    channel.queue_declare("orders.dead", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("orders.dead", "orders.dlx")

    # The queue that they come from. A letter stays in it until it has arrived.
    channel.queue_declare("orders", durable=True, arguments={
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "orders.dlx",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # RabbitMQ wants it with at-least-once
    })

    channel.confirm_delivery()  # basic_publish waits for the confirm, and raises if there is none
    for body in ["12 apples", "no number at all", "7 pears"]:
        channel.basic_publish("", "orders", body.encode(), PERSISTENT, mandatory=True)

    for method, _, body in take(channel, "orders", 3):
        if not body.split()[0].isdigit():
            channel.basic_reject(method.delivery_tag, requeue=False)  # it will not be better the next time
            continue
        print("handled:", body.decode())
        channel.basic_ack(method.delivery_tag)

    for method, properties, body in take(channel, "orders.dead", 1):
        why = properties.headers["x-death"][0]  # the latest first
        print("dead: %s (%s in %s, %d time)" % (body.decode(), why["reason"], why["queue"], why["count"]))
        channel.basic_ack(method.delivery_tag)

    for queue in ["orders", "orders.dead"]:
        channel.queue_delete(queue)
    channel.exchange_delete("orders.dlx")
    connection.close()


def take(channel, queue, count):
    """The next deliveries, which have to come."""
    for method, properties, body in channel.consume(queue, inactivity_timeout=60):
        if method is None:
            raise SystemExit("no delivery")
        yield method, properties, body
        count -= 1
        if count == 0:
            break
    channel.cancel()


main()
