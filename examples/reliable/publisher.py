"""Sends orders, and knows of each whether the broker has it."""
import logging
import time

import pika
from pika.exceptions import AMQPError

import topology


class Publisher:
    """Has a connection, which it makes anew when it is lost."""

    def __init__(self):
        self.connection = None
        self.channel = None

    def send(self, message_id, text):
        """Publish until the broker has confirmed it.

        After a lost connection, or a nack, nobody knows whether the message is there: it is sent again under the same id, and the
        consumer tells that it has it already.
        """
        wait = 0.1
        while True:
            try:
                if self.channel is None or self.channel.is_closed:
                    self.open()
                properties = pika.BasicProperties(delivery_mode=2, message_id=message_id, timestamp=int(time.time()),
                                                  content_type="text/plain")
                self.channel.basic_publish("", topology.ORDERS, text.encode(), properties, mandatory=True)
                return
            except AMQPError as error:
                logging.warning("%s: %r; once more in %.1f s", message_id, error, wait)
                time.sleep(wait)
                wait = min(2 * wait, 10)

    def open(self):
        self.connection = pika.BlockingConnection(topology.PARAMETERS)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()  # basic_publish waits for the confirm, and raises if there is none
        topology.declare(self.channel)


def main():
    orders = [
        ("order-1", "3 apples"), ("order-2", "apples, many"), ("order-3", "5 pears, of which the warehouse is unsure"),
        ("order-4", "7 plums, of which nobody has heard"), ("order-5", "9 cherries"),
        ("order-1", "3 apples"),  # as of a publisher that did not hear the confirm
    ]
    publisher = Publisher()
    for message_id, text in orders:
        publisher.send(message_id, text)
    print("%d messages are confirmed" % len(orders))
    publisher.connection.close()


main()
