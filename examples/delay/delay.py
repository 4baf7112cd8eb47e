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
    came = arrivals(channel, "reminders", 2)
    print("water, after 100 ms:", lower(came["water"] - sent >= 0.1))
    print("tea, after 300 ms:", lower(came["tea"] - sent >= 0.3))

    # With an exchange only messages that say so are late. It routes as its other type does, when the time has come.
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
    channel.queue_declare("news", durable=True)
    channel.queue_bind("news", "later", "news.#")
    sent = time.monotonic()
    publish("later", "news.embargo", "the winner", {"x-delay": 200})
    publish("later", "news", "the candidates")
    came = arrivals(channel, "news", 2)
    print("the candidates, not delayed:", lower("the candidates" in came))
    print("the winner, after 200 ms:", lower(came["the winner"] - sent >= 0.2))

    for queue in ["reminders", "news"]:
        channel.queue_delete(queue)
    channel.exchange_delete("later")
    connection.close()


def arrivals(channel, queue, n):
    """When each of n messages came, which have to come. What is due earlier comes earlier, if both are there in time."""
    came = {}
    for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=60):
        if method is None:
            raise SystemExit("no delivery")
        came[body.decode()] = time.monotonic()
        if len(came) == n:
            break
    channel.cancel()
    return came


def lower(is_so):
    return str(is_so).lower()


main()
