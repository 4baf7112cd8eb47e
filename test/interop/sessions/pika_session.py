"""A session with pika. Prints "ok NAME" or "not ok NAME: why" for each step.

Debian's package is for Debian's interpreter: run it with /usr/bin/python3.
"""
import sys
import time
import traceback

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

PARAMETERS = pika.URLParameters(sys.argv[1])
failed = False


def connect():
    return pika.BlockingConnection(PARAMETERS)


def get(ch, queue, auto_ack=True):
    for _ in range(100):
        method, properties, body = ch.basic_get(queue, auto_ack=auto_ack)
        if method:
            return method, properties, body
        time.sleep(0.05)
    raise AssertionError("queue %s stays empty" % queue)


def publish_with_confirms(ch):
    ch.confirm_delivery()
    ch.queue_declare("pika.confirms", durable=True)
    for i in range(200):
        ch.basic_publish("", "pika.confirms", b"%d" % i, pika.BasicProperties(delivery_mode=2), mandatory=True)
    assert ch.queue_declare("pika.confirms", passive=True).method.message_count == 200
    ch.queue_delete("pika.confirms")


def consume_and_ack(ch):
    ch.queue_declare("pika.consume")
    for i in range(20):
        ch.basic_publish("", "pika.consume", b"%d" % i)
    got = []
    for method, _, body in ch.consume("pika.consume", inactivity_timeout=10):
        got.append(int(body))
        ch.basic_ack(method.delivery_tag, multiple=len(got) == 20)
        if len(got) == 20:
            break
    assert ch.cancel() == 0
    assert got == list(range(20)), got
    assert ch.queue_declare("pika.consume", passive=True).method.message_count == 0
    ch.queue_delete("pika.consume")


def nack_and_reject(ch):
    ch.queue_declare("pika.nack", exclusive=True)
    ch.basic_publish("", "pika.nack", b"a")
    ch.basic_publish("", "pika.nack", b"b")
    method, _, body = get(ch, "pika.nack", False)
    assert (method.redelivered, body) == (False, b"a")
    ch.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = get(ch, "pika.nack", False)
    assert (method.redelivered, body) == (True, b"a")
    ch.basic_reject(method.delivery_tag, requeue=False)
    method, _, body = get(ch, "pika.nack")
    assert (method.redelivered, body) == (False, b"b")


def exchange_kinds(ch):
    for kind, key, arguments, headers, hit in [
        ("direct", "k", None, None, "k"),
        ("fanout", "", None, None, "whatever"),
        ("topic", "a.*.c.#", None, None, "a.b.c.d"),
        ("headers", "", {"x-match": "all", "a": 1}, {"a": 1, "b": "2"}, ""),
    ]:
        exchange = "pika." + kind
        ch.exchange_declare(exchange, kind, auto_delete=True)
        queue = ch.queue_declare("", exclusive=True).method.queue
        ch.queue_bind(queue, exchange, key, arguments)
        ch.basic_publish(exchange, hit, b"x", pika.BasicProperties(headers=headers))
        method, properties, body = get(ch, queue)
        assert (method.exchange, method.routing_key, body) == (exchange, hit, b"x")
        ch.queue_unbind(queue, exchange, key, arguments)


def returns(ch):
    ch.confirm_delivery()
    try:
        ch.basic_publish("amq.direct", "pika.nowhere", b"back", mandatory=True)
    except UnroutableError as e:
        assert e.messages[0].body == b"back" and e.messages[0].method.reply_code == 312
    else:
        raise AssertionError("not returned")


def transactions(ch):
    ch.queue_declare("pika.tx", exclusive=True)
    ch.tx_select()
    ch.basic_publish("", "pika.tx", b"rolled back")
    ch.tx_rollback()
    ch.basic_publish("", "pika.tx", b"committed")
    assert ch.queue_declare("pika.tx", passive=True).method.message_count == 0
    ch.tx_commit()
    assert get(ch, "pika.tx")[2] == b"committed"


def prefetch(ch):
    ch.queue_declare("pika.prefetch", exclusive=True)
    for i in range(5):
        ch.basic_publish("", "pika.prefetch", b"%d" % i)
    ch.basic_qos(prefetch_count=2)
    got = []
    ch.basic_consume("pika.prefetch", lambda c, m, p, b: got.append(m.delivery_tag))
    end = time.time() + 10
    while len(got) < 2 and time.time() < end:
        ch.connection.process_data_events(0.1)
    ch.connection.process_data_events(0.2)
    assert len(got) == 2, got
    ch.basic_ack(got[1], multiple=True)
    while len(got) < 4 and time.time() < end:
        ch.connection.process_data_events(0.1)
    assert len(got) == 4, got


def properties_round_trip(ch):
    ch.queue_declare("pika.properties", exclusive=True)
    sent = pika.BasicProperties(
        content_type="text/plain", content_encoding="utf-8", delivery_mode=2, priority=5, correlation_id="c", reply_to="r",
        message_id="m", timestamp=1700000000, type="t", user_id=PARAMETERS.credentials.username, app_id="a",
        headers={"s": "text", "i": 7, "big": 2**40, "b": True, "none": None, "list": [1, "two"], "table": {"k": "v"}},
    )
    ch.basic_publish("", "pika.properties", "grüße".encode(), sent)
    method, got, body = get(ch, "pika.properties")
    assert body.decode() == "grüße"
    assert vars(got) == vars(sent), (vars(got), vars(sent))


def errors(ch):
    try:
        ch.queue_declare("pika.missing", passive=True)
    except ChannelClosedByBroker as e:
        assert e.reply_code == 404, e
    else:
        raise AssertionError("no error")
    assert ch.connection.is_open
    ch.connection.channel().queue_declare("", exclusive=True)


def reconnect(ch):
    ch.queue_declare("pika.reconnect", durable=True)
    ch.confirm_delivery()
    for i in range(3):
        ch.basic_publish("", "pika.reconnect", b"%d" % i, pika.BasicProperties(delivery_mode=2))
    for _ in range(2):
        get(ch, "pika.reconnect", False)
    ch.connection.close()
    connection = connect()
    ch = connection.channel()
    got = [(m.redelivered, b) for m, _, b in (get(ch, "pika.reconnect") for _ in range(3))]
    assert got == [(True, b"0"), (True, b"1"), (False, b"2")], got
    ch.queue_delete("pika.reconnect")
    connection.close()


def large(ch):
    ch.queue_declare("pika.large", exclusive=True)
    body = bytes(range(256)) * 8192
    ch.basic_publish("", "pika.large", body)
    assert get(ch, "pika.large")[2] == body


for step in [publish_with_confirms, consume_and_ack, nack_and_reject, exchange_kinds, returns, transactions, prefetch,
             properties_round_trip, errors, reconnect, large]:
    connection = connect()
    try:
        step(connection.channel())
        print("ok", step.__name__)
    except Exception as e:
        print("not ok %s: %s" % (step.__name__, repr(e)))
        traceback.print_exc()
    finally:
        if connection.is_open:
            connection.close()
