"""A session with Celery: a real worker, in a process of its own. Prints "ok NAME" or "not ok NAME: why" for each step.

Run as "celery_session.py URL" it is the client, and starts workers as "celery_session.py URL worker NAME QUEUE POOL".
Debian's package is for Debian's interpreter: run it with /usr/bin/python3.
"""
import os
import signal
import subprocess
import sys
import time
import traceback

from celery import Celery
from celery.exceptions import TaskRevokedError
from kombu import Queue

URL = sys.argv[1]
WAIT = 60

app = Celery("session", broker=URL, backend="rpc://")
app.conf.update(
    task_queues=[Queue(q) for q in ("celery.plain", "celery.late")] + [Queue("celery.priority", max_priority=10)],
    task_default_queue="celery.plain",
    task_create_missing_queues=False,
    broker_transport_options={"confirm_publish": True},
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="add")
def add(a, b):
    return a + b


@app.task(name="flaky", bind=True, max_retries=3)
def flaky(self, failures):
    """Fails so often before it succeeds, and tells how often it was retried."""
    if self.request.retries < failures:
        raise self.retry(countdown=0.2, exc=ValueError("not now"))
    return self.request.retries


@app.task(name="started")
def started():
    return time.time()


@app.task(name="sleep")
def sleep(seconds):
    time.sleep(seconds)


@app.task(name="order")
def order():
    """Which of the tasks of this worker it is."""
    order.count = getattr(order, "count", 0) + 1
    return order.count


@app.task(name="late", bind=True, acks_late=True)
def late(self):
    """Takes for ever at the first delivery."""
    if not self.request.delivery_info["redelivered"]:
        time.sleep(3600)
    return "done"


class Worker:
    """A worker process for one queue. It is ready when it answers."""

    def __init__(self, name, queue, pool="prefork"):
        self.name = "%s@session" % name
        self.process = subprocess.Popen([sys.executable, __file__, URL, "worker", self.name, queue, pool], start_new_session=True,
                                        stdout=sys.stderr)

    def __enter__(self):
        end = time.time() + WAIT
        while not app.control.ping(destination=[self.name], timeout=0.5):
            assert time.time() < end and self.process.poll() is None, "the worker does not start"
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        self.process.wait(WAIT)

    def kill(self):
        """Kill the worker with all its children: they are a group of their own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT)


def results(_):
    assert [add.delay(n, n).get(WAIT) for n in range(20)] == [2 * n for n in range(20)]


def retries(_):
    assert flaky.delay(2).get(WAIT) == 2
    r = flaky.delay(9)
    try:
        r.get(WAIT)
        raise AssertionError("it did not fail")
    except ValueError:
        assert r.state == "FAILURE", r.state


def eta(_):
    sent = time.time()
    later = started.apply_async(countdown=1.5)
    assert started.delay().get(WAIT) < sent + 1.5, "what is later keeps back what is not"
    assert later.get(WAIT) >= sent + 1.5


def revoke(worker):
    waiting = started.apply_async(countdown=2)
    app.control.revoke(waiting.id, destination=[worker.name], reply=True, timeout=WAIT)
    running = sleep.delay(3600)
    end = time.time() + WAIT
    while not any(t["id"] == running.id for t in (app.control.inspect([worker.name]).active() or {}).get(worker.name, [])):
        assert time.time() < end, "the task does not start"
    app.control.revoke(running.id, terminate=True, destination=[worker.name], reply=True, timeout=WAIT)
    for r in (waiting, running):
        try:
            r.get(WAIT)
            raise AssertionError("it was not revoked")
        except TaskRevokedError:
            pass


def inspect(worker):
    queues = app.control.inspect([worker.name]).active_queues()[worker.name]
    assert [q["name"] for q in queues] == ["celery.plain"], queues


def priorities():
    sent = {p: order.apply_async(queue="celery.priority", priority=p) for p in (1, 9, 5)}
    with Worker("one", "celery.priority", "solo"):
        got = {p: r.get(WAIT) for p, r in sent.items()}
    assert got == {9: 1, 5: 2, 1: 3}, got


def worker_lost():
    with Worker("first", "celery.late") as first:
        r = late.apply_async(queue="celery.late")
        end = time.time() + WAIT
        while not app.control.inspect([first.name]).active().get(first.name):
            assert time.time() < end, "the task does not start"
        first.kill()
    with Worker("second", "celery.late"):
        assert r.get(WAIT) == "done"


def step(name, do, *args):
    try:
        do(*args)
        print("ok", name, flush=True)
    except Exception as e:
        print("not ok %s: %s" % (name, repr(e)), flush=True)
        traceback.print_exc()


def main():
    if len(sys.argv) > 2:
        _, _, _, name, queue, pool = sys.argv
        app.worker_main(["worker", "-n", name, "-Q", queue, "-P", pool, "-c", "2", "-l", "INFO"])
        return
    with Worker("main", "celery.plain") as worker:
        for do in (results, retries, eta, revoke, inspect):
            step(do.__name__, do, worker)
    step("priorities", priorities)
    step("worker_lost", worker_lost)


main()
