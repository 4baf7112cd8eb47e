"""What a publisher hears when the broker runs short of memory: it is blocked, and goes on when there is room again.

With pika that takes an asynchronous connection: a BlockingConnection tells of it only while it processes events, which it does
not while basic_publish waits for the broker.
"""
import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
BODY = bytes(1 << 20)
MOST = 1024  # a broker that has room for so many is not the one that this example is for


class Flood:
    """Publishes one message after the other, each when the one before is confirmed."""

    def __init__(self):
        self.channel = None
        self.unblocked = False
        self.published = 0
        # A consumer has a connection of its own: the one that publishes is not read while it is blocked.
        self.other = pika.BlockingConnection(pika.URLParameters(URL))
        self.drain = self.other.channel()
        self.drain.queue_declare("flood")
        self.connection = pika.SelectConnection(
            pika.URLParameters(URL), on_open_callback=self.opened, on_close_callback=lambda connection, _: connection.ioloop.stop())
        self.connection.add_on_connection_blocked_callback(self.on_blocked)
        self.connection.add_on_connection_unblocked_callback(self.on_unblocked)

    def opened(self, connection):
        connection.channel(on_open_callback=self.ready)

    def ready(self, channel):
        self.channel = channel
        channel.confirm_delivery(self.confirmed, callback=lambda _: self.publish())

    def publish(self):
        if self.published == MOST:
            self.drain.queue_delete("flood")
            raise SystemExit("the broker has more memory than this example fills: start it with holdfast.conf")
        self.published += 1
        # What is transient, and whose queue is not durable, waits in memory.
        self.channel.basic_publish("", "flood", BODY, mandatory=True)

    def on_blocked(self, _connection, _method):
        print("blocked: true")
        self.drain.queue_purge("flood")

    def on_unblocked(self, _connection, _method):
        print("blocked: false")
        self.unblocked = True

    def confirmed(self, frame):
        assert isinstance(frame.method, pika.spec.Basic.Ack), "the last one was not taken"
        if not self.unblocked:
            self.publish()
            return
        print("the last message is confirmed")
        self.connection.close()

    def run(self):
        self.connection.ioloop.start()
        self.drain.queue_delete("flood")
        self.other.close()


Flood().run()
