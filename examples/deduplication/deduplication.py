"""A queue that takes each message once: a publisher that does not know whether a message has arrived sends it again."""
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

    channel.queue_delete("payments")
    connection.close()


main()
