"""A single active consumer: one gets all messages in their order, others stand ready to take its place."""
import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("ledger", durable=True, arguments={"x-queue-type": "quorum", "x-single-active-consumer": True})

    # Two processes would be two connections; two channels do for showing it.
    other = connection.channel()
    came = []

    def on_message(_, method, properties, body):
        came.append((method, body.decode()))

    other.basic_consume("ledger", on_message, consumer_tag="one")
    channel.basic_consume("ledger", on_message, consumer_tag="two")

    def delivery():
        while not came:
            connection.process_data_events(time_limit=60)
        return came.pop(0)

    for body in ["a", "b"]:
        channel.basic_publish("", "ledger", body.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)
    method, body = delivery()
    print("%s: %s" % (method.consumer_tag, body))
    other.basic_ack(method.delivery_tag)
    method, body = delivery()
    print("%s: %s, and ends before it is done" % (method.consumer_tag, body))
    other.close()

    method, body = delivery()
    print("%s: %s (redelivered: %s)" % (method.consumer_tag, body, str(method.redelivered).lower()))
    channel.basic_ack(method.delivery_tag)

    channel.queue_delete("ledger")
    connection.close()


main()
