"""A session with kombu over py-amqp. Prints "ok NAME" or "not ok NAME: why" for each step.

Debian's package is for Debian's interpreter: run it with /usr/bin/python3.
"""
import socket
import sys
import time
import traceback

from amqp.exceptions import AccessRefused
from kombu import Connection, Consumer, Exchange, Producer, Queue

URL = sys.argv[1]
WAIT = 60


def connect():
    return Connection(URL, heartbeat=30, transport_options={"confirm_publish": True})


def drain(connection, queue, count, act=lambda message: message.ack()):
    """The next bodies of a queue."""
    got = []

    def on_message(body, message):
        got.append(body)
        act(message)

    with Consumer(connection.channel(), [queue], callbacks=[on_message], prefetch_count=10):
        end = time.time() + WAIT
        while len(got) < count:
            assert time.time() < end, "got %r" % got
            try:
                connection.drain_events(timeout=1)
            except socket.timeout:
                pass
    return got


def simple_queue(c):
    with c.SimpleQueue("kombu.simple") as queue:
        for n in range(10):
            queue.put({"n": n}, serializer="json", compression="zlib")
        for n in range(10):
            message = queue.get(timeout=WAIT)
            assert message.payload == {"n": n}, message.payload
            message.ack()
        assert len(queue) == 0
    Queue("kombu.simple")(c.channel()).delete()


def topic(c):
    exchange = Exchange("kombu.topic", "topic", durable=False)
    queue = Queue("kombu.topic.q", exchange, "a.#", exclusive=True)(c.channel())
    queue.declare()
    producer = Producer(c.channel(), exchange)
    for key in ("a.b", "b.a", "a"):
        producer.publish(key, routing_key=key)
    assert drain(c, queue, 2) == ["a.b", "a"]
    exchange(c.channel()).delete()


def dead_letters(c):
    dlx = Exchange("kombu.dlx", "fanout")
    dead = Queue("kombu.dead", dlx)
    source = Queue("kombu.source", message_ttl=30, max_length=100, queue_arguments={"x-dead-letter-exchange": "kombu.dlx"})
    dead, source = dead(c.channel()), source(c.channel())
    dead.declare()
    source.declare()
    producer = Producer(c.channel())
    producer.publish("rejected", routing_key="kombu.source")
    drain(c, source, 1, lambda message: message.reject())
    seen = []
    drain(c, dead, 1, lambda message: (message.ack(), seen.append(message.headers["x-death"][0]["reason"])))
    assert seen == ["rejected"], seen
    for entity in (dead, source, dlx(c.channel())):
        entity.delete()


def time_to_live(c):
    queue = Queue("kombu.ttl", expires=60, queue_arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "kombu.expired"})(c.channel())
    expired = Queue("kombu.expired")(c.channel())
    expired.declare()
    queue.declare()
    Producer(c.channel()).publish("x", routing_key="kombu.ttl", expiration=0.05)
    assert drain(c, expired, 1) == ["x"]
    queue.delete()
    expired.delete()


def priorities(c):
    queue = Queue("kombu.priority", max_priority=5)(c.channel())
    queue.declare()
    producer = Producer(c.channel())
    for priority in (1, 5, 3):
        producer.publish(priority, routing_key="kombu.priority", priority=priority)
    assert drain(c, queue, 3) == [5, 3, 1]
    queue.delete()


def length_limit(c):
    queue = Queue("kombu.limit", max_length=2)(c.channel())
    queue.declare()
    producer = Producer(c.channel())
    for n in range(5):
        producer.publish(n, routing_key="kombu.limit")
    assert drain(c, queue, 2) == [3, 4]
    queue.delete()


def requeue(c):
    queue = Queue("kombu.requeue")(c.channel())
    queue.declare()
    Producer(c.channel()).publish("x", routing_key="kombu.requeue")
    seen = []

    def act(message):
        seen.append(message.delivery_info["redelivered"])
        if len(seen) == 1:
            message.requeue()
        else:
            message.ack()

    assert drain(c, queue, 2, act) == ["x", "x"]
    assert seen == [False, True], seen
    queue.delete()


def reconnect(c):
    """A producer that retries makes the connection and what it declares anew."""
    queue = Queue("kombu.reconnect", durable=True)
    producer = c.Producer()
    producer.publish("one", routing_key="kombu.reconnect", declare=[queue], retry=True)
    c.default_channel.connection.transport.sock.shutdown(socket.SHUT_RDWR)
    producer.publish("two", routing_key="kombu.reconnect", declare=[queue], retry=True, retry_policy={"interval_start": 0.1})
    with connect() as other:
        assert drain(other, queue, 2) == ["one", "two"]
        queue(other.channel()).delete()


def wrong_password(c):
    with c.clone(password="wrong") as wrong:
        try:
            wrong.connect()
            raise AssertionError("let in")
        except AccessRefused:
            pass


for step in [simple_queue, topic, dead_letters, time_to_live, priorities, length_limit, requeue, reconnect, wrong_password]:
    connection = connect()
    try:
        step(connection)
        print("ok", step.__name__)
    except Exception as e:
        print("not ok %s: %s" % (step.__name__, repr(e)))
        traceback.print_exc()
    finally:
        connection.release()
