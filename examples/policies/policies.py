"""A policy: settings for queues that are there already, and that know nothing of them."""
import os
import shlex
import subprocess
import time

import pika

URL = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")


def main():
    connection = pika.BlockingConnection(pika.URLParameters(URL))
    channel = connection.channel()
    channel.confirm_delivery()
    for queue in ["events.a", "events.b"]:
        channel.queue_declare(queue, durable=True)
        for n in range(1, 4):
            channel.basic_publish("", queue, b"%s %d" % (queue.encode(), n), pika.BasicProperties(delivery_mode=2), mandatory=True)

    ctl("set_policy", "events", r"^events\.", '{"max-length":1}', "--apply-to", "queues")
    print(ctl("list_policies", "--quiet", "--no-table-headers"), end="")
    for queue in ["events.a", "events.b"]:
        while channel.queue_declare(queue, passive=True).method.message_count != 1:
            time.sleep(0.01)  # takes effect at once, and not in the same moment
        _, _, body = channel.basic_get(queue, auto_ack=True)
        print("the latest is kept:", body.decode())

    ctl("clear_policy", "events")
    for queue in ["events.a", "events.b"]:
        channel.queue_delete(queue)
    connection.close()


def ctl(*args):
    """Run an administrator's command: HOLDFAST_CTL says how, "holdfast ctl" if it is not set."""
    command = shlex.split(os.environ.get("HOLDFAST_CTL", "holdfast ctl"))
    return subprocess.run([*command, *args], check=True, stdout=subprocess.PIPE, text=True).stdout


main()
