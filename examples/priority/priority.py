"""Priorities: of messages in a classic and in a quorum queue, and of consumers."""
import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()

    # A classic queue has the levels that it is declared with: 0, if a message names none, to 5 here.
    channel.queue_declare("mail", durable=True, arguments={"x-max-priority": 5})
    # A quorum queue has 32, and a message that names none has the fifth: 4.
    channel.queue_declare("mail.safe", durable=True, arguments={"x-queue-type": "quorum"})
    for queue in ["mail", "mail.safe"]:
        publish(channel, queue, "newsletter", 1)
        publish(channel, queue, "urgent", 5)
        messages = take(channel, queue)
        print("%s: %s, then %s" % (queue, next(messages)[2].decode(), next(messages)[2].decode()))
        channel.cancel()

    # Messages go to the consumer of the highest priority that has room, to others only while it has none.
    channel.basic_qos(prefetch_count=1)  # room for one
    channel.queue_declare("work", durable=True)
    came = []

    def on_message(_, method, properties, body):
        came.append((method.consumer_tag, method.delivery_tag, body.decode()))

    channel.basic_consume("work", on_message, consumer_tag="spare", arguments={"x-priority": -1})
    channel.basic_consume("work", on_message, consumer_tag="first", arguments={"x-priority": 10})

    def send(body):
        """Publish, and wait for the delivery."""
        publish(channel, "work", body)
        while not came:
            connection.process_data_events(time_limit=60)
        return came.pop()

    one = send("one")
    print("%s is for the %s" % (one[2], one[0]))
    two = send("two")
    print("%s is for the %s, as the other one is busy" % (two[2], two[0]))
    channel.basic_ack(two[1])
    channel.basic_ack(one[1])
    three = send("three")
    print("%s is for the %s again" % (three[2], three[0]))

    for queue in ["mail", "mail.safe", "work"]:
        channel.queue_delete(queue)
    connection.close()


def publish(channel, queue, body, priority=None):
    """Put a message into a queue and wait until it is there."""
    channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2, priority=priority), mandatory=True)


def take(channel, queue, auto_ack=True):
    """Deliveries, which have to come."""
    for method, properties, body in channel.consume(queue, auto_ack=auto_ack, inactivity_timeout=60):
        if method is None:
            raise SystemExit("no delivery")
        yield method, properties, body


main()
