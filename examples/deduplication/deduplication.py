"""A queue that takes each message once, and an exchange whose queues do: a publisher that does not know whether a message has arrived sends it again."""
import os

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()  # basic_publish waits for the confirm, and raises if there is none

    # By message id, for a minute: within that time the same id is the same message, also when it was consumed meanwhile.
    channel.queue_declare("payments", durable=True, arguments={
        "x-queue-type": "quorum",
        "x-message-deduplication": True,
        "x-deduplication-key": "message-id",
        "x-deduplication-window": 60000,  # milliseconds
    })
    for message_id in ["pay-1", "pay-2", "pay-1"]:  # the last one as after a lost connection
        channel.basic_publish("", "payments", b"", pika.BasicProperties(delivery_mode=2, message_id=message_id), mandatory=True)
        print("%s: confirmed true" % message_id)  # what is there already is there
    while True:
        method, properties, _ = channel.basic_get("payments", auto_ack=True)
        if method is None:
            break
        print("got", properties.message_id)

    # By an exchange, for all queues that are bound to it: each takes what it has not had.
    channel.exchange_declare("events", "x-message-deduplication", durable=True, arguments={"x-cache-size": 100000, "x-cache-ttl": 60000})
    for queue in ["billing", "audit"]:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "events")
    for event in ["event-1", "event-2", "event-1"]:
        channel.basic_publish("events", "", event.encode(), pika.BasicProperties(delivery_mode=2, headers={"x-deduplication-header": event}), mandatory=True)
        print("%s: confirmed true" % event)
    for queue in ["billing", "audit"]:
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                break
            print("%s got %s" % (queue, body.decode()))
        channel.queue_delete(queue)

    channel.exchange_delete("events")
    channel.queue_delete("payments")
    connection.close()


main()
