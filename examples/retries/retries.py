"""What becomes of a message that fails: it is tried again, a little later each time, and set aside when it goes on failing."""
import os
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("calls.failed", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare("calls", durable=True, arguments={
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,             # two more tries, then it is a dead letter
        "x-delayed-retry-type": "failed",  # who failed waits; what is only given back does not
        "x-delayed-retry-min": 50,         # milliseconds, times the number of failures
        "x-delayed-retry-max": 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "calls.failed",
    })

    channel.basic_publish("", "calls", b"hello", pika.BasicProperties(delivery_mode=2), mandatory=True)
    calls = take(channel, "calls", auto_ack=False)

    # To give a message back is no failure: somebody else may do better, at once.
    method, _, _ = next(calls)
    print("first delivery, given back")
    channel.basic_nack(method.delivery_tag, requeue=True)

    last = time.monotonic()
    for _ in range(3):
        method, properties, _ = next(calls)
        failures = properties.headers.get("x-delivery-count", 0)  # before the first time it is not there
        waited = time.monotonic() - last >= failures * 0.05
        print("delivered %d times before, failures: %d, waited long enough: %s"
              % (properties.headers["x-acquired-count"], failures, str(waited).lower()))
        last = time.monotonic()
        channel.basic_reject(method.delivery_tag, requeue=True)  # it went wrong: try again

    channel.cancel()
    _, properties, body = next(take(channel, "calls.failed"))
    print("set aside: %s (%s)" % (body.decode(), properties.headers["x-first-death-reason"]))
    channel.cancel()

    for queue in ["calls", "calls.failed"]:
        channel.queue_delete(queue)
    connection.close()


def take(channel, queue, auto_ack=True):
    """Deliveries, which have to come."""
    for method, properties, body in channel.consume(queue, auto_ack=auto_ack, inactivity_timeout=60):
        if method is None:
            raise SystemExit("no delivery")
        yield method, properties, body


main()
