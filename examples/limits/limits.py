"""The two ways of a queue that may not grow: it lets the oldest messages go, or it refuses new ones."""
import os

import pika
from pika.exceptions import NackError

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()

    # The latest three readings are all that counts.
    channel.queue_declare("readings", durable=True, arguments={"x-max-length": 3})
    for n in range(1, 6):
        print("reading %d: %s" % (n, publish(channel, "readings", "reading %d" % n)))
    print("the oldest that is left:", first(channel, "readings"))

    # No job may be lost: who is too fast is told so, and may try again later.
    channel.queue_declare("jobs", durable=True, arguments={
        "x-queue-type": "quorum",
        "x-max-length": 3,
        "x-max-length-bytes": 1000000,  # of bodies
        "x-overflow": "reject-publish",
    })
    for n in range(1, 6):
        print("job %d: %s" % (n, publish(channel, "jobs", "job %d" % n)))
    print("the first one to do:", first(channel, "jobs"))
    print("job 4: %s" % publish(channel, "jobs", "job 4"))

    for queue in ["readings", "jobs"]:
        channel.queue_delete(queue)
    connection.close()


def publish(channel, queue, body):
    """What became of a publish: a nack means that a queue did not take it."""
    try:
        channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)
    except NackError:
        return "refused"
    return "taken"


def first(channel, queue):
    """Take the first message of a queue."""
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert method, queue + " is empty"
    return body.decode()


main()
