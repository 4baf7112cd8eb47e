"""A session with pika against three nodes that end and come back: see cluster.go.

Publishes with confirms, one at a time, and consumes with acknowledgements; each has a connection of its own, and connects
again when that ends, to the next address. What was nacked, or had no answer, is published again under another id.
"""
import sys
import threading
import time

import pika
from pika.exceptions import AMQPError, NackError

QUEUE, URLS = sys.argv[1], sys.argv[2:]
PARAMETERS = [pika.URLParameters(u) for u in URLS]

stop = threading.Event()
finished = threading.Event()
confirmed, published_again, got, twice_unmarked = set(), {}, {}, []
failures, reconnects = 0, {"publisher": 0, "consumer": 0}
verdicts = []


def say(line):
    print(line, flush=True)


def verdict(name, good, why=""):
    verdicts.append("ok " + name if good else "not ok %s: %s" % (name, why))


def connect(who, order, first):
    if not first:
        reconnects[who] += 1
    while True:
        try:
            return pika.BlockingConnection(order)
        except (AMQPError, OSError):
            time.sleep(0.05)


def publisher():
    global failures
    number, again, first = 0, None, True
    while not stop.is_set() or again is not None:
        connection = connect("publisher", PARAMETERS, first)
        first = False
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            while not stop.is_set() or again is not None:
                name = "%d" % number if again is None else again
                try:
                    channel.basic_publish("", QUEUE, name.encode(), pika.BasicProperties(delivery_mode=2, message_id=name), mandatory=True)
                except NackError:
                    failures += 1
                    again = name + "+"
                    published_again[again] = name
                    continue
                confirmed.add(name)
                again = None
                number += 1
                if len(confirmed) % 50 == 0:
                    say("confirmed %d" % len(confirmed))
            connection.close()
        except (AMQPError, OSError):
            failures += 1
            again = name + "+" if again is None or name == again else again
            published_again[again] = name


def consumer():
    order, first = PARAMETERS[::-1], True
    while not finished.is_set():
        connection = connect("consumer", order, first)
        first = False
        try:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=20)
            for method, properties, body in channel.consume(QUEUE, inactivity_timeout=0.2):
                if finished.is_set():
                    break
                if method is None:
                    continue
                name = body.decode()
                if properties.message_id != name:
                    twice_unmarked.append("%s came as %s" % (properties.message_id, name))
                if name in got and not method.redelivered:
                    twice_unmarked.append(name)
                got[name] = got.get(name, 0) + 1
                channel.basic_ack(method.delivery_tag)
            connection.close()
        except (AMQPError, OSError):
            pass


threads = [threading.Thread(target=publisher), threading.Thread(target=consumer)]
for t in threads:
    t.start()
for word in sys.stdin:
    if word.strip() == "mark":
        verdict("the end of the leader fails no publish on another node", failures == 0 and sum(reconnects.values()) == 0,
                "%d failures, reconnects %s" % (failures, reconnects))
    elif word.strip() == "stop":
        break
stop.set()
threads[0].join(60)
end = time.time() + 60
while confirmed - got.keys() and time.time() < end:
    time.sleep(0.05)
missing = sorted(confirmed - got.keys())
verdict("nothing confirmed is lost", not missing, "%d of %d: %s" % (len(missing), len(confirmed), missing[:5]))
finished.set()
threads[1].join(60)
verdict("what comes twice says so", not twice_unmarked, "%s" % twice_unmarked[:5])
invented = [n for n in got if n not in confirmed and n not in published_again.values() and n not in published_again]
verdict("nothing comes that was not published", not invented, "%s" % invented[:5])
verdict("both connect again", reconnects["publisher"] >= 1 and reconnects["consumer"] >= 1, "%s" % reconnects)
sys.stderr.write("%d confirmed, %d published again, %d came, %d deliveries, reconnects %s\n"
                 % (len(confirmed), len(published_again), len(got), sum(got.values()), reconnects))
for line in verdicts:
    say(line)
sys.exit(0 if all(line.startswith("ok") for line in verdicts) else 1)
