"""Handles orders, each of them once, whatever happens to it, to them, or to the broker."""
import collections
import logging
import time

import pika
from pika.exceptions import AMQPError

import topology

ORDERS = 6  # to handle here; a real consumer goes on for ever


class Nonsense(Exception):
    """This is no order, and will never be one."""


class TryAgain(Exception):
    """The warehouse does not answer."""


class Shop:
    """What orders are handled in.

    In a real one the ids that were seen are rows of the database in which the order is written, in the same transaction: so both
    are there, or neither.
    """

    def __init__(self):
        self.seen = set()
        self.asked = collections.Counter()
        self.report = []

    def handle(self, message_id, text):
        """Carry out one order."""
        if not text.split()[0].isdigit():
            raise Nonsense()
        self.asked[message_id] += 1
        if "unsure" in text and self.asked[message_id] < 2 or "nobody" in text:
            raise TryAgain()
        self.seen.add(message_id)
        self.report.append("%s: %s" % (message_id, text))


def consume(shop):
    """Handle orders until all are done with, or the connection is lost. What is not acknowledged then comes again."""
    connection = pika.BlockingConnection(topology.PARAMETERS)
    channel = connection.channel()
    topology.declare(channel)
    channel.basic_qos(prefetch_count=10)  # so many at a time; the rest is for others

    def on_order(_, method, properties, body):
        """Handle a delivery and settle it, always after the work."""
        if properties.message_id in shop.seen:
            shop.report.append("%s is known" % properties.message_id)
        else:
            try:
                shop.handle(properties.message_id, body.decode())
            except Nonsense:
                channel.basic_reject(method.delivery_tag, requeue=False)  # to the dead letters
                return
            except TryAgain:
                channel.basic_reject(method.delivery_tag, requeue=True)  # once more, a little later; then to the dead letters
                return
        channel.basic_ack(method.delivery_tag)

    def on_dead(_, method, properties, _body):
        shop.report.append("%s is set aside: %s" % (properties.message_id, properties.headers["x-first-death-reason"]))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(topology.ORDERS, on_order)
    channel.basic_consume(topology.DEAD, on_dead)
    while len(shop.report) < ORDERS:
        connection.process_data_events(time_limit=60)
    for queue in [topology.ORDERS, topology.DEAD]:  # this is an example
        channel.queue_delete(queue)
    connection.close()


def main():
    shop = Shop()
    wait = 0.1
    while True:
        try:
            consume(shop)
            break
        except AMQPError as error:
            logging.warning("%r; once more in %.1f s", error, wait)
            time.sleep(wait)
            wait = min(2 * wait, 10)
    for line in sorted(shop.report):  # an order that is tried again is handled after others
        print(line)


main()
