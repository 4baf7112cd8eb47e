"""Messages that are published now and delivered later: by a queue that delays, and by an exchange that does."""
import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()

    def publish(exchange, key, body, headers=None):
        """Send a message and wait until the broker has it."""
        channel.basic_publish(exchange, key, body.encode(), pika.BasicProperties(delivery_mode=2, headers=headers), mandatory=True)

    # Every message waits in this queue for as long as its header says, and for 100 ms if it says nothing.
    channel.queue_declare("reminders", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-delay": 100})
    sent = time.monotonic()
    publish("", "reminders", "tea", {"x-delay": 300})
    publish("", "reminders", "water")
    reminders = take(channel, "reminders")
    for wait in [100, 300]:
        _, _, body = next(reminders)
        print("%s, after %d ms: %s" % (body.decode(), wait, str(time.monotonic() - sent >= wait / 1000).lower()))
    channel.cancel()

    # With an exchange only messages that say so are late. It routes as its other type does, when the time has come.
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
    channel.queue_declare("news", durable=True)
    channel.queue_bind("news", "later", "news.#")
    sent = time.monotonic()
    publish("later", "news.embargo", "the winner", {"x-delay": 200})
    publish("later", "news", "the candidates")
    news = take(channel, "news")
    print("%s, at once" % next(news)[2].decode())
    _, _, body = next(news)
    print("%s, after 200 ms: %s" % (body.decode(), str(time.monotonic() - sent >= 0.2).lower()))
    channel.cancel()

    for queue in ["reminders", "news"]:
        channel.queue_delete(queue)
    channel.exchange_delete("later")
    connection.close()


def take(channel, queue, auto_ack=True):
    """Deliveries, which have to come."""
    for method, properties, body in channel.consume(queue, auto_ack=auto_ack, inactivity_timeout=60):
        if method is None:
            raise SystemExit("no delivery")
        yield method, properties, body


main()
